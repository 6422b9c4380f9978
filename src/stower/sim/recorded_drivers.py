"""Drivers that allocate what a recording shows that they could, for what-if.

Nobody but a driver knows its devices. Its answers and allocations show a lower bound of how many
devices a node can use: a node that was suitable for a claim of two devices, while three devices
that it can use were allocated, can use at least five. A node without such an answer has none.
The protocol is the driver library's own (stower.driver).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from stower.devices.negotiation.claims import driver_of
from stower.driver import (
    Allocation,
    Controller,
    Driver,
    Entry,
    MemoryLedger,
    RefusedError,
    requested_devices,
)
from stower.driver.executor import execute
from stower.driver.messages import Event as DriverEvent
from stower.framework.events import Event, Listed, Observed, Tick, WatchType
from stower.framework.writes import CreateEvent, PatchObject
from stower.model.kinds import ApiObject, Node, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.selectors import NodeSelector, node_selector_matches
from stower.sim.workload import ObjectChange, Workload

ALL_NODES: Final = ""  # in place of a node: devices that all nodes can use

Nodes = tuple[str, ...] | Mapping[str, str] | None  # as in Allocation


class RecordedDriver(Driver):
    """A driver of which a recording shows how many devices each node can use.

    capacity: devices by node; reached: by node, the nodes that could use a device allocated there.
    """

    def __init__(
        self, name: str, capacity: Mapping[str, int], reached: Mapping[str, Nodes]
    ) -> None:
        self.name = name
        self.nodes = {}
        self.capacity = capacity
        self.reached = reached

    def copy(self) -> "RecordedDriver":
        """Returns the same driver, with nothing allocated."""
        return RecordedDriver(self.name, self.capacity, self.reached)

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        """Returns the nodes that are not known to have enough devices left."""
        return self._unsuitable(claims, nodes)

    def _unsuitable(self, claims: Sequence[ResourceClaim], nodes: Sequence[str]) -> list[str]:
        own = {claim.metadata.uid for claim in claims}
        held = self._held(own)
        wanted = sum(map(_count_requested, claims))
        everywhere = held.get(ALL_NODES, 0)
        return [
            node
            for node in nodes
            if self.capacity.get(node, 0) < wanted + everywhere + held.get(node, 0)
        ]

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """Allocates devices with made-up names; for a claim that waits for no pod, on the first
        node with enough."""
        nodes = [node] if node else sorted(self.capacity)
        left = {*nodes}.difference(self._unsuitable(claims, nodes))
        if not left:
            raise RefusedError("the recording shows no more devices")
        where = min(left)
        return [
            Allocation(
                [
                    (wanted.request, "recorded", f"device-{claim.metadata.uid}-{i}")
                    for wanted in requested_devices(claim)
                    for i in range(wanted.count)
                ],
                self.reached.get(where, (where,)),
            )
            for claim in claims
        ]

    def deallocate(self, claim: Entry) -> None:
        """The ledger is all there is."""

    def _held(self, but: set[str]) -> dict[str, int]:
        """Returns the devices that are allocated, by node, without those of these claims."""
        held: dict[str, int] = {}
        for uid, entry in self.taken.items():
            if uid not in but and entry.allocation is not None:
                selector = entry.allocation.get("nodeSelector")
                found = None if selector is None else msgspec.convert(selector, NodeSelector)
                for node in _matching(found, self.nodes):
                    held[node] = held.get(node, 0) + max(1, len(entry.devices))
        return held


class Drivers:
    """The drivers of one run, which see all events of the run."""

    def __init__(
        self, drivers: Iterable[RecordedDriver], write: Callable[[PatchObject], DriverEvent]
    ) -> None:
        """`write`: carries out a write, and returns its result."""
        self._write = write
        self._running: list[tuple[Controller, RecordedDriver, MemoryLedger]] = []
        self._nodes: dict[str, Node] = {}
        for known in drivers:
            driver, ledger = known.copy(), MemoryLedger()
            driver.taken, driver.nodes = ledger.entries, self._nodes
            self._running.append((Controller(driver.name, ledger.entries), driver, ledger))

    @property
    def next_wake_ns(self) -> int | None:
        """The time of the next Tick, None for none."""
        times = [controller.next_wake_ns for controller, _, _ in self._running]
        return min((at_ns for at_ns in times if at_ns is not None), default=None)

    def step(self, event: Event, now_ns: int) -> None:
        """Takes an event of the run, and does all that follows from it at once."""
        if not isinstance(event, Listed | Observed | Tick):
            return
        if isinstance(event, Listed):
            self._nodes |= {o.metadata.name: o for o in event.objects if isinstance(o, Node)}
        elif isinstance(event, Observed) and isinstance(event.object, Node):
            self._nodes[event.object.metadata.name] = event.object
        for controller, driver, ledger in self._running:
            events: list[DriverEvent] = [event]
            while events:
                for output in controller.step(events.pop(0), now_ns):
                    if not isinstance(output, CreateEvent):
                        events.append(execute(output, driver, ledger, self._write))


def recorded_drivers(workload: Workload) -> tuple[RecordedDriver, ...]:
    """Returns the drivers whose answers or allocations the workload shows; () where it shows none
    of any driver."""
    known = _Evidence()
    for obj in (*workload.nodes, *workload.placed, *workload.related):
        known.observe(WatchType.ADDED, obj)
    for arrival in workload.arrivals:
        known.observe(WatchType.ADDED, arrival.pod)
    for change in workload.happened:
        known.observe(change.type, change.object)
    return known.drivers()


class _Evidence:
    """What objects have shown so far, in the order of their changes."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._classes: dict[str, ResourceClass] = {}
        self._claims: dict[str, ResourceClaim] = {}  # by uid
        self._held: dict[str, dict[str, int]] = {}  # devices by driver and node
        self._capacity: dict[str, dict[str, int]] = {}
        self._reached: dict[str, dict[str, Nodes]] = {}

    def observe(self, type: WatchType, obj: ApiObject) -> None:
        """Takes an object that has changed."""
        is_deleted = type is WatchType.DELETED
        if isinstance(obj, Node) and not is_deleted:
            self._nodes[obj.metadata.name] = obj  # one that is gone has answers all the same
        elif isinstance(obj, ResourceClass) and not is_deleted:
            self._classes[obj.metadata.name] = obj
        elif isinstance(obj, ResourceClaim):
            self._observe_claim(obj, is_deleted)
        elif isinstance(obj, PodScheduling) and not is_deleted:
            self._observe_answers(obj)

    def drivers(self) -> tuple[RecordedDriver, ...]:
        """Returns all drivers, if anything was shown of one."""
        if not self._capacity:
            return ()
        names = {found.driver_name for found in self._classes.values()} | {*self._capacity}
        return tuple(
            RecordedDriver(name, self._capacity.get(name, {}), self._reached.get(name, {}))
            for name in sorted(names)
        )

    def _observe_claim(self, claim: ResourceClaim, is_deleted: bool) -> None:
        uid = claim.metadata.uid
        before = self._claims.pop(uid, None)
        if before is not None:
            self._count(before, -1)
        if not is_deleted:
            self._claims[uid] = claim
            self._count(claim, 1)

    def _count(self, claim: ResourceClaim, sign: int) -> None:
        """Counts the devices of an allocated claim on each node that can use them."""
        driver = driver_of(claim, self._classes)
        allocation = claim.status.allocation
        if not driver or allocation is None:
            return
        held, count = self._held.setdefault(driver, {}), max(1, len(claim.results))
        nodes = _matching(allocation.node_selector, self._nodes)
        reached = _reached(allocation.node_selector)
        for node in nodes:
            held[node] = held.get(node, 0) + sign * count
        if sign > 0:
            for node in [*self._nodes] if nodes == [ALL_NODES] else nodes:
                self._raise_capacity(driver, node, 0)
                self._reached.setdefault(driver, {})[node] = (
                    reached if reached is not None or nodes == [ALL_NODES] else (node,)
                )

    def _observe_answers(self, said: PodScheduling) -> None:
        """Takes what drivers say about the candidates of the current round."""
        by_driver: dict[str, int] = {}
        refused: dict[str, set[str]] = {}
        for answer in said.status.resource_claims or ():
            claim = self._claims.get(answer.claim_uid)
            driver = driver_of(claim, self._classes) if claim is not None else ""
            if claim is None or not driver or answer.observed_round != said.spec.round:
                continue
            if claim.status.allocation is None:
                by_driver[driver] = by_driver.get(driver, 0) + _count_requested(claim)
                refused.setdefault(driver, set()).update(answer.unsuitable_nodes or ())
        for driver, wanted in by_driver.items():
            for node in said.spec.potential_nodes or ():
                if node not in refused[driver]:
                    self._raise_capacity(driver, node, wanted)

    def _raise_capacity(self, driver: str, node: str, more: int) -> None:
        """Records that the node can use what is allocated, and so many devices more."""
        held, capacity = self._held.get(driver, {}), self._capacity.setdefault(driver, {})
        count = held.get(ALL_NODES, 0) + held.get(node, 0) + more
        capacity[node] = max(capacity.get(node, 0), count)


def _matching(selector: NodeSelector | None, nodes: Mapping[str, Node]) -> list[str]:
    """Returns the names of the nodes that a selector matches; ALL_NODES without one."""
    if selector is None:
        return [ALL_NODES]
    terms = selector.node_selector_terms or ()
    fields = [field for term in terms for field in term.match_fields or ()]
    if fields and not any(term.match_expressions for term in terms):
        return [name for field in fields for name in field.values or ()]
    return [
        name
        for name, node in nodes.items()
        if node_selector_matches(selector, node.metadata.labels or {}, name)
    ]


def _reached(selector: NodeSelector | None) -> Nodes:
    """Returns the nodes of a selector as a driver's author says them; None where it cannot."""
    names: list[str] = []
    labels: dict[str, str] = {}
    for term in (selector.node_selector_terms or ()) if selector is not None else ():
        for field in term.match_fields or ():
            names += field.values or ()
        for wish in term.match_expressions or ():
            if wish.operator == "In" and len(wish.values or ()) == 1:
                labels[wish.key] = (wish.values or ("",))[0]
    return tuple(names) or labels or None


def _count_requested(claim: ResourceClaim) -> int:
    return max(1, sum(wanted.count for wanted in requested_devices(claim)))


def without_negotiations(workload: Workload) -> Workload:
    """Returns the workload without what scheduler and drivers have written to each other: a run
    with drivers does that anew. What is allocated at the beginning stays so."""
    classes: dict[str, ResourceClass] = {}
    related = tuple(obj for obj in workload.related if not isinstance(obj, PodScheduling))
    for obj in (*related, *(change.object for change in workload.happened)):
        if isinstance(obj, ResourceClass):
            classes[obj.metadata.name] = obj

    def is_external(change: ObjectChange) -> bool:
        obj = change.object
        if isinstance(obj, ResourceClaim) and change.type is WatchType.MODIFIED:
            return not driver_of(obj, classes)
        return not isinstance(obj, PodScheduling)

    happened = tuple(filter(is_external, workload.happened))
    return msgspec.structs.replace(workload, related=related, happened=happened)
