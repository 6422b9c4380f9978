"""Groups of pods on `stower up`: a gang waits for all of its pods, and comes as a whole."""

from pathlib import Path
from typing import Any

import pytest

from stower.apiserver.server_process import Options
from tests.contract.servers import Command, in_thread, until
from tests.contract.test_live import scheduler
from tests.contract.test_up import PODS, running, state, stower, up

OLD = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
COMPOSITES = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/compositepodgroups"

__all__ = ["state"]  # a fixture


def pod(name: str, group: str = "") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
    spec: dict[str, Any] = {"containers": [container]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.behaviour("S3.7", "S3.40")
def test_a_gang_waits_for_its_last_pod(state: Path) -> None:
    """Where the API server has groups as Kubernetes 1.36 does."""
    client = up(state, "--nodes", "2", "--kubernetes", "1.36")
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    group = {"metadata": {"name": "gang"}, "spec": spec}
    assert 201 == client.call("POST", OLD, group)[0]
    for one in (pod("a", "gang"), pod("b", "gang"), pod("alone")):
        assert 201 == client.call("POST", PODS, one)[0]
    assert ["alone"] == list(running(until(client, PODS, lambda o: len(running(o)) == 1)))
    assert 201 == client.call("POST", PODS, pod("c", "gang"))[0]
    until(client, PODS, lambda o: len(running(o)) == 4)
    said = until(client, OLD, lambda o: bool(o["gang"].get("status", {}).get("conditions")))
    (condition,) = said["gang"]["status"]["conditions"]
    assert ("PodGroupScheduled", "True", "Scheduled") == (
        condition["type"], condition["status"], condition["reason"]
    )  # fmt: skip


@pytest.mark.behaviour("S3.7", "S3.28", "S3.40")
def test_a_tree_comes_and_goes_as_a_whole(state: Path) -> None:
    """As Kubernetes 1.37 has it: two gangs in a group of groups, held until all are there."""
    client = up(state, "--nodes", "3")
    reference = {"workloadRef": {"workloadName": "job", "templateName": "all"}}
    root = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}, **reference}
    gang = {"schedulingPolicy": {"gang": {"minCount": 2}}, **reference}
    for name in ("left", "right"):
        spec = {**gang, "parentCompositePodGroupName": "root"}
        assert 201 == client.call("POST", GROUPS, {"metadata": {"name": name}, "spec": spec})[0]
    for name in ("l1", "l2", "r1"):
        group = "left" if name[0] == "l" else "right"
        assert 201 == client.call("POST", PODS, pod(name, group))[0]
    assert 201 == client.call("POST", COMPOSITES, {"metadata": {"name": "root"}, "spec": root})[0]
    assert 201 == client.call("POST", PODS, pod("alone"))[0]
    assert ["alone"] == list(running(until(client, PODS, lambda o: len(running(o)) == 1)))
    assert 201 == client.call("POST", PODS, pod("r2", "right"))[0]
    until(client, PODS, lambda o: len(running(o)) == 5)
    for path, name, kind in (
        (COMPOSITES, "root", "CompositePodGroupInitiallyScheduled"),
        (GROUPS, "left", "PodGroupInitiallyScheduled"),
    ):
        said = until(client, path, lambda o, n=name: bool(o[n]["status"].get("conditions")))
        (condition,) = said[name]["status"]["conditions"]
        assert (kind, "True") == (condition["type"], condition["status"])
    code, drawn, error = stower("groups", "--kubeconfig", str(state / "kubeconfig"), "root")
    assert (0, "") == (code, error)
    assert all(name in drawn for name in ("root", "left", "right"))
    for name in ("root", "left", "right"):
        client.call("DELETE", f"{COMPOSITES if name == 'root' else GROUPS}/{name}")
    for name in ("l1", "l2", "r1", "r2"):
        client.call("DELETE", f"{PODS}/{name}")
    until(client, GROUPS, lambda o: not o)
    until(client, COMPOSITES, lambda o: not o)


@pytest.mark.more
def test_a_long_search_is_done_beside_the_scheduler(tmp_path: Path) -> None:
    """520 nodes in racks of 20, of which counting says that each has room for the gang."""
    with in_thread(Options(tmp_path / "state", memory=True, version="1.37")) as (_, client):
        for i in range(520):
            meta = {"name": f"n{i}", "labels": {"rack": f"r{i // 20}"}}
            body = {"metadata": meta, "status": {"allocatable": {"cpu": "10", "pods": "99"}}}
            assert 201 == client.call("POST", "/api/v1/nodes", body)[0]
        spec = {
            "schedulingPolicy": {"gang": {"minCount": 27}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
        }
        assert 201 == client.call("POST", GROUPS, {"metadata": {"name": "g"}, "spec": spec})[0]
        for i in range(27):
            one = pod(f"g{i}", "g")
            one["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "6" if i < 15 else "5"
            assert 201 == client.call("POST", PODS, one)[0]
        with scheduler(client.kubeconfig, "--no-leader-elect"):
            said = until(client, GROUPS, lambda o: bool(o["g"].get("status", {}).get("conditions")))
        (condition,) = said["g"]["status"]["conditions"]
        text = "impossible (proven): this does not fit: 27 pods of PodGroup default/g in one rack"
        assert condition["message"].startswith(text)


def test_groups_are_made_on_a_cluster_with_controllers_of_its_own(tmp_path: Path) -> None:
    """`stower make-groups` on a server that nobody else looks after."""
    with in_thread(Options(tmp_path / "state", memory=True)) as (server, client):
        command = Command("make-groups", "--kubeconfig", str(server.kubeconfig))
        try:
            asking = pod("p")
            asking["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
            asking["metadata"]["annotations"] = {"stower.dev/min-count": "1"}
            asking["spec"]["schedulingGates"] = [{"name": "stower.dev/pod-group"}]
            assert 201 == client.call("POST", PODS, asking)[0]
            pods = until(client, PODS, lambda o: not o["p"]["spec"].get("schedulingGates"))
            assert "g" == pods["p"]["metadata"]["labels"]["stower.dev/pod-group"]
            assert ["g"] == [*until(client, OLD, bool)]
            assert 0 == command.stop()
        finally:
            if command.process.returncode is None:
                command.kill()
