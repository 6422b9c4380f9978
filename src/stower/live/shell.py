"""What both shells have: a clock that never goes back, and a word for what stops them."""

import time


class ShellError(Exception):
    """A shell cannot run; the text says why, in one line."""


class Clock:
    """Nanoseconds since the epoch that never go back, whatever is done to the wall's clock."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ns(self) -> int:
        """Now."""
        return time.monotonic_ns() + self._offset_ns
