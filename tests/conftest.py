"""Settings that all tests share, and what is looked at when all are done."""

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import settings

from stower.engine.internal_errors import InternalErrors
from stower.garbage import collect_rarely
from tests import rights

collect_rarely()
# The same examples every time: a failure on one machine is a failure on all.
settings.register_profile("stower", derandomize=True, deadline=None, print_blob=True)
settings.load_profile("stower")
# Tests under these folders take longest, those of contract because they wait for processes.
LONGEST: Final = ("contract", "sim", "negotiation", "property", "golden")
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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each worker begins with its share of the longest tests.

    Every worker starts with one contiguous part of the items, all parts of one size, and takes
    tests from the end of another's part when its own is done. Files stay whole: what a file's
    fixtures set up is set up once.
    """
    if not _is_worker(config):
        return
    workers: int = config.workerinput["workercount"]  # type: ignore[attr-defined]
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    tests = Path(__file__).parent
    first = [p for folder in LONGEST for p in files if p.is_relative_to(tests / folder)]
    parts = [[i for p in first[k::workers] for i in files[p]] for k in range(workers)]
    rest = [item for path, part in files.items() if path not in set(first) for item in part]
    size = len(items) // workers
    for part in parts[:-1]:
        room = max(0, size - len(part))
        part += rest[:room]
        del rest[:room]
    parts[-1] += rest
    items[:] = [item for part in parts for item in part]


@pytest.fixture(autouse=True)
def _internal_errors_are_raised(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine contains what is raised inside it; no test may overlook that."""
    if request.node.get_closest_marker("internal_errors") is None:
        monkeypatch.setattr(InternalErrors, "record", _raise_again)


def _raise_again(*args: Any, **_: Any) -> str:
    error: Exception = args[3]
    raise error


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
