"""A cluster in which pods negotiate: schedulers and drivers on the simulated server, no delays.

Everybody is told of every change in the order in which it was made, and does one thing at a time;
time passes when asked. A test may stop anybody between any two things.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stower.assembly import build_engine
from stower.driver import Allocation, Controller, Driver, Entry, MemoryLedger, Refused
from stower.driver.carry import carry_out
from stower.driver.controller import VIEWS
from stower.engine.step import Engine
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import CreateEvent, Write
from stower.model.kinds import Node, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.times import SECOND_NS
from stower.sim.server import OK, Change, Server
from tests.builders import make_node, make_pod

DRIVER = "fabric.example.com"
ANSWERS = object()  # a kind of news: what came of one's own deeds, and the time


class Crash(BaseException):
    """A process ends in the middle of something."""


class Counting(Driver):
    """So many devices on each node; each claim wants one."""

    def __init__(self, name: str, devices: Mapping[str, int]) -> None:
        self.name = name
        self.devices = dict(devices)
        self.asked = 0  # how often

    def free(self, node: str) -> int:
        """How many are left."""
        return self.devices.get(node, 0) - sum(where(e) == node for e in self.taken.values())

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        """Those with too few."""
        self.asked += 1
        return [node for node in nodes if self.free(node) < len(claims)]

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """Any that are left."""
        nodes = [node] if node else [name for name in self.devices if self.free(name) > 0][:1]
        own = [e for e in self.taken.values() if e.uid in {c.metadata.uid for c in claims}]
        if not nodes or self.free(nodes[0]) + len(own) < len(claims):
            raise Refused(f"{len(claims)} wanted, {self.free(node)} left")
        return [Allocation([("device", nodes[0], c.metadata.uid)], nodes) for c in claims]

    def deallocate(self, claim: Entry) -> None:
        """The ledger is all there is."""


def where(entry: Entry) -> str:
    """The node whose device it has, or may have."""
    if entry.allocation is None:
        return entry.node
    return str(entry.allocation["devices"]["results"][0]["pool"])


class CrashingLedger(MemoryLedger):
    """A ledger whose driver may end just before, or just after, one of its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.crash_before: int | None = None
        self.crash_after: int | None = None

    def _write(self, write: Callable[[], None]) -> None:
        if self.writes == self.crash_before:
            self.crash_before = None
            raise Crash
        write()
        self.writes += 1
        if self.writes - 1 == self.crash_after:
            self.crash_after = None
            raise Crash

    def put(self, entries: Iterable[Entry]) -> None:
        """See Ledger."""
        self._write(lambda: MemoryLedger.put(self, entries))

    def drop(self, uids: Iterable[str]) -> None:
        """See Ledger."""
        self._write(lambda: MemoryLedger.drop(self, uids))


class Process:
    """Somebody who is told what happens, and says what is to be done about it."""

    def __init__(self, cluster: "Cluster") -> None:
        self.cluster = cluster
        self.outbox: deque[Any] = deque()
        self._first: Listed | None = None
        self._news: dict[object, deque[tuple[int, Any]]] = {}

    @property
    def next_wake_ns(self) -> int | None:
        """When it wants to be told the time."""
        raise NotImplementedError

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        raise NotImplementedError

    def begin(self, views: Iterable[type]) -> None:
        """It is told of all that there is."""
        found = [obj for view in views for obj in self.cluster.server.all(view).values()]
        self._news.clear()
        self.outbox.clear()
        self._first = Listed(tuple(found))

    def end(self, lands: bool = False) -> None:
        """Crash. `lands`: what it has sent to the server may be carried out still."""
        if lands:
            self.cluster.flying += [o for o in self.outbox if not self.is_own(o)]
        self._first = None
        self._news.clear()
        self.outbox.clear()

    def is_own(self, output: Any) -> bool:
        """Whether it is a deed of its own, not a request to the server."""
        return False

    def tell(self, event: Any) -> None:
        """Something has happened."""
        kind = type(event.object) if isinstance(event, Observed) else ANSWERS
        self.cluster.turn += 1
        self._news.setdefault(kind, deque()).append((self.cluster.turn, event))

    def kinds(self) -> list[object]:
        """The kinds of news that there are; those of each kind come in order."""
        if not self.is_up or self._first is not None:
            return [ANSWERS] if self.is_up else []
        return [kind for kind, news in self._news.items() if news]

    def hear(self, kind: object = None) -> bool:
        """Take in the oldest news, or the oldest of a kind."""
        event: Any = self._first
        if not self.is_up:
            return False
        if event is None:
            kinds = self.kinds()
            if not kinds:
                return False
            found = kind if kind in kinds else min(kinds, key=lambda k: self._news[k][0][0])
            event = self._news[found].popleft()[1]
        self._first = None
        self.outbox.extend(self._step(event))
        return True

    def send(self, lost: bool = False) -> bool:
        """Carry out the next of what is to be done. `lost`: nobody answers."""
        if not self.outbox:
            return False
        output = self.outbox.popleft()
        answer = self._carry_out(output)
        if lost and isinstance(answer, WriteOk | WriteFailed):
            answer = WriteFailed(output.id, 504, "no answer")
        if answer is not None and self.is_up:
            self.tell(answer)
        return True

    def work(self) -> bool:
        """One thing. Whether there was something to do."""
        return self.send() or self.hear()

    def _step(self, event: Any) -> Iterable[Any]:
        raise NotImplementedError

    def _carry_out(self, output: Any) -> Any:
        return self.cluster.write(output)


class DriverProcess(Process):
    """A driver's controller, and its ledger, which outlives it."""

    def __init__(self, cluster: "Cluster", driver: Driver) -> None:
        super().__init__(cluster)
        self.driver = driver
        self.ledger = CrashingLedger()
        self.controller: Controller | None = None

    def start(self) -> None:
        """Begin anew with what the ledger and the server say."""
        self.driver.taken = self.ledger.entries
        self.controller = Controller(self.driver.name, self.ledger.entries)
        self.begin(VIEWS)

    def stop(self, lands: bool = False) -> None:
        """Crash."""
        self.controller = None
        self.end(lands)

    @property
    def is_up(self) -> bool:
        """See Process."""
        return self.controller is not None

    @property
    def next_wake_ns(self) -> int | None:
        """See Process."""
        return self.controller.next_wake_ns if self.controller is not None else None

    def is_own(self, output: Any) -> bool:
        """See Process."""
        return not isinstance(output, Write)

    def tell(self, event: Any) -> None:
        """What drivers do not watch, it does not hear of."""
        if not isinstance(event, Observed) or isinstance(event.object, VIEWS):
            super().tell(event)

    def _step(self, event: Any) -> Iterable[Any]:
        assert self.controller is not None
        return self.controller.step(event, self.cluster.now_ns)

    def _carry_out(self, output: Any) -> Any:
        try:
            return carry_out(output, self.driver, self.ledger, self.cluster.write)
        except Crash:
            self.stop()
            return None


class SchedulerProcess(Process):
    """A scheduler."""

    def __init__(self, cluster: "Cluster", configuration: Mapping[str, Any] | None) -> None:
        super().__init__(cluster)
        self.configuration = configuration
        self.engine: Engine | None = None
        self.writes: list[Write] = []

    def start(self) -> None:
        """Begin anew with what the server says."""
        self.engine = build_engine(self.configuration)
        self.begin(dict.fromkeys(type(obj) for obj in self.cluster.server.everything()))

    def stop(self, lands: bool = False) -> None:
        """Crash."""
        self.engine = None
        self.end(lands)

    @property
    def is_up(self) -> bool:
        """See Process."""
        return self.engine is not None

    @property
    def next_wake_ns(self) -> int | None:
        """See Process."""
        return self.engine.next_wake_ns if self.engine is not None else None

    def _step(self, event: Any) -> Iterable[Any]:
        assert self.engine is not None
        return self.engine.step(event, self.cluster.now_ns)

    def _carry_out(self, output: Any) -> Any:
        self.writes.append(output)
        return super()._carry_out(output)


class Cluster:
    """One scheduler or several, their server, and drivers."""

    def __init__(
        self, nodes: Iterable[Node] = (), configuration: Mapping[str, Any] | None = None
    ) -> None:
        self.now_ns = 0
        self.turn = 0
        self.server = Server(lambda: self.now_ns)
        self.configuration = configuration
        self.schedulers = [SchedulerProcess(self, configuration)]
        self.drivers: dict[str, DriverProcess] = {}
        self.others: list[Callable[[], bool]] = []  # who also work; see keeping.py
        self.flying: list[Any] = []  # requests of processes that have crashed
        self.events: list[CreateEvent] = []
        self.server.tell.append(self._changed)
        self.nodes = [*nodes]
        for node in self.nodes:
            self.server.put(node)

    @property
    def scheduler(self) -> SchedulerProcess:
        """The first."""
        return self.schedulers[0]

    @property
    def engine(self) -> Engine | None:
        """The first scheduler's."""
        return self.scheduler.engine

    @property
    def writes(self) -> list[Write]:
        """What the first scheduler had written, in order."""
        return self.scheduler.writes

    @property
    def processes(self) -> list[Process]:
        """All of them."""
        return [*self.schedulers, *self.drivers.values()]

    def start(self) -> None:
        """A new scheduler, that knows what the server says."""
        self.scheduler.start()

    def add_scheduler(self) -> SchedulerProcess:
        """One more, of the same name."""
        self.schedulers.append(SchedulerProcess(self, self.configuration))
        self.schedulers[-1].start()
        return self.schedulers[-1]

    def add_driver(self, driver: Driver, class_name: str = "", **fields: Any) -> DriverProcess:
        """A driver that runs, and its class."""
        meta = {"name": class_name or driver.name.partition(".")[0], "uid": driver.name}
        self.put(ResourceClass, {"metadata": meta, "driverName": driver.name, **fields})
        process = self.drivers[driver.name] = DriverProcess(self, driver)
        process.start()
        return process

    def put(self, view: type[Any], document: Mapping[str, Any]) -> Any:
        """Create or replace an object."""
        obj = msgspec.convert(document, view)
        self.server.put(obj)
        return self.server.get(view, obj.metadata.key)

    def claim(
        self, name: str, class_name: str = "fabric", uid: str = "", **annotations: str
    ) -> None:
        """A claim of the user's own, for one device."""
        notes = {f"stower.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}
        request = {"name": "device", "exactly": {"deviceClassName": class_name, "count": 1}}
        self.put(
            ResourceClaim,
            {
                "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}",
                             "annotations": notes or None},
                "spec": {"devices": {"requests": [request]}},
            },
        )  # fmt: skip

    def pod(self, name: str, *claims: str, own: Sequence[str] = (), **changes: Any) -> None:
        """A pod with these claims, and (where a Keeper makes them) with claims of its own of these
        classes."""
        entries: list[Any] = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        for i, template in enumerate(own):
            entries.append({"name": f"own{i}", "resourceClaimTemplateName": template})
        self.server.put(make_pod(name, resourceClaims=entries, **changes))

    # What has come of it

    def node_of(self, name: str) -> str:
        """Where the pod is, "" for nowhere."""
        return str(self.server.get(Pod, f"default/{name}").spec.node_name)

    def message(self, name: str) -> str:
        """What the pod's condition says."""
        condition = self.server.get(Pod, f"default/{name}").condition("PodScheduled")
        return condition.message if condition is not None else ""

    def said(self, name: str) -> PodScheduling | None:
        """What is said about the pod."""
        found = self.server.get(PodScheduling, f"default/{name}")
        return found if isinstance(found, PodScheduling) else None

    def has(self, name: str) -> ResourceClaim:
        """The claim."""
        found = self.server.get(ResourceClaim, f"default/{name}")
        assert isinstance(found, ResourceClaim)
        return found

    # Time

    def write(self, write: Any) -> WriteOk | WriteFailed:
        """Have a write carried out."""
        if isinstance(write, CreateEvent):
            assert write.note
            self.events.append(write)
        status, version = self.server.carry_out(write)
        if status == OK:
            return WriteOk(write.id, version)
        return WriteFailed(write.id, status, f"status {status}")

    def _changed(self, change: Change) -> None:
        _, kind, obj = change
        for process in self.processes:
            if process.is_up:
                process.tell(Observed(kind, obj))

    def tick(self, until_ns: int) -> bool:
        """Tell the time to those who want to know by then."""
        found = False
        for process in self.processes:
            due_ns = process.next_wake_ns
            if due_ns is not None and due_ns <= until_ns:
                process.tell(Tick())
                found = True
        return found

    def units(self) -> Iterator[None]:
        """Everybody in turn does one thing, until there is nothing left but what time brings."""
        while True:
            did = False
            for work in [*(process.work for process in self.processes), *self.others]:
                if work():
                    did = True
                    yield
            if not did and not self.tick(self.now_ns):
                return

    def run(self, count: int) -> bool:
        """So many things are done. Whether there were so many."""
        units = self.units()
        return all(next(units, units) is None for _ in range(count))

    def settle(self, units_max: int = 200_000) -> int:
        """Until nothing happens any more, but for what time brings. How much that was."""
        count = 0
        for count, _ in enumerate(self.units(), 1):
            assert count <= units_max, "it goes on and on"
        return count

    def advance(self, seconds: float) -> None:
        """Let time pass, and everybody do what it brings."""
        end_ns = self.now_ns + int(seconds * SECOND_NS)
        self.settle()
        while True:
            dues = [process.next_wake_ns for process in self.processes]
            due_ns = min((due for due in dues if due is not None), default=end_ns + 1)
            if due_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, due_ns)
            self.settle()
        self.now_ns = end_ns
        self.settle()


def nodes(*names: str, **changes: Any) -> list[Node]:
    """Nodes of these names."""
    return [make_node(name, **changes) for name in names]


__all__ = ["DRIVER", "Cluster", "Counting", "WatchType", "nodes"]
