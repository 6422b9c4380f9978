"""The search for devices asked directly: on one node, in the order of the devices."""

from typing import Any

import msgspec

from stower.devices.allocator import AllocatedDevice, allocate
from stower.devices.inventory import Inventory
from stower.devices.requests import plan_of
from stower.framework.device_gates import DeviceGates
from stower.model.kinds import Node, ResourceClaim, ResourceSlice
from stower.state.devices import Devices
from stower.state.journal import Journal
from tests.builders import make_node
from tests.device_builders import GPU, device, device_class, device_slice, resource_claim

SLOT = f"{GPU}/slot"


def chosen(text: str) -> Any:
    """Selectors of a request: one, by an expression."""
    return {"selectors": [{"cel": {"expression": text}}]}


def in_slot(slot: int) -> Any:
    """The devices in a slot."""
    return chosen(f'device.attributes["{GPU}"].slot == {slot}')


def part(slice_: ResourceSlice, name: str, count: int = 2, generation: int = 1) -> ResourceSlice:
    """The slice as one of so many of its pool, under a name of its own."""
    replace = msgspec.structs.replace
    meta = replace(slice_.metadata, name=name, uid=f"s-{name}")
    pool = replace(slice_.spec.pool, resource_slice_count=count, generation=generation)
    return replace(slice_, metadata=meta, spec=replace(slice_.spec, pool=pool))


def counted(name: str, memory: str, counter: str = "memory", **fields: Any) -> dict[str, Any]:
    """A device that takes so much of a counter of its pool."""
    takes = {"counterSet": "set", "counters": {counter: {"value": memory}}}
    return device(name, consumesCounters=[takes], **fields)


def counted_pool(name: str, *devices: dict[str, Any], **counters: str) -> list[ResourceSlice]:
    """A pool of n1 in two slices: devices, and what they take of."""
    have = {counter: {"value": value} for counter, value in counters.items()}
    sets = device_slice("n1", pool=name, sharedCounters=[{"name": "set", "counters": have}])
    return [
        part(device_slice("n1", *devices, pool=name), f"{name}-devices"),
        part(sets, f"{name}-counters"),
    ]


def held(name: str, pool: str, *devices: str) -> ResourceClaim:
    """A claim that has these devices."""
    results = [{"request": "r", "driver": GPU, "pool": pool, "device": one} for one in devices]
    return resource_claim(name, status={"allocation": {"devices": {"results": results}}})


def search(
    *objects: Any, node: Node | None = None, gates: DeviceGates | None = None
) -> tuple[tuple[AllocatedDevice, ...], ...] | None:
    """What the claims that have no allocation are given together, where these objects are."""
    gates = gates or DeviceGates()
    devices = Devices(Journal())
    wanted = []
    for obj in (device_class(), *objects):
        if isinstance(obj, ResourceClaim) and obj.status.allocation is None:
            wanted.append(obj)
        else:
            devices.put(obj)
    plans = [plan_of(claim, i, devices.classes, gates) for i, claim in enumerate(wanted)]
    inventory = devices.extension(Inventory)
    inventory.refresh()
    on = node or make_node("n1")
    return allocate(plans, inventory.views(on), on, devices, gates)


def found(*objects: Any, **more: Any) -> list[str] | None:
    """The names of the devices, in the order of claims and requests."""
    given = search(*objects, **more)
    return None if given is None else [one.record.name for claim in given for one in claim]
