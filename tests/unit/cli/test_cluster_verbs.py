"""Verbs that look at a cluster over HTTP: get, status, doctor, load, and the cluster of others."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from stower.cli import object_loader, state_folder
from stower.cli.state_folder import LOCK, hold_state
from stower.cli.supervisor import (
    RECORD,
    TOKEN,
    Record,
)
from stower.live.client import Response
from tests.unit.cli.served import in_thread, invoke, served, write_kubeconfig
from tests.unit.live.fake_api import MERGE, NODES, PODS, FakeApi

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks that are held are seen at once; requests are repeated at once."""
    monkeypatch.setattr(state_folder, "LOCK_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(object_loader, "PAUSE_SECONDS", 0.0)


def set_condition(fake: FakeApi, path: str, **condition: str) -> None:
    """Adds a condition to the status of an object."""
    fake.call("PATCH", f"{path}/status", {"status": {"conditions": [condition]}}, MERGE)


def reject(fake: FakeApi, pod: str, message: str = NO_ROOM) -> None:
    """Writes the condition of a pod that no node has room for."""
    set_condition(fake, f"{PODS}/{pod}", type="PodScheduled", status="False",
                  reason="Unschedulable", message=message)  # fmt: skip


# stower get


@pytest.fixture
def waiting(fake: FakeApi) -> None:
    """Two pods that were rejected, and pods that wait for other reasons."""
    for name in ("big-1", "big-2"):
        fake.add_pod(name, "64")
        reject(fake, name)
    fake.add_pod("new", schedulerName="other")
    fake.add_pod("gated", schedulingGates=[{"name": "hold"}, {"name": "quota"}])
    fake.add_pod("placed", nodeName="n1")


@pytest.mark.usefixtures("waiting")
def test_pending_pods_come_with_the_reason_of_each(kubeconfig: Path) -> None:
    found = json.loads(invoke("get", "pending", "--kubeconfig", kubeconfig, "-o", "json").stdout)
    assert {
        "default/big-1": ("Unschedulable", NO_ROOM),
        "default/big-2": ("Unschedulable", NO_ROOM),
        "default/gated": ("SchedulingGated", "scheduling gates: hold, quota"),
        "default/new": ("", "not yet attempted by other"),
    } == {pod["pod"]: (pod["reason"], pod["why"]) for pod in found}


@pytest.mark.usefixtures("waiting")
def test_pending_pods_are_grouped_by_reason_or_listed(kubeconfig: Path) -> None:
    grouped = invoke("get", "pending", "--kubeconfig", kubeconfig).stdout.splitlines()
    assert "4 pods wait for a node" == grouped[0].strip()
    assert ["2", NO_ROOM] == [grouped[2].split()[0], " ".join(grouped[2].split()[2:-1])]
    each = invoke("get", "pending", "--kubeconfig", kubeconfig, "--pods").stdout
    assert {"default/big-1", "default/big-2", "default/gated", "default/new"} == {
        line.split()[0] for line in each.splitlines() if line.startswith("default/")
    }


@pytest.mark.usefixtures("waiting")
def test_pending_pods_have_classes(kubeconfig: Path) -> None:
    asked = ("get", "pending", "--kubeconfig", kubeconfig, "--classes")
    found = {pod["pod"]: pod for pod in json.loads(invoke(*asked, "-o", "json").stdout)}
    classes = {key: pod["class"] for key, pod in found.items()}
    assert ("blocked", "never") == (classes["default/gated"], classes["default/new"])
    assert "no scheduler of the name other is known" in found["default/new"]["because"]
    assert "class" in invoke(*asked, "--pods").stdout.splitlines()[1].split()
    told = invoke("get", "pending", "--kubeconfig", kubeconfig, "--config", "a.yaml")
    assert (2, True) == (told.exit_code, "--config: is for --classes" in told.stderr)


@pytest.mark.usefixtures("waiting")
def test_pending_pods_of_another_namespace_are_left_out(kubeconfig: Path) -> None:
    told = invoke("get", "pending", "--kubeconfig", kubeconfig, "-n", "team")
    assert "No pod waits for a node.\n" == told.stdout


def test_a_context_without_a_cluster_is_an_error(kubeconfig: Path) -> None:
    told = invoke("get", "pending", "--kubeconfig", kubeconfig, "--context", "gone")
    assert (1, "") == (told.exit_code, told.stdout)
    assert told.stderr.startswith("stower: error: ")


def test_without_any_kubeconfig_the_way_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    told = invoke("get", "pending")
    assert 1 == told.exit_code
    assert told.stderr.endswith("start a cluster with `stower up`, or give --kubeconfig\n")
    told = invoke("get", "pending", "--state", "lab")
    assert "--state lab: there is no cluster; start one with `stower up`" in told.stderr


def test_a_cluster_that_does_not_run_is_told_how_to_start(tmp_path: Path) -> None:
    state = tmp_path / "lab"
    state.mkdir()
    (state / "cluster.json").write_text("{}")
    write_kubeconfig(state / "kubeconfig", "http://127.0.0.1:1")
    told = invoke("get", "pending", "--state", state)
    assert 1 == told.exit_code
    assert "cannot reach http://127.0.0.1:1" in told.stderr
    hint = f"(the cluster of {state} does not run; start it with `stower up --state {state}`)"
    assert told.stderr.endswith(f"{hint}\n")


def test_a_web_server_that_is_no_api_server_is_told_so(tmp_path: Path) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text="<html>\n hello </html>", status=200)

    with in_thread(handle) as url:
        path = write_kubeconfig(tmp_path / "kubeconfig", url)
        told = invoke("get", "pending", "--kubeconfig", path)
    assert 1 == told.exit_code
    assert told.stderr.endswith("want the response of an API server: <html> hello </html>\n")


# stower status


@pytest.fixture
def state(fake: FakeApi, tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster that runs."""
    folder = tmp_path / "lab"
    with hold_state(folder), served(fake, folder / "kubeconfig") as path:
        address = "http://127.0.0.1:10259"
        record = Record(4711, "https://api.test", str(path), address, {"server": 4712})
        (folder / RECORD).write_bytes(msgspec.json.encode(record))
        (folder / TOKEN).write_text("secret\n")
        yield folder


def test_status_counts_ready_nodes_and_pods_by_phase(fake: FakeApi, state: Path) -> None:
    fake.add_pod("waits")
    fake.add_pod("starts", nodeName="n1")
    told = invoke("status", "--state", state, "-o", "json")
    found = json.loads(told.stdout)
    assert (1, {"all": 1, "ready": 0}) == (told.exit_code, found["nodes"])
    assert {"all": 2, "Pending": 1, "Starting": 1} == found["pods"]
    assert {"up": os.getpid(), "server": 4712} == found["processes"]
    assert "http://127.0.0.1:10259/dashboard/#token=secret" == found["dashboard"]
    set_condition(fake, f"{NODES}/n1", type="Ready", status="True")
    told = invoke("status", "--state", state)
    assert 0 == told.exit_code
    for text in ("1 of 1 ready", f"up {os.getpid()}, server 4712", "2: 1 Pending, 1 Starting"):
        assert text in told.stdout


def test_status_of_a_cluster_whose_server_is_gone_is_an_error(state: Path) -> None:
    write_kubeconfig(state / "kubeconfig", "http://127.0.0.1:1")
    told = invoke("status", "--state", state)
    assert (1, True) == (told.exit_code, "cannot reach http://127.0.0.1:1" in told.stderr)


def test_status_without_a_cluster_says_so(tmp_path: Path) -> None:
    state = tmp_path / "lab"
    told = invoke("status", "--state", state)
    assert (1, True) == (told.exit_code, told.stdout.startswith("No cluster runs from "))
    told = invoke("status", "--state", state, "-o", "json")
    assert (1, {"running": False}) == (told.exit_code, json.loads(told.stdout))
    state.mkdir()
    (state / LOCK).touch()
    assert 1 == invoke("status", "--state", state).exit_code


# stower doctor


def test_doctor_finds_what_a_cluster_offers_and_lacks(fake: FakeApi, kubeconfig: Path) -> None:
    spec = {"holderIdentity": "another", "renewTime": "2026-01-01T00:00:00.000000Z"}
    fake.call("POST", LEASES, {"metadata": {"name": "kube-scheduler"}, "spec": spec})
    set_condition(fake, f"{NODES}/n1", type="Ready", status="True")
    told = invoke("doctor", "--kubeconfig", kubeconfig, "-o", "json")
    found = {one["about"]: (one["state"], one["text"]) for one in json.loads(told.stdout)}
    assert 0 == told.exit_code
    assert "ok" == found["Python"][0]
    assert ("ok", "1 of the first 1 ready") == found["nodes"]
    assert ("ok", "granted") == found["right to create pods/binding"]
    state, text = found["Lease kube-system/kube-scheduler"]
    assert ("ok", True) == (state, text.startswith("held by another, renewed 2026-01-01"))
    assert text.endswith("expired, who starts now leads")


def test_doctor_counts_rights_that_are_missing(fake: FakeApi, kubeconfig: Path) -> None:
    def fault(method: str, path: str) -> Response | None:
        if path.endswith("/selfsubjectaccessreviews"):
            return Response(201, b'{"status": {"allowed": false}}')
        if path.startswith(NODES):
            return Response(403, b'{"message": "nodes is forbidden"}')
        return None

    fake.fault = fault
    told = invoke("doctor", "--kubeconfig", kubeconfig)
    assert 1 == told.exit_code
    assert "kubectl apply -k deploy/scheduler makes the account and its roles" in told.stdout
    assert "nodes is forbidden" in told.stdout
    fake.fault = lambda method, path: Response(403, b'{"message": "no reviews"}')
    told = invoke("doctor", "--kubeconfig", kubeconfig)
    assert (1, True) == (told.exit_code, "no reviews" in told.stdout)


def test_doctor_without_a_cluster_looks_at_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that was not named is no fault; one that was named is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    told = invoke("doctor", "-o", "json")
    (cluster,) = (one for one in json.loads(told.stdout) if one["about"] == "cluster")
    assert (0, "note") == (told.exit_code, cluster["state"])
    assert 1 == invoke("doctor", "--state", "lab").exit_code


# stower load


def objects(tmp_path: Path, *documents: Any) -> Path:
    path = tmp_path / "objects.json"
    path.write_text("\n".join(map(json.dumps, documents)))
    return path


def pod(name: str, **meta: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta},
            "spec": {"containers": [container]}}  # fmt: skip


def test_load_creates_what_is_missing_and_counts_the_rest(
    fake: FakeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}
    path = objects(tmp_path, node, pod("a"), pod("b", namespace="team"))
    told = invoke("load", path, "--kubeconfig", kubeconfig)
    assert (0, True) == (told.exit_code, told.stdout.startswith("3 created in "))
    assert "stower://n2" == fake.call("GET", f"{NODES}/n2")["spec"]["providerID"]
    assert "b" == fake.call("GET", "/api/v1/namespaces/team/pods/b")["metadata"]["name"]
    told = invoke("load", path, "--kubeconfig", kubeconfig, "-o", "json")
    found = json.loads(told.stdout)
    assert (0, 3, 0) == (found["created"], found["alreadyThere"], found["failed"])


def test_load_tells_which_objects_were_refused(
    fake: FakeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    unknown = {"apiVersion": "x.io/v1", "kind": "Unknown", "metadata": {"name": "u"}}
    path = objects(tmp_path, pod("a"), unknown, pod("Not_A_Name"))
    told = invoke("load", path, path, "--kubeconfig", kubeconfig, "--rate", "100000")
    assert 1 == told.exit_code
    assert told.stdout.startswith("1 created, 1 already existed, 4 failed in ")
    assert 4 == told.stderr.count(f"stower: {path}")
    assert "n2" not in {node["metadata"]["name"] for node in fake.call("GET", NODES)["items"]}


def test_load_refuses_inputs_without_objects(kubeconfig: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("---\n")
    told = invoke("load", tmp_path / "empty.yaml", "--kubeconfig", kubeconfig)
    assert (2, True) == (told.exit_code, told.stderr.endswith("empty.yaml: no objects\n"))
    told = invoke("load", tmp_path / "gone.yaml", "--kubeconfig", kubeconfig)
    assert 2 == told.exit_code
    path = objects(tmp_path, pod("a"))
    write_kubeconfig(kubeconfig, "http://127.0.0.1:1")
    told = invoke("load", path, "--kubeconfig", kubeconfig)
    assert (1, True) == (told.exit_code, "cannot reach" in told.stderr)


# Verbs that ask a scheduler's question of a cluster


def test_room_of_a_cluster_is_that_of_its_server(
    fake: FakeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    fake.add_pod("runs", "3", nodeName="n1")
    new = pod("new")
    new["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "500m"}}
    told = invoke("fit", objects(tmp_path, new), "--kubeconfig", kubeconfig, "-o", "json")
    assert (0, 2) == (told.exit_code, json.loads(told.stdout)["fits"])


def test_a_server_that_hides_nodes_is_an_error(
    fake: FakeApi, kubeconfig: Path, tmp_path: Path
) -> None:
    def fault(method: str, path: str) -> Response | None:
        forbidden = path.startswith(NODES)
        return Response(403, b'{"message": "nodes is forbidden"}') if forbidden else None

    fake.fault = fault
    told = invoke("fit", objects(tmp_path, pod("new")), "--kubeconfig", kubeconfig)
    assert (1, True) == (told.exit_code, "403 nodes is forbidden" in told.stderr)


def test_an_input_excludes_the_options_of_a_cluster(kubeconfig: Path, tmp_path: Path) -> None:
    path = objects(tmp_path, pod("new"))
    told = invoke("fit", path, path, "--kubeconfig", kubeconfig)
    assert (2, True) == (told.exit_code, "cannot be combined with INPUT" in told.stderr)
