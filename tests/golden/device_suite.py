"""Suite allocator: which devices the claims of one pod are given on one node.

A recorded answer counts only if it keeps the rules (tests/device_model.py): upstream forgets values
of distinctAttribute when a request has three devices or more, and when its search goes back. Where
it does not, ours must keep them, or there must be nothing to give. Another answer than the recorded
one is right if it keeps the rules.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from stower.devices.allocator import allocate
from stower.devices.capacity import amount
from stower.devices.inventory import Inventory
from stower.devices.requests import AllocationError, plan_of
from stower.devices.results import allocation_of
from stower.framework.device_gates import DeviceGates
from stower.model.kinds import DeviceClass, Node, ResourceClaim, ResourceSlice
from stower.model.kinds.resource_claim import (
    AllocatedDevices,
    AllocationResult,
    DeviceResult,
    ResourceClaimStatus,
)
from stower.model.meta import ObjectMeta
from stower.sim.device_model import Gift, World
from stower.state.devices import Devices
from stower.state.journal import Journal

Case = dict[str, Any]
SHARE: str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


def gates_of(names: list[str]) -> DeviceGates:
    """The gates of a case, all others off."""
    return DeviceGates(
        "DRAAdminAccess" in names,
        "DRAPrioritizedList" in names,
        "DRAPartitionableDevices" in names,
        "DRADeviceTaints" in names,
        "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus" in names,
        "DRAConsumableCapacity" in names,
        "DRAListTypeAttributes" in names,
    )


def named(slices: list[Case]) -> list[Case]:
    """Slices with names of their own, in the order that they have: some cases leave them out."""
    seen: set[str] = set()
    for number, slice_ in enumerate(slices):
        name = slice_["metadata"].get("name", "")
        if name in seen:
            slice_["metadata"]["name"] = f"{name}~{number:04d}"
        seen.add(name)
    return slices


def _state(case: Case) -> Devices:
    devices = Devices(Journal())
    for slice_ in named(case.get("slices") or []):
        devices.put(msgspec.convert(slice_, ResourceSlice))
    used = case["allocated"]
    results = [_result(d, None, None) for d in used.get("devices") or ()]
    consumed = {_id(c): c["capacity"] for c in used.get("consumedCapacity") or ()}
    for number, share in enumerate(used.get("shared") or ()):
        results.append(_result(share, str(number), consumed.pop(_id(share), None)))
    for number, (id, capacity) in enumerate(consumed.items()):
        results.append(DeviceResult("", *id, share_id=f"c{number}", consumed_capacity=capacity))
    status = ResourceClaimStatus(AllocationResult(AllocatedDevices(tuple(results))))
    devices.put(ResourceClaim(ObjectMeta(name="allocated"), status=status))
    return devices


def _id(of: Case) -> tuple[str, str, str]:
    return of["driver"], of["pool"], of["device"]


def _result(of: Case, share: str | None, capacity: Case | None) -> DeviceResult:
    return DeviceResult("", *_id(of), share_id=share, consumed_capacity=capacity)


def answer(case: Case) -> Case:
    """Ours, in the form of the recording."""
    gates, devices = gates_of(case["features"]), _state(case)
    inventory = devices.extension(Inventory)
    inventory.refresh()
    node = msgspec.convert(case["node"], Node)
    classes = {c["metadata"]["name"]: msgspec.convert(c, DeviceClass) for c in case["classes"]}
    claims = [msgspec.convert(claim, ResourceClaim) for claim in case["claims"]]
    try:
        plans = [plan_of(claim, i, classes, gates) for i, claim in enumerate(claims)]
        views = inventory.views(node, gates.partitionable)
        given = allocate(plans, views, node, devices, gates)
    except AllocationError as error:
        return {"error": error.message(tuple(claim.metadata.key for claim in claims))}
    if given is None:
        return {"none": True}
    name = node.metadata.name
    results = [
        allocation_of(claim, plan, gifts, classes, name, gates, lambda _: SHARE)
        for claim, plan, gifts in zip(claims, plans, given)
    ]
    return {"allocations": [msgspec.to_builtins(result) for result in results]}


def _comparable(allocations: list[Case]) -> Any:
    compared = []
    for allocation in allocations:
        devices = allocation.get("devices") or {}
        results = sorted(_text(result) for result in devices.get("results") or ())
        config = [{k: v for k, v in c.items() if v} for c in devices.get("config") or ()]
        terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
        selector = sorted(
            _text({"field": field, **r, "values": sorted(r.get("values") or ())})
            for term in terms
            for field in ("matchFields", "matchExpressions")
            for r in term.get(field) or ()
        )
        compared.append((results, _text(config), selector))
    return compared


def _text(value: Any) -> str:
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if v not in (None, [], {}, False)}
        capacity = value.get("consumedCapacity") or {}
        if capacity:
            amounts = {name: amount(text).nano for name, text in capacity.items()}
            value = value | {"consumedCapacity": amounts}
    return json.dumps(value, sort_keys=True)


def _world(case: Case) -> World:
    used = case["allocated"]
    shares: dict[tuple[str, str, str], list[Case]] = {}
    for share in used.get("shared") or ():
        shares.setdefault(_id(share), []).append({})
    for consumed in used.get("consumedCapacity") or ():
        shares.setdefault(_id(consumed), []).append(consumed["capacity"])
    # Of each pool the newest generation, as the node sees it.
    newest: dict[tuple[str, str], int] = {}
    known = World(case["node"], case.get("slices") or [], {}, set(), {})
    for slice_, _ in known.devices.values():
        pool = slice_["spec"]["pool"]
        id = (slice_["spec"]["driver"], pool["name"])
        newest[id] = max(newest.get(id, 0), pool.get("generation", 0))
    slices = [
        slice_
        for slice_ in case.get("slices") or ()
        if slice_["spec"]["pool"].get("generation", 0)
        == newest.get((slice_["spec"]["driver"], slice_["spec"]["pool"]["name"]), 0)
        or slice_["spec"].get("sharedCounters")
    ]
    return World(
        case["node"],
        slices,
        {c["metadata"]["name"]: c for c in case["classes"]},
        {_id(d) for d in used.get("devices") or ()},
        shares,
        "DRAConsumableCapacity" in case["features"],
        "DRAListTypeAttributes" in case["features"],
        "DRADeviceTaints" in case["features"],
    )


def _gifts(allocations: list[Case]) -> list[Gift]:
    gifts = []
    for number, allocation in enumerate(allocations):
        for result in allocation["devices"]["results"]:
            request, _, alternative = result["request"].partition("/")
            gifts.append((number, request, alternative, _id(result)))
    return gifts


def allocator(case: Case) -> Iterator[str]:
    """The differences of one case."""
    case.setdefault("classes", [])
    expect = case["expect"] or {"allocations": []}
    case["classes"] = case["classes"] or []
    ours = answer(case)
    world = _world(case)
    if "allocations" in ours:
        broken = world.fault(case["claims"], _gifts(ours["allocations"]))
        if broken:
            yield f"ours breaks a rule: {broken}"
            return
    if "allocations" in expect:
        if "allocations" in ours:
            recorded = [expect["allocations"], *case.get("otherAllocations", ())]
            known = [_comparable(allocations) for allocations in recorded]
            mine = _comparable(ours["allocations"])
            if mine not in known and [c[1] for c in mine] != [c[1] for c in known[0]]:
                yield f"ours: {ours}, recorded: {expect}"
            return
        if world.fault(case["claims"], _gifts(expect["allocations"])):
            return  # what upstream gave breaks the rules
        yield f"ours: {ours}, recorded: {expect}"
    elif "error" in expect:
        is_one_order = case.get("orderDependent") and not case.get("exists")
        if "error" not in ours and not (is_one_order and "none" in ours):
            yield f"ours: {ours}, recorded: {expect}"
    elif "none" in expect and "none" not in ours:
        if not ("allocations" in ours and case.get("exists")):
            yield f"ours: {ours}, recorded: {expect}"
