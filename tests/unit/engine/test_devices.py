"""Devices through the engine's one entry: what is written, in which order, and what goes wrong."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.framework.events import Listed, Observed, WatchType, WriteFailed, WriteOk
from stower.framework.writes import Bind, CreateEvent, PatchObject
from stower.model.kinds import PodGroup, ResourceClaim
from stower.model.kinds.resource_claim import FINALIZER
from tests.builders import make_node, make_pod
from tests.device_builders import (
    GPU,
    Agreeing,
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
    taint_rule,
)


def cluster(*objects: Any, nodes: tuple[str, ...] = ("n1", "n2")) -> Agreeing:
    """Nodes, a class, and these objects."""
    return Agreeing(build_engine(), *map(make_node, nodes), device_class(), *objects)


def given(claim: ResourceClaim) -> list[str]:
    """The devices of a claim."""
    allocation = claim.status.allocation
    results = allocation.devices.results or () if allocation is not None else ()
    return [f"{result.pool}/{result.device}" for result in results]


@pytest.mark.behaviour("S2.3")
def test_a_pod_gets_its_device_and_goes_to_its_node() -> None:
    claim = resource_claim()
    api = cluster(device_slice("n2", device("gpu-0")), claim, claiming())
    assert {"p1": "n2"} == api.bound
    found = api.get(claim)
    assert ["n2/gpu-0"] == given(found)
    assert found.is_reserved_for("uid-of-default-p1")
    assert (FINALIZER,) == found.metadata.finalizers
    (term,) = found.status.allocation.node_selector.node_selector_terms
    assert ("metadata.name", ("n2",)) == (term.match_fields[0].key, term.match_fields[0].values)


def test_finalizer_then_status_then_binding() -> None:
    api = cluster(device_slice("n1", device("gpu-0")), resource_claim(), claiming())
    order = [
        (type(w).__name__, getattr(w, "subresource", ""), list(getattr(w, "patch", {})))
        for w in api.writes
        if isinstance(w, PatchObject | Bind)
    ]
    assert [
        ("PatchObject", "", ["metadata"]),
        ("PatchObject", "status", ["status"]),
        ("Bind", "", []),
    ] == order


def test_a_device_is_given_once() -> None:
    claims = [resource_claim(f"c{i}") for i in range(3)]
    pods = [claiming(f"p{i}", f"c{i}") for i in range(3)]
    slices = [device_slice(n, device("gpu-0")) for n in ("n1", "n2")]
    api = cluster(*slices, *claims, *pods)
    assert 2 == len(api.bound)
    (left,) = {"p0", "p1", "p2"} - set(api.bound)
    said = "0/2 nodes are available: 2 cannot allocate all claims."
    assert api.messages[left].startswith(said)


@pytest.mark.behaviour("S2.1", "S2.8", "S2.14")
def test_a_shared_device_is_given_in_parts_until_it_is_used_up() -> None:
    claims = [resource_claim(f"c{i}", request(memory="4Gi")) for i in range(3)]
    pods = [claiming(f"p{i}", f"c{i}") for i in range(3)]
    api = cluster(device_slice("n1", device("gpu-0", "10Gi", shared=True)), *claims, *pods)
    assert {"p0": "n1", "p1": "n1"} == api.bound
    results = [api.get(c).status.allocation.devices.results[0] for c in claims[:2]]
    assert [{"memory": "4Gi"}] * 2 == [r.consumed_capacity for r in results]
    assert 2 == len({r.share_id for r in results})
    # Who leaves gives his part back.
    gone = api.get(claims[0])
    api.remove(pods[0])
    api.put(msgspec.structs.replace(gone, status=type(gone.status)()))
    api.wait(30)
    assert "p2" in api.bound


def test_a_pod_waits_for_its_claim() -> None:
    api = cluster(device_slice("n1", device("gpu-0")), claiming())
    assert {} == api.bound
    assert 'resourceclaim "c1" not found' in api.messages["p1"]
    api.put(resource_claim())
    api.wait(10)
    assert {"p1": "n1"} == api.bound


def test_a_pod_waits_for_the_claim_that_is_made_for_it() -> None:
    """It is held back without a word: there is nothing that its user could do."""
    pod = make_pod("p1", resourceClaims=[{"name": "d", "resourceClaimTemplateName": "t"}])
    api = cluster(device_slice("n1", device("gpu-0")), pod)
    assert ({}, {}) == (api.bound, api.messages)
    api.put(resource_claim("made", owner=pod))
    status = msgspec.structs.replace(
        pod.status,
        resource_claim_statuses=msgspec.convert(
            [{"name": "d", "resourceClaimName": "made"}],
            type(pod.status).__annotations__["resource_claim_statuses"],
        ),
    )
    api.put(msgspec.structs.replace(pod, status=status))
    assert {"p1": "n1"} == api.bound


def test_a_claim_of_somebody_else_is_none() -> None:
    pod = make_pod("p1", resourceClaims=[{"name": "d", "resourceClaimTemplateName": "t"}])
    status = msgspec.structs.replace(
        pod.status,
        resource_claim_statuses=msgspec.convert(
            [{"name": "d", "resourceClaimName": "made"}],
            type(pod.status).__annotations__["resource_claim_statuses"],
        ),
    )
    pod = msgspec.structs.replace(pod, status=status)
    other = make_pod("other")
    made = resource_claim("made", owner=other)
    api = cluster(device_slice("n1", device("gpu-0")), made, pod)
    assert "was not created for Pod default/p1 (Pod is not owner)" in api.messages["p1"]


def test_pods_share_a_claim_and_so_its_node() -> None:
    claim = resource_claim()
    slices = [device_slice(n, device("gpu-0")) for n in ("n1", "n2")]
    api = cluster(*slices, claim, *(claiming(f"p{i}") for i in range(3)))
    api.wait(30)
    assert {"p0", "p1", "p2"} == set(api.bound)
    assert 1 == len(set(api.bound.values()))
    assert 3 == len(api.get(claim).status.reserved_for)


def test_several_claims_all_or_none() -> None:
    claims = [resource_claim("c1"), resource_claim("c2")]
    slices = [device_slice("n1", device("gpu-0")), device_slice("n2", device("a"), device("b"))]
    api = cluster(*slices, *claims, claiming("p1", "c1", "c2"))
    assert {"p1": "n2"} == api.bound
    assert ["n2/a", "n2/b"] == [d for c in claims for d in given(api.get(c))]


def test_a_missing_class_is_told_and_waited_for() -> None:
    claim = resource_claim("c1", request(class_name="tpu"))
    api = cluster(device_slice("n1", device("gpu-0")), claim, claiming())
    assert "request r: device class tpu does not exist" in api.messages["p1"]
    api.put(device_class("tpu"))
    api.wait(10)
    assert {"p1": "n1"} == api.bound


def test_a_selector_without_an_answer_fails_the_attempt() -> None:
    selector = {"cel": {"expression": f'device.attributes["{GPU}"].healthy'}}
    claim = resource_claim("c1", request(selectors=[selector]))
    api = cluster(device_slice("n1", device("gpu-0")), claim, claiming())
    assert (
        'running "DynamicResources" filter plugin: claim default/c1: selector #0: CEL runtime '
        "error: no such key: healthy"
    ) == api.messages["p1"]


def refuse_status(code: int, times: int) -> Any:
    """Refuses the first writes of a claim's status."""
    left = [times]

    def refuses(write: Any) -> int:
        if isinstance(write, PatchObject) and write.subresource == "status" and left[0]:
            left[0] -= 1
            return code
        return 0

    return refuses


@pytest.mark.behaviour("S2.26")
def test_nobody_gets_a_device_whose_writing_is_uncertain() -> None:
    """The answer is lost, the write is not: the pod is deleted, and still its device is taken."""
    engine = build_engine()
    claim, pod = resource_claim(meta={"finalizers": [FINALIZER]}), claiming()
    objects = (make_node("n1"), device_class(), device_slice("n1", device("gpu-0")), claim)
    engine.step(Listed(objects), 0)
    (write,) = [
        w for w in engine.step(Observed(WatchType.ADDED, pod), 1) if isinstance(w, PatchObject)
    ]
    engine.step(Observed(WatchType.DELETED, pod), 2)
    other = (resource_claim("c2"), claiming("p2", "c2"))
    for obj in other:
        writes = engine.step(Observed(WatchType.ADDED, obj), 3)
        assert not [w for w in writes if isinstance(w, PatchObject)]
    # Nobody knows: the same is written again, and now it is known.
    again = [w for w in engine.step(WriteFailed(write.id, 0), 4) if isinstance(w, PatchObject)]
    assert [write.patch] == [w.patch for w in again]
    done = msgspec.convert(
        msgspec.to_builtins(claim) | {"status": write.patch["status"]}, ResourceClaim
    )
    meta = msgspec.structs.replace(claim.metadata, resource_version="2")
    engine.step(WriteFailed(again[0].id, 409), 5)
    writes = engine.step(
        Observed(WatchType.MODIFIED, msgspec.structs.replace(done, metadata=meta)), 6
    )
    assert not [w for w in writes if isinstance(w, PatchObject)]
    # When the claim is given back, the other pod has its turn.
    newer = msgspec.structs.replace(meta, resource_version="3")
    free = msgspec.structs.replace(claim, metadata=newer)
    writes = engine.step(Observed(WatchType.MODIFIED, free), 7)
    assert ["c2"] == [w.name for w in writes if isinstance(w, PatchObject)]


def test_a_refused_allocation_frees_the_device() -> None:
    api = Agreeing(build_engine())
    api.refuses = refuse_status(422, 1)
    for obj in (make_node("n1"), device_class(), device_slice("n1", device("gpu-0")),
                resource_claim(), claiming()):  # fmt: skip
        api.put(obj)
    assert {} == api.bound
    assert 'running PreBind plugin "DynamicResources": refused' == api.messages["p1"]
    api.put(resource_claim("c2"))
    api.put(claiming("p2", "c2"))
    assert {"p2": "n1"} == api.bound


def test_a_conflict_is_settled_on_the_newer_claim() -> None:
    """Somebody labels the claim just before it is written."""
    api = Agreeing(build_engine())
    claim = resource_claim()
    for obj in (make_node("n1"), device_class(), device_slice("n1", device("gpu-0")), claim):
        api.put(obj)
    was_there = []

    def refuses(write: Any) -> int:
        if isinstance(write, PatchObject) and write.subresource and not was_there:
            was_there.append(write)
            meta = msgspec.structs.replace(api.get(claim).metadata, labels={"new": "label"})
            api._put_quietly(msgspec.structs.replace(api.get(claim), metadata=meta))
        return 0

    api.refuses = refuses
    api.put(claiming())
    assert {"p1": "n1"} == api.bound
    assert {"new": "label"} == api.get(claim).metadata.labels


@pytest.mark.behaviour("S2.36")
def test_a_device_with_conditions_is_waited_for() -> None:
    needs = {"bindingConditions": ["example.com/attached"],
             "bindingFailureConditions": ["example.com/failed"], "bindsToNode": True}  # fmt: skip
    claim = resource_claim()
    api = cluster(device_slice("n1", device("gpu-0", **needs)), claim, claiming())
    assert {} == api.bound
    (note,) = [w for w in api.writes if isinstance(w, CreateEvent)]
    assert "BindingConditionsPending" == note.reason
    assert "waiting for binding conditions for device on node n1" == note.note
    found = api.get(claim)
    assert found.status.allocation.allocation_timestamp is not None
    api.put(with_condition(found, "example.com/attached"))
    assert {"p1": "n1"} == api.bound


def with_condition(claim: ResourceClaim, type: str) -> ResourceClaim:
    """What the driver says of the claim's device."""
    (result,) = claim.status.allocation.devices.results  # type: ignore[union-attr,misc]
    condition = {"type": type, "status": "True", "reason": "Said", "message": "so"}
    status = {"driver": result.driver, "pool": result.pool, "device": result.device,
              "conditions": [condition]}  # fmt: skip
    whole = msgspec.to_builtins(claim)
    whole["status"]["devices"] = [status]
    return msgspec.convert(whole, ResourceClaim)


@pytest.mark.behaviour("S2.36")
def test_a_device_that_cannot_be_bound_is_given_back_and_another_is_tried() -> None:
    needs = {"bindingConditions": ["a.b/attached"], "bindingFailureConditions": ["a.b/failed"],
             "bindsToNode": True}  # fmt: skip
    slices = [device_slice(n, device("gpu-0", **needs)) for n in ("n1", "n2")]
    claim = resource_claim()
    api = cluster(*slices, claim, claiming())
    api.put(with_condition(api.get(claim), "a.b/failed"))
    assert "device binding failed: claim=c1, reason=Said" in api.messages["p1"]
    for _ in range(5):
        api.wait(60)
    found = api.get(claim)
    assert found.status.devices is None
    assert found.status.allocation is not None
    api.put(with_condition(found, "a.b/attached"))
    assert "p1" in api.bound


@pytest.mark.behaviour("S2.35")
def test_tainted_devices_are_left_alone() -> None:
    sick = {"taints": [{"key": "ill", "effect": "NoSchedule"}]}
    api = cluster(device_slice("n1", device("gpu-0", **sick)), resource_claim(), claiming())
    assert {} == api.bound
    tolerant = request(tolerations=[{"key": "ill", "operator": "Exists"}])
    api.put(resource_claim("c2", tolerant))
    api.put(claiming("p2", "c2"))
    assert {"p2": "n1"} == api.bound


@pytest.mark.behaviour("S2.35")
def test_a_rule_taints_devices_until_it_is_gone() -> None:
    rule = taint_rule("sick", "NoSchedule", driver=GPU, pool="n1")
    api = cluster(device_slice("n1", device("gpu-0")), rule, resource_claim(), claiming())
    assert {} == api.bound
    api.remove(rule)
    api.wait(10)
    assert {"p1": "n1"} == api.bound


def test_pods_of_lower_priority_are_evicted_for_their_devices() -> None:
    claims = [resource_claim("c1"), resource_claim("c2")]
    slice_ = device_slice("n1", device("gpu-0"))
    low = claiming("low", "c1", priority=1)
    api = cluster(slice_, *claims, low, nodes=("n1",))
    assert {"low": "n1"} == api.bound
    api.put(claiming("high", "c2", priority=9))
    deleted = [w.name for w in api.writes if type(w).__name__ == "DeletePod"]
    assert ["low"] == deleted


@pytest.mark.parametrize("is_group", [False, True])
def test_nobody_is_evicted_for_the_device_of_a_claim_that_the_preemptor_uses_too(
    is_group: bool,
) -> None:
    """The claim is allocated again for the preemptor: its device is not free for another claim."""
    claims = [resource_claim(f"c{i}") for i in range(3)]
    slice_ = device_slice("n1", device("gpu-0"), device("gpu-1"))
    api = cluster(slice_, *claims, claiming("peer", "c0", priority=9), nodes=("n1",))
    api.put(claiming("low", "c1", priority=1))
    assert {"peer": "n1", "low": "n1"} == api.bound
    of_group = {"schedulingGroup": {"podGroupName": "g"}} if is_group else {}
    if is_group:
        gang = {"schedulingPolicy": {"gang": {"minCount": 1}}}
        meta = {"name": "g", "namespace": "default", "uid": "u-g"}
        api.put(msgspec.convert({"metadata": meta, "spec": gang}, PodGroup))
    api.put(claiming("high", "c1", "c2", priority=9, **of_group))
    api.wait(30)
    assert "high" not in api.bound
    assert not [w.name for w in api.writes if type(w).__name__ == "DeletePod"]


@pytest.mark.behaviour("S2.27")
def test_what_is_used_is_in_the_objects() -> None:
    """An engine that is built anew takes the same decisions."""
    claims = [resource_claim(f"c{i}", request(memory="4Gi")) for i in range(2)]
    api = cluster(
        device_slice("n1", device("gpu-0", "10Gi", shared=True)),
        *claims, claiming("p0", "c0"), claiming("p1", "c1"), nodes=("n1",),
    )  # fmt: skip
    again = build_engine()
    again.step(Listed(tuple(api.objects.values())), 1)
    for obj in (resource_claim("c2", request(memory="4Gi")), claiming("p2", "c2")):
        writes = again.step(Observed(WatchType.ADDED, obj), 2)
        assert not [w for w in writes if isinstance(w, PatchObject)]
    for obj in (resource_claim("c3", request(memory="2Gi")), claiming("p3", "c3")):
        writes = again.step(Observed(WatchType.ADDED, obj), 3)
    assert ["c3"] == [w.name for w in writes if isinstance(w, PatchObject)]


def test_a_full_claim_takes_nobody_more() -> None:
    users = [{"resource": "pods", "name": f"u{i}", "uid": f"u{i}"} for i in range(256)]
    status = {"allocation": {"devices": {"results": []}}, "reservedFor": users}
    api = cluster(resource_claim(status=status), claiming())
    assert "resourceclaim in use" in api.messages["p1"]


def test_unanswered_writes_are_no_decision() -> None:
    """The pod is bound only when the API shows its claims."""
    engine = build_engine()
    claim = resource_claim()
    engine.step(
        Listed((make_node("n1"), device_class(), device_slice("n1", device("g")), claim)), 0
    )
    writes = engine.step(Observed(WatchType.ADDED, claiming()), 1)
    (write,) = [w for w in writes if isinstance(w, PatchObject)]
    assert not [w for w in engine.step(WriteOk(write.id, "2"), 2) if isinstance(w, Bind)]
    assert not engine.is_settled
