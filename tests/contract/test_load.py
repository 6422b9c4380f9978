"""`stower load` and `stower get pending` on a cluster that runs."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.in_process import stower_in_process
from tests.contract.servers import Client, until
from tests.contract.test_up import OPEN, running, stower, up


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Client]]:
    folder = tmp_path_factory.mktemp("lab") / "state"
    client = up(folder, "--nodes", "2", "--node-cpu", "4")
    yield folder, client
    while OPEN:
        OPEN.pop().close()
    stower("down", "--state", str(folder))


def test_what_generate_makes_is_taken(lab: tuple[Path, Client], tmp_path: Path) -> None:
    state, client = lab
    code, text, _ = stower("generate", "--nodes", "6", "--pods", "60")
    assert 0 == code
    file = tmp_path / "cluster.ndjson"
    file.write_text(text)
    for want in ({"created": 67}, {"alreadyThere": 67}):
        code, said, error = stower("load", str(file), "--state", str(state), "--output", "json")
        assert 0 == code, error
        found = json.loads(said)
        assert want.items() <= found.items()
        assert 0 == found["failed"]
    nodes = until(client, "/api/v1/nodes", lambda o: len(o) == 8)
    assert nodes["small-00000"]["spec"]["providerID"] == "stower://small-00000"
    pods = until(client, "/api/v1/pods", lambda o: len(o) == 60 and all(map(_told, o.values())))
    assert running(pods)


def _told(pod: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    """It runs, or it is known why not."""
    types = {c["type"]: c["status"] for c in pod["status"].get("conditions") or ()}
    return types.get("PodScheduled") == "False" or types.get("Ready") == "True"


def test_a_trace_is_followed_at_its_times(lab: tuple[Path, Client], tmp_path: Path) -> None:
    state, client = lab
    nodes = tmp_path / "openb_node_list_all_node.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\ngpu-node,16000,65536,2,V100M16\n")
    pods = tmp_path / "openb_pod_list_default.csv"
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    head += "creation_time,deletion_time,scheduled_time\n"
    pods.write_text(
        head
        + "t-0,1000,1024,1,1000,,LS,Running,0,2000,1\n"
        + "t-1,1000,1024,1,500,,LS,Running,2500,90000000,1\n"
    )
    code, said, error = stower("load", str(tmp_path), "--speed", "1000", "--state", str(state))
    assert 0 == code, error
    assert "3 created" in said
    trace = "/api/v1/namespaces/openb/pods"
    done = until(client, trace, lambda o: o["t-0"]["status"]["phase"] == "Succeeded")
    assert "gpu-node" == done["t-1"]["spec"]["nodeName"]
    assert (
        done["t-0"]["metadata"]["creationTimestamp"] < done["t-1"]["metadata"]["creationTimestamp"]
    )


def test_pending_says_who_waits_for_what(lab: tuple[Path, Client], tmp_path: Path) -> None:
    state, client = lab
    asks = {"requests": {"cpu": "900"}}
    container = {"name": "c", "image": "i", "resources": asks}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "huge", "namespace": "pend"},
           "spec": {"containers": [container]}}  # fmt: skip
    gated = {
        **pod,
        "metadata": {"name": "gated", "namespace": "pend"},
        "spec": {**pod["spec"], "schedulingGates": [{"name": "lab/quota"}]},
    }  # type: ignore[dict-item]
    file = tmp_path / "pods.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [pod, gated]}))
    assert 0 == stower("load", str(file), "--state", str(state))[0]
    path = "/api/v1/namespaces/pend/pods"
    until(client, path, lambda o: "conditions" in o["huge"]["status"])
    code, said, _ = stower("get", "pending", "-n", "pend", "--state", str(state), "-o", "json")
    assert 0 == code
    why = {entry["pod"]: entry["why"] for entry in json.loads(said)}
    assert "scheduling gates: lab/quota" == why["pend/gated"]
    assert why["pend/huge"].endswith(" Insufficient cpu.")  # nothing of what preemption came to
    _, said, _ = stower("get", "pending", "--state", str(state))
    assert "pods wait for a node" in said
    assert "pend/huge" in said


def test_what_cannot_be_loaded_is_told(lab: tuple[Path, Client], tmp_path: Path) -> None:
    state, _ = lab
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "Bad Name"}, "spec": {}}
    zoo = {"apiVersion": "zoo/v1", "kind": "Lion", "metadata": {"name": "leo"}}
    file = tmp_path / "bad.ndjson"
    file.write_text(json.dumps(bad) + "\n" + json.dumps(zoo) + "\n")
    code, said, error = stower("load", str(file), "--state", str(state))
    assert 1 == code
    assert "2 failed" in said
    assert "bad.ndjson: document 1: 422" in error
    assert "the server has no Lion of zoo/v1" in error
    missing = str(tmp_path / "none.yaml")
    code, _, error = stower_in_process("load", missing, "--state", str(state))
    assert (2, 1) == (code, error.count("\n"))
    (tmp_path / "x").write_text("{")
    nowhere = str(tmp_path / "nowhere")
    code, _, error = stower_in_process("get", "pending", "--kubeconfig", nowhere)
    assert (1, 1) == (code, error.count("\n"))
