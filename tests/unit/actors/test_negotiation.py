"""What controllers and kubelets do about claims that drivers allocate, on a virtual clock."""

from typing import Any

import pytest

from stower.actors.runtime import path_to
from tests.unit.actors.cluster import Cluster, pools
from tests.unit.actors.negotiation import (
    FINALIZER,
    FLAG,
    SPEC,
    Negotiated,
    Object,
    allocation,
    claiming,
)

CLAIM = path_to("resourceclaims", "default", "mine")
FROM_TEMPLATE = [{"name": "fabric", "resourceClaimTemplateName": "t"}]
PLACED = {"nodeName": "node-1"}


def template(cluster: Cluster) -> None:
    cluster.create("resourceclaimtemplates", {"metadata": {"name": "t"}, "spec": {"spec": SPEC}})


def reason_of(cluster: Negotiated, pod: str = "p") -> Any:
    (status,) = cluster.one("pods", pod)["status"]["containerStatuses"]
    return status["state"]["waiting"]["reason"]


def selections(cluster: Negotiated) -> dict[str, Object]:
    """The spec of each PodScheduling."""
    return {name: obj["spec"] for name, obj in cluster.all("podschedulings").items()}


def scheduling(cluster: Negotiated, owner: str, **spec: Any) -> Object:
    """The one that a scheduler makes for a pod of that uid."""
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": True}
    meta = {"name": "p", "ownerReferences": [reference]}
    return cluster.create("podschedulings", {"metadata": meta, "spec": spec})


# Reservations


def reserved(cluster: Negotiated) -> str:
    """A claim that is reserved for a pod which runs; returns the pod's uid."""
    cluster.claim()
    cluster.pod(**PLACED)
    cluster.allocate(pod="p")
    cluster.advance(5)
    assert {"p": "Running"} == cluster.phases()
    return cluster.uid("p")


@pytest.mark.parametrize("knows_old", [True, False])
def test_a_pod_that_is_not_known_yet_keeps_its_reservation(knows_old: bool) -> None:
    """p0 is recreated and bound, and the controller's cache has the old one, or none."""
    cluster = Negotiated()
    cluster.claim()
    if knows_old:
        cluster.pod(**PLACED)
    cluster.lagging.add("pods")
    if knows_old:
        cluster.delete("pods", "p", gracePeriodSeconds=0)
    cluster.pod(**PLACED)
    uid = cluster.uid("p")
    cluster.allocate(pod="p")
    cluster.advance(30)
    assert uid in cluster.consumers()
    asked = [r for r in cluster.requests if r[:2] == ("GET", path_to("pods", "default", "p"))]
    assert 1 <= len(asked) <= 5, "not again and again"
    cluster.lagging.clear()
    cluster.advance(30)
    assert [uid] == cluster.consumers()
    assert {"p": "Running"} == cluster.phases()


def test_a_pod_that_nobody_knows_loses_its_reservation() -> None:
    """The controller has never seen it: the server says that it is gone, or is another."""
    cluster = Negotiated()
    cluster.claim()
    cluster.pod(**PLACED)
    uid = cluster.uid("p")
    cluster.allocate(pod="p")
    for name in ("p", "nobody"):
        claim = cluster.one("resourceclaims", "mine")
        gone = {"resource": "pods", "name": name, "uid": f"{name}-of-old"}
        claim["status"]["reservedFor"].append(gone)
        cluster.put("resourceclaims", claim, "status")
        assert [uid] == cluster.consumers()


def test_nothing_is_taken_back_while_the_server_does_not_answer() -> None:
    cluster = Negotiated()
    cluster.claim()
    cluster.allocate()
    gone = {"resource": "pods", "name": "nobody", "uid": "nobody"}
    claim = cluster.one("resourceclaims", "mine")
    claim["status"]["reservedFor"] = [gone]
    cluster.failing = [("GET", path_to("pods", "default", "nobody"))] * 3
    cluster.put("resourceclaims", claim, "status")
    assert ["nobody"] == cluster.consumers()
    cluster.advance(10)
    assert [] == cluster.consumers()


def test_an_answer_says_nothing_of_a_pod_that_came_after() -> None:
    """What the server did not know a moment ago may be there now, under the same name."""
    cluster = Negotiated()
    cluster.claim()
    cluster.allocate()
    cluster.lagging.add("pods")
    claim = cluster.one("resourceclaims", "mine")
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "of-old"}]
    # The name is found to be free, then the write fails.
    assert 200 == cluster.ask("PUT", f"{CLAIM}/status", claim)[0]
    cluster.failing = [("PUT", f"{CLAIM}/status")]
    cluster.settle()
    assert ["of-old"] == cluster.consumers()
    cluster.pod(**PLACED)
    uid = cluster.uid("p")
    claim = cluster.one("resourceclaims", "mine")
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": "p", "uid": uid}]
    cluster.put("resourceclaims", claim, "status")
    cluster.advance(20)
    assert [uid] == cluster.consumers()


def test_a_pod_that_comes_and_goes_unseen_is_asked_about_again() -> None:
    """The server knew it when it was asked; then it went, while the watch was cut."""
    cluster = Negotiated()
    cluster.claim()
    cluster.lagging.add("pods")
    cluster.pod(**PLACED)
    cluster.allocate(pod="p")
    cluster.advance(1)
    cluster.delete("pods", "p", gracePeriodSeconds=0)
    cluster.relist("pods")
    cluster.lagging.clear()
    cluster.settle()
    assert 1 == len(cluster.consumers())
    cluster.advance(30)
    assert [] == cluster.consumers()


def test_a_reservation_is_taken_back_from_what_was_seen_alone() -> None:
    """The write names the version that was decided on: another comes first, and stays."""
    cluster = Negotiated()
    reserved(cluster)
    cluster.lagging.add("resourceclaims")
    claim = cluster.one("resourceclaims", "mine")
    other = {"resource": "things", "apiGroup": "example.com", "name": "o", "uid": "other"}
    claim["status"]["reservedFor"].append(other)
    cluster.put("resourceclaims", claim, "status")
    cluster.delete("pods", "p", gracePeriodSeconds=0)
    cluster.advance(5)
    assert 2 == len(cluster.consumers())
    assert ("PUT", f"{CLAIM}/status", 409) in cluster.requests
    cluster.lagging.clear()
    cluster.advance(40)
    assert ["other"] == cluster.consumers()


@pytest.mark.behaviour("S0.34")
def test_a_claim_of_a_user_stays_allocated_when_nobody_uses_it() -> None:
    cluster = Negotiated()
    reserved(cluster)
    cluster.delete("pods", "p")
    cluster.advance(60)
    claim = cluster.one("resourceclaims", "mine")
    assert {"allocation": allocation("node-1")} == claim["status"]
    assert [FINALIZER] == claim["metadata"]["finalizers"]
    assert "deletionTimestamp" not in claim["metadata"]
    assert FLAG not in claim["metadata"].get("annotations", {})


@pytest.mark.behaviour("S0.35")
@pytest.mark.parametrize("ends", ["deleted", "finished"])
def test_a_claim_from_a_template_goes_with_its_pod_when_its_driver_lets_go(ends: str) -> None:
    cluster = Negotiated()
    template(cluster)
    made = claiming("p", FROM_TEMPLATE, restartPolicy="Never", **PLACED)
    made["metadata"]["annotations"] = {"stower.dev/run-seconds": "30"}
    cluster.create("pods", made)
    (name,) = cluster.all("resourceclaims")
    cluster.allocate(name, pod="p")
    cluster.advance(5)
    assert {"p": "Running"} == cluster.phases()
    if ends == "deleted":
        cluster.delete("pods", "p")
    cluster.advance(60)
    assert {"deleted": [], "finished": ["p"]}[ends] == list(cluster.phases())
    claim = cluster.one("resourceclaims", name)
    assert "deletionTimestamp" in claim["metadata"]
    assert [FINALIZER] == claim["metadata"]["finalizers"]
    assert {"allocation": allocation("node-1")} == claim["status"], "that is the driver's"
    # The device is free; the driver shows it, and lets go.
    claim = cluster.put("resourceclaims", {**claim, "status": {}}, "status")
    claim["metadata"]["finalizers"] = []
    cluster.put("resourceclaims", claim)
    assert {} == cluster.all("resourceclaims")


def test_a_claim_of_a_pod_that_is_not_known_yet_is_not_garbage() -> None:
    """Nor is what a scheduler makes for it."""
    cluster = Negotiated()
    cluster.lagging.add("pods")
    cluster.pod()
    uid = cluster.uid("p")
    scheduling(cluster, uid, potentialNodes=["node-1"], round=1)
    own = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    meta = {"name": "made", "ownerReferences": [own]}
    cluster.create("resourceclaims", {"metadata": meta, "spec": SPEC})
    cluster.advance(30)
    cluster.lagging.clear()
    cluster.settle()
    cluster.advance(30)
    assert ["p"] == list(cluster.all("podschedulings"))
    assert ["made"] == list(cluster.all("resourceclaims"))


@pytest.mark.behaviour("S0.28")
def test_a_negotiation_whose_pod_is_gone_is_garbage() -> None:
    cluster = Negotiated()
    cluster.pod()
    scheduling(cluster, cluster.uid("p"), potentialNodes=["node-1"], round=1)
    cluster.advance(10)
    assert ["p"] == list(cluster.all("podschedulings"))
    cluster.delete("pods", "p")
    cluster.advance(10)
    assert {} == cluster.all("podschedulings")
    # Of another pod of that name, which nobody here has seen.
    cluster.pod()
    scheduling(cluster, "of-old", potentialNodes=["node-1"], round=1)
    cluster.advance(10)
    assert {} == cluster.all("podschedulings")


@pytest.mark.parametrize("policy", ["Orphan", "Foreground"])
def test_a_pod_goes_in_each_way_that_it_can_be_deleted(policy: str) -> None:
    """Custom resources know no strategic patch."""
    cluster = Negotiated()
    cluster.pod()
    scheduling(cluster, cluster.uid("p"), potentialNodes=["node-1"], round=1)
    cluster.delete("pods", "p", propagationPolicy=policy)
    cluster.advance(10)
    assert {} == cluster.all("pods")
    left = cluster.all("podschedulings")
    assert (["p"] if policy == "Orphan" else []) == list(left)
    assert all(not obj["metadata"].get("ownerReferences") for obj in left.values())


# The kubelet


@pytest.mark.behaviour("S0.29")
def test_a_kubelet_waits_until_all_claims_are_reserved_for_the_pod() -> None:
    cluster = Negotiated()
    used = [{"name": n, "resourceClaimName": n} for n in ("mine", "other")]
    cluster.create("pods", claiming("p", used, **PLACED))
    cluster.advance(5)
    assert ({"p": "Pending"}, "ContainerCreating") == (cluster.phases(), reason_of(cluster))
    cluster.claim("mine")
    cluster.claim("other")
    cluster.advance(5)
    cluster.allocate("mine", pod="p")
    cluster.advance(5)
    assert {"p": "Pending"} == cluster.phases()
    cluster.allocate("other", pod="p")
    cluster.advance(5)
    assert {"p": "Running"} == cluster.phases()
    events = cluster.get("/api/v1/namespaces/default/events")["items"]
    events = [e for e in events if e["reason"] == "FailedPrepareDynamicResources"]
    start = "Failed to prepare dynamic resources: prepare dynamic resources: "
    assert all(e["message"].startswith(start) for e in events)
    uid, other = (cluster.one(*o)["metadata"]["uid"] for o in
                  (("pods", "p"), ("resourceclaims", "other")))  # fmt: skip
    assert [
        'fetch ResourceClaim mine: resourceclaims.resource.k8s.io "mine" not found',
        f"pod p ({uid}) is not allowed to use ResourceClaim other ({other})",
    ] == [e["message"].removeprefix(start) for e in (events[0], events[-1])]
    assert {"component": "kubelet", "host": "node-1"} == events[0]["source"]


def test_a_kubelet_knows_claims_that_others_made_for_the_pod() -> None:
    """A claim for extended resources, and one that is reserved for the pod's group."""
    cluster = Negotiated()
    made = claiming("p", [], schedulingGroup={"podGroupName": "g"}, **PLACED)
    amount = {"example.com/gpu": "1"}
    made["spec"]["containers"][0]["resources"] = {"requests": amount, "limits": amount}
    told = {"resourceClaimName": "x", "requestMappings": [
        {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}]}  # fmt: skip
    cluster.lagging.add("pods")
    cluster.create("pods", made)
    pod = cluster.one("pods", "p")
    pod["status"]["extendedResourceClaimStatus"] = told
    cluster.put("pods", pod, "status")
    cluster.lagging.clear()
    cluster.advance(5)
    assert {"p": "Pending"} == cluster.phases()
    own = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": cluster.uid("p"),
           "controller": True}  # fmt: skip
    meta = {"name": "x", "ownerReferences": [own]}
    cluster.create("resourceclaims", {"metadata": meta, "spec": SPEC})
    claim = cluster.one("resourceclaims", "x")
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}
    claim["status"] = {"allocation": allocation(""), "reservedFor": [group]}
    cluster.put("resourceclaims", claim, "status")
    cluster.advance(5)
    assert {"p": "Running"} == cluster.phases()
    assert ["g"] == cluster.consumers("x"), "the group's reservation is the pod's"


def test_a_pod_without_claims_starts_at_once() -> None:
    cluster = Cluster(pools(1), scheduler=False)
    cluster.create("pods", claiming("p", [], **PLACED))
    cluster.advance(1)
    assert {"p": "Running"} == cluster.phases()
