"""The status of quotas: filled in, added to by admission, and counted anew."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster, Object
from tests.unit.controllers.test_garbage import DEFINITIONS, TOYS, definition

QUOTAS = "/api/v1/namespaces/default/resourcequotas"
BASE = "/api/v1/namespaces/default"


def quota(cluster: Cluster, hard: Object, name: str = "q", **spec: Any) -> None:
    status, answer = cluster.ask(
        "POST", QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
    )
    assert 201 == status, answer
    cluster.settle()


def used(cluster: Cluster, name: str = "q") -> Object:
    """The usage, once whatever has changed was counted."""
    cluster.advance(3)
    status = cluster.get(f"{QUOTAS}/{name}")["status"]
    assert status["hard"] == cluster.get(f"{QUOTAS}/{name}")["spec"]["hard"]
    return dict(status.get("used") or {})


def make(cluster: Cluster, path: str, obj: Object, expected: int = 201) -> str:
    """Creates an object; returns the message where that is refused."""
    status, answer = cluster.ask("POST", path, obj)
    assert expected == status, answer
    cluster.settle()
    return str(answer.get("message", ""))


def pod(name: str, requests: Object | None = None, limits: Object | None = None,
        annotations: Object | None = None, **spec: Any) -> Object:  # fmt: skip
    resources = {"requests": requests or {}, "limits": limits or {}}
    container = {"name": "c", "image": "i", "resources": resources}
    return {"metadata": {"name": name, "annotations": annotations or {}},
            "spec": {"containers": [container], **spec}}  # fmt: skip


def drop(cluster: Cluster, path: str) -> None:
    status, answer = cluster.ask("DELETE", path, {"gracePeriodSeconds": 0})
    assert status in (200, 202), answer
    cluster.settle()


def test_a_new_quota_gets_limits_and_usage_at_once() -> None:
    cluster = Cluster(scheduler=False)
    make(cluster, f"{BASE}/pods", pod("p", {"cpu": "500m"}))
    hard = {"pods": "5", "requests.cpu": "2", "services": "1", "count/pods": "9", "nothing": "3",
            "count/nothing.example.com": "2"}  # fmt: skip
    quota(cluster, {name: text for name, text in hard.items() if name != "nothing"})
    status = cluster.get(f"{QUOTAS}/q")["status"]
    assert {"pods": "1", "requests.cpu": "500m", "services": "0", "count/pods": "1"} == (
        status["used"]
    ), "a kind that nobody knows is not counted"


@pytest.mark.parametrize(
    ("plural", "obj", "added"),
    [
        ("secrets", {}, {"secrets": "1", "count/secrets": "1"}),
        ("configmaps", {}, {"configmaps": "1", "count/configmaps": "1"}),
        ("podtemplates", {"template": {"spec": pod("p")["spec"]}}, {"count/podtemplates": "1"}),
        (
            "services",
            {"spec": {"type": "NodePort", "ports": [{"port": 80}]}},
            {"services": "1", "services.nodeports": "1", "services.loadbalancers": "0"},
        ),
        (
            "services",
            {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}},
            {"services": "1", "services.nodeports": "1", "services.loadbalancers": "1"},
        ),
        (
            "services",
            {
                "spec": {
                    "type": "LoadBalancer",
                    "ports": [{"port": 80}],
                    "allocateLoadBalancerNodePorts": False,
                }
            },
            {"services": "1", "services.nodeports": "0", "services.loadbalancers": "1"},
        ),
        (
            "persistentvolumeclaims",
            {
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "gold",
                    "resources": {"requests": {"storage": "1Gi"}},
                }
            },
            {
                "persistentvolumeclaims": "1",
                "requests.storage": "1Gi",
                "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
                "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
                "silver.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
            },
        ),
    ],
)
def test_what_is_created_is_counted_until_it_is_deleted(
    plural: str, obj: Object, added: Object
) -> None:
    cluster = Cluster(scheduler=False)
    quota(cluster, dict.fromkeys(added, "10Gi"))
    before = used(cluster)
    make(cluster, f"{BASE}/{plural}", {"metadata": {"name": "x"}, **obj})
    after = {name: ("1" if before[name] == "0" else "2") if text == "1" else text
             for name, text in added.items()}  # fmt: skip
    assert after == used(cluster)
    drop(cluster, f"{BASE}/{plural}/x")
    if plural == "persistentvolumeclaims":
        cluster.advance(5)
    assert before == used(cluster)


def test_pods_count_until_they_end_or_are_deleted() -> None:
    cluster = Cluster()
    hard = {"pods": "2", "count/pods": "9", "cpu": "2", "limits.memory": "2Gi",
            "requests.example.com/dongle": "3"}  # fmt: skip
    quota(cluster, hard)
    asked = {"cpu": "500m", "memory": "1Gi"}
    for name, seconds in (("short", "5"), ("long", "")):
        notes = {"stower.dev/run-seconds": seconds} if seconds else {}
        make(cluster, f"{BASE}/pods",
             pod(name, asked, {"memory": "1Gi"}, notes, restartPolicy="Never"))  # fmt: skip
    assert {"pods": "2", "count/pods": "2", "cpu": "1", "limits.memory": "2Gi",
            "requests.example.com/dongle": "0"} == used(cluster)  # fmt: skip
    text = make(cluster, f"{BASE}/pods", pod("more", asked, {"memory": "1Gi"}), 403)
    assert (
        'pods "more" is forbidden: exceeded quota: q, requested: limits.memory=1Gi,pods=1, '
        "used: limits.memory=2Gi,pods=2, limited: limits.memory=2Gi,pods=2"
    ) == text
    cluster.advance(10)
    now = used(cluster)
    assert ("1", "2", "500m", "1Gi") == (
        now["pods"], now["count/pods"], now["cpu"], now["limits.memory"]
    )  # fmt: skip
    drop(cluster, f"{BASE}/pods/long")
    drop(cluster, f"{BASE}/pods/short")
    assert {"0"} == set(used(cluster).values())


def test_a_pod_whose_deletion_is_overdue_does_not_count() -> None:
    """As on a node that is lost: nobody could make another one in its place."""
    cluster = Cluster(scheduler=False)
    quota(cluster, {"pods": "1", "count/pods": "5"})
    make(cluster, f"{BASE}/pods", pod("p", nodeName="elsewhere"))
    cluster.ask("DELETE", f"{BASE}/pods/p", {"gracePeriodSeconds": 30})
    cluster.settle()
    assert {"pods": "1", "count/pods": "1"} == used(cluster)
    cluster.advance(70)
    assert "0" == used(cluster)["pods"]


@pytest.mark.parametrize(
    ("scope", "inside", "outside"),
    [
        ("Terminating", {"activeDeadlineSeconds": 3600}, {}),
        ("NotTerminating", {}, {"activeDeadlineSeconds": 3600}),
        (
            "CrossNamespacePodAffinity",
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {"topologyKey": "a", "namespaces": ["b"]}
                        ]
                    }
                }
            },
            {},
        ),
    ],
)
def test_a_scope_counts_the_pods_in_it(scope: str, inside: Object, outside: Object) -> None:
    cluster = Cluster(scheduler=False)
    quota(cluster, {"pods": "5"}, scopes=[scope])
    make(cluster, f"{BASE}/pods", pod("out", **outside))
    assert {"pods": "0"} == used(cluster)
    make(cluster, f"{BASE}/pods", pod("in", **inside))
    assert {"pods": "1"} == used(cluster)
    cluster.delete("resourcequotas", "q")
    quota(cluster, {"pods": "5"}, scopes=[scope])
    assert {"pods": "1"} == used(cluster), "counted by the controller as by admission"


def test_best_effort_pods_have_scopes_of_their_own() -> None:
    cluster = Cluster(scheduler=False)
    quota(cluster, {"pods": "5"}, "best", scopes=["BestEffort"])
    quota(cluster, {"pods": "5"}, "rest", scopes=["NotBestEffort"])
    make(cluster, f"{BASE}/pods", pod("a"))
    make(cluster, f"{BASE}/pods", pod("b", {"cpu": "1"}))
    make(cluster, f"{BASE}/pods", pod("c", {"cpu": "1"}))
    assert ("1", "2") == (used(cluster, "best")["pods"], used(cluster, "rest")["pods"])


@pytest.mark.parametrize(
    ("operator", "values", "counted"),
    [("In", ["a"], "1"), ("NotIn", ["a"], "2"), ("Exists", None, "2"), ("DoesNotExist", None, "1")],
)
def test_priority_classes_select_pods(
    operator: str, values: list[str] | None, counted: str
) -> None:
    cluster = Cluster(scheduler=False)
    for name in ("a", "b"):
        make(cluster, "/apis/scheduling.k8s.io/v1/priorityclasses",
             {"metadata": {"name": name}, "value": 5})  # fmt: skip
    expression = {"scopeName": "PriorityClass", "operator": operator}
    if values:
        expression["values"] = values  # type: ignore[assignment]
    for name, spec in (("x", {"priorityClassName": "a"}), ("y", {"priorityClassName": "b"}),
                       ("z", {})):  # fmt: skip
        make(cluster, f"{BASE}/pods", pod(name, **spec))
    quota(cluster, {"pods": "5"}, scopeSelector={"matchExpressions": [expression]})
    assert {"pods": counted} == used(cluster)


def test_claims_of_a_volume_attributes_class_are_counted() -> None:
    cluster = Cluster(scheduler=False)
    expression = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["fast"]}
    quota(cluster, {"persistentvolumeclaims": "1"},
          scopeSelector={"matchExpressions": [expression]})  # fmt: skip

    def claim(name: str, own: str) -> Object:
        return {"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}},
            "volumeAttributesClassName": own, "storageClassName": "c"}}  # fmt: skip

    make(cluster, f"{BASE}/persistentvolumeclaims", claim("a", "slow"))
    assert {"persistentvolumeclaims": "0"} == used(cluster)
    make(cluster, f"{BASE}/persistentvolumeclaims", claim("b", "fast"))
    assert {"persistentvolumeclaims": "1"} == used(cluster)
    make(cluster, f"{BASE}/persistentvolumeclaims", claim("c", "fast"), 403)


def test_devices_of_claims_are_counted_by_class() -> None:
    cluster = Cluster(scheduler=False)
    quota(cluster, {"count/resourceclaims.resource.k8s.io": "2",
                    "gold.deviceclass.resource.k8s.io/devices": "40"})  # fmt: skip
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "gold", "allocationMode": "All"}},
        {"name": "b", "firstAvailable": [
            {"name": "x", "deviceClassName": "gold", "count": 3},
            {"name": "y", "deviceClassName": "gold", "count": 2}]},
    ]  # fmt: skip
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}}
    make(cluster, claims, body)
    expected = {"count/resourceclaims.resource.k8s.io": "1",
                "gold.deviceclass.resource.k8s.io/devices": "35"}  # fmt: skip
    assert expected == used(cluster)
    text = make(cluster, claims, {**body, "metadata": {"name": "d"}}, 403)
    assert "requested: gold.deviceclass.resource.k8s.io/devices=35" in text


def test_devices_of_a_class_with_an_extended_resource_count_as_that() -> None:
    cluster = Cluster(scheduler=False)
    spec = {"extendedResourceName": "example.com/gpu"}
    classes = "/apis/resource.k8s.io/v1/deviceclasses"
    make(cluster, classes, {"metadata": {"name": "gold"}, "spec": spec})
    quota(cluster, {"requests.example.com/gpu": "3"})
    requests = [{"name": "a", "exactly": {"deviceClassName": "gold", "count": 2}}]
    make(cluster, "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
         {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests}}})  # fmt: skip
    assert {"requests.example.com/gpu": "2"} == used(cluster)
    gpus = {"example.com/gpu": "1"}
    make(cluster, f"{BASE}/pods", pod("p", gpus, gpus))
    assert {"requests.example.com/gpu": "3"} == used(cluster)
    make(cluster, f"{BASE}/pods", pod("q", gpus, gpus), 403)


def test_custom_resources_are_counted_from_when_they_are_defined() -> None:
    cluster = Cluster(scheduler=False)
    quota(cluster, {"count/toys.example.com": "1"})
    assert {} == used(cluster)
    cluster.ask("POST", DEFINITIONS, definition())
    cluster.settle()
    assert {"count/toys.example.com": "0"} == used(cluster)
    toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "a"}}
    make(cluster, TOYS, toy)
    assert {"count/toys.example.com": "1"} == used(cluster)
    make(cluster, TOYS, {**toy, "metadata": {"name": "b"}}, 403)
    drop(cluster, f"{TOYS}/a")
    assert {"count/toys.example.com": "0"} == used(cluster)


def test_a_status_of_somebody_else_is_put_right() -> None:
    cluster = Cluster(scheduler=False)
    quota(cluster, {"pods": "5", "resourcequotas": "2"})
    hard = {"pods": "5", "resourcequotas": "2"}
    wrong = {"pods": "4", "resourcequotas": "0"}
    for status in ({"hard": {"pods": "9"}}, {"hard": hard, "used": wrong}):
        found = cluster.get(f"{QUOTAS}/q")
        assert 200 == cluster.ask("PUT", f"{QUOTAS}/q/status", {**found, "status": status})[0]
        cluster.settle()
        assert {"pods": "0", "resourcequotas": "1"} == used(cluster)


def test_changed_limits_are_taken_over() -> None:
    cluster = Cluster(scheduler=False)
    make(cluster, f"{BASE}/pods", pod("p", {"cpu": "500m"}))
    make(cluster, f"{BASE}/pods", pod("q", {"cpu": "2"}))
    quota(cluster, {"pods": "5"})
    cluster.patch("resourcequotas", "q", {"spec": {"hard": {"pods": "1", "requests.cpu": "7"}}})
    assert {"pods": "2", "requests.cpu": "2500m"} == used(cluster)


def test_quotas_are_counted_by_quotas() -> None:
    cluster = Cluster(scheduler=False)
    quota(cluster, {"resourcequotas": "1"})
    assert {"resourcequotas": "1"} == used(cluster)
    body = {"metadata": {"name": "other"}, "spec": {"hard": {"pods": "1"}}}
    assert "exceeded quota: q" in make(cluster, QUOTAS, body, 403)


def test_pods_must_say_what_a_quota_counts() -> None:
    cluster = Cluster(scheduler=False)
    quota(cluster, {"cpu": "5", "limits.memory": "1Gi"})
    text = make(cluster, f"{BASE}/pods", pod("p"), 403)
    assert "failed quota: q: must specify cpu for: c; limits.memory for: c" in text
    whole = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    make(cluster, f"{BASE}/pods", pod("p", resources=whole))
    assert {"cpu": "1", "limits.memory": "1Gi"} == used(cluster)


def test_a_quota_that_is_not_counted_yet_admits_nothing() -> None:
    cluster = Cluster(scheduler=False)
    cluster.lagging.add("resourcequotas")
    quota(cluster, {"pods": "5"})
    found = cluster.get(f"{QUOTAS}/q")
    status = {"hard": {"pods": "5", "count/pods": "4"}}
    assert 200 == cluster.ask("PUT", f"{QUOTAS}/q/status", {**found, "status": status})[0]
    text = make(cluster, f"{BASE}/pods", pod("p"), 403)
    assert "status unknown for quota: q, resources: count/pods,pods" in text


def test_objects_that_were_made_before_the_quota_was_seen_are_counted() -> None:
    """The quota's watch may be ahead of that of what it counts."""
    cluster = Cluster(scheduler=False)
    cluster.lagging.add("secrets")
    make(cluster, f"{BASE}/secrets", {"metadata": {"name": "s"}})
    quota(cluster, {"secrets": "5"})
    assert {"secrets": "0"} == used(cluster)
    cluster.lagging.clear()
    cluster.settle()
    assert {"secrets": "1"} == used(cluster)
