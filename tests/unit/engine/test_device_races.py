"""Devices of which somebody lets go while something is under way: none twice, nobody forgotten."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS as S
from stower.framework.events import Listed, Observed, WatchType, WriteFailed, WriteOk
from stower.framework.writes import Bind, DeletePod, PatchObject, PatchPodStatus, Write
from stower.model.kinds import ResourceClaim
from stower.model.kinds.resource_claim import FINALIZER
from tests.builders import make_node
from tests.device_builders import (
    GPU,
    claiming,
    device,
    device_class,
    device_slice,
    resource_claim,
)

C0, C1 = resource_claim("c0"), resource_claim("c1")


def engine_with(*objects: Any) -> tuple[Engine, list[Write]]:
    """One device, both claims and these objects."""
    engine = build_engine()
    one = device_slice("n1", device("gpu-0"))
    return engine, engine.step(Listed((make_node("n1"), device_class(), one, C0, C1, *objects)), 0)


def patches(writes: list[Write], name: str = "") -> list[PatchObject]:
    """What is written of claims."""
    return [w for w in writes if isinstance(w, PatchObject) and name in ("", w.name)]


def result_of(name: str) -> dict[str, str]:
    """That device of n1 as the result of an allocation."""
    return {"request": "r", "driver": GPU, "pool": "n1", "device": name}


def with_finalizer(claim: ResourceClaim, version: str) -> Observed:
    """The claim as the API shows it after the first write."""
    meta = claim.metadata
    meta = msgspec.structs.replace(meta, resource_version=version, finalizers=(FINALIZER,))
    return Observed(WatchType.MODIFIED, msgspec.structs.replace(claim, metadata=meta))


@pytest.mark.behaviour("S2.26")
def test_a_write_without_an_answer_is_not_gone_on_with_for_a_pod_that_is_gone() -> None:
    first = claiming("p0", "c0")
    engine, writes = engine_with(first)
    (finalizer,) = patches(writes)
    engine.step(Observed(WatchType.DELETED, first), S)
    engine.step(with_finalizer(C0, "2"), S)
    writes = engine.step(Observed(WatchType.ADDED, claiming("p1", "c1")), 2 * S)
    (other,) = patches(writes, "c1")
    assert [] == patches(engine.step(WriteFailed(finalizer.id, 504, ""), 3 * S), "c0")
    writes = engine.step(WriteOk(other.id, "3"), 4 * S)
    writes += engine.step(with_finalizer(C1, "3"), 4 * S)
    assert ["status"] == [write.subresource for write in patches(writes, "c1")]


@pytest.mark.parametrize("other", ["c0", "c1"])
def test_whoever_waits_for_devices_that_were_never_written_is_tried_again(other: str) -> None:
    """No event of the API tells that they are free."""
    first = claiming("p0", "c0")
    engine, writes = engine_with(first)
    (finalizer,) = patches(writes)
    assert [] == patches(engine.step(Observed(WatchType.ADDED, claiming("p1", other)), S))
    writes = engine.step(Observed(WatchType.DELETED, first), 5 * S)
    writes += engine.step(WriteOk(finalizer.id, "2"), 5 * S)
    writes += engine.step(with_finalizer(C0, "2"), 5 * S)
    assert [other] == [write.name for write in patches(writes)]


def test_a_preemptor_gets_the_device_of_a_victim_that_was_not_bound_yet() -> None:
    engine, writes = engine_with(claiming("p0", "c0"))
    assert ["c0"] == [write.name for write in patches(writes)]
    writes = engine.step(Observed(WatchType.ADDED, claiming("p1", "c1", priority=100)), S)
    for seconds in range(2, 20):
        for write in writes:
            engine.step(WriteOk(write.id, "2"), seconds * S)
        if patches(writes, "c1"):
            break
        writes = engine.step(with_finalizer(C0, "2"), seconds * S)
    assert ["c1"] == [write.name for write in patches(writes)]
    assert not [write for write in writes if isinstance(write, Bind)]


def test_a_victim_in_pre_bind_with_allocated_devices_is_deleted() -> None:
    """Giving up its node alone would leave the devices allocated, and it would come back."""
    status = {"allocation": {"devices": {"results": [result_of("gpu-0")]}}}
    engine, writes_before = engine_with(claiming("p0", "a0"), resource_claim("a0", status=status))
    writes = engine.step(Observed(WatchType.ADDED, claiming("p1", "c1", priority=100)), S)
    (target,) = [w for w in writes if isinstance(w, PatchPodStatus) and w.name == "p0"]
    (reserved,) = patches(writes_before, "a0")
    engine.step(WriteOk(reserved.id, "2"), 2 * S)
    consumers = reserved.patch["status"]["reservedFor"]
    shown = resource_claim("a0", status=status | {"reservedFor": consumers})
    shown = msgspec.structs.replace(
        shown, metadata=msgspec.structs.replace(shown.metadata, resource_version="2")
    )
    writes = engine.step(Observed(WatchType.MODIFIED, shown), 2 * S)
    assert not [write for write in writes if isinstance(write, Bind)], "it is being evicted"
    writes = engine.step(WriteOk(target.id, "2"), 2 * S)
    assert ["p0"] == [write.name for write in writes if isinstance(write, DeletePod)]


@pytest.mark.parametrize("number", range(3))
def test_of_pods_that_are_alike_each_waits_for_its_own_claim(number: int) -> None:
    """What is no help to one may be what another waits for."""
    engine, writes = engine_with(*(claiming(f"p{i}", f"d{i}") for i in range(3)))
    assert [] == patches(writes)
    own = resource_claim(f"d{number}")
    assert [own.metadata.name] == [
        write.name for write in patches(engine.step(Observed(WatchType.ADDED, own), 30 * S))
    ]


def test_a_late_answer_is_about_its_own_attempt_alone() -> None:
    """The claim was deleted and made again, and decided about anew, before it came."""
    first = claiming("p0", "c0")
    engine, writes = engine_with(first)
    (finalizer,) = patches(writes)
    shown = with_finalizer(C0, "2")
    (status,) = patches(engine.step(WriteOk(finalizer.id, "2"), S) + engine.step(shown, S), "c0")
    engine.step(Observed(WatchType.DELETED, first), 2 * S)
    (again,) = patches(engine.step(WriteFailed(status.id, 504, ""), 2 * S))
    assert ("status", status.resource_version) == (again.subresource, again.resource_version)
    engine.step(Observed(WatchType.DELETED, shown.object), 3 * S)
    other = resource_claim("c0", meta={"uid": "another", "resourceVersion": "9"})
    writes = engine.step(Observed(WatchType.ADDED, other), 3 * S)
    writes += engine.step(Observed(WatchType.ADDED, claiming("p2", "c0")), 3 * S)
    assert ["another"] == [write.uid for write in patches(writes)]
    writes = engine.step(WriteFailed(again.id, 409, "conflict"), 4 * S)
    writes += engine.step(Observed(WatchType.ADDED, claiming("p1", "c1")), 4 * S)
    assert [] == patches(writes, "c1"), "the device is decided for the new claim"


def test_a_trial_inside_another_leaves_devices_in_use() -> None:
    """Of a claim that is reserved for a pod which has no node, as after a restart."""
    status = {
        "allocation": {"devices": {"results": [result_of("gpu-0")]}},
        "reservedFor": [{"resource": "pods", "name": "p0", "uid": "uid-of-default-p0"}],
    }
    pod = claiming("p0", "a0", schedulingGates=[{"name": "later"}])
    engine, _ = engine_with(pod, resource_claim("a0", status=status))
    state = engine.state
    pool = ("gpu.example.com", "n1")
    assert ["gpu-0"] == [*state.devices.usage(pool)]
    entry, row = state.pods[pod.metadata.uid], state.row_of("n1")
    with state.trial():
        with state.trial():
            state.assume(entry, row)
            state.displace(entry)
            assert not state.devices.usage(pool)
        assert ["gpu-0"] == [*state.devices.usage(pool)]
        state.assume(entry, row)
        with state.trial():
            state.displace(entry)
            with state.trial():
                state.assume(entry, row)
            assert not state.devices.usage(pool)
    assert ["gpu-0"] == [*state.devices.usage(pool)]
