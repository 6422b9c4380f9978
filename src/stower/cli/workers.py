"""Sets up the worker processes of a verb, which ignore SIGINT."""

import signal


def quiet() -> None:
    """An interrupt is for the verb to tell of, and not for each of its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
