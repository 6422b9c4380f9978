"""Describes all pools and devices for people: the claims that use each device, the amounts, and the
free rest.

The allocations are those of the API, and those that were decided and are not in the API yet. Must
not be used for decisions.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from stower.devices.binding_conditions import awaited_conditions
from stower.devices.capacity import amount
from stower.devices.inventory import Inventory, Pool, Record
from stower.devices.negotiation.claims import driver_of
from stower.devices.overcommits import Overcommits
from stower.model.kinds import Node, ResourceClaim
from stower.model.kinds.resource_claim import DeviceResult
from stower.model.kinds.resource_slice import QuantityText
from stower.model.quantity import Quantity, quantity_of
from stower.state.device_usage import PoolID
from stower.state.devices import Devices

NANO: Final = -9
GONE: Final = "no longer published"
UNLISTED: Final = "negotiated with its driver"


class Holder(msgspec.Struct, frozen=True, rename="camel"):
    """A claim that has a device, or a share of it; `pods`: for whom it is reserved; `waits`: which
    conditions of the device are waited for, and since when, or ""."""

    claim: str
    request: str
    pods: tuple[str, ...] = ()
    share: str = ""
    amounts: dict[str, str] = {}
    admin: bool = False
    waits: str = ""


class Room(msgspec.Struct, frozen=True, rename="camel"):
    """A capacity or a counter: how much of it there is, and how much of that is left."""

    total: str
    left: str


class DeviceState(msgspec.Struct, frozen=True, rename="camel"):
    """One device. `nodes`: who reaches it; `blocked`: why it is given to nobody now, or "";
    `overcommitted`: whether its holders have more of it than there is."""

    driver: str
    pool: str
    device: str
    nodes: str
    shared: bool
    holders: tuple[Holder, ...] = ()
    capacity: dict[str, Room] = {}
    taints: tuple[str, ...] = ()
    blocked: str = ""
    overcommitted: bool = False


class PoolState(msgspec.Struct, frozen=True, rename="camel"):
    """One pool. `fault`: why it is not used, or ""."""

    driver: str
    pool: str
    generation: int
    slices: int
    slices_wanted: int
    counters: dict[str, Room] = {}
    fault: str = ""


class Overview(msgspec.Struct, frozen=True, rename="camel"):
    """All of it, by driver and name."""

    pools: tuple[PoolState, ...]
    devices: tuple[DeviceState, ...]


def overview(devices: Devices, nodes: Iterable[Node], only: str = "") -> Overview | None:
    """What there is. `only`: what a node reaches, or a pool, with its driver or without; None where
    there is neither of that name."""
    inventory = devices.extension(Inventory)
    inventory.refresh()
    inventory.refresh()
    overcommits = devices.extension(Overcommits)
    node = next((node for node in nodes if node.metadata.name == only), None)
    held = holders(devices)
    agreed = {claim.metadata.key for claim in devices.claims() if driver_of(claim, {})}
    pools: list[PoolState] = []
    found: list[DeviceState] = []
    for id, pool in sorted(inventory.pools.items()):
        is_meant = only in ("", pool.id[1], pool.key)
        records = [
            r for r in _records(pool) if is_meant or (node and r.reaching_nodes.include(node))
        ]
        if not is_meant and not records:
            continue
        state = _pool(pool, devices)
        pools.append(state)
        for record in records:
            users = held.get(id, {}).get(record.name, ())
            device = _device(record, pool, state, users)
            if users and overcommits.is_overcommitted(id, record.name):
                device = msgspec.structs.replace(device, overcommitted=True)
            found.append(device)
    for id, by_name in sorted(held.items()):
        if only in ("", id[1], "/".join(id)):
            known = inventory.pools[id].records if id in inventory.pools else {}
            for name in [name for name in by_name if name not in known]:
                holding = tuple(by_name[name])
                blocked = UNLISTED if all(user.claim in agreed for user in holding) else GONE
                found.append(DeviceState(*id, name, "", False, holding, blocked=blocked))
    if only and not pools and not found and node is None:
        return None
    return Overview(tuple(pools), tuple(found))


def _records(pool: Pool) -> Iterator[Record]:
    for part in pool.parts:
        yield from part.records


def holders(devices: Devices) -> dict[PoolID, dict[str, list[Holder]]]:
    """Who has the devices of each pool, by name, in order of claims."""
    found: dict[PoolID, dict[str, list[Holder]]] = {}
    for claim in sorted(devices.claims(), key=lambda claim: claim.metadata.key):
        for result in claim.results:
            pool = found.setdefault((result.driver, result.pool), {})
            pool.setdefault(result.device, []).append(_holder(claim, result))
    return found


def _holder(claim: ResourceClaim, result: DeviceResult) -> Holder:
    return Holder(
        claim.metadata.key,
        result.request,
        tuple(consumer.name for consumer in claim.status.reserved_for or ()),
        result.share_id or "",
        {name: str(amount) for name, amount in (result.consumed_capacity or {}).items()},
        bool(result.admin_access),
        _awaited(claim, result),
    )


def _awaited(claim: ResourceClaim, result: DeviceResult) -> str:
    allocation, names = claim.status.allocation, awaited_conditions(claim, result)
    since = allocation.allocation_timestamp if allocation is not None else None
    return f"{', '.join(names)}{f' since {since}' if since else ''}" if names else ""


def _pool(pool: Pool, devices: Devices) -> PoolState:
    fault = pool.counter_fault
    if not pool.is_complete:
        is_more = len(pool.parts) > pool.count
        what = "more" if is_more else "fewer"
        fault = f"{len(pool.parts)} slices, {what} than resourceSliceCount {pool.count}"
    left = pool.free_counters(devices)
    counters = {
        f"{counter_set.name}/{name}": Room(
            str(counter.value), amount_like(left[counter_set.name, name], counter.value)
        )
        for part in pool.parts
        for counter_set in part.slice.spec.shared_counters or ()
        for name, counter in counter_set.counters.items()
    }
    return PoolState(*pool.id, pool.generation, len(pool.parts), pool.count, counters, fault)


def amount_like(nano: int, text: QuantityText) -> str:
    """An amount in the notation of another."""
    return Quantity(nano, NANO, quantity_of(text).format).canonical()


def _device(record: Record, pool: Pool, state: PoolState, holders: Iterable[Holder]) -> DeviceState:
    holders = tuple(holders)
    content = record.content
    users = [holder for holder in holders if not holder.admin]
    capacity = {}
    for name, total in content.quantities.items():
        left = total
        for holder in users:
            left = left.sub(quantity_of(holder.amounts.get(name, "0")))
        if any(not holder.share for holder in users):  # who has no share has all of it
            left = Quantity.of(0)
        capacity[name] = Room(str(total), left.canonical())
    return DeviceState(
        *record.pool,
        record.name,
        _nodes(record),
        content.is_shared,
        holders,
        capacity,
        tuple(map(str, record.taints)),
        state.fault or ("" if users else _find_exhausted_counter(record, state)),
    )


def _find_exhausted_counter(record: Record, state: PoolState) -> str:
    """The counter of which others have left too little for the device, or ""."""
    for (counter_set, name), nano in record.content.counters.items():
        room = state.counters.get(f"{counter_set}/{name}")
        if room is not None and nano > amount(room.left).nano:
            return f"{room.left} of {room.total} {name} is free in counter set {counter_set}"
    return ""


def _nodes(record: Record) -> str:
    who = record.reaching_nodes
    return who.name or ("all" if who.is_all else "by selector")
