"""Runs a verb of `stower` in the process of the test.

For verbs that reject their input: a process of its own costs a second of CPU for each. A module
that uses this runs at least one rejected verb as a process too.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from typer.testing import CliRunner

from stower.cli.logs import LEVELS
from stower.cli.main import app


def stower_in_process(*arguments: str) -> tuple[int, str, str]:
    """Returns exit code, standard output and standard error, as a process has them."""
    with _logging_restored():
        result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@contextmanager
def _logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, levels = root.handlers[:], [(root, root.level)]
    levels += [(logger, logger.level) for logger in map(logging.getLogger, LEVELS)]
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for logger, level in levels:
            logger.setLevel(level)
