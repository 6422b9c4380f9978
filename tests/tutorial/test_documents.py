"""The tutorial and the how-tos, run as they are written."""

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tutorial.console import ROOT, Shell, Step, steps

DOCUMENTS = (
    "docs/tutorial.md", "examples/devices/README.md", "examples/drivers/README.md",
    "examples/groups/README.md", "examples/vms/README.md", "examples/warm/README.md",
    "examples/campus/README.md",
)  # fmt: skip


@pytest.fixture
def alone() -> Iterator[None]:
    """`stower up` takes the port that it takes by default."""
    with open(Path(tempfile.gettempdir()) / "stower-tutorial.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.more
@pytest.mark.parametrize("name", DOCUMENTS)
def test_it_comes_out_as_written(name: str, tmp_path: Path, alone: None) -> None:
    found = [*steps((ROOT / name).read_text())]
    assert len(found) >= 3, "a document that shows nothing"
    shell = Shell(tmp_path)
    try:
        for step in found:
            shell.run(step)
    finally:
        shell.close()


def test_sessions_are_read_as_they_are_typed() -> None:
    text = (
        "```console\n$ a \\\n> b\nc\nd\n$ e  # exit code 2\n```\n\n    $ no\n```console\n$ f\n```\n"
    )
    assert [
        Step("a \\\nb", "c\nd", 0), Step("e  # exit code 2", "", 2), Step("f", "", 0),
    ] == [*steps(text)]  # fmt: skip


def test_what_comes_out_otherwise_is_noticed(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        shell.run(Step("x=3; echo one $x two", "one ... two", 0))
        shell.run(Step("echo $x; false", "3", 1))
        for step in (Step("echo a", "b", 0), Step("false", "", 0), Step("true", "a", 0)):
            with pytest.raises(AssertionError, match="want"):
                shell.run(step)
    finally:
        shell.close()
