"""--watch: a verb that is run again and again until Ctrl-C."""

import io
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from stower.cli import watch
from stower.cli.output import Output, emit
from stower.cli.watch import AGAIN, add_watch
from tests.unit.cli.served import invoke


class Verb:
    """A verb that prints the number of its run; interrupted in place of the third pause."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...] = ()) -> None:
        self.runs = 0
        self.pauses: list[float] = []
        self.codes = codes
        monkeypatch.setattr(watch.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == 3:
            raise KeyboardInterrupt

    def run(self, inputs: list[str] | None = None) -> None:
        self.runs += 1
        code = self.codes[self.runs - 1] if self.runs <= len(self.codes) else 0
        if code:
            sys.stderr.write(f"fault {self.runs}\n")
            raise typer.Exit(code)
        sys.stdout.write(f"run {self.runs}\n")

    def watch(self, **more: Any) -> int:
        """Runs it with --watch; its exit code."""

        def run(inputs: list[str] | None = None) -> None:
            self.run(inputs)

        with pytest.raises(typer.Exit) as ended:
            add_watch(run)(watch=True, **more)
        return ended.value.exit_code


def test_a_verb_is_repeated_until_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = Verb(monkeypatch)
    assert 0 == verb.watch(every=7.0)
    assert "run 1\n\nrun 2\n\nrun 3\n" == capsys.readouterr().out
    assert [7.0] * 3 == verb.pauses


def test_a_fault_at_the_start_ends_it_and_a_later_one_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == Verb(monkeypatch, (2,)).watch()
    assert ("", "fault 1\n") == tuple(capsys.readouterr())
    assert 0 == Verb(monkeypatch, (0, 1)).watch()
    assert "run 1\n\nfault 2\n\nrun 3\n" == capsys.readouterr().out


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1


def test_a_terminal_is_written_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert 0 == Verb(monkeypatch).watch()
    assert f"{AGAIN}run 1\n{AGAIN}run 2\n{AGAIN}run 3\n" == terminal.getvalue()


def test_without_the_option_a_verb_runs_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = Verb(monkeypatch)
    add_watch(verb.run)()
    assert ("run 1\n", []) == (capsys.readouterr().out, verb.pauses)


def test_standard_input_cannot_be_read_again(tmp_path: Path) -> None:
    told = invoke("devices", "all", "-", "--watch")
    assert (2, True) == (told.exit_code, "--watch: - can be read only once" in told.stderr)


@pytest.mark.parametrize(
    ("output", "wanted"),
    [(Output.JSON, '{"run":1}\n{"run":2}\n{"run":3}\n'), (Output.YAML, "---\nrun: 1\n---\n")],
)
def test_documents_for_programs_follow_each_other(
    output: Output,
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """JSON one on a line; what is said besides does not come between."""
    verb = Verb(monkeypatch)

    def run(inputs: list[str] | None = None, output: Output = Output.TABLE) -> None:
        verb.runs += 1
        sys.stderr.write("note\n")
        emit({"run": verb.runs}, output)

    with pytest.raises(typer.Exit) as ended:
        add_watch(run)(watch=True, output=output)
    assert 0 == ended.value.exit_code
    told = capsys.readouterr()
    assert told.out.startswith(wanted)
    assert "note\n" * 3 == told.err
