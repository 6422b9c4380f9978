"""Settings that all tests share, and what is looked at when all are done."""

import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests import rights

# The same examples every time: a failure on one machine is a failure on all.
settings.register_profile("stower", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("stower")
FAULTS = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """See pytest."""
    parser.addoption("--all-rights", action="store_true", help="see tests/rights.py")


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    """See pytest. Workers inherit the folder of their controller."""
    os.environ.pop("COLUMNS", None)
    os.unsetenv("COLUMNS")  # readline sets it beside os.environ, and processes inherit it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in a shell's background; what tests start has to hear of Ctrl-C all the same.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not _is_worker(config):
        os.environ[rights.VARIABLE] = tempfile.mkdtemp(prefix="stower-audit-")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """See pytest."""
    if _is_worker(session.config):
        return
    folder = Path(os.environ.pop(rights.VARIABLE))
    found = rights.faults(folder, session.config.getoption("--all-rights"))
    shutil.rmtree(folder)
    session.config.stash[FAULTS] = found
    if found and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """See pytest."""
    for fault in config.stash.get(FAULTS, []):
        terminalreporter.write_line(f"FAILED rights: {fault}", red=True)
