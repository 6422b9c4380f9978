"""Budgets by the scale of what controls their pods, and conditions that go stale."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, Object
from tests.unit.controllers.test_garbage import DEFINITIONS, TOYS, definition
from tests.unit.controllers.test_workloads import replication_controller, template, workload

EVENTS = "/api/v1/namespaces/default/events"


def budget(cluster: Cluster, **spec: Any) -> None:
    selector = {"matchLabels": {"app": "x"}}
    cluster.create("poddisruptionbudgets", {"metadata": {"name": "b"},
                                            "spec": {"selector": selector, **spec}})  # fmt: skip


def status(cluster: Cluster) -> Object:
    cluster.advance(3)
    return dict(cluster.one("poddisruptionbudgets", "b")["status"])


def counts(cluster: Cluster) -> tuple[int, ...]:
    found = status(cluster)
    names = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")
    return tuple(found[name] for name in names)


def told(cluster: Cluster) -> list[tuple[str, str]]:
    events = cluster.get(EVENTS)["items"]
    return [(e["reason"], e["message"]) for e in events
            if e["involvedObject"]["kind"] == "PodDisruptionBudget"]  # fmt: skip


def pod(name: str, owner: Object | None = None, **spec: Any) -> Object:
    meta: Object = {"name": name, "labels": {"app": "x"}}
    if owner is not None:
        meta["ownerReferences"] = [owner]
    return {"metadata": meta, "spec": {**template()["spec"], **spec}}


@pytest.mark.parametrize("kind", ["replicationcontrollers", "replicasets", "statefulsets"])
def test_the_scale_of_controllers_is_what_is_expected(kind: str) -> None:
    cluster = Cluster()
    if kind == "replicationcontrollers":
        obj = replication_controller("w", 4)
    else:
        own = {"serviceName": "s"} if kind == "statefulsets" else {}
        obj = workload("w", replicas=4, **own)
    cluster.create(kind, obj)
    budget(cluster, maxUnavailable="25%")
    assert (4, 3, 4, 1) == counts(cluster)


def toys_with_scale(**subresources: Any) -> Cluster:
    cluster = Cluster()
    found = definition()
    version = found["spec"]["versions"][0]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version["schema"] = {"openAPIV3Schema": schema}
    version["subresources"] = subresources
    assert 201 == cluster.ask("POST", DEFINITIONS, found)[0]
    cluster.settle()
    return cluster


def owned_by_a_toy(cluster: Cluster) -> None:
    toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "t"},
           "spec": {"size": 5}}  # fmt: skip
    made = cluster.ask("POST", TOYS, toy)[1]
    reference = {"apiVersion": "example.com/v1", "kind": "Toy", "name": "t", "controller": True,
                 "uid": made["metadata"]["uid"]}  # fmt: skip
    for number in range(3):
        cluster.create("pods", pod(f"p{number}", reference))


def test_custom_controllers_have_the_scale_that_their_definition_names() -> None:
    paths = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    cluster = toys_with_scale(scale=paths)
    owned_by_a_toy(cluster)
    budget(cluster, minAvailable="40%")
    assert (5, 2, 3, 1) == counts(cluster)


def test_without_a_known_scale_nobody_is_evicted() -> None:
    cluster = toys_with_scale()
    owned_by_a_toy(cluster)
    budget(cluster, minAvailable="40%")
    found = status(cluster)
    (condition,) = found["conditions"]
    text = "toys.example.com does not implement the scale subresource"
    assert 0 == found["disruptionsAllowed"]
    assert ("False", "SyncFailed", text) == tuple(
        condition[name] for name in ("status", "reason", "message")
    )
    failed = f"Failed to calculate the number of expected pods: {text}"
    assert [("CalculateExpectedPodCountFailed", failed)] == told(cluster)
    cluster.patch("poddisruptionbudgets", "b", {"spec": {"minAvailable": 1}})
    assert (3, 1, 3, 2) == counts(cluster)
    (condition,) = status(cluster)["conditions"]
    assert ("True", "SufficientPods") == (condition["status"], condition["reason"])


def test_pods_without_a_controller_are_told_of_once() -> None:
    cluster = Cluster()
    cluster.create("pods", pod("p"))
    budget(cluster, maxUnavailable=1)
    assert (0, 0, 1, 0) == counts(cluster)
    cluster.advance(60)
    ((reason, message),) = told(cluster)
    assert "UnmanagedPods" == reason
    assert (
        "(selector: &LabelSelector{MatchLabels:map[string]string{app: x,},"
        "MatchExpressions:[]LabelSelectorRequirement{},})"
    ) in message


def test_a_budget_without_pods_says_so() -> None:
    cluster = Cluster()
    budget(cluster, minAvailable=1)
    assert (0, 1, 0, 0) == counts(cluster)
    assert [("NoPods", "No matching pods found")] == told(cluster)


def test_a_pod_that_was_not_disrupted_after_all_loses_its_condition() -> None:
    cluster = Cluster()
    cluster.create("pods", pod("p"))
    cluster.advance(3)
    at = cluster.one("pods", "p")["metadata"]["creationTimestamp"]
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
              "message": "m", "lastTransitionTime": at}  # fmt: skip
    path = "/api/v1/namespaces/default/pods/p/status"
    patch = {"status": {"conditions": [target]}}
    kind = "application/strategic-merge-patch+json"
    assert 200 == cluster.ask("PATCH", path, patch, kind)[0]

    def condition() -> Object:
        found = cluster.one("pods", "p")["status"]["conditions"]
        return next(c for c in found if c["type"] == "DisruptionTarget")

    cluster.advance(100)
    assert "True" == condition()["status"]
    cluster.advance(30)
    assert "False" == condition()["status"]
    assert "reason" not in condition()
