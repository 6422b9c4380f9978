"""Benchmark of negotiated devices: the engine, two drivers and the API's code in one process.

The engine and the drivers write and watch as over HTTP, but without a network. All pods arrive at
once, each with one claim of each driver; every node has eight devices of each driver. Everything is
counted: the API, the engine, both drivers, reading and writing JSON.
"""

import json
from collections import deque
from collections.abc import Iterable, Sequence
from time import perf_counter_ns
from typing import Any, Final

import msgspec

from stower.api.requests import Request, Response
from stower.api.server import Api
from stower.api.watches import Watch
from stower.apiserver.tables import load_registry
from stower.assembly import build_engine
from stower.bench.objects import node_bytes
from stower.bench.timing import Times, settle_memory
from stower.bench.workloads import BenchWorkload
from stower.driver import Allocation, Controller, Driver, Entry, MemoryLedger
from stower.driver.controller import VIEWS
from stower.driver.executor import execute
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import ApiWrite, Bind, CreateObject, DeleteObject, PatchObject
from stower.live.client import collection_path
from stower.live.requests import build_request
from stower.model.errors import InvariantError
from stower.model.kinds import KIND_BY_VIEW, Node, Pod, PodScheduling, ResourceClaim, ResourceClass
from stower.model.raw import decode

DEVICES: Final = 8
CLASSES: Final = ("left", "right")
NOW_NS: Final = 1_767_225_600_000_000_000
# Claims before the pods that name them, as they were made.
SEEN: Final = (Node, ResourceClass, ResourceClaim, Pod, PodScheduling)
ROUNDS_MAX: Final = 1_000_000


class _CountedDriver(Driver):
    """Eight devices on each node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.left: dict[str, int] = {}

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        return [node for node in nodes if self.left.get(node, DEVICES) < len(claims)]

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        self.left[node] = self.left.get(node, DEVICES) - len(claims)
        return [Allocation([("device", node, claim.metadata.uid)], [node]) for claim in claims]

    def deallocate(self, claim: Entry) -> None:
        self.left[claim.node] += 1


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _WrittenObject(msgspec.Struct):
    metadata: _Meta = _Meta()


_event = msgspec.json.Decoder(_Event).decode
_written = msgspec.json.Decoder(_WrittenObject).decode


class Negotiation:
    """The API, an engine and two drivers, one after the other."""

    def __init__(self, workload: BenchWorkload) -> None:
        self.api = Api(load_registry("1.36"), seed=1)
        self.api.bootstrap(NOW_NS)
        self.counts: dict[str, int] = {}  # the scheduler's writes of PodSchedulings
        self.bound = 0
        for i in range(workload.nodes):
            self._make("/api/v1/nodes", json.loads(node_bytes(i, workload)))
        for name in CLASSES:
            document = {"metadata": {"name": name}, "driverName": f"{name}.example.com"}
            self._make("/apis/stower.dev/v1/resourceclasses", document)
        self.engine = build_engine(contains_errors=False)
        self.drivers = []
        for name in CLASSES:
            driver, ledger = _CountedDriver(f"{name}.example.com"), MemoryLedger()
            driver.taken = ledger.entries
            self.drivers.append((Controller(driver.name, ledger.entries), driver, ledger))
        self.watches = [(view, self._watch(view)) for view in SEEN]
        objects = tuple(obj for view in SEEN for obj in self._list(view))
        self.inbox: deque[Any] = deque()
        self._step(Listed(objects))
        for controller, driver, ledger in self.drivers:
            self._drive(controller, driver, ledger, Listed(objects))

    def pods(self, count: int) -> None:
        """So many, and their claims."""
        for i in range(count):
            for name in CLASSES:
                request = {"name": "device", "exactly": {"deviceClassName": name}}
                claim = {"metadata": {"name": f"{name}-{i}", "namespace": "default"},
                         "spec": {"devices": {"requests": [request]}}}  # fmt: skip
                self._make("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
            claims = [{"name": n, "resourceClaimName": f"{n}-{i}"} for n in CLASSES]
            spec = {"containers": [container], "resourceClaims": claims}
            pod = {"metadata": {"name": f"pod-{i}", "namespace": "default"}, "spec": spec}
            self._make("/api/v1/namespaces/default/pods", pod)

    def run(self, count: int) -> None:
        """Until so many pods are bound. Raises InvariantError where they are not."""
        for _ in range(ROUNDS_MAX):
            if self.bound >= count:
                return
            if not self._deliver():
                due_ns = self.engine.next_wake_ns
                if due_ns is None or due_ns > NOW_NS:
                    break
                self._step(Tick())
        raise InvariantError(f"{self.bound} of {count} pods of a benchmark were placed")

    def _deliver(self) -> bool:
        did = False
        for view, watch in self.watches:
            while lines := b"".join(watch.poll()).splitlines():
                did = True
                self._handle_lines(view, lines)
        return did

    def _handle_lines(self, view: type[Any], lines: list[bytes]) -> None:
        for line in lines:
            event = _event(line)
            obj: Any = decode(bytes(event.object), view)
            seen = Observed(WatchType(event.type), obj)
            self._step(seen)
            if view in VIEWS:
                for controller, driver, ledger in self.drivers:
                    self._drive(controller, driver, ledger, seen)

    def _step(self, event: Any) -> None:
        for write in self.engine.step(event, NOW_NS):
            view = getattr(write, "view", None)
            if view is PodScheduling:
                self._count(write)
            answer = self._carry_out(write)  # type: ignore[arg-type]
            self.bound += isinstance(write, Bind) and isinstance(answer, WriteOk)
            self._step(answer)

    def _count(self, write: Any) -> None:
        what = type(write).__name__
        if isinstance(write, PatchObject):
            what = (
                "selection" if (write.patch.get("spec") or {}).get("selectedNode") else "clearing"
            )
        elif isinstance(write, CreateObject):
            what = "creation"
        elif isinstance(write, DeleteObject):
            what = "deletion"
        self.counts[what] = self.counts.get(what, 0) + 1

    def _drive(
        self, controller: Controller, driver: Driver, ledger: MemoryLedger, event: Any
    ) -> None:
        for output in controller.step(event, NOW_NS):
            answer = execute(output, driver, ledger, self._carry_out)
            self._drive(controller, driver, ledger, answer)

    # Requests

    def _ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> Response:
        answer = self.api.handle(Request(method, path, NOW_NS, (), body, kind))
        assert isinstance(answer, Response)
        self.api.store.visible = self.api.store.revision
        return answer

    def _make(self, path: str, document: dict[str, Any]) -> None:
        answer = self._ask("POST", path, json.dumps(document).encode(), "application/json")
        if answer.status != 201:
            raise InvariantError(f"{path}: {answer.status} {bytes(answer.body)[:300]!r}")

    def _list(self, view: type[Any]) -> list[Any]:
        answer = self._ask("GET", collection_path(KIND_BY_VIEW[view]))
        items = msgspec.json.decode(answer.body)["items"]
        return [decode(msgspec.json.encode(item), view) for item in items]

    def _watch(self, view: type[Any]) -> Watch:
        version = str(self.api.store.revision)
        query = (("watch", "1"), ("resourceVersion", version))
        path = collection_path(KIND_BY_VIEW[view])
        watch = self.api.handle(Request("GET", path, NOW_NS, query))
        assert isinstance(watch, Watch)
        return watch

    def _carry_out(self, write: ApiWrite) -> WriteOk | WriteFailed:
        entry = self.engine.state.pods.get(write.uid)
        known = entry.pod if entry is not None else None
        method, path, body, kind = build_request(write, known, NOW_NS, "bench")
        answer = self._ask(method, path, body, kind)
        if 200 <= answer.status < 300:
            return WriteOk(write.id, _written(answer.body).metadata.resource_version)
        return WriteFailed(write.id, answer.status, bytes(answer.body)[:300].decode())


def negotiation(workload: BenchWorkload) -> Times:
    """From the first pod's creation to the last binding."""
    world = Negotiation(workload)
    settle_memory()
    begin = perf_counter_ns()
    world.pods(workload.arriving)
    world.run(workload.arriving)
    return Times([perf_counter_ns() - begin], workload.arriving)
