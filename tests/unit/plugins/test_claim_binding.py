"""Writing a pod's claims, through the engine's one entry: what others do meanwhile."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS as S
from stower.framework.events import Event, Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import Bind, PatchObject, PatchPodStatus, Write
from stower.model.kinds import ResourceClaim
from stower.model.kinds.resource_claim import FINALIZER
from stower.plugins.claim_binding import CONFLICTS_MAX
from tests.builders import make_node
from tests.device_builders import (
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)
from tests.unit.engine.test_devices import cluster, given

READY = {"finalizers": [FINALIZER]}  # nothing but the status has to be written


def engine_with(*objects: Any) -> tuple[Engine, list[PatchObject]]:
    """Two devices on n1, and these objects."""
    engine = build_engine()
    two = device_slice("n1", device("gpu-0"), device("gpu-1"))
    writes = step(engine, Listed((make_node("n1"), device_class(), two, *objects)), 0)
    return engine, patches(writes)


def step(engine: Engine, event: Event, now_ns: int) -> list[Write]:
    """What the engine writes, as the statuses of pods are written at once."""
    writes = engine.step(event, now_ns)
    for write in [write for write in writes if isinstance(write, PatchPodStatus)]:
        writes = [*writes, *engine.step(WriteOk(write.id), now_ns)]
    return writes


def patches(writes: list[Write]) -> list[PatchObject]:
    """What is written of claims."""
    return [write for write in writes if isinstance(write, PatchObject)]


def bound(writes: list[Write]) -> list[Bind]:
    """What is bound."""
    return [write for write in writes if isinstance(write, Bind)]


def messages(writes: list[Write]) -> list[str]:
    """What pods are told."""
    told = [w.condition for w in writes if isinstance(w, PatchPodStatus)]
    return [condition.message for condition in told if condition is not None]


def seen(claim: ResourceClaim, version: str, meta: Any = None, **fields: Any) -> Observed:
    """The claim as the API shows it from some version on."""
    whole = msgspec.to_builtins(claim) | fields
    whole["metadata"] |= {"resourceVersion": version, **(meta or {})}
    return Observed(WatchType.MODIFIED, msgspec.convert(whole, ResourceClaim))


def test_a_claim_that_is_reserved_already_is_not_held_for_longer_than_it_is_allocated() -> None:
    """Somebody else has allocated it and reserved it for the pod."""
    first, wanted = claiming("p0", "c0"), resource_claim("c1")
    results = [{"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]
    user = {"resource": "pods", "name": "p0", "uid": first.metadata.uid}
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
    held = resource_claim("c0", status=status, meta=READY)
    api = cluster(device_slice("n1", device("gpu-0")), held, first, nodes=("n1",))
    assert ({"p0": "n1"}, []) == (api.bound, patches(api.writes))
    assert api.engine.is_settled
    api.remove(first)
    api.put(resource_claim("c0", meta=READY))
    api.put(wanted)
    api.put(claiming("p1", "c1"))
    assert ["n1/gpu-0"] == given(api.get(wanted))


def test_nothing_is_written_of_a_claim_that_is_being_deleted() -> None:
    """Nor while the answer about another claim of the pod is still to come."""
    claims = [resource_claim(f"c{i}") for i in range(2)]
    engine, writes = engine_with(*claims, claiming("p0", "c0", "c1"))
    assert ["c0", "c1"] == [write.name for write in writes]
    deleted = {**READY, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    told = engine.step(WriteOk(writes[1].id, "2"), S)
    told += engine.step(seen(claims[1], "3", deleted), S)
    assert [] == patches(told)
    told = engine.step(WriteOk(writes[0].id, "2"), S)
    assert ([], True) == (patches(told), "claim default/c1 got deleted" in messages(told)[0])


def test_another_share_of_the_same_device_is_no_proof_that_shares_are_dropped() -> None:
    """Another scheduler was faster; ours was not written."""
    shared = device_slice("n1", device("gpu-0", "8Gi", shared=True))
    claim = resource_claim("c0", request(memory="1Gi"), meta=READY)
    engine = build_engine()
    objects = (make_node("n1"), device_class(), shared, claim, claiming("p0", "c0"))
    (write,) = patches(engine.step(Listed(objects), 0))
    status = msgspec.convert(write.patch["status"], type(claim.status))
    body: Any = msgspec.to_builtins(status)
    body["allocation"]["devices"]["results"][0]["shareID"] = "1b4e28ba-2fa1-41d2-883f-0016d3cca427"
    engine.step(seen(claim, "2", status=body | {"reservedFor": []}), S)
    told = engine.step(WriteFailed(write.id, 409, "conflict"), S)
    (message,) = messages(told)
    assert message.endswith("claim default/c0 got allocated elsewhere in the meantime")


def test_endless_conflicts_end_the_attempt() -> None:
    api = cluster(device_slice("n1", device("gpu-0")), resource_claim(meta=READY), nodes=("n1",))
    api.refuses = lambda write: 409 if isinstance(write, PatchObject) else 0
    api.put(claiming())
    for tries in range(1, CONFLICTS_MAX):
        assert (tries, {}) == (len(patches(api.writes)), api.messages)
        api.wait(4)
    assert CONFLICTS_MAX == len(patches(api.writes))
    assert 'running PreBind plugin "DynamicResources": refused' == api.messages["p1"]


@pytest.mark.behaviour("S2.26")
def test_a_lost_write_may_be_what_the_next_one_is_in_conflict_with() -> None:
    """The pod is gone; until the claim is seen, its device is not given to anybody."""
    first, claims = claiming("p0", "c0"), [resource_claim(f"c{i}", meta=READY) for i in range(3)]
    others = claiming("p1", "c1"), claiming("p2", "c2")
    engine, (write,) = engine_with(*claims, first)
    told = engine.step(Observed(WatchType.ADDED, others[0]), S)
    assert ["c1"] == [w.name for w in patches(told)]
    engine.step(Observed(WatchType.DELETED, first), S)
    engine.step(Observed(WatchType.ADDED, others[1]), S)
    (again,) = patches(engine.step(WriteFailed(write.id, 504, ""), 2 * S))
    assert ("c0", "1") == (again.name, again.resource_version)
    (third,) = patches(engine.step(WriteFailed(again.id, 409, "conflict"), 3 * S))
    assert ("c0", "1") == (third.name, third.resource_version)
    assert [] == patches(engine.step(Tick(), 30 * S))
    # It was not carried out: something else has changed.
    told = engine.step(seen(claims[0], "2", {"labels": {"new": "label"}}), 31 * S)
    told += engine.step(WriteFailed(third.id, 409, "conflict"), 31 * S)
    assert ["c2"] == [w.name for w in patches(told)]


def test_a_reservation_that_was_not_taken_back_is_used_again() -> None:
    """The Binding was refused, and so was giving the claim up: written anew it changes nothing, and
    the API server has no news to tell."""
    wanted = resource_claim(meta=READY)
    engine, (write,) = engine_with(wanted, claiming())
    step(engine, WriteOk(write.id, "2"), S)
    (bind,) = bound(step(engine, seen(wanted, "2", READY, status=write.patch["status"]), S))
    (undo,) = patches(step(engine, WriteFailed(bind.id, 403, "forbidden"), S))
    (again,) = patches(step(engine, WriteFailed(undo.id, 403, "forbidden"), 20 * S))
    assert ("2", []) == (again.resource_version, bound(step(engine, Tick(), 21 * S)))
    assert ["p1"] == [write.name for write in bound(step(engine, WriteOk(again.id, "2"), 22 * S))]


def test_the_answer_to_a_reservation_that_is_being_taken_back_does_not_bring_it_back() -> None:
    """The reservation is seen, and given up for another one that takes too long, before the API
    server's answer comes."""
    claims = [resource_claim(f"c{i}", meta=READY) for i in range(2)]
    engine, (first, second) = engine_with(*claims, claiming("p1", "c0", "c1"))
    statuses = [write.patch["status"] for write in (first, second)]
    step(engine, seen(claims[0], "2", READY, status=statuses[0]), S)
    (undo,) = patches(step(engine, Tick(), 700 * S))
    assert ("c0", {"reservedFor": None}) == (undo.name, undo.patch["status"])
    step(engine, WriteOk(first.id, "2"), 701 * S)
    step(engine, WriteOk(second.id, "3"), 702 * S)
    told = step(engine, seen(claims[1], "3", READY, status=statuses[1]), 702 * S)
    (again,) = patches(told)
    assert ("c0", "2", []) == (again.name, again.resource_version, bound(told))
    step(engine, WriteOk(undo.id, "4"), 703 * S)
    step(engine, WriteFailed(again.id, 409, "conflict"), 703 * S)
    freed = seen(claims[0], "4", READY, status=statuses[0] | {"reservedFor": None})
    (again,) = patches(step(engine, freed, 704 * S))
    step(engine, WriteOk(again.id, "5"), 705 * S)
    told = step(engine, seen(claims[0], "5", READY, status=statuses[0]), 705 * S)
    assert ["p1"] == [write.name for write in bound(told)]
