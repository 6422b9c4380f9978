"""The supervisor of `stower up`: one per folder; its processes start, end and start again."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stower.cli import state_folder
from stower.cli.state_folder import LOCK, UpError, hold_state, is_held
from stower.cli.supervisor import (
    CLUSTER,
    PAUSE_SECONDS_MAX,
    RECORD,
    START_SECONDS_MAX,
    STOP_SECONDS_MAX,
    TOKEN,
    Child,
    Record,
    Supervisor,
    dashboard_link,
    read_cluster_document,
    read_record,
)
from tests.unit.cli.processes import LAUNCH, READY, Machine, value_of
from tests.virtual_loop import VirtualLoop

TELLS = f"Scheduling; dashboard and metrics on http://127.0.0.1:4321. {READY}"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that are held are seen at once."""
    monkeypatch.setattr(state_folder, "LOCK_PAUSE_SECONDS", 0.0)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.end()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(asyncio, LAUNCH, made.launch)
    return made


class Cluster:
    """A supervisor of a server, a scheduler and actors."""

    def __init__(self, loop: VirtualLoop, state: Path) -> None:
        self.loop, self.state = loop, state
        self.told: list[str] = []
        children = [self.child(name) for name in ("apiserver", "run", "actors")]
        self.supervisor = Supervisor(
            state, children[0], children[1:], state / "kubeconfig", tell=self.told.append
        )
        self.stop = asyncio.Event()

    def child(self, verb: str) -> Child:
        return Child(verb, [verb, "--port", "0"], self.state / "logs" / f"{verb}.log")

    def start(self) -> None:
        self.loop.run(self.supervisor.start())

    def keep(self) -> None:
        """Starts everything and supervises it."""
        self.start()
        self.task = self.loop.create_task(self.supervisor.keep(self.stop))
        self.loop.turns()

    def record(self) -> Record:
        return msgspec.json.decode((self.state / RECORD).read_bytes(), type=Record)


@pytest.fixture
def cluster(loop: VirtualLoop, tmp_path: Path, machine: Machine) -> Cluster:
    return Cluster(loop, tmp_path)


def test_a_folder_is_held_by_one_supervisor(tmp_path: Path) -> None:
    state = tmp_path / "new" / "lab"
    with hold_state(state):
        assert is_held(state)
        with pytest.raises(UpError, match="a cluster already runs from this folder; stop it with"):
            hold_state(state).__enter__()
    assert not is_held(state)


def test_a_folder_that_cannot_be_held_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "lab" / LOCK).mkdir(parents=True)
    for path, text in (
        (tmp_path / "file", "want a folder, or a name for a new one"),
        (tmp_path / "file" / "lab", "Not a directory"),
        (tmp_path / "lab", "Is a directory"),
    ):
        with pytest.raises(UpError, match=text):
            hold_state(path).__enter__()


def test_a_record_counts_only_while_the_folder_is_held(tmp_path: Path) -> None:
    record = Record(1, "https://x", "kubeconfig")
    (tmp_path / RECORD).write_bytes(msgspec.json.encode(record))
    assert read_record(tmp_path) is None
    with hold_state(tmp_path):
        mine = msgspec.structs.replace(record, pid=os.getpid())
        assert mine == read_record(tmp_path), "the holder's id, whatever the file says"
        (tmp_path / RECORD).write_text("{")
        assert read_record(tmp_path) is None
    (tmp_path / RECORD).write_bytes(msgspec.json.encode(record))
    assert read_record(tmp_path) is None


def test_the_link_to_the_dashboard_has_the_token_if_there_is_one(tmp_path: Path) -> None:
    assert "http://x/dashboard/" == dashboard_link(tmp_path, "http://x")
    (tmp_path / TOKEN).write_text("secret\n")
    assert "http://x/dashboard/#token=secret" == dashboard_link(tmp_path, "http://x")


def test_the_document_of_a_cluster_is_read_or_refused(tmp_path: Path) -> None:
    assert read_cluster_document(tmp_path) is None
    (tmp_path / CLUSTER).write_text('{"kind": "Cluster"}')
    assert {"kind": "Cluster"} == read_cluster_document(tmp_path)
    assert read_cluster_document(tmp_path / CLUSTER) is None
    (tmp_path / CLUSTER).write_text("[")
    with pytest.raises(UpError, match="give --nodes or --cluster to replace it"):
        read_cluster_document(tmp_path)


def test_processes_are_recorded_once_all_are_ready(cluster: Cluster, machine: Machine) -> None:
    cluster.start()
    pids = {verb: process.pid for verb, process in machine.started}
    assert {"apiserver", "run", "actors"} == set(pids)
    found = cluster.record()
    assert (os.getpid(), pids) == (found.pid, found.processes)
    assert "--with-parent" == machine.commands["run"][-1]


def test_addresses_are_kept_for_the_processes_that_start_again(
    cluster: Cluster, machine: Machine
) -> None:
    machine.outputs["run"] = [TELLS]
    cluster.keep()
    cluster.supervisor.is_at("https://127.0.0.1:6443")
    cluster.supervisor.record()
    found = cluster.record()
    assert ("https://127.0.0.1:6443", "http://127.0.0.1:4321") == (found.server, found.dashboard)
    for verb in ("apiserver", "run"):
        machine.of(verb)[0].end(1)
    cluster.loop.advance(1)
    ports = {verb: value_of(machine.commands[verb], "--port") for verb in machine.commands}
    assert {"apiserver": "6443", "run": "4321", "actors": "0"} == ports


def test_a_process_that_dies_is_started_again(cluster: Cluster, machine: Machine) -> None:
    cluster.keep()
    machine.of("run")[0].end(-signal.SIGKILL)
    cluster.loop.advance(1)
    _, second = machine.of("run")
    assert (["run ended (SIGKILL); restarting"], second.pid) == (
        cluster.told, cluster.record().processes["run"],
    )  # fmt: skip
    second.end(3)
    cluster.loop.advance(1)
    assert "run ended (exit code 3); restarting" == cluster.told[-1]
    cluster.stop.set()
    cluster.loop.turns()
    assert cluster.task.done()
    assert not (cluster.state / RECORD).exists()
    assert {0, 3, -signal.SIGKILL} == {process.returncode for _, process in machine.started}


def test_a_process_that_cannot_start_again_is_tried_less_and_less_often(
    cluster: Cluster, machine: Machine
) -> None:
    cluster.keep()
    machine.outputs["run"] = [""]
    machine.errors["run"] = "Traceback\nstower: error: no room\n"
    machine.of("run")[0].end(1)
    cluster.loop.advance(60)
    assert {"run: no room"} == set(cluster.told[1:])
    assert 60 / PAUSE_SECONDS_MAX < len(machine.of("run")) < 60 / PAUSE_SECONDS_MAX + 6


def test_a_record_that_cannot_be_written_does_not_end_supervision(
    cluster: Cluster, machine: Machine
) -> None:
    cluster.keep()
    (cluster.state / RECORD).unlink()
    (cluster.state / RECORD).mkdir()
    machine.of("actors")[0].end(0)
    cluster.loop.advance(1)
    assert f"{cluster.state / RECORD}: " in cluster.told[-1]
    (cluster.state / RECORD).rmdir()
    machine.of("actors")[1].end(0)
    cluster.loop.advance(1)
    assert machine.of("actors")[2].pid == cluster.record().processes["actors"]


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ("starting\nstower: error: port 1 is taken\n", "port 1 is taken"),
        ("", "apiserver ended with exit code 1"),
    ],
)
def test_the_reason_of_a_failed_start_is_the_last_line_of_the_log(
    cluster: Cluster, machine: Machine, errors: str, said: str
) -> None:
    """Everything that had been started is stopped."""
    machine.outputs["apiserver"] = [""]
    machine.errors["apiserver"] = errors
    (cluster.state / "logs").mkdir()
    (cluster.state / "logs" / "apiserver.log").write_text("stower: error: of an earlier start\n")
    with pytest.raises(UpError) as caught:
        cluster.start()
    assert said == str(caught.value)
    assert [] == [verb for verb, process in machine.started if process.returncode is None]
    assert not (cluster.state / RECORD).exists()


def test_a_server_whose_predecessor_was_killed_is_tried_again(
    cluster: Cluster, machine: Machine
) -> None:
    """A record without a supervisor: the old server may take a moment to end."""
    (cluster.state / RECORD).write_text("{}")
    machine.outputs["apiserver"] = ["", "", READY]
    task = cluster.loop.create_task(cluster.supervisor.start())
    cluster.loop.advance(1)
    task.result()
    assert 3 == len(machine.of("apiserver"))


def test_a_process_that_is_never_ready_is_stopped(cluster: Cluster, machine: Machine) -> None:
    machine.outputs["actors"] = ["still reading\n"]
    machine.stubborn.add("actors")
    task = cluster.loop.create_task(cluster.supervisor.start())
    cluster.loop.advance(START_SECONDS_MAX + STOP_SECONDS_MAX + 1)
    with pytest.raises(UpError, match="actors did not start within 60 s"):
        task.result()
    (process,) = machine.of("actors")
    assert [signal.SIGTERM, signal.SIGKILL] == process.signals
