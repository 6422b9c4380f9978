"""tests/long.py: rows are run one by one, and each is summed up in one line."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from tests import long
from tests.long import ROWS, Row, arguments_of, main


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long, "ROOT", tmp_path)
    monkeypatch.setattr(long, "FOLDER", tmp_path / "logs")


def test_every_row_is_listed_with_its_duration(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [row.name for row in ROWS] == [line.split()[0] for line in lines[::2]]
    assert all(re.search(r" \d+ min  ", line) for line in lines[::2])
    assert [f"    {row.command}" for row in ROWS] == lines[1::2]


@pytest.mark.parametrize("row", [row for row in ROWS if "stower" in row.command], ids=str)
def test_options_of_every_simulation_exist(row: Row) -> None:
    arguments = arguments_of(row.command)[1:]
    ran = CliRunner().invoke(app, [*arguments, "--jobs", "-1"])
    assert (2, True) == (ran.exit_code, "--jobs" in ran.stderr), ran.stderr


def test_a_row_that_fails_shows_its_last_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = 'python -c "print(1); {}"'
    rows = (
        Row("good", 1, command.format("print(2)"), "two"),
        Row("bad", 1, command.format("exit(3)"), "three"),
    )
    monkeypatch.setattr(long, "ROWS", rows)
    assert 1 == main([])
    out = capsys.readouterr().out
    assert re.search(r"good: passed in \d min \d+ s; logs/good.log", out)
    assert "    1\nbad: failed with exit code 3 in " in out
    assert out.splitlines()[-1].startswith("1 of 2 rows passed in ")
    assert "1\n2\n" == (long.FOLDER / "good.log").read_text()
    assert 0 == main(["good"])


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["nope"])
    assert "got 'nope', want some of fuzz" in capsys.readouterr().err
