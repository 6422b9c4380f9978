"""tools/behaviours.py: markers are matched with the document, and unknown ids are refused."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENT = """
| id | behaviour |
|----|-----------|
| S0.1 | A claim waits. |
| S0.2 | A claim is allocated. |
| S10.11 | Two ids that begin alike are two. |

| id | behaviour | asked for in |
|----|-----------|--------------|
| X1 | It runs. | owner/repository#1 |
"""
TESTS = """
import pytest

@pytest.mark.behaviour("S0.1", "X1")
def test_two_ids() -> None:
    raise AssertionError("a collected test must not run")

@pytest.mark.behaviour("S10.11")
class TestClass:
    @pytest.mark.behaviour("X1")
    @pytest.mark.parametrize("case", ["a", "b"])
    def test_cases(self, case: str) -> None: ...

def test_without_marker() -> None: ...
"""


def run(folder: Path, *options: str, tests: str = TESTS) -> subprocess.CompletedProcess[str]:
    """Run the tool in a folder with the document and tests/test_sample.py in it."""
    (folder / "docs").mkdir()
    (folder / "docs/behaviours.md").write_text(DOCUMENT, encoding="utf-8")
    (folder / "tests").mkdir()
    (folder / "tests/test_sample.py").write_text(tests, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -k nothing\n")
    return subprocess.run(
        [sys.executable, str(ROOT / "tools/behaviours.py"), *options],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_text_lists_shown_ids_then_missing_ones_then_the_sum(tmp_path: Path) -> None:
    """Each shown id has its tests, one line per function; deselection does not hide any."""
    result = run(tmp_path)
    expected = (
        "S0.1\n"
        "    tests/test_sample.py::test_two_ids\n"
        "S10.11\n"
        "    tests/test_sample.py::TestClass::test_cases\n"
        "X1\n"
        "    tests/test_sample.py::test_two_ids\n"
        "    tests/test_sample.py::TestClass::test_cases\n"
        "not shown: S0.2\n"
        "3 of 4 behaviours have a test\n"
    )
    assert (expected, "", 0) == (result.stdout, result.stderr, result.returncode)


def test_json_holds_the_same_answer(tmp_path: Path) -> None:
    """The JSON output has the tests by id, the missing ids and the number of ids."""
    result = run(tmp_path, "--output", "json")
    expected = {
        "shown": {
            "S0.1": ["tests/test_sample.py::test_two_ids"],
            "S10.11": ["tests/test_sample.py::TestClass::test_cases"],
            "X1": [
                "tests/test_sample.py::test_two_ids",
                "tests/test_sample.py::TestClass::test_cases",
            ],
        },
        "not_shown": ["S0.2"],
        "unknown": {},
        "total": 4,
    }
    assert (expected, 0) == (json.loads(result.stdout), result.returncode)


@pytest.mark.parametrize(
    ("marker", "got"),
    [('behaviour("S0.1", "S0.3")', "S0.3"), ("behaviour", "(no id)"), ("behaviour(10)", "10")],
)
def test_marker_with_an_unknown_id_is_an_error(tmp_path: Path, marker: str, got: str) -> None:
    """The error names the test and the id; the exit code is 1."""
    result = run(tmp_path, tests=f"import pytest\n@pytest.mark.{marker}\ndef test_a(): ...\n")
    expected = f"tests/test_sample.py::test_a: got {got}, want an id of docs/behaviours.md\n"
    assert (expected, 1) == (result.stderr, result.returncode)


def test_module_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    """A test that cannot be collected must not count as one that shows nothing."""
    result = run(tmp_path, tests="import no_such_module\n")
    assert ("", 1) == (result.stdout, result.returncode)
    assert "No module named 'no_such_module'" in result.stderr


def test_id_given_twice_in_the_document_is_an_error(tmp_path: Path) -> None:
    """An id means one behaviour."""
    twice = tmp_path / "twice.md"
    twice.write_text("| S0.1 | a |\n| S0.1 | b |\n", encoding="utf-8")
    result = run(tmp_path, "--document", str(twice))
    assert (f"{twice}: ids given twice: S0.1\n", 1) == (result.stderr, result.returncode)


def test_document_numbers_each_part_without_gaps(tmp_path: Path) -> None:
    """The project's own list is read whole: every part counts from 1 to its last row."""
    document = str(ROOT / "docs/behaviours.md")
    result = run(tmp_path, "--document", document, "--output", "json", tests="")
    parts: dict[str, list[int]] = {}
    for behaviour in json.loads(result.stdout)["not_shown"]:
        part, number = re.split(r"(?<=[.XU])", behaviour, maxsplit=1)
        parts.setdefault(part, []).append(int(number))
    assert ["S0.", "S1.", "S2.", "S3.", "S4.", "X", "U"] == list(parts)
    assert [list(range(1, len(rows) + 1)) for rows in parts.values()] == list(parts.values())
