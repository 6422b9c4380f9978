"""Nodes that register and stay alive, pods that start, run, end and stop, on a virtual clock."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, Object, pools

RUN = "stower.dev/run-seconds"


def pod(name: str, cpu: str = "100m", annotations: Object | None = None, **spec: Any) -> Object:
    container = {"name": "c", "image": "busy", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"containers": [container], **spec}}  # fmt: skip


def ready(obj: Object) -> str:
    return next(c["status"] for c in obj["status"]["conditions"] if c["type"] == "Ready")


def test_nodes_register_as_the_file_says() -> None:
    taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    cluster = Cluster(
        pools(4, capacity={"cpu": "8"}, zones=["a", "b"], taints=taints, images=["big:1"])
    )
    nodes = cluster.all("nodes")
    assert ["node-1", "node-2", "node-3", "node-4"] == sorted(nodes)
    node = nodes["node-3"]
    assert "a" == node["metadata"]["labels"]["topology.kubernetes.io/zone"]
    assert "8" == node["status"]["allocatable"]["cpu"]
    assert taints == node["spec"]["taints"]
    assert [["big:1"]] == [i["names"] for i in node["status"]["images"]]
    assert "True" == ready(node)


def test_a_node_boots_and_then_takes_pods() -> None:
    cluster = Cluster(pools(1, bootSeconds=30))
    assert "False" == ready(cluster.one("nodes", "node-1"))
    cluster.create("pods", pod("p"))
    cluster.advance(29)
    assert {"p": "Pending"} == cluster.phases()
    cluster.advance(2)
    assert "True" == ready(cluster.one("nodes", "node-1"))
    assert not cluster.one("nodes", "node-1")["spec"].get("taints")
    cluster.advance(15)
    assert {"p": "Running"} == cluster.phases()


def test_an_image_is_pulled_once_per_node_and_listed() -> None:
    document = {**pools(1), "images": [{"name": "busy", "size": "1Gi"}]}
    cluster = Cluster(document)
    cluster.create("pods", pod("a"))
    cluster.advance(10)
    waiting = cluster.one("pods", "a")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert {"reason": "ContainerCreating"} == waiting
    cluster.advance(0.3)
    assert {"a": "Running"} == cluster.phases()
    images = cluster.one("nodes", "node-1")["status"]["images"]
    assert [{"names": ["busy"], "sizeBytes": 2**30}] == images
    cluster.create("pods", pod("b"))
    assert {"a": "Running", "b": "Running"} == cluster.phases(), "the image is there"


@pytest.mark.parametrize(
    ("policy", "code", "phase", "restarts"),
    [
        ("Never", "0", "Succeeded", 0),
        ("Never", "3", "Failed", 0),
        ("OnFailure", "0", "Succeeded", 0),
        ("OnFailure", "1", "Running", 2),
        ("Always", "0", "Running", 2),
    ],
)
def test_a_pod_ends_after_its_time(policy: str, code: str, phase: str, restarts: int) -> None:
    cluster = Cluster()
    how = {RUN: "60", "stower.dev/exit-code": code}
    cluster.create("pods", pod("p", annotations=how, restartPolicy=policy))
    cluster.advance(55)
    assert {"p": "Running"} == cluster.phases()
    cluster.advance(80)  # the second time it waits for 10 s
    status = cluster.one("pods", "p")["status"]
    assert phase == status["phase"]
    container = status["containerStatuses"][0]
    assert restarts == container["restartCount"]
    if not restarts:
        assert int(code) == container["state"]["terminated"]["exitCode"]
    else:
        assert int(code) == container["lastState"]["terminated"]["exitCode"]


def test_a_pod_that_is_deleted_has_its_time_to_stop_but_not_more() -> None:
    cluster = Cluster()
    for name, stops in (("quick", "0"), ("slow", "10"), ("never", "999")):
        cluster.create("pods", pod(name, annotations={"stower.dev/stop-seconds": stops}))
    cluster.advance(5)
    for name in ("quick", "slow", "never"):
        cluster.delete("pods", name)
    assert ["never", "slow"] == sorted(cluster.phases())
    cluster.advance(11)
    assert ["never"] == sorted(cluster.phases())
    cluster.advance(20)
    assert {} == cluster.phases()


def test_what_does_not_fit_is_refused_by_the_node() -> None:
    cluster = Cluster(pools(1), scheduler=False)
    cluster.create("pods", pod("a", "3", nodeName="node-1"))
    cluster.create("pods", pod("b", "2", nodeName="node-1"))
    cluster.advance(5)
    assert {"a": "Running", "b": "Failed"} == cluster.phases()
    assert "OutOfcpu" == cluster.one("pods", "b")["status"]["reason"]


def test_a_resize_is_carried_out_where_there_is_room() -> None:
    cluster = Cluster(pools(1))
    cluster.create("pods", pod("a", "1"))
    cluster.create("pods", pod("b", "2"))
    cluster.advance(5)

    def resize(cpu: str) -> None:
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        path = "/api/v1/namespaces/default/pods/a/resize"
        patch = {"spec": {"containers": [container]}}
        status, answer = cluster.ask("PATCH", path, patch, "application/strategic-merge-patch+json")
        assert 200 == status, answer
        cluster.settle()

    def given() -> tuple[str, str | None]:
        status = cluster.one("pods", "a")["status"]
        reasons = [c["reason"] for c in status["conditions"] if c["type"] == "PodResizePending"]
        return status["containerStatuses"][0]["resources"]["requests"]["cpu"], *reasons, None  # type: ignore[return-value]

    resize("1500m")
    assert ("1500m", None) == given()[:2]
    resize("3")
    assert ("1500m", "Deferred") == given()[:2]
    cluster.delete("pods", "b")
    cluster.advance(11)
    assert ("3", None) == given()[:2]
    resize("9")
    assert ("3", "Infeasible") == given()[:2]


def test_a_node_whose_kubelet_dies_loses_its_pods_and_comes_back() -> None:
    cluster = Cluster(pools(2))
    tolerations = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute",
         "tolerationSeconds": 30}
        for key in ("not-ready", "unreachable")
    ]  # fmt: skip
    cluster.create("pods", pod("p", tolerations=tolerations))
    cluster.create("pods", pod("stays", tolerations=[{"operator": "Exists"}]))
    cluster.advance(5)
    dead = cluster.one("pods", "p")["spec"]["nodeName"]
    cluster.patch("nodes", dead, {"metadata": {"annotations": {"stower.dev/fail": "true"}}})
    cluster.advance(35)
    assert "True" == ready(cluster.one("nodes", dead))
    cluster.advance(30)
    node = cluster.one("nodes", dead)
    assert "Unknown" == ready(node)
    taints = {(t["key"], t["effect"]) for t in node["spec"]["taints"]}
    unreachable = "node.kubernetes.io/unreachable"
    assert {(unreachable, "NoSchedule"), (unreachable, "NoExecute")} == taints
    assert "metadata" in cluster.one("pods", "p")
    cluster.advance(40)
    ending = cluster.one("pods", "p")
    assert "deletionTimestamp" in ending["metadata"], "nobody is there to end it"
    target = next(c for c in ending["status"]["conditions"] if c["type"] == "DisruptionTarget")
    assert "DeletionByTaintManager" == target["reason"]
    assert "deletionTimestamp" not in cluster.one("pods", "stays")["metadata"]
    cluster.patch("nodes", dead, {"metadata": {"annotations": {"stower.dev/fail": None}}})
    cluster.advance(15)
    node = cluster.one("nodes", dead)
    assert "True" == ready(node)
    assert not node["spec"].get("taints")
    assert ["stays"] == sorted(cluster.phases())


def test_pods_of_a_node_that_is_gone_go_too() -> None:
    cluster = Cluster(pools(1))
    cluster.create("pods", pod("p"))
    cluster.advance(5)
    cluster.delete("nodes", "node-1")
    cluster.advance(30)
    assert {} == cluster.phases()
    assert {} == cluster.all("leases", "kube-node-lease"), "its lease belonged to it"
