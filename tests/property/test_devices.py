"""The allocator against brute force: it finds devices exactly where there are some to be had."""

from typing import Any

import msgspec
import pytest

from stower.devices.allocator import AllocatedDevice, StepsExhaustedError, allocate
from stower.devices.inventory import Inventory
from stower.devices.requests import AllocationError, plan_of
from stower.devices.shortages import find_shortages
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
from tests.property.device_worlds import DeviceWorld


def devices_of(world: DeviceWorld) -> Devices:
    """The state that the world describes."""
    devices = Devices(Journal())
    for slice_ in world.slices:
        devices.put(msgspec.convert(slice_, ResourceSlice))
    held = [DeviceResult("", *id) for id in sorted(world.alone)]
    for id, shares in sorted(world.shares.items()):
        for number, taken in enumerate(shares):
            held.append(DeviceResult("", *id, share_id=str(number), consumed_capacity=taken))
    status = ResourceClaimStatus(AllocationResult(AllocatedDevices(tuple(held))))
    devices.put(ResourceClaim(ObjectMeta(name="held"), status=status))
    return devices


def gates_of(world: DeviceWorld) -> DeviceGates:
    """Lists of values are behind a gate."""
    return DeviceGates(list_attributes=world.has_lists)


def given_on(world: DeviceWorld, devices: Devices, node: Any, prefer: Any = None) -> Any:
    """What the claims are given on a node: the gifts, None, or the error."""
    inventory, gates = devices.extension(Inventory), gates_of(world)
    inventory.refresh()
    classes = {name: msgspec.convert(c, DeviceClass) for name, c in world.classes.items()}
    claims = [msgspec.convert(claim, ResourceClaim) for claim in world.claims]
    plans = [plan_of(claim, i, classes, gates) for i, claim in enumerate(claims)]
    on = msgspec.convert(node, Node)
    try:
        found = allocate(plans, inventory.views(on), on, devices, gates, prefer=prefer)
    except AllocationError as error:
        return error
    return None if found is None else gifts_of(found)


def gifts_of(found: tuple[tuple[AllocatedDevice, ...], ...]) -> list[Gift]:
    """In the form of the model."""
    return [
        (
            number,
            one.alternative.parent or one.alternative.name,
            one.alternative.name if one.alternative.parent else "",
            (*one.record.pool, one.record.name),
        )
        for number, claim in enumerate(found)
        for one in claim
    ]


def model_of(world: DeviceWorld, node: Any) -> World:
    """What the rules say of a node."""
    return World(
        node, world.slices, world.classes, world.alone, world.shares, lists=world.has_lists
    )


def check(seed: int) -> str:
    """One world, all its nodes. Returns what was seen, for the test to know that it sees enough."""
    world = DeviceWorld(seed)
    devices = devices_of(world)
    seen = []
    for node in world.nodes:
        model = model_of(world, node)
        gifts = given_on(world, devices, node)
        if isinstance(gifts, AllocationError):
            assert model.first(world.claims) is None, (seed, gifts.text)
            seen.append("error")
            continue
        assert model.first(world.claims) == gifts, (seed, node["metadata"]["name"])
        seen.append("none" if gifts is None else "given")
        # In another order there are devices too, or none either.
        last = given_on(world, devices, node, lambda alternative, one, amounts: (-one.place,))
        if isinstance(last, AllocationError) or last is None:
            assert gifts is None, (seed, node["metadata"]["name"])
        else:
            assert "" == model.fault(world.claims, last), (seed, last)
    return " ".join(seen)


@pytest.mark.behaviour("S2.1", "S2.3", "S2.10", "S2.11", "S2.19", "S2.20", "S2.22", "S2.42")
def test_devices_are_given_exactly_where_there_are_some() -> None:
    seen = " ".join(check(seed) for seed in range(800))
    assert seen.count("given") > 200
    assert seen.count("none") > 200


@pytest.mark.more
def test_devices_are_given_exactly_where_there_are_some_in_5000_worlds() -> None:
    for seed in range(800, 5_800):
        check(seed)


@pytest.mark.behaviour("S2.39")
def test_what_stands_in_the_way_of_a_device_is_said_exactly_where_something_does() -> None:
    """Each request of a world by itself, for one device."""
    seen: set[str] = set()
    for seed in range(300):
        world = DeviceWorld(seed)
        devices = devices_of(world)
        devices.extension(Inventory).refresh()
        for request in (r for claim in world.claims for r in claim["spec"]["devices"]["requests"]):
            if "exactly" in request:
                exactly = {**request["exactly"], "allocationMode": "ExactCount", "count": 1}
                one = {"name": request["name"], "exactly": exactly}
                claim = {**world.claims[0], "spec": {"devices": {"requests": [one]}}}
                for node in world.nodes:
                    seen |= obstacles_told(world, devices, claim, node)
    words = {"allocated to", "taint", "is free,", "too little of", "no capacity"}
    assert set() == {word for word in words if not any(word in why for why in seen)}


def obstacles_told(world: DeviceWorld, devices: Devices, claim: Any, node: Any) -> set[str]:
    """Of a claim for one device; each was compared with the model."""
    classes = {name: msgspec.convert(c, DeviceClass) for name, c in world.classes.items()}
    gates = gates_of(world)
    plan = plan_of(msgspec.convert(claim, ResourceClaim), 0, classes, gates)
    on = msgspec.convert(node, Node)
    views = devices.extension(Inventory).views(on)
    model = model_of(world, node)
    (lack,) = find_shortages([plan], views, on, devices, gates)
    told = {(*found.record.pool, found.record.name): found.why for found in lack.devices}
    for record in (record for view in views for record in view.records):
        id = (*record.pool, record.name)
        fault = model.fault([claim], [(0, lack.alternative.name, "", id)])
        assert bool(fault) == bool(told.get(id, "of another class")), (id, fault, told)
    return {*told.values()}


def test_a_search_that_runs_out_of_steps_says_so() -> None:
    """Gave up is another answer than impossible."""
    world = next(
        w
        for w in map(DeviceWorld, range(1500))
        if isinstance(given_on(w, devices_of(w), w.nodes[0]), list)
    )
    devices = devices_of(world)
    inventory = devices.extension(Inventory)
    inventory.refresh()
    classes = {name: msgspec.convert(c, DeviceClass) for name, c in world.classes.items()}
    claims = [msgspec.convert(claim, ResourceClaim) for claim in world.claims]
    gates = gates_of(world)
    plans = [plan_of(claim, i, classes, gates) for i, claim in enumerate(claims)]
    node = msgspec.convert(world.nodes[0], Node)
    with pytest.raises(StepsExhaustedError):
        allocate(plans, inventory.views(node), node, devices, gates, steps_max=0)
