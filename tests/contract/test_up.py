"""`stower up`: a whole cluster in one command, and what it survives."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.in_process import stower_in_process
from tests.contract.servers import Client, Command, audited, until

Object = dict[str, Any]
NAMESPACE = "/api/v1/namespaces/default"
PODS = f"{NAMESPACE}/pods"
OPEN: list[Client] = []
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def stower(*arguments: str, seconds: float = 90) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    ran = subprocess.run(
        [sys.executable, "-m", "stower.cli.main", *audited(*arguments)],
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    return ran.returncode, ran.stdout, ran.stderr


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "state"
    yield folder
    while OPEN:
        OPEN.pop().close()
    stower("down", "--state", str(folder))


def up(state: Path, *arguments: str) -> Client:
    code, said, error = stower("up", "--state", str(state), "--port", "0", "--detach", *arguments)
    assert 0 == code, error
    assert "kubectl get nodes" in said
    return opened(state)


def opened(state: Path) -> Client:
    """A client that is closed with the state."""
    OPEN.append(Client(state / "kubeconfig"))
    return OPEN[-1]


def deployment(name: str, replicas: int) -> Object:
    labels = {"app": name}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "10m"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def running(objects: dict[str, Object]) -> dict[str, str]:
    return {
        name: pod["spec"]["nodeName"]
        for name, pod in objects.items()
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def status(state: Path) -> Object:
    code, said, error = stower("status", "--state", str(state), "--output", "json")
    assert code in (0, 1), error
    found: Object = json.loads(said)
    return found


def is_alive(pid: int) -> bool:
    """Whether it runs. One that has ended stays in the table until its parent has noticed."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@pytest.mark.behaviour("X8")
@pytest.mark.behaviour("X2")
def test_a_cluster_starts_runs_pods_stops_and_goes_on(state: Path) -> None:
    client = up(state, "--nodes", "4", "--node-cpu", "2", "--zones", "a,b")
    assert 201 == client.call("POST", DEPLOYMENTS, deployment("web", 6))[0]
    before = running(until(client, PODS, lambda o: len(running(o)) == 6))
    found = status(state)
    assert {"all": 4, "ready": 4} == found["nodes"]
    assert {"all": 6, "Running": 6} == found["pods"]
    assert {"up", "server", "scheduler", "actors"} == set(found["processes"])
    code, _, error = stower("up", "--state", str(state), "--port", "0")
    assert (1, 1) == (code, error.count("\n"))
    assert "stower down" in error
    assert 0 == stower("down", "--state", str(state))[0]
    assert not any(map(is_alive, found["processes"].values()))
    assert {"running": False} == status(state)
    client = up(state)
    nodes = until(client, "/api/v1/nodes", lambda o: len(o) == 4)
    assert "2" == nodes["node-1"]["status"]["allocatable"]["cpu"]
    assert before == running(until(client, PODS, lambda o: len(running(o)) == 6))
    assert 0 == stower("down", "--state", str(state), "--delete")[0]
    assert not state.exists()
    assert 0 == stower("down", "--state", str(state))[0], "nothing to stop is no error"


def test_ctrl_c_stops_all(state: Path) -> None:
    command = Command("up", "--state", str(state), "--port", "0", "--nodes", "1")
    found = status(state)
    command.process.send_signal(signal.SIGINT)
    assert 0 == command.process.wait(30)
    assert not any(map(is_alive, found["processes"].values()))
    command.stop()


@pytest.mark.behaviour("X4")
@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(("server",), marks=pytest.mark.more),
        pytest.param(("scheduler",), marks=pytest.mark.more),
        ("server", "scheduler", "actors"),
    ],
)
def test_what_is_killed_comes_back_and_nothing_is_lost(
    state: Path, victims: tuple[str, ...]
) -> None:
    client = up(state, "--nodes", "4")
    assert 201 == client.call("POST", DEPLOYMENTS, deployment("web", 120))[0]
    seen = running(until(client, PODS, lambda o: len(running(o)) >= 10))
    client.close()
    processes = status(state)["processes"]
    for name in victims:
        os.kill(processes[name], signal.SIGKILL)
    client = _again(state, processes, victims)
    pods = running(until(client, PODS, lambda o: len(running(o)) == 120, 60))
    assert 120 == len(pods)
    assert seen == {name: pods[name] for name in seen}, "what ran has stayed where it was"


def _again(state: Path, before: Object, victims: tuple[str, ...]) -> Client:
    """A client, as soon as all that were killed are there again."""
    gate = threading.Event()
    for _ in range(300):
        record = json.loads((state / "up.json").read_bytes())["processes"]
        if all(record[name] != before[name] for name in victims):
            break
        gate.wait(0.1)
    return opened(state)


@pytest.mark.more
def test_a_supervisor_that_is_killed_leaves_nothing_behind(state: Path) -> None:
    up(state, "--nodes", "1")
    found = status(state)["processes"]
    os.kill(found["up"], signal.SIGKILL)
    client = up(state)
    assert 201 == client.call("POST", DEPLOYMENTS, deployment("web", 2))[0]
    until(client, PODS, lambda o: len(running(o)) == 2)
    assert not any(map(is_alive, found.values()))


def test_what_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ("up", "--state", str(tmp_path / "s"), "--port", str(port))
        for more in ((), ("--detach",)):
            code, _, error = stower(*arguments, *more)
            assert (1, 1) == (code, error.count("\n")), error
            assert str(port) in error
            assert "--port" in error
    file = tmp_path / "file"
    file.touch()
    code, _, error = stower_in_process("up", "--state", str(file / "below"), "--port", "0")
    assert (1, 1) == (code, error.count("\n")), error
    assert str(file) in error


def test_a_damaged_description_is_neither_guessed_nor_overwritten(tmp_path: Path) -> None:
    state = tmp_path / "s"
    state.mkdir()
    (state / "cluster.json").write_text('{"pools":')
    code, _, error = stower_in_process("up", "--state", str(state), "--port", "0")
    assert (1, 1) == (code, error.count("\n")), error
    assert "cluster.json" in error
    assert '{"pools":' == (state / "cluster.json").read_text()


@pytest.mark.parametrize(
    ("document", "want"),
    [
        ("pools: [{name: a, count: -1}]", "pools[0].count"),
        ("pools: [{name: a, capacity: {cpu: lots}}]", "pools[0].capacity[cpu]"),
        ("pools: [{name: a, taints: [{key: k, effect: Never}]}]", "pools[0].taints[0].effect"),
        ("pools: [{name: a}, {name: a}]", "pools[1].name"),
        ("pools: [{name: a, colour: red}]", "pools[0]"),
        ("images: [{name: a}]", "pools"),
        ("kind: Zoo\npools: [{name: a}]", "kind"),
        ("kind: Cluster\n", "pools"),
        ("pools: [{name: a}]\npullBytesPerSecond: '0'", "pullBytesPerSecond"),
    ],
)
def test_a_cluster_file_that_cannot_be(tmp_path: Path, document: str, want: str) -> None:
    path = tmp_path / "cluster.yaml"
    head = "apiVersion: stower.dev/v1\n" + ("" if "kind" in document else "kind: Cluster\n")
    path.write_text(head + document)
    given = ("up", "--state", str(tmp_path / "s"), "--cluster", str(path))
    code, _, error = stower_in_process(*given)
    assert (2, 1) == (code, error.count("\n")), error
    assert want in error
    assert str(path) in error


@pytest.mark.more
@pytest.mark.behaviour("X5")
def test_what_a_cluster_has_seen_is_recorded_and_replays(state: Path, tmp_path: Path) -> None:
    """Over HTTP, with nodes that go, through the scheduler's end by force."""
    recording = tmp_path / "r.ndjson.zst"
    client = up(state, "--nodes", "4", "--record", str(recording))
    assert 201 == client.call("POST", DEPLOYMENTS, deployment("web", 12))[0]
    until(client, PODS, lambda o: sum("nodeName" in p["spec"] for p in o.values()) == 12, 60)
    assert 200 == client.call("DELETE", "/api/v1/nodes/node-2")[0]
    record = json.loads((state / "up.json").read_text())
    os.kill(record["processes"]["scheduler"], signal.SIGKILL)
    on = "node-2"
    until(
        client,
        PODS,
        lambda o: sum(p["spec"].get("nodeName", on) != on for p in o.values()) >= 12,
        90,
    )
    assert 0 == stower("down", "--state", str(state))[0]
    parts = sorted(tmp_path.glob("r*.ndjson.zst"))
    assert len(parts) > 1, "the second scheduler began a part of its own"
    for part in parts:
        code, said, error = stower("replay", str(part), "--output", "json")
        assert (0, "") == (code, error)
        assert None is json.loads(said)["difference"]


def test_down_deletes_what_is_its_own_and_nothing_else(tmp_path: Path) -> None:
    state = tmp_path / "lab"
    state.mkdir()
    (state / "mine.yaml").write_text("mine")
    try:
        up(state, "--nodes", "1", "--node-cpu", "8")
        assert 0 == stower("down", "--state", str(state))[0]
        up(state, "--node-cpu", "8")  # the same again is no contradiction
        given = ("up", "--state", str(state), "--node-cpu", "9", "--detach")
        code, _, said = stower_in_process(*given)
        assert (2, True) == (code, "have no effect" in said)
    finally:
        while OPEN:
            OPEN.pop().close()
        code, said, _ = stower("down", "--state", str(state), "--delete")
    assert (0, True) == (code, "also has mine.yaml" in said)
    assert ["mine.yaml"] == [path.name for path in state.iterdir()]


def test_a_cluster_that_does_not_run_is_said_to_be_down(tmp_path: Path) -> None:
    state = tmp_path / "lab"
    try:
        up(state, "--nodes", "1")
    finally:
        while OPEN:
            OPEN.pop().close()
        stower("down", "--state", str(state))
    for verb in (("get", "pending"), ("groups",), ("devices",), ("load", str(MANIFEST))):
        code, _, said = stower_in_process(*verb, "--state", str(state))
        assert (1, True) == (code, "does not run; start it with `stower up --state" in said), said


MANIFEST = Path(__file__).parents[2] / "examples" / "tutorial" / "report.yaml"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--config", "nobody.yaml"), "--config nobody.yaml"),
        (("--record", "no/folder/x"), "--record no/folder/x"),
        (("--record", "x", "--record-max", "1"), "--record-max"),
        (("--audit-log-path", "no/folder/x"), "--audit-log-path no/folder/x"),
        (("--cluster", "c.yaml", "--node-cpu", "8"), "--cluster c.yaml"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], why: str
) -> None:
    state = tmp_path / "lab"
    code, _, said = stower_in_process("up", "--state", str(state), "--port", "0", *arguments)
    assert (2, True) == (code, why in said), said
    assert not state.exists()
