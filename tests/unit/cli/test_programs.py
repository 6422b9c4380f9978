"""The two programs, `stower` and `stower-kube-scheduler`: arguments, errors and exit codes."""

import os
import signal
import sys
from pathlib import Path

import pytest

from stower.cli import kube_scheduler, main
from stower.cli.workers import quiet


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int | str | None:
    """Runs `stower` in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["stower", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--version",), 0, ""),
        (("nobody",), 2, "stower: error: No such command 'nobody'.\nTry: "),
        (("up", "--nodes", "x"), 2, "stower up --help\n"),
        (("get", "devices"), 2, "stower: error: got 'devices', want pending"),
        (("generate", "--arrivals", "daily"), 2, "stower: error: --arrivals: want --until as well"),
        (("generate", "--until", "x"), 2, "--until: got 'x', want a duration"),
        (("generate", "--until", "1h", "--arrivals", "x"), 2, "--arrivals: got 'x', want one of"),
        (("generate", "--until", "1h", "--lifetime", "x"), 2, "stower: error: --lifetime"),
        (
            ("run", "--leader-elect=true", "--config", "/gone"),
            2,
            "/gone: cannot be read: No such file",
        ),
        (
            ("run", "--leader-elect=false", "--config", "/gone"),
            2,
            "/gone: cannot be read: No such file",
        ),
        (("run", "--dry-run=false"), 2, "--dry-run"),
    ],
)
def test_faults_are_one_line_and_where_to_read_on(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert code == run(monkeypatch, *arguments)
    assert said in capsys.readouterr().err


def test_no_arguments_show_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == run(monkeypatch)
    shown = capsys.readouterr()
    assert "A pod scheduler for mixed Kubernetes clusters." in shown.out + shown.err


def test_an_interrupt_ends_as_in_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**options: object) -> None:
        raise main.typer.Abort

    monkeypatch.setattr(main, "app", interrupted)
    assert main.INTERRUPTED == run(monkeypatch)


class Full:
    """Standard output that takes nothing."""

    def __init__(self, error: OSError, descriptor: int) -> None:
        self._error = error
        self._descriptor = descriptor
        self.buffer = self

    def write(self, data: object) -> int:
        raise self._error

    def flush(self) -> None:
        raise self._error

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        return self._descriptor


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
        (OSError(28, "No space left on device"), 1, "stower: error: No space left on device\n"),
    ],
)
def test_output_that_cannot_be_written_ends_the_program(
    error: OSError,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", Full(error, file.fileno()))
        assert code == run(monkeypatch, "generate", "--nodes", "1", "--pods", "0")
    assert said == capsys.readouterr().err


def test_streams_that_are_closed_are_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert 0 == run(monkeypatch, "--version")
    assert os.devnull == sys.stdout.name
    sys.stdout.close()
    sys.stderr.close()


# stower-kube-scheduler


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], ["--secure-port", "10259", "--bind-address", "0.0.0.0"]),
        (["--config=c.yaml", "--v=3"],
         ["--config=c.yaml", "--v=3", "--secure-port", "10259", "--bind-address", "0.0.0.0"]),
        (["--secure-port=1", "--bind-address", "::"], ["--secure-port=1", "--bind-address", "::"]),
        (["--kube-api-qps", "50", "--port", "0", "--bind-address=::", "--profiling"],
         ["--port", "0", "--bind-address=::"]),
        (["--kube-api-burst=9", "--profiling=false", "--port=0", "--bind-address=::"],
         ["--port=0", "--bind-address=::"]),
    ],
)  # fmt: skip
def test_options_of_kube_scheduler_become_those_of_run(
    given: list[str], wanted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ["run", *wanted] == kube_scheduler.arguments(given)
    dropped = sum(name.startswith(("--kube-api", "--profiling")) for name in given)
    assert dropped == capsys.readouterr().err.count(" has no effect in Stower\n")


def test_the_program_of_kube_scheduler_runs_the_scheduler(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kube-scheduler", "--config", "/gone", "--profiling"])
    with pytest.raises(SystemExit) as ended:
        kube_scheduler.main()
    said = capsys.readouterr().err
    assert (2, "run", True) == (
        ended.value.code,
        sys.argv[1],
        "/gone: cannot be read: No such file" in said,
    )


def test_interrupts_are_left_to_the_process_that_started_workers() -> None:
    before = signal.getsignal(signal.SIGINT)
    try:
        quiet()
        assert signal.SIG_IGN == signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
