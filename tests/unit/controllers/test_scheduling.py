"""The scheduler in a whole cluster: what it writes is taken by the API, and comes true."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, pools

Object = dict[str, Any]
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def pod(name: str, cpu: str, priority: str = "", grace: int = 30, **spec: Any) -> Object:
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    container = {"name": "c", "image": "i", "resources": resources}
    made: Object = {"containers": [container], "terminationGracePeriodSeconds": grace, **spec}
    if priority:
        made["priorityClassName"] = priority
    return {"metadata": {"name": name, "labels": {"app": name}}, "spec": made}


def cluster_with(priorities: dict[str, int]) -> Cluster:
    cluster = Cluster(pools(1, capacity={"cpu": "4", "memory": "8Gi", "pods": "110"}))
    for name, value in priorities.items():
        made = {"metadata": {"name": name}, "value": value}
        assert 201 == cluster.ask("POST", CLASSES, made)[0]
    return cluster


@pytest.mark.behaviour("U30")
def test_the_preemptor_runs_when_its_victim_has_ended() -> None:
    cluster = cluster_with({"high": 1000, "mid": 10})
    low = pod("low", "2", grace=5)
    low["metadata"]["annotations"] = {"stower.dev/stop-seconds": "3"}
    cluster.create("pods", low)
    cluster.create("pods", pod("mid", "2", "mid"))
    cluster.advance(5)
    cluster.create("pods", pod("high", "2", "high"))
    victim = cluster.one("pods", "low")
    told = {c["type"]: c for c in victim["status"]["conditions"]}
    assert "PreemptionByScheduler" == told["DisruptionTarget"]["reason"]
    assert 5 == victim["metadata"]["deletionGracePeriodSeconds"]
    assert "node-1" == cluster.one("pods", "high")["status"]["nominatedNodeName"]
    cluster.advance(2)
    assert "Pending" == cluster.phases()["high"]
    cluster.advance(20)
    assert {"high": "Running", "mid": "Running"} == cluster.phases()
    bound = cluster.one("pods", "high")
    assert "nominatedNodeName" not in bound["status"]
    assert ["True"] == [
        c["status"] for c in bound["status"]["conditions"] if c["type"] == "PodScheduled"
    ]


def test_a_budget_chooses_the_victim() -> None:
    cluster = cluster_with({"high": 1000})
    cluster.create("pods", pod("kept", "2"))
    cluster.create("pods", pod("free", "2"))
    cluster.advance(5)
    budget = {"metadata": {"name": "b"}, "spec": {
        "minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}}  # fmt: skip
    cluster.create("poddisruptionbudgets", budget)
    cluster.advance(2)
    cluster.create("pods", pod("high", "2", "high"))
    cluster.advance(60)
    assert {"high": "Running", "kept": "Running"} == cluster.phases()


def test_a_pod_waits_for_the_volume_that_is_made_for_its_node() -> None:
    cluster = cluster_with({})
    storage_class = {"metadata": {"name": "late"}, "provisioner": "stower.dev/volumes",
                     "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    cluster.create("storageclasses", storage_class, "")
    claim = {"metadata": {"name": "data"}, "spec": {
        "storageClassName": "late", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.create("pods", pod("early", "1", volumes=volumes))
    (condition,) = [
        c
        for c in cluster.one("pods", "early")["status"]["conditions"]
        if c["type"] == "PodScheduled"
    ]
    assert 'persistentvolumeclaim "data" not found' in condition["message"]
    cluster.create("persistentvolumeclaims", claim)
    cluster.advance(30)
    assert {"early": "Running"} == cluster.phases()
    bound = cluster.one("persistentvolumeclaims", "data")
    assert "node-1" == bound["metadata"]["annotations"]["volume.kubernetes.io/selected-node"]
    assert "Bound" == bound["status"]["phase"]


def test_a_volume_that_is_there_already_is_taken() -> None:
    cluster = cluster_with({})
    none = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    cluster.create("storageclasses", none, "")
    terms = [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]  # fmt: skip
    disk = {"metadata": {"name": "disk"}, "spec": {
        "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "9Gi"}, "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}  # fmt: skip
    cluster.create("persistentvolumes", disk, "")
    claim = {"metadata": {"name": "data"}, "spec": {
        "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    cluster.create("persistentvolumeclaims", claim)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.create("pods", pod("p", "1", volumes=volumes))
    cluster.advance(30)
    assert {"p": "Running"} == cluster.phases()
    assert "disk" == cluster.one("persistentvolumeclaims", "data")["spec"]["volumeName"]
