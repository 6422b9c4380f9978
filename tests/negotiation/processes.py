"""Who works in a cluster in which pods negotiate: schedulers, and drivers with their ledgers.

Each is told of every change in the order in which it was made, and does one thing at a time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stower.assembly import build_engine
from stower.driver import Allocation, Controller, Driver, Entry, MemoryLedger, RefusedError
from stower.driver.controller import VIEWS
from stower.driver.executor import execute
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, WriteFailed, WriteOk
from stower.framework.writes import Write
from stower.model.kinds import Pod, ResourceClaim

if TYPE_CHECKING:
    from tests.negotiation_cluster import Cluster

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
            raise RefusedError(f"{len(claims)} wanted, {self.free(node)} left")
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
        self.rests = False  # it is up, and does nothing
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
        return not self.rests and (self.send() or self.hear())

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
            return execute(output, self.driver, self.ledger, self.cluster.write)
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
        self.done: list[Write] = []  # those that were carried out

    def start(self) -> None:
        """Begin anew with what the server says."""
        self.engine = build_engine(self.configuration)
        self.begin(dict.fromkeys(type(obj) for obj in self.cluster.server.list_objects()))

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
        answer = super()._carry_out(output)
        if isinstance(answer, WriteOk):
            self.done.append(output)
        return answer
