"""stower up: the options, the processes that it starts, and what it prints once all are ready."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stower.cli import state_folder
from stower.cli.main import app
from stower.cli.state_folder import hold_state
from stower.cli.supervisor import (
    CLUSTER,
    LOGS,
    RECORD,
    TOKEN,
)
from stower.cli.verbs import up
from stower.pki.files import new_path
from tests.unit.cli.processes import LAUNCH, READY, Machine, value_of
from tests.unit.cli.served import invoke, served, stop_when
from tests.unit.live.fake_api import FakeApi

TELLS = f"Scheduling; dashboard and metrics on http://127.0.0.1:4321. {READY}"
POOL = {"name": "node", "count": 1, "capacity": {"cpu": "4", "memory": "8Gi", "pods": "9"}}
DOCUMENT = json.dumps({"apiVersion": "stower.dev/v1", "kind": "Cluster", "pools": [POOL]})
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that are held are seen at once."""
    monkeypatch.setattr(state_folder, "LOCK_PAUSE_SECONDS", 0.0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    made.outputs["run"] = [TELLS]
    monkeypatch.setattr(asyncio, LAUNCH, made.launch)
    monkeypatch.setattr(up, "stop_event", stop_when())
    return made


@pytest.fixture
def fake() -> FakeApi:
    made = FakeApi()
    for name in ("n1", "n2", "n3"):
        made.add_node(name)
    if made.handle("GET", f"{ACCOUNTS}/default", b"", "")[0] == 404:
        made.call("POST", ACCOUNTS, {"metadata": {"name": "default"}})
    return made


@pytest.fixture
def state(fake: FakeApi, tmp_path: Path) -> Iterator[Path]:
    """A folder that has the kubeconfig of a server that runs; its name is longer than a line."""
    folder = tmp_path / ("lab-" * 50)
    folder.mkdir()
    with served(fake, folder / "kubeconfig"):
        yield folder


def test_up_starts_server_scheduler_and_actors(machine: Machine, state: Path) -> None:
    (state / TOKEN).write_text("secret\n")
    told = invoke("up", "--state", state, "--record", state / "r.ndjson", "--event-ttl", "30m")
    assert 0 == told.exit_code, told.stderr
    assert told.stdout.startswith("A cluster of 3 nodes is up on http://127.0.0.1:")
    assert "Dashboard: http://127.0.0.1:4321/dashboard/#token=secret\n" in told.stdout
    assert told.stdout.endswith(f"`stower down --state {state}`.\nStopped.\n")
    assert {"apiserver", "run", "actors"} == set(machine.commands)
    assert "30m" == value_of(machine.commands["apiserver"], "--event-ttl")
    assert str(state / "r.ndjson") == value_of(machine.commands["run"], "--record")
    assert str(state / CLUSTER) == value_of(machine.commands["actors"], "--cluster")
    assert [0, 0, 0] == [process.returncode for _, process in machine.started]
    assert not (state / RECORD).exists()


def test_up_goes_on_with_the_nodes_of_an_earlier_start(machine: Machine, state: Path) -> None:
    invoke("up", "--state", state, "--nodes", "2", "--node-cpu", "8", "--no-scheduler")
    assert {"apiserver", "actors"} == set(machine.commands)
    before = json.loads((state / CLUSTER).read_text())
    assert ("8", 2) == (before["pools"][0]["capacity"]["cpu"], before["pools"][0]["count"])
    for options in ((), ("--node-cpu", "8")):
        assert 0 == invoke("up", "--state", state, *options).exit_code
        assert before == json.loads((state / CLUSTER).read_text())
    told = invoke("up", "--state", state, "--node-cpu", "16")
    assert 2 == told.exit_code
    assert "give --nodes too, to replace the description" in told.stderr


def test_a_process_that_cannot_start_ends_up(machine: Machine, state: Path) -> None:
    machine.outputs["run"] = [""]
    machine.errors["run"] = "stower: error: the port is taken\n"
    told = invoke("up", "--state", state)
    assert (1, "stower: error: the port is taken\n") == (told.exit_code, told.stderr)
    assert None not in [process.returncode for _, process in machine.started]


def test_nodes_that_do_not_come_end_up(
    machine: Machine, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "READY_SECONDS_MAX", 0.01)
    told = invoke("up", "--state", state, "--nodes", "9")
    assert (1, True) == (
        told.exit_code,
        "the cluster is not up after 0 s: want 9 nodes " in told.stderr,
    )
    assert None not in [process.returncode for _, process in machine.started]


def test_a_server_that_does_not_answer_ends_up(machine: Machine, state: Path) -> None:
    (state / "kubeconfig").unlink()
    told = invoke("up", "--state", state)
    assert (1, True) == (told.exit_code, "kubeconfig" in told.stderr)
    assert None not in [process.returncode for _, process in machine.started]


def test_up_that_is_interrupted_stops_what_it_has_started(
    machine: Machine, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_event() -> asyncio.Event:
        event = asyncio.Event()
        machine.on_start = lambda verb: event.set()
        return event

    monkeypatch.setattr(up, "stop_event", stop_event)
    told = invoke("up", "--state", state, "--nodes", "9")
    assert (130, "stower: stopped before the cluster was up\n") == (told.exit_code, told.stderr)
    assert None not in [process.returncode for _, process in machine.started]


def test_a_folder_that_is_held_or_unusable_is_an_error(machine: Machine, state: Path) -> None:
    with hold_state(state):
        told = invoke("up", "--state", state)
    assert (1, True) == (told.exit_code, "a cluster already runs from this folder" in told.stderr)
    (state / CLUSTER).write_text("[")
    told = invoke("up", "--state", state)
    assert (1, True) == (told.exit_code, "to replace it" in told.stderr)
    (state / CLUSTER).unlink()
    new_path(state / CLUSTER).mkdir()
    told = invoke("up", "--state", state)
    assert (1, True) == (told.exit_code, f"--state {state}: Is a directory" in told.stderr)
    assert [] == machine.started


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kubernetes", "1.2"), "--kubernetes: got '1.2', want "),
        (("--cluster", "-", "--detach"), "with --detach there is no standard input; give a file"),
        (
            ("--no-scheduler", "--config", "x.yaml"),
            "--no-scheduler: cannot be used with --config, ",
        ),
        (("--record", "gone/r.ndjson"), "--record gone/r.ndjson: No such file or directory"),
        (("--audit-log-path", "."), "--audit-log-path .: Is a directory"),
        (("--record-max", "1"), "--record-max: got '1', want a size of "),
        (("--config", "gone.yaml"), "--config gone.yaml: "),
        (("--config", "bad.yaml"), "--config bad.yaml: "),
    ],
)
def test_options_of_up_that_make_no_sense_are_refused(
    machine: Machine,
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before any process starts, whatever process the option is for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("kind: KubeSchedulerConfiguration\nprofiles: 3\n")
    told = CliRunner().invoke(app, ["up", *arguments], input=DOCUMENT)
    assert (2, []) == (told.exit_code, machine.started)
    assert said in told.stderr


# --detach


class Detached:
    """The background process of `up --detach`: what it logs, and how it ends."""

    def __init__(self, log: str, code: int | None = None) -> None:
        self.returncode = code
        self.was_terminated = False
        self.command: list[str] = []
        self._log = log

    def start(self, command: list[str], stdout: Any, **more: Any) -> "Detached":
        self.command = command
        stdout.write(self._log.encode())
        stdout.flush()
        return self

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self.was_terminated = True


def detach(state: Path, monkeypatch: pytest.MonkeyPatch, process: Detached) -> Any:
    monkeypatch.setattr(up.subprocess, "Popen", process.start)
    monkeypatch.setattr(sys, "argv", ["stower", "up", "--state", str(state), "-d"])
    return invoke("up", "--state", state, "-d")


def test_detached_cluster_prints_what_it_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Detached("It is up.\nNext, in another terminal:\nStop it with Ctrl-C or `x`.\n")
    told = detach(tmp_path, monkeypatch, process)
    assert (0, "It is up.\nNext:\nStop it with `x`.\n") == (told.exit_code, told.stdout)
    assert ["up", "--state", str(tmp_path)] == process.command[3:]
    assert 0o600 == (tmp_path / "logs" / "up.log").stat().st_mode & 0o777


def test_detached_cluster_that_ends_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = detach(tmp_path, monkeypatch, Detached("a\nstower: error: no room\n", 3))
    assert (3, "stower: error: no room\n") == (told.exit_code, told.stderr)
    told = detach(tmp_path, monkeypatch, Detached("", 0))
    assert (1, "stower: error: the process ended without a message\n") == (
        told.exit_code,
        told.stderr,
    )


def test_detached_cluster_that_is_never_up_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 10_000, 121))
    monkeypatch.setattr(up.time, "monotonic", lambda: next(clock))
    process = Detached("still starting\n")
    told = detach(tmp_path, monkeypatch, process)
    assert (1, True) == (told.exit_code, process.was_terminated)
    assert f"not up after 120 s; see {tmp_path / LOGS}\n" in told.stderr


def test_detached_cluster_needs_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hold_state(tmp_path):
        told = detach(tmp_path, monkeypatch, Detached(""))
    assert (1, True) == (told.exit_code, "already runs from this folder" in told.stderr)
    (tmp_path / "logs").write_text("")
    told = detach(tmp_path, monkeypatch, Detached(""))
    assert (1, f"stower: error: --state {tmp_path}: File exists\n") == (
        told.exit_code, told.stderr,
    )  # fmt: skip
