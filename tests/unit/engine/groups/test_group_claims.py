"""Claims that the pods of a group share, through the engine's one entry (KEP-5729)."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.framework.plugin import read_features
from stower.framework.writes import Bind, PatchObject
from stower.model.kinds import Pod, PodGroup, ResourceClaim
from tests.builders import make_node, make_pod
from tests.device_builders import Agreeing, device, device_class, device_slice, resource_claim

GATE = "DRAWorkloadResourceClaims=true"
ENTRY = {"name": "shared", "resourceClaimName": "c1"}
GROUP_CONSUMER = ("scheduling.k8s.io", "podgroups", "g1", "u-g1")


def group(name: str = "g1", *entries: dict[str, str]) -> PodGroup:
    """A group that has these claims."""
    data = {
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"},
        "spec": {"resourceClaims": list(entries or (ENTRY,))},
    }
    return msgspec.convert(data, PodGroup)


def member(name: str = "p1", of: str = "g1", **fields: Any) -> Pod:
    """A pod of the group, with the group's claim."""
    claims = fields.pop("claims", [ENTRY])
    return make_pod(name, resourceClaims=claims, schedulingGroup={"podGroupName": of}, **fields)


def cluster(*objects: Any, gates: str = GATE) -> Agreeing:
    """A node with one device, and these objects."""
    engine = build_engine(features=read_features(gates)[0])
    slices = device_slice("n1", device("a"))
    return Agreeing(engine, make_node("n1"), device_class(), slices, *objects)


def consumers(claim: ResourceClaim) -> list[tuple[str, str, str, str]]:
    """For whom it is reserved."""
    return [(c.api_group, c.resource, c.name, c.uid) for c in claim.status.reserved_for or ()]


@pytest.mark.behaviour("S3.37")
def test_the_group_holds_the_claim_for_all_its_pods() -> None:
    claim = resource_claim()
    api = cluster(claim, group(), member("p1"), member("p2"))
    api.wait(30)
    assert {"p1": "n1", "p2": "n1"} == api.bound
    assert [GROUP_CONSUMER] == consumers(api.get(claim))


def test_a_claim_that_the_group_does_not_have_is_the_pods_own() -> None:
    claim = resource_claim()
    api = cluster(claim, group("g1", {**ENTRY, "name": "other"}), member("p1"))
    assert [("", "pods", "p1", "uid-of-default-p1")] == consumers(api.get(claim))


def test_with_the_gate_off_each_pod_holds_the_claim() -> None:
    claim = resource_claim()
    api = cluster(claim, group(), member("p1"), member("p2"), gates="")
    api.wait(30)
    assert ["p1", "p2"] == [name for _, _, name, _ in consumers(api.get(claim))]


def test_a_pod_waits_for_its_group() -> None:
    api = cluster(resource_claim(), member(), gates=f"{GATE},GenericWorkload=false")
    assert {} == api.bound
    assert 'podgroup.scheduling.k8s.io "g1" not found' in api.messages["p1"]
    api.put(group("g2"))
    api.put(group())
    api.wait(30)
    assert {"p1": "n1"} == api.bound


def made_for_group(of: str = "g1") -> tuple[ResourceClaim, Pod]:
    """A claim that was made from the group's template, and a pod that uses it."""
    entry = {"name": "shared", "resourceClaimTemplateName": "t"}
    owner = {
        "kind": "PodGroup", "name": of, "uid": f"u-{of}", "controller": True,
        "apiVersion": "scheduling.k8s.io/v1alpha2",
    }  # fmt: skip
    claim = resource_claim("made", meta={"ownerReferences": [owner]})
    pod = member(claims=[entry])
    statuses = msgspec.convert(
        [{"name": "shared", "resourceClaimName": "made"}],
        type(pod.status).__annotations__["resource_claim_statuses"],
    )
    status = msgspec.structs.replace(pod.status, resource_claim_statuses=statuses)
    return claim, msgspec.structs.replace(pod, status=status)


def test_a_claim_made_for_the_group_is_its_pods() -> None:
    claim, pod = made_for_group()
    api = cluster(claim, group("g1", {"name": "shared", "resourceClaimTemplateName": "t"}), pod)
    assert {"p1": "n1"} == api.bound
    assert [GROUP_CONSUMER] == consumers(api.get(claim))


def test_a_claim_made_for_another_group_is_not() -> None:
    claim, pod = made_for_group("g2")
    api = cluster(claim, group("g1", {"name": "shared", "resourceClaimTemplateName": "t"}), pod)
    assert "(neither Pod nor PodGroup g1 is the owner)" in api.messages["p1"]


def test_a_pod_that_is_not_bound_leaves_the_claim_to_its_group() -> None:
    claim = resource_claim()
    api = cluster(claim, group())
    api.refuses = lambda write: 400 if isinstance(write, Bind) else 0
    api.put(member())
    assert {} == api.bound
    assert [GROUP_CONSUMER] == consumers(api.get(claim))


def elsewhere() -> ResourceClaim:
    """A claim of the group that no node can use."""
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["none"]}]}
    allocation = {"devices": {}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    keys = ("apiGroup", "resource", "name", "uid")
    reserved = [dict(zip(keys, GROUP_CONSUMER, strict=True))]
    return resource_claim("c1", status={"allocation": allocation, "reservedFor": reserved})


def test_a_group_without_placed_pods_lets_go_of_a_claim_that_is_of_no_use() -> None:
    claim = elsewhere()
    api = cluster(claim, group(), member())
    api.wait(30)
    assert {"p1": "n1"} == api.bound
    written = [w for w in api.writes if isinstance(w, PatchObject) and w.view is ResourceClaim]
    patches = [w.patch.get("status") for w in written]
    assert [{"reservedFor": None}, {"allocation": None, "reservedFor": None, "devices": None}] == (
        patches[:2]
    )


def test_a_group_that_uses_a_claim_keeps_it() -> None:
    claim = elsewhere()
    api = cluster(claim, group(), member("p0", node="n1"), member())
    api.wait(400)
    assert [GROUP_CONSUMER] == consumers(api.get(claim))
    assert "still not schedulable" in api.messages["p1"]
