"""stower down: ends the supervisor of a folder, and deletes the files of `stower up`."""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stower.cli import state_folder
from stower.cli.state_folder import hold_state
from stower.cli.supervisor import (
    CLUSTER,
    RECORD,
    Record,
)
from stower.cli.verbs import down
from tests.unit.cli.served import invoke

PID = os.getpid()  # which holds the folder


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that are held are seen at once."""
    monkeypatch.setattr(state_folder, "LOCK_PAUSE_SECONDS", 0.0)


class Running:
    """A supervisor that holds a folder, and what it does at signals."""

    def __init__(self, state: Path) -> None:
        self.signals: list[tuple[int, int]] = []
        self.stack = ExitStack()
        self.stack.enter_context(hold_state(state))
        (state / RECORD).write_bytes(msgspec.json.encode(Record(4711, "https://x", "k")))
        (state / CLUSTER).write_text("{}")

    def kill(self, pid: int, number: int) -> None:
        self.signals.append((pid, number))
        self.stack.close()
        if number == 0 and len(self.signals) > 3:
            raise ProcessLookupError


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    made = Running(tmp_path)
    monkeypatch.setattr(os, "kill", made.kill)
    monkeypatch.setattr(down, "stop_holder", lambda _, pid: made.kill(pid, signal.SIGTERM))
    monkeypatch.setattr(down.time, "sleep", lambda seconds: None)
    return made


def failing(error: type[OSError]) -> Callable[[Any, int], None]:
    def kill(of: Any, number: int) -> None:
        raise error

    return kill


def test_down_waits_until_the_process_has_ended(running: Running, tmp_path: Path) -> None:
    told = invoke("down", "--state", tmp_path)
    assert (0, "Stopped.\n") == (told.exit_code, told.stdout)
    assert [(PID, signal.SIGTERM), *[(PID, 0)] * 3] == running.signals
    assert (tmp_path / CLUSTER).exists()


def test_down_without_a_cluster_is_no_error(tmp_path: Path) -> None:
    told = invoke("down", "--state", tmp_path)
    assert (0, f"No cluster runs from {tmp_path}.\n") == (told.exit_code, told.stdout)


def test_a_process_of_somebody_else_is_an_error(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down, "stop_holder", failing(PermissionError))
    told = invoke("down", "--state", tmp_path)
    assert (1, True) == (told.exit_code, f"no permission to stop process {PID}" in told.stderr)


def test_a_process_that_does_not_end_is_an_error(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the verb goes on by a minute at each look."""
    monkeypatch.setattr(down, "stop_holder", lambda _, pid: None)
    monkeypatch.setattr(os, "kill", failing(ProcessLookupError))
    clock = iter(range(0, 6000, 61))
    monkeypatch.setattr(down.time, "monotonic", lambda: next(clock))
    told = invoke("down", "--state", tmp_path)
    assert (1, True) == (told.exit_code, "has not ended after 60 s" in told.stderr)


def test_a_cluster_that_is_starting_is_left_alone(running: Running, tmp_path: Path) -> None:
    (tmp_path / RECORD).unlink()
    told = invoke("down", "--state", tmp_path)
    assert (1, True) == (told.exit_code, "the cluster is starting or stopping" in told.stderr)
    assert [] == running.signals


def test_delete_removes_the_folder_with_all_files_of_up(running: Running, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "up.log").touch()
    told = invoke("down", "--state", tmp_path, "--delete")
    assert (0, f"Stopped. {tmp_path} is deleted.") == (
        told.exit_code, " ".join(told.stdout.split()),
    )  # fmt: skip
    assert not tmp_path.exists()


def test_delete_keeps_the_files_of_others(running: Running, tmp_path: Path) -> None:
    """A link is deleted, and what it leads to is kept."""
    other = tmp_path.parent / f"{tmp_path.name}-other"
    other.mkdir()
    (other / "kept").touch()
    (tmp_path / "kubeconfig").symlink_to(other / "kept")
    (tmp_path / "notes.txt").touch()
    told = invoke("down", "--state", tmp_path, "--delete")
    said = " ".join(told.stdout.split())
    assert (0, True) == (told.exit_code, "stays, as it also has notes.txt." in said)
    assert ["notes.txt"] == [path.name for path in tmp_path.iterdir()]
    assert ["kept"] == [path.name for path in other.iterdir()]


def test_delete_of_a_folder_without_a_cluster_deletes_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    invoke("down", "--state", tmp_path, "--delete")
    assert (tmp_path / "logs").exists()


def test_the_process_that_holds_the_lock_is_stopped_whatever_the_record_says(
    running: Running, tmp_path: Path
) -> None:
    (tmp_path / RECORD).write_bytes(msgspec.json.encode(Record(1, "https://x", "k")))
    assert 0 == invoke("down", "--state", tmp_path).exit_code
    assert {PID} == {pid for pid, _ in running.signals}


def test_a_folder_that_others_can_write_to_is_left_alone(running: Running, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    told = invoke("down", "--state", tmp_path, "--delete")
    assert (1, True) == (told.exit_code, f"other users can write to {tmp_path}" in told.stderr)
    assert [] == running.signals
    assert (tmp_path / CLUSTER).exists()
