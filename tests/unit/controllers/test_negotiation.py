"""What controllers and kubelets do about claims that drivers allocate, on a virtual clock."""

from typing import Any

import pytest

from stower.controllers.runtime import path_to
from tests.unit.controllers.cluster import Cluster, pools
from tests.unit.controllers.negotiation import (
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
    assert {} == left
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


# Pods that were created with a node


@pytest.mark.behaviour("S0.29")
def test_a_pod_that_was_created_with_a_node_gets_its_claims_there() -> None:
    cluster = Negotiated()
    cluster.claim()
    cluster.claim("other")
    used = [{"name": n, "resourceClaimName": n} for n in ("mine", "other")]
    cluster.create("pods", claiming("p", used, **PLACED))
    cluster.advance(2)
    assert {"p": {"selectedNode": "node-1"}} == selections(cluster)
    (owner,) = cluster.one("podschedulings", "p")["metadata"]["ownerReferences"]
    assert ("Pod", "p", cluster.uid("p"), True) == tuple(
        owner[field] for field in ("kind", "name", "uid", "controller")
    )
    cluster.delete("podschedulings", "p")
    cluster.advance(5)
    assert {"p": {"selectedNode": "node-1"}} == selections(cluster), "it is asked for again"
    cluster.allocate("mine", pod="p")
    cluster.advance(5)
    assert ["p"] == list(selections(cluster))
    assert {"p": "Pending"} == cluster.phases()
    # The driver may leave the reservation to the controller.
    cluster.allocate("other")
    cluster.advance(5)
    assert [cluster.uid("p")] == cluster.consumers("other")
    assert {} == selections(cluster)
    assert {"p": "Running"} == cluster.phases()


@pytest.mark.behaviour("S0.29")
def test_a_claim_from_a_template_waits_for_its_name() -> None:
    cluster = Negotiated()
    cluster.create("pods", claiming("p", FROM_TEMPLATE, **PLACED))
    cluster.advance(5)
    assert {} == selections(cluster)
    template(cluster)
    cluster.advance(5)
    assert {"p": {"selectedNode": "node-1"}} == selections(cluster)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"mode": "Immediate"}, "its driver needs no node"),
        ({"flag": True}, "it is about to be deallocated"),
        ({"class": "listed"}, "the scheduler allocates it"),
        ({"node": ""}, "the scheduler will place it"),
        ({"missing": True}, "all claims of a pod are allocated at once"),
    ],
)
def test_no_node_is_selected_without_need(change: Object, why: str) -> None:
    cluster = Negotiated()
    cluster.create("deviceclasses", {"metadata": {"name": "listed"}, "spec": {}}, "")
    notes = {"stower.dev/allocation-mode": change["mode"]} if "mode" in change else {}
    notes |= {FLAG: "why"} if "flag" in change else {}
    asked = {"name": "r", "exactly": {"deviceClassName": change.get("class", "fabric")}}
    spec = {"devices": {"requests": [asked]}}
    meta = {"name": "mine", "annotations": notes}
    cluster.create("resourceclaims", {"metadata": meta, "spec": spec})
    used = [{"name": "fabric", "resourceClaimName": "mine"}]
    if "missing" in change:
        used.append({"name": "other", "resourceClaimName": "other"})
    cluster.create("pods", claiming("p", used, nodeName=change.get("node", "node-1")))
    cluster.advance(30)
    assert {} == selections(cluster), why


def test_a_class_that_comes_later_makes_claims_negotiated() -> None:
    """Alternatives of a request count as well."""
    cluster = Negotiated()
    cluster.create("deviceclasses", {"metadata": {"name": "late"}, "spec": {}}, "")
    asked = [{"name": n, "deviceClassName": n} for n in ("other", "late")]
    cluster.create("deviceclasses", {"metadata": {"name": "other"}, "spec": {}}, "")
    spec = {"devices": {"requests": [{"name": "r", "firstAvailable": asked}]}}
    cluster.create("resourceclaims", {"metadata": {"name": "mine"}, "spec": spec})
    cluster.pod(**PLACED)
    cluster.advance(5)
    assert {} == selections(cluster)
    made = {"metadata": {"name": "late"}, "driverName": "late.example.com"}
    cluster.create("resourceclasses", made, "")
    cluster.advance(5)
    assert ["p"] == list(selections(cluster))


def test_what_the_scheduler_negotiates_is_left_alone() -> None:
    """Also where somebody else has bound the pod; when the scheduler has let go, it is helped."""
    cluster = Negotiated()
    cluster.claim()
    cluster.pod()
    spec = {"potentialNodes": ["node-2"], "round": 1, "selectedNode": "node-2"}
    scheduling(cluster, cluster.uid("p"), **spec)
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
               "target": {"kind": "Node", "name": "node-1"}}  # fmt: skip
    path = f"{path_to('pods', 'default', 'p')}/binding"
    assert 201 == cluster.ask("POST", path, binding)[0]
    cluster.advance(10)
    assert {"p": spec} == selections(cluster)
    cluster.delete("podschedulings", "p")
    cluster.advance(10)
    assert {"p": {"selectedNode": "node-1"}} == selections(cluster)


def test_what_the_scheduler_negotiated_is_its_own_to_delete() -> None:
    cluster = Negotiated()
    cluster.claim()
    cluster.lagging.add("pods")
    cluster.pod(**PLACED)
    spec = {"potentialNodes": ["node-1"], "round": 1, "selectedNode": "node-1"}
    scheduling(cluster, cluster.uid("p"), **spec)
    cluster.allocate(pod="p")
    cluster.lagging.clear()
    cluster.settle()
    cluster.advance(10)
    assert ({"p": "Running"}, {"p": spec}) == (cluster.phases(), selections(cluster))


def test_a_pod_that_was_just_bound_has_its_claims() -> None:
    """They are seen after it; nobody need be asked."""
    cluster = Negotiated()
    cluster.claim()
    cluster.lagging.add("resourceclaims")
    cluster.pod(**PLACED)
    cluster.allocate(pod="p")
    cluster.advance(0.5)
    cluster.lagging.clear()
    cluster.settle()
    cluster.advance(10)
    assert {"p": "Running"} == cluster.phases()
    assert ("POST", path_to("podschedulings", "default"), 201) not in cluster.requests


def test_nothing_is_selected_for_a_pod_that_has_ended() -> None:
    cluster = Negotiated()
    cluster.claim()
    cluster.pod(activeDeadlineSeconds=60, **PLACED)
    cluster.advance(5)
    assert ["p"] == list(selections(cluster))
    cluster.patch("pods", "p", {"metadata": {"finalizers": ["example.com/wait"]}})
    cluster.delete("pods", "p")
    cluster.advance(5)
    assert ["p"] == list(cluster.phases())
    assert {} == selections(cluster)


@pytest.mark.parametrize(
    ("node", "notes", "is_reserved"),
    [
        ("node-1", {}, True),
        ("", {}, True),
        ("node-2", {}, False),
        ("node-1", {FLAG: "why"}, False),
    ],
)
def test_a_claim_is_reserved_where_its_pod_is(
    node: str, notes: dict[str, str], is_reserved: bool
) -> None:
    cluster = Negotiated()
    cluster.claim(**notes)
    cluster.allocate(node=node)
    cluster.pod(**PLACED)
    cluster.advance(10)
    assert ([cluster.uid("p")] if is_reserved else []) == cluster.consumers()
    assert ("Running" if is_reserved else "Pending") == cluster.phases()["p"]
    assert {} == selections(cluster), "there is nothing to allocate"


def test_a_claim_that_is_deleted_is_reserved_for_nobody() -> None:
    cluster = Negotiated()
    cluster.claim()
    cluster.allocate()
    cluster.delete("resourceclaims", "mine")
    cluster.pod(**PLACED)
    cluster.advance(10)
    assert [] == cluster.consumers()


def test_a_claim_is_reserved_for_no_more_pods_than_it_can_be() -> None:
    cluster = Negotiated()
    cluster.claim()
    cluster.allocate()
    claim = cluster.one("resourceclaims", "mine")
    others = [{"resource": "things", "apiGroup": "example.com", "name": "o", "uid": f"{i}"}
              for i in range(256)]  # fmt: skip
    claim["status"]["reservedFor"] = others
    cluster.put("resourceclaims", claim, "status")
    cluster.pod(**PLACED)
    cluster.advance(10)
    claim = cluster.one("resourceclaims", "mine")
    assert others == claim["status"]["reservedFor"]
    assert ("PUT", f"{CLAIM}/status", 422) not in cluster.requests
    claim["status"]["reservedFor"] = others[1:]
    cluster.put("resourceclaims", claim, "status")
    assert cluster.uid("p") == cluster.consumers()[-1]


def test_a_claim_is_reserved_when_its_node_comes_to_reach_it() -> None:
    cluster = Negotiated()
    cluster.claim()
    cluster.allocate()
    claim = cluster.one("resourceclaims", "mine")
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    claim["status"]["allocation"]["nodeSelector"] = {
        "nodeSelectorTerms": [{"matchExpressions": [zone]}]
    }
    cluster.put("resourceclaims", {**claim, "status": {}}, "status")
    claim["metadata"] = cluster.one("resourceclaims", "mine")["metadata"]
    cluster.put("resourceclaims", claim, "status")
    cluster.pod(**PLACED)
    cluster.advance(10)
    assert [] == cluster.consumers()
    cluster.patch("nodes", "node-1", {"metadata": {"labels": {"zone": "a"}}}, "")
    assert [cluster.uid("p")] == cluster.consumers()


def test_actors_do_without_the_negotiation() -> None:
    """On a server that does not serve it, nothing is asked of it."""
    cluster = Cluster(pools(1), scheduler=False)
    cluster.create("deviceclasses", {"metadata": {"name": "fabric"}, "spec": {}}, "")
    cluster.create("resourceclaims", {"metadata": {"name": "mine"}, "spec": SPEC})
    used = [{"name": "fabric", "resourceClaimName": "mine"}]
    cluster.create("pods", claiming("p", used, **PLACED))
    cluster.advance(30)
    asked = [r for r in cluster.requests if "stower.dev" in r[1]]
    assert {"GET"} >= {method for method, _, _ in asked}
    assert not cluster.actors.faults
