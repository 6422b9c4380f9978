"""A cluster in which pods negotiate: the engine and drivers on the simulated server, no delays.

Everybody is told of every change in the order in which it was made; time passes when asked.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stower.assembly import build_engine
from stower.driver import Allocation, Controller, Driver, Entry, MemoryLedger, Refused
from stower.driver.carry import carry_out
from stower.driver.controller import VIEWS
from stower.engine.step import Engine
from stower.framework.events import Event, Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import CreateEvent, Write
from stower.model.kinds import Node, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.times import SECOND_NS
from stower.sim.server import OK, Change, Server
from tests.builders import make_node, make_pod

DRIVER = "fabric.example.com"


class Counting(Driver):
    """So many devices on each node; each claim wants one."""

    def __init__(self, name: str, devices: Mapping[str, int]) -> None:
        self.name = name
        self.devices = dict(devices)
        self.asked = 0  # how often

    def _free(self, node: str) -> int:
        return self.devices.get(node, 0) - sum(e.node == node for e in self.taken.values())

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        """Those with too few."""
        self.asked += 1
        return [node for node in nodes if self._free(node) < len(claims)]

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """Any that are left."""
        nodes = [node] if node else [name for name in self.devices if self._free(name) > 0][:1]
        own = [e for e in self.taken.values() if e.uid in {c.metadata.uid for c in claims}]
        if not nodes or self._free(nodes[0]) + len(own) < len(claims):
            raise Refused(f"{len(claims)} wanted, {self._free(node)} left")
        return [Allocation([("device", nodes[0], c.metadata.uid)], nodes) for c in claims]

    def deallocate(self, claim: Entry) -> None:
        """The ledger is all there is."""


class DriverProcess:
    """A driver's controller, and its ledger, which outlives it."""

    def __init__(self, cluster: "Cluster", driver: Driver) -> None:
        self.cluster = cluster
        self.driver = driver
        self.ledger = MemoryLedger()
        self.controller: Controller | None = None
        self.inbox: deque[Any] = deque()

    def start(self) -> None:
        """Begin anew with what the ledger and the server say."""
        self.driver.taken = self.ledger.entries
        self.controller = Controller(self.driver.name, self.ledger.entries)
        found = (o for view in VIEWS for o in self.cluster.server.all(view).values())
        self.inbox = deque([Listed(tuple(found))])

    def stop(self) -> None:
        """Crash."""
        self.controller = None
        self.inbox.clear()

    def work(self) -> bool:
        """One event."""
        if self.controller is None or not self.inbox:
            return False
        for output in self.controller.step(self.inbox.popleft(), self.cluster.now_ns):
            self.inbox.append(carry_out(output, self.driver, self.ledger, self.cluster.write))
        return True


class Cluster:
    """One engine, its server, and drivers."""

    def __init__(
        self, nodes: Iterable[Node] = (), configuration: Mapping[str, Any] | None = None
    ) -> None:
        self.now_ns = 0
        self.server = Server(lambda: self.now_ns)
        self.configuration = configuration
        self.engine: Engine | None = None
        self.inbox: deque[Event] = deque()
        self.drivers: dict[str, DriverProcess] = {}
        self.writes: list[Write] = []
        self.server.tell.append(self._changed)
        self.nodes = [*nodes]
        for node in self.nodes:
            self.server.put(node)

    def start(self) -> None:
        """A new scheduler, that knows what the server says."""
        self.engine = build_engine(self.configuration)
        objects = [o for o in self.server.everything() if not isinstance(o, Pod)]
        self.inbox = deque([Listed((*objects, *self.server.all(Pod).values()))])

    def add_driver(self, driver: Driver, class_name: str = "") -> DriverProcess:
        """A driver that runs, and its class."""
        meta = {"name": class_name or driver.name.partition(".")[0], "uid": driver.name}
        self.put(ResourceClass, {"metadata": meta, "driverName": driver.name})
        process = self.drivers[driver.name] = DriverProcess(self, driver)
        process.start()
        return process

    def put(self, view: type[Any], document: Mapping[str, Any]) -> Any:
        """Create or replace an object."""
        obj = msgspec.convert(document, view)
        self.server.put(obj)
        return self.server.get(view, obj.metadata.key)

    def claim(self, name: str, class_name: str = "fabric", **annotations: str) -> None:
        """A claim of the user's own, for one device."""
        notes = {f"stower.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}
        request = {"name": "device", "exactly": {"deviceClassName": class_name, "count": 1}}
        self.put(
            ResourceClaim,
            {
                "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}",
                             "annotations": notes or None},
                "spec": {"devices": {"requests": [request]}},
            },
        )  # fmt: skip

    def pod(self, name: str, *claims: str, **changes: Any) -> None:
        """A pod with these claims."""
        entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
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
        status, version = self.server.carry_out(write)
        if status == OK:
            return WriteOk(write.id, version)
        return WriteFailed(write.id, status, f"status {status}")

    def _changed(self, change: Change) -> None:
        _, kind, obj = change
        if self.engine is not None:
            self.inbox.append(Observed(kind, obj))
        for process in self.drivers.values():
            if process.controller is not None and isinstance(obj, VIEWS):
                process.inbox.append(Observed(kind, obj))

    def work(self) -> bool:
        """One event for the scheduler."""
        if self.engine is None or not self.inbox:
            return False
        for write in self.engine.step(self.inbox.popleft(), self.now_ns):
            self.writes.append(write)
            assert not isinstance(write, CreateEvent) or write.note
            self.inbox.append(self.write(write))  # type: ignore[arg-type]
        return True

    def settle(self, steps_max: int = 20_000) -> None:
        """Until nothing happens any more, but for what time brings."""
        for _ in range(steps_max):
            did = self.work()
            for process in self.drivers.values():
                did |= process.work()
            if self.engine is not None and not did:
                due_ns = self.engine.next_wake_ns
                if due_ns is not None and due_ns <= self.now_ns:
                    self.inbox.append(Tick())
                    did = True
            if not did:
                return
        raise AssertionError("it goes on and on")

    def advance(self, seconds: float) -> None:
        """Let time pass, and everybody do what it brings."""
        end_ns = self.now_ns + int(seconds * SECOND_NS)
        while True:
            self.settle()
            controllers = [p.controller for p in self.drivers.values() if p.controller is not None]
            dues = [c.next_wake_ns for c in controllers]
            dues += [self.engine.next_wake_ns if self.engine is not None else None]
            due_ns = min((due for due in dues if due is not None), default=end_ns)
            if due_ns > end_ns:
                break
            self.now_ns = max(self.now_ns, due_ns)
            if self.engine is not None:
                self.inbox.append(Tick())
            for process in self.drivers.values():
                if process.controller is not None:
                    process.inbox.append(Tick())
            if due_ns == end_ns:
                break
        self.now_ns = end_ns
        self.settle()


def nodes(*names: str, **changes: Any) -> list[Node]:
    """Nodes of these names."""
    return [make_node(name, **changes) for name in names]


__all__ = ["DRIVER", "Cluster", "Counting", "WatchType", "nodes"]
