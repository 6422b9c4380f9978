"""Describes all pools and devices for people: the claims that use each device, the amounts, and the
free rest.

The allocations are those of the API, and those that were decided and are not in the API yet. Must
not be used for decisions.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from stower.devices.capacity import amount
from stower.devices.inventory import Inventory, Pool, Record
from stower.devices.negotiation.claims import driver_of
from stower.model.kinds import Node, ResourceClaim
from stower.model.kinds.resource_claim import DeviceResult
from stower.model.kinds.resource_slice import QuantityText
from stower.model.quantity import Quantity, quantity_of
from stower.state.devices import Devices, PoolID

NANO: Final = -9
GONE: Final = "no longer published"
UNLISTED: Final = "negotiated with its driver"


class Holder(msgspec.Struct, frozen=True, rename="camel"):
    """A claim that has a device, or a share of it; `pods`: for whom it is reserved."""

    claim: str
    request: str
    pods: tuple[str, ...] = ()
    share: str = ""
    amounts: dict[str, str] = {}
    admin: bool = False


class Room(msgspec.Struct, frozen=True, rename="camel"):
    """A capacity or a counter: how much of it there is, and how much of that is left."""

    total: str
    left: str


class DeviceState(msgspec.Struct, frozen=True, rename="camel"):
    """One device. `nodes`: who reaches it; `blocked`: why it is given to nobody now, or ""."""

    driver: str
    pool: str
    device: str
    nodes: str
    shared: bool
    holders: tuple[Holder, ...] = ()
    capacity: dict[str, Room] = {}
    taints: tuple[str, ...] = ()
    blocked: str = ""


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
        found += (_device(r, pool, state, held.get(id, {}).get(r.name, ())) for r in records)
    for id, by_name in sorted(held.items()):
        if only in ("", id[1], "/".join(id)):
            known = inventory.pools[id].records if id in inventory.pools else {}
            for name in [name for name in by_name if name not in known]:
                users = tuple(by_name[name])
                blocked = UNLISTED if all(user.claim in agreed for user in users) else GONE
                found.append(DeviceState(*id, name, "", False, users, blocked=blocked))
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
        allocation = claim.status.allocation
        for result in (allocation.devices.results or ()) if allocation is not None else ():
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
    )


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
