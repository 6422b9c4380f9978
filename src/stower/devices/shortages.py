"""Explains to people, device by device, why a request of a claim cannot use the devices that a node
reaches.

Each device is judged by itself, as if it alone were requested. The decision is that of `allocator`:
where it finds no allocation though enough devices are suitable, other requests or constraints
prevent one.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from stower.devices.capacity import taken_amount
from stower.devices.inventory import Counters, PoolView, Record, Views
from stower.devices.overview import Holder, amount_like, holders
from stower.devices.requests import Alternative, ClaimPlan
from stower.framework.device_gates import DeviceGates
from stower.model.kinds import Node
from stower.model.kinds.device_class import DeviceSelector
from stower.state.device_usage import UNUSED
from stower.state.devices import Devices

NAMES_SHOWN: Final = 3
REASONS_SHOWN: Final = 8
OTHER: Final = "a selector does not match"


class Obstacle(NamedTuple):
    """Why a device would not do, "" where it would. `holders`: who would have to give it back."""

    record: Record
    why: str
    holders: tuple[Holder, ...] = ()


class Shortage(NamedTuple):
    """One request of the claim at that place, or one alternative of it, and each device of its
    class that the node reaches."""

    claim: int
    alternative: Alternative
    devices: tuple[Obstacle, ...]

    def lines(self, key: str) -> Iterator[str]:
        """In words, of the claim of that key: how many devices would do, the others by reason."""
        wanted, good = self.alternative, sum(not device.why for device in self.devices)
        count = "all" if wanted.takes_all else f"{wanted.number}"
        asked = f"claim {key}, request {wanted.full_name}: {count} of class {wanted.class_name}"
        if not self.devices:
            yield f"{asked} requested, the node reaches none"
            return
        yield f"{asked} requested, {good} of {len(self.devices)} are suitable"
        names_by_why: dict[str, list[str]] = {}
        for device in self.devices:
            if device.why:
                names_by_why.setdefault(device.why, []).append(device.record.key)
        for why, names in [*names_by_why.items()][:REASONS_SHOWN]:
            more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
            yield f"  {', '.join(names[:NAMES_SHOWN])}{more}: {why}"
        if len(names_by_why) > REASONS_SHOWN:
            yield f"  and {len(names_by_why) - REASONS_SHOWN} more reasons"


def find_shortages(
    plans: Sequence[ClaimPlan], views: Views, node: Node, devices: Devices, gates: DeviceGates
) -> list[Shortage]:
    """Of all claims, request by request."""
    held = holders(devices)
    found = []
    for claim, plan in enumerate(plans):
        for alternative in (alternative for request in plan.requests for alternative in request):
            obstacles: list[Obstacle] = []
            for view in views:
                look = _PoolCheck(view, devices, gates, alternative, held.get(view.pool.id, {}))
                obstacles += look.obstacles(node)
            found.append(Shortage(claim, alternative, tuple(obstacles)))
    return found


class _PoolCheck:
    """One pool, for one request."""

    def __init__(
        self,
        view: PoolView,
        devices: Devices,
        gates: DeviceGates,
        alternative: Alternative,
        held: dict[str, list[Holder]],
    ) -> None:
        self.pool = view.pool
        self.fault = (
            "not all slices of its pool are published" if view.is_incomplete else view.fault
        )
        self.used = devices.usage(view.pool.id)
        self.free = view.pool.free_counters(devices)
        self.gates = gates
        self.alternative = alternative
        self.held = held

    def obstacles(self, node: Node) -> Iterator[Obstacle]:
        """The devices of the class that the node reaches, those of incomplete pools too."""
        for record in (record for part in self.pool.parts for record in part.records):
            if record.reaching_nodes.include(node):
                fault = self._selector_obstacle(record, self.alternative.class_selectors)
                if fault != OTHER:
                    yield self._obstacle(record, fault)

    def _obstacle(self, record: Record, fault: str) -> Obstacle:
        fault = fault or self.fault or self._selector_obstacle(record, self.alternative.selectors)
        if fault:
            return Obstacle(record, fault)
        use = self.used.get(record.name, UNUSED)
        users = tuple(h for h in self.held.get(record.name, ()) if not h.admin)
        is_taken = use.exclusive_count or (use.share_count and not self._is_shared(record))
        if is_taken and not self.alternative.admin:
            return Obstacle(record, f"allocated to {_names(users)}", users)
        fault = self._taint_obstacle(record) or self._policy_obstacle(record)
        if fault:
            return Obstacle(record, fault)
        short = self._capacity_obstacle(record)
        if short:
            return Obstacle(record, f"{short}, the rest is allocated to {_names(users)}", users)
        if use == UNUSED:
            return self._counter_obstacle(record)
        return Obstacle(record, "")

    def _is_shared(self, record: Record) -> bool:
        return self.gates.consumable and record.content.is_shared

    def _selector_obstacle(self, record: Record, selectors: Sequence[DeviceSelector]) -> str:
        """The selector that does not choose the device, or fails; or ""."""
        for number, selector in enumerate(selectors):
            expression = selector.cel.expression if selector.cel is not None else ""
            found = record.content.match(expression, self.gates.list_attributes)
            if found is not True:
                return f"selector #{number}: {found}" if found else OTHER
        return ""

    def _taint_obstacle(self, record: Record) -> str:
        for taint in record.taints if self.gates.taints else ():
            if taint.effect != "None" and not self.alternative.tolerates(taint):
                return f"taint {taint} is not tolerated"
        return ""

    def _policy_obstacle(self, record: Record) -> str:
        """What the device could give to nobody."""
        requests, capacity = self.alternative.amounts, record.content.capacity
        if record.content.binding_conditions and not self.gates.binding:
            return (
                "it has binding conditions, and the feature DRADeviceBindingConditions is disabled"
            )
        if record.content.counters and not self.gates.partitionable:
            return "it consumes counters, and the feature DRAPartitionableDevices is disabled"
        if not self.gates.consumable:
            return ""
        for name in requests:
            if name not in capacity:
                return f"it has no capacity {name}"
        for name, has in capacity.items():
            part = taken_amount(has, requests.get(name))
            if part is None:
                asked = requests.get(name, "no amount")
                return f"its request policy does not allow a request for {asked} of {name}"
            if part.nano > has.whole.nano:
                return f"it has {has.whole.text} of {name}, {part.text} is requested"
        return ""

    def _capacity_obstacle(self, record: Record) -> str:
        """The capacity of which too little is left."""
        if not self._is_shared(record):
            return ""
        in_use = dict(self.used.get(record.name, UNUSED).consumed_capacity)
        for name, capacity in record.content.capacity.items():
            part = taken_amount(capacity, self.alternative.amounts.get(name))
            left = capacity.whole.nano - in_use.get(name, 0)
            if part is not None and part.nano > left:
                text = capacity.whole.text
                return (
                    f"{amount_like(max(left, 0), text)} of {text} {name} is free, "
                    f"{part.text} is requested"
                )
        return ""

    def _counter_obstacle(self, record: Record) -> Obstacle:
        """The counter of which other devices have left too little. A pool of which more is drawn
        than there is gives no device that draws."""
        if record.content.counters and any(nano < 0 for nano in self.free.values()):
            return Obstacle(record, "the counters of its pool are overdrawn")
        for (counter_set, name), nano in record.content.counters.items():
            left = self.free.get((counter_set, name), 0)
            if nano > left:
                others = (
                    holder
                    for other, users in self.held.items()
                    for holder in users
                    if not holder.admin and (counter_set, name) in self._counters_of(other)
                )
                text = f"too little of {name} is free in counter set {counter_set}"
                return Obstacle(record, text, tuple(others))
        return Obstacle(record, "")

    def _counters_of(self, device: str) -> Counters:
        """What a device draws; nothing where it is not published any more."""
        record = self.pool.records.get(device)
        return record.content.counters if record is not None else {}


def _names(users: Sequence[Holder]) -> str:
    keys = [*dict.fromkeys(holder.claim for holder in users)]
    more = f" and {len(keys) - NAMES_SHOWN} more" if len(keys) > NAMES_SHOWN else ""
    return f"{', '.join(keys[:NAMES_SHOWN])}{more}"
