"""A cluster in which pods negotiate: schedulers and drivers on the simulated server, no delays.

Everybody is told of every change in the order in which it was made, and does one thing at a time;
time passes when asked. A test may stop anybody between any two things.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stower.driver import Driver
from stower.engine.engine import Engine
from stower.framework.events import Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import CreateEvent, Write
from stower.model.kinds import Node, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.times import SECOND_NS
from stower.sim.server import OK, Change, Server
from tests.builders import make_node, make_pod
from tests.negotiation.processes import Counting, DriverProcess, Process, SchedulerProcess

DRIVER = "fabric.example.com"


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
        exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": 1}
        request = {"name": "device", "exactly": exactly}
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
            if due_ns is not None and due_ns <= until_ns and not process.rests:
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
            dues = [process.next_wake_ns for process in self.processes if not process.rests]
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
