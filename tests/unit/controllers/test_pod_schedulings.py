"""PodSchedulings go with their pods and namespaces, however these go."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, pools

Object = dict[str, Any]
KIND = "podschedulings"
WAITS = {"schedulingGates": [{"name": "example.com/wait"}]}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(pools(1))


def negotiated(cluster: Cluster, name: str = "p", namespace: str = "default") -> Object:
    """A pod that waits, and what is said about it."""
    spec = {"containers": [{"name": "c", "image": "i"}], **WAITS}
    pod = cluster.create("pods", {"metadata": {"name": name}, "spec": spec}, namespace)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"]}
    meta = {"name": name, "ownerReferences": [owner]}
    return cluster.create(KIND, {"metadata": meta, "spec": {"round": 1}}, namespace)


@pytest.mark.behaviour("S0.28")
@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_negotiation_goes_with_its_pod(cluster: Cluster, policy: str) -> None:
    negotiated(cluster)
    negotiated(cluster, "q")
    cluster.delete("pods", "p", propagationPolicy=policy)
    cluster.advance(5)
    assert ["q"] == [*cluster.all("pods")] == [*cluster.all(KIND)]


def test_negotiation_about_a_pod_that_is_gone_goes_at_once(cluster: Cluster) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "of-another"}
    cluster.create(KIND, {"metadata": {"name": "p", "ownerReferences": [owner]}})
    cluster.advance(5)
    assert {} == cluster.all(KIND)


def test_negotiation_that_is_deleted_in_the_foreground_is_gone(cluster: Cluster) -> None:
    negotiated(cluster)
    cluster.delete(KIND, "p", propagationPolicy="Foreground")
    cluster.advance(5)
    assert ({}, ["p"]) == (cluster.all(KIND), [*cluster.all("pods")])


def test_namespace_with_negotiations_can_be_deleted(cluster: Cluster) -> None:
    cluster.create("namespaces", {"metadata": {"name": "lab"}}, "")
    negotiated(cluster, namespace="lab")
    negotiated(cluster)
    cluster.delete("namespaces", "lab", "")
    cluster.until(lambda: "lab" not in cluster.all("namespaces", ""))
    assert ({}, ["p"]) == (cluster.all(KIND, "lab"), [*cluster.all(KIND)])
