"""Drivers that allocate what a recording shows that they could, for what-if.

Nobody but a driver knows its devices. Its answers and allocations show a lower bound of how many
devices a node can use: a node that was suitable for a claim of two devices, while three devices
that it can use were allocated, can use at least five. A node without such an answer has none.
The protocol is the driver library's own (stower.driver).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from stower.devices.negotiation.claims import class_names, driver_of, flag_of
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
from stower.model.kinds.pod_scheduling import ClaimScheduling
from stower.model.selectors import NodeSelector, node_selector_matches
from stower.sim.workload import ObjectChange, Workload

ALL_NODES: Final = ""  # in place of a node: devices that all nodes can use

Nodes = tuple[str, ...] | Mapping[str, str] | None  # as in Allocation
# Device classes that a claim requests. Devices of a driver's classes may be others, or the same.
Classes = tuple[str, ...]
ALL_CLASSES: Final[Classes] = ()


class Capacity:
    """The devices of one driver that were seen to be usable on each node, by the classes of the
    claims that requested them, and of all classes together."""

    def __init__(self) -> None:
        self._devices: dict[tuple[Classes, str], int] = {}
        self.reached: dict[str, Nodes] = {}  # by node: which nodes can use a device allocated there

    @property
    def nodes(self) -> list[str]:
        """The nodes on which devices were seen."""
        return sorted({node for _, node in self._devices})

    def raise_to(self, classes: Classes, node: str, held: "Held", more: int) -> None:
        """Records that the node can use what is held, and so many devices more."""
        for which in (classes, ALL_CLASSES):
            count = held.count(which, node) + more
            self._devices[which, node] = max(self._devices.get((which, node), 0), count)

    def has(self, classes: Classes, node: str, held: "Held", more: int) -> bool:
        """Returns whether the node is known to have so many more."""
        return all(
            held.count(which, node) + more <= self._devices.get((which, node), 0)
            for which in (classes, ALL_CLASSES)
        )


class Held:
    """The devices of allocated claims of one driver, by node, and by the uid of the claim."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Classes, str], int] = {}
        self._claims: dict[str, tuple[Classes, list[str], int]] = {}

    def count(self, classes: Classes, node: str) -> int:
        """Returns how many devices a node can use that are allocated."""
        return self._counts.get((classes, node), 0) + self._counts.get((classes, ALL_NODES), 0)

    def put(self, claim: ResourceClaim, nodes: list[str]) -> None:
        """Adds the devices of an allocated claim, which these nodes can use."""
        self.drop(claim.metadata.uid)
        found = (_classes(claim), nodes, count_requested(claim))
        self._claims[claim.metadata.uid] = found
        self._add(*found)

    def drop(self, uid: str) -> None:
        """Removes the devices of a claim, if it has any."""
        found = self._claims.pop(uid, None)
        if found is not None:
            self._add(*found[:2], -found[2])

    def _add(self, classes: Classes, nodes: list[str], count: int) -> None:
        for which in (classes, ALL_CLASSES):
            for node in nodes:
                self._counts[which, node] = self._counts.get((which, node), 0) + count

    def copy(self) -> "Held":
        """Returns the same, for later comparison."""
        other = Held()
        other._counts = dict(self._counts)
        return other


class RecordedDriver(Driver):
    """A driver of which a recording shows how many devices each node can use."""

    def __init__(self, name: str, capacity: Capacity) -> None:
        self.name = name
        self.nodes = {}
        self.capacity = capacity
        self.held = Held()

    def copy(self) -> "RecordedDriver":
        """Returns the same driver, with nothing allocated."""
        return RecordedDriver(self.name, self.capacity)

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        """Returns the nodes that are not known to have enough devices left."""
        return [node for node in nodes if not self._has(claims, node)]

    def _has(self, claims: Sequence[ResourceClaim], node: str) -> bool:
        """Returns whether the node is there, and has devices for all of these."""
        wanted: dict[Classes, int] = {}
        for claim in claims:
            classes = _classes(claim)
            wanted[classes] = wanted.get(classes, 0) + count_requested(claim)
        whole = sum(wanted.values())
        return node in self.nodes and all(
            self.capacity.has(classes, node, self.held, count)
            for classes, count in (*wanted.items(), (ALL_CLASSES, whole))
        )

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """Allocates devices with made-up names; for a claim that waits for no pod, on the first
        node with enough."""
        for claim in claims:  # the same devices again, where an answer was lost
            self.held.drop(claim.metadata.uid)
        nodes = [node] if node else self.capacity.nodes
        where = next((name for name in nodes if self._has(claims, name)), None)
        if where is None:
            raise RefusedError("the recording shows no more devices")
        return [self._allocation(claim, where) for claim in claims]

    def _allocation(self, claim: ResourceClaim, node: str) -> Allocation:
        reached = self.capacity.reached.get(node, (node,))
        devices = [
            (wanted.request, "recorded", f"device-{claim.metadata.uid}-{i}")
            for wanted in requested_devices(claim)
            for i in range(wanted.count)
        ]
        made = Allocation(devices, reached)
        selector = made.status(self.name).get("nodeSelector")
        found = msgspec.convert(selector, NodeSelector) if selector is not None else None
        self.held.put(claim, _matching(found, self.nodes))  # before the claim shows it
        return made

    def deallocate(self, claim: Entry) -> None:
        """The devices are free as soon as the claim is not allocated any more."""


class Drivers:
    """The drivers of one run, which see all events of the run."""

    def __init__(
        self, drivers: Iterable[RecordedDriver], write: Callable[[PatchObject], DriverEvent]
    ) -> None:
        """`write`: carries out a write, and returns its result."""
        self._write = write
        self._running: list[tuple[Controller, RecordedDriver, MemoryLedger]] = []
        self._nodes: dict[str, Node] = {}
        self._classes: dict[str, ResourceClass] = {}
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
        if not self._running or not isinstance(event, Listed | Observed | Tick):
            return
        if isinstance(event, Listed):
            for obj in sorted(event.objects, key=lambda obj: isinstance(obj, ResourceClaim)):
                self._observe(obj, False)
        elif isinstance(event, Observed):
            self._observe(event.object, event.type is WatchType.DELETED)
        for controller, driver, ledger in self._running:
            events: list[DriverEvent] = [event]
            while events:
                for output in controller.step(events.pop(0), now_ns):
                    if not isinstance(output, CreateEvent):
                        events.append(execute(output, driver, ledger, self._write))

    def _observe(self, obj: ApiObject, is_deleted: bool) -> None:
        if isinstance(obj, Node):
            self._nodes.pop(obj.metadata.name, None)
            if not is_deleted:
                self._nodes[obj.metadata.name] = obj
        elif isinstance(obj, ResourceClass):
            self._classes[obj.metadata.name] = obj
        elif isinstance(obj, ResourceClaim):
            self._observe_claim(obj, is_deleted)

    def _observe_claim(self, claim: ResourceClaim, is_deleted: bool) -> None:
        name, allocation = driver_of(claim, self._classes), claim.status.allocation
        for _, driver, _ in self._running:
            if is_deleted or allocation is None:
                driver.held.drop(claim.metadata.uid)
            elif driver.name == name:
                driver.held.put(claim, _matching(allocation.node_selector, self._nodes))


def recorded_drivers(workload: Workload) -> tuple[RecordedDriver, ...]:
    """Returns the drivers whose answers or allocations the workload shows; () where it shows none
    of any driver."""
    known = _Evidence()
    first = (*workload.nodes, *workload.related)
    for kind in ((Node, ResourceClass), (ResourceClaim,), (PodScheduling,)):
        for obj in first:
            if isinstance(obj, kind):
                known.observe(WatchType.ADDED, obj)
    for change in workload.happened:
        known.observe(change.type, change.object)
    return known.drivers()


class _Question(NamedTuple):
    """A round of questions about a pod. held: by driver, what was allocated when it was asked;
    answers: by entry, what was said about it."""

    uid: str
    round: int
    held: dict[str, Held]
    answers: dict[str, ClaimScheduling]


class _Evidence:
    """What objects have shown so far, in the order of their changes."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._classes: dict[str, ResourceClass] = {}
        self._claims: dict[str, ResourceClaim] = {}  # by uid
        self._held: dict[str, Held] = {}
        self._capacity: dict[str, Capacity] = {}
        self._questions: dict[str, _Question] = {}

    def observe(self, type: WatchType, obj: ApiObject) -> None:
        """Takes an object that has changed."""
        is_deleted = type is WatchType.DELETED
        if isinstance(obj, Node) and not is_deleted:
            self._nodes[obj.metadata.name] = obj  # one that is gone has answers all the same
        elif isinstance(obj, ResourceClass) and not is_deleted:
            self._classes[obj.metadata.name] = obj
        elif isinstance(obj, ResourceClaim):
            self._observe_claim(obj, is_deleted)
        elif isinstance(obj, PodScheduling):
            if is_deleted:
                self._questions.pop(obj.metadata.key, None)
            else:
                self._observe_answers(obj)

    def drivers(self) -> tuple[RecordedDriver, ...]:
        """Returns all drivers, if anything was shown of one."""
        if not self._capacity:
            return ()
        names = {found.driver_name for found in self._classes.values()} | {*self._capacity}
        return tuple(
            RecordedDriver(name, self._capacity.get(name) or Capacity()) for name in sorted(names)
        )

    def _observe_claim(self, claim: ResourceClaim, is_deleted: bool) -> None:
        uid, allocation = claim.metadata.uid, claim.status.allocation
        driver = driver_of(claim, self._classes)
        self._claims.pop(uid, None)
        if not is_deleted:
            self._claims[uid] = claim
        if not driver:
            return
        held = self._held.setdefault(driver, Held())
        if is_deleted or allocation is None:
            held.drop(uid)
            return
        nodes = _matching(allocation.node_selector, self._nodes)
        held.put(claim, nodes)
        capacity, reached = self._capacity.setdefault(driver, Capacity()), _reached(claim)
        for node in [*self._nodes] if nodes == [ALL_NODES] else nodes:
            capacity.raise_to(_classes(claim), node, held, 0)
            is_said = reached is not None or nodes == [ALL_NODES]
            capacity.reached[node] = reached if is_said else (node,)

    def _observe_answers(self, said: PodScheduling) -> None:
        """Takes what drivers say about the candidates of the current round, and have not said
        before. What was allocated between question and answer may be known to the driver or not:
        the less counts."""
        key, uid, round = said.metadata.key, said.metadata.uid, said.spec.round
        asked = self._questions.get(key)
        if asked is None or (asked.uid, asked.round) != (uid, round):
            held = {name: each.copy() for name, each in self._held.items()}
            asked = self._questions[key] = _Question(uid, round, held, {})
        wanted: dict[tuple[str, Classes], int] = {}
        refused: dict[str, set[str]] = {}
        is_new: dict[str, bool] = {}
        for answer in said.status.resource_claims or ():
            claim = self._claims.get(answer.claim_uid)
            driver = driver_of(claim, self._classes) if claim is not None else ""
            if claim is None or not driver or answer.observed_round != round:
                continue
            if claim.status.allocation is None:
                key_of = driver, _classes(claim)
                wanted[key_of] = wanted.get(key_of, 0) + count_requested(claim)
                refused.setdefault(driver, set()).update(answer.unsuitable_nodes or ())
                is_new[driver] = is_new.get(driver, False) | (
                    asked.answers.get(answer.name) != answer
                )
                asked.answers[answer.name] = answer
        for (driver, classes), count in wanted.items():
            now = self._held.get(driver) or Held()
            before = asked.held.get(driver) or Held()
            capacity = self._capacity.setdefault(driver, Capacity())
            for node in said.spec.potential_nodes or () if is_new[driver] else ():
                if node not in refused[driver]:
                    less = min((now, before), key=lambda each: each.count(ALL_CLASSES, node))
                    capacity.raise_to(classes, node, less, count)


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


def _reached(claim: ResourceClaim) -> Nodes:
    """Returns the nodes of an allocation as a driver's author says them; None for all, and where
    that cannot be said."""
    allocation = claim.status.allocation
    selector = allocation.node_selector if allocation is not None else None
    names: list[str] = []
    labels: dict[str, str] = {}
    for term in (selector.node_selector_terms or ()) if selector is not None else ():
        for field in term.match_fields or ():
            names += field.values or ()
        for wish in term.match_expressions or ():
            if wish.operator == "In" and len(wish.values or ()) == 1:
                labels[wish.key] = (wish.values or ("",))[0]
    return tuple(names) or labels or None


def _classes(claim: ResourceClaim) -> Classes:
    return tuple(class_names(claim))


def count_requested(claim: ResourceClaim) -> int:
    """Returns how many devices a claim requests, at least 1."""
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
            # The scheduler's requests end with a version.
            is_asked_back = not (flag_of(obj) or "]").endswith("]")
            return is_asked_back or not driver_of(obj, classes)
        return not isinstance(obj, PodScheduling)

    happened = tuple(filter(is_external, workload.happened))
    return msgspec.structs.replace(workload, related=related, happened=happened)
