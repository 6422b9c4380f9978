"""Print which tests cover each documented behaviour, and the behaviours without a test.

The ids are the first column of the tables in docs/behaviours.md. A test points to them with
`@pytest.mark.behaviour("S2.10", "S2.11")`. Tests are collected and never run. Exit code 1: a
marker has no id or an unknown id, the document is unreadable, or collection failed.
"""

import argparse
import contextlib
import io
import json
import re
import sys
import textwrap
from pathlib import Path

import pytest

MARKER = "behaviour(*ids): the rows of docs/behaviours.md that the test shows"
ROW = re.compile(r"^\| *([A-Z]\d+(?:\.\d+)?) *\|", re.MULTILINE)


class Collector:
    """The pytest plugin: notes for each id the tests whose markers name it, in collection order."""

    def __init__(self) -> None:
        self.tests: dict[str, list[str]] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        """Declare the marker, so that --strict-markers holds where no ini file declares it."""
        config.addinivalue_line("markers", MARKER)

    @pytest.hookimpl(tryfirst=True)  # before -m or -k in the project's options deselects anything
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Read the markers; the cases of one parametrised test count as one test."""
        for item in items:
            test = item.nodeid.partition("[")[0]
            for mark in item.iter_markers("behaviour"):
                for behaviour in mark.args or ("(no id)",):
                    tests = self.tests.setdefault(str(behaviour), [])
                    if test not in tests:
                        tests.append(test)


def read_ids(document: Path) -> list[str]:
    """Return the ids of the document in its order; SystemExit if it has none or one twice."""
    try:
        ids = ROW.findall(document.read_text(encoding="utf-8"))
    except OSError as error:
        sys.exit(f"{document}: {error.strerror}")
    twice = sorted({i for i in ids if ids.count(i) > 1})
    if twice or not ids:
        sys.exit(f"{document}: " + (f"ids given twice: {', '.join(twice)}" if twice else "no ids"))
    return ids


def collect(paths: list[str]) -> dict[str, list[str]]:
    """Return the tests by id, from pytest's own collection; SystemExit if that fails."""
    collector, said = Collector(), io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-q", *paths], plugins=[collector])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"{said.getvalue()}pytest could not collect the tests ({code!r})")
    return collector.tests


def main() -> int:
    """Print the report as text or JSON; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "paths", nargs="*", default=["tests"], help="files or folders with tests (default: tests)"
    )
    parser.add_argument("--document", type=Path, default=Path("docs/behaviours.md"))
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args()

    ids = read_ids(options.document)
    found = collect(options.paths)
    shown = {i: found[i] for i in ids if i in found}
    missing = [i for i in ids if i not in found]
    unknown = {i: tests for i, tests in found.items() if i not in ids}
    if options.output == "json":
        report = {"shown": shown, "not_shown": missing, "unknown": unknown, "total": len(ids)}
        print(json.dumps(report, indent=2))
    else:
        for behaviour, tests in shown.items():
            print(behaviour, *tests, sep="\n    ")
        line = " ".join(["not shown:", *(missing or ["none"])])
        print(textwrap.fill(line, width=100, subsequent_indent="    "))
        print(f"{len(shown)} of {len(ids)} behaviours have a test")
    for behaviour, tests in unknown.items():
        wrong = f"got {behaviour}, want an id of {options.document}"
        print(f"{', '.join(tests)}: {wrong}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.path[0] = str(Path.cwd())  # as `python -m pytest` has it
    sys.exit(main())
