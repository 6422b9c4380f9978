"""A whole cluster in memory on a clock of its own: API, actors and, where wanted, the scheduler."""

import heapq
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from stower.api.optional_kinds import SERVE
from stower.api.requests import JSON, Request, Response
from stower.api.server import Api
from stower.api.watches import Watch
from stower.apiserver.tables import load_registry
from stower.assembly import build_engine
from stower.cli.group_making import with_group_making
from stower.controllers.assembly import build_controllers
from stower.controllers.cluster import read_cluster
from stower.controllers.runtime import RESOURCES, path_to, resource_path
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import CreateEvent, Write
from stower.live.requests import build_request
from stower.model.kinds import KINDS
from stower.model.raw import decode

Object = dict[str, Any]
S = 1_000_000_000
START_NS = 1_790_000_000 * S
STEPS_MAX = 5_000
VIEWS = {kind.plural: kind.view for kind in KINDS}


def pools(count: int = 3, **fields: Any) -> Object:
    """A cluster file with one pool."""
    return {"pools": [{"name": "node", "count": count, **fields}]}


class Cluster:
    """Everything happens in `settle` and `advance`, in one order."""

    def __init__(
        self,
        document: Object | None = None,
        scheduler: bool = True,
        version: str = "1.36",
        configuration: Object | None = None,
        gang_kinds: tuple[str, ...] = (),
        authority: str = "",
        server_version: str = "",
    ) -> None:
        registry = load_registry(version, SERVE)
        self.api = Api(registry, seed=1, plugins=frozenset(("TaintNodesByCondition",)))
        self.now_ns = START_NS
        self.api.bootstrap(self.now_ns)
        self.api.store.visible = self.api.store.revision
        inside = [(r.api_version, r.plural) for r in registry.resources() if r.namespaced]
        self.cluster = read_cluster(document or pools())
        self._build = partial(
            build_controllers, self.cluster, inside, gang_kinds, authority, server_version
        )
        self.actors = self._build()
        configuration = with_group_making(configuration, gang_kinds)
        self.engine: Engine | None = build_engine(configuration, seed=1) if scheduler else None
        self.requests: list[tuple[str, str, int]] = []
        self.failing: list[tuple[str, str]] = []  # method and path of requests that fail once
        self.lagging: set[str] = set()  # kinds of which the actors hear nothing for now
        self.watches: dict[str, Watch] = {}
        self._list()
        if self.engine is not None:
            self._write(self.engine.step(Listed(()), self.now_ns))
        self.settle()

    def restart(self) -> None:
        """The actors end, and begin anew with what objects hold."""
        self.actors = self._build()
        self._list()
        self.settle()

    def _list(self) -> None:
        for kind in self.actors.kinds:
            status, listed = self.ask("GET", self.path_to(kind))
            if status == 404 and RESOURCES[kind].optional:
                self.actors.handle_list(kind, ())
                continue
            assert 200 == status, listed
            self.actors.handle_list(kind, listed["items"])
            self.watches[kind] = self._watch(kind, listed["metadata"]["resourceVersion"])

    def _watch(self, kind: str, version: str, path: str = "") -> Watch:
        query = (("watch", "1"), ("resourceVersion", version))
        watch = self.api.handle(Request("GET", path or self.path_to(kind), self.now_ns, query))
        assert isinstance(watch, Watch)
        return watch

    # Requests

    def path_to(self, kind: str, namespace: str = "", name: str = "") -> str:
        """The path of a collection, or of an object in it, in the version that is served."""
        return path_to(kind, namespace, name, self.actors.versions.get(kind, ""))

    def ask(
        self, method: str, path: str, body: Any = None, kind: str = JSON, query: Any = ()
    ) -> tuple[int, Object]:
        """Status and answer of one request."""
        if (method, path) in self.failing:
            self.failing.remove((method, path))
            return 500, {"message": "it fails once"}
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        answer = self.api.handle(
            Request(method, path, self.now_ns, tuple(query), data, kind if data else "")
        )
        assert isinstance(answer, Response)
        self.api.store.visible = self.api.store.revision
        self.requests.append((method, path, answer.status))
        if not (answer.body or b"{}").startswith(b"{"):
            return answer.status, {"message": answer.body.decode()}  # of a group that is not served
        return answer.status, json.loads(answer.body or b"{}")

    def get(self, path: str) -> Object:
        """An object that must be there."""
        status, answer = self.ask("GET", path)
        assert 200 == status, answer
        return answer

    def create(self, kind: str, obj: Object, namespace: str = "default") -> Object:
        """Make an object, and let everybody act on it."""
        status, answer = self.ask("POST", self.path_to(kind, namespace), obj)
        assert 201 == status, answer
        self.settle()
        return answer

    def patch(self, kind: str, name: str, patch: Object, namespace: str = "default") -> Object:
        """Merge into an object, and let everybody act on it."""
        path = self.path_to(kind, namespace, name)
        status, answer = self.ask("PATCH", path, patch, "application/merge-patch+json")
        assert 200 == status, answer
        self.settle()
        return answer

    def delete(self, kind: str, name: str, namespace: str = "default", **options: Any) -> None:
        """Delete an object, and let everybody act on it."""
        status, answer = self.ask("DELETE", self.path_to(kind, namespace, name), options or None)
        assert status in (200, 202), answer
        self.settle()

    def all(self, kind: str, namespace: str = "default") -> dict[str, Object]:
        """Objects by name."""
        resource = RESOURCES[kind]
        items = self.get(self.path_to(kind, namespace if resource.namespaced else ""))["items"]
        return {item["metadata"]["name"]: item for item in items}

    def one(self, kind: str, name: str, namespace: str = "default") -> Object:
        """One object."""
        return self.all(kind, namespace)[name]

    def phases(self) -> dict[str, str]:
        """The pods of the default namespace."""
        return {name: pod["status"]["phase"] for name, pod in self.all("pods").items()}

    # Time

    def settle(self) -> None:
        """Let everybody act until nothing is left that needs no time."""
        for _ in range(STEPS_MAX):
            moved = self._deliver()
            for call in self.actors.step(self.now_ns):
                status, answer = self.ask(
                    call.method, call.path, call.body or None, call.content_type, call.query
                )
                self.actors.handle_answer(call.id, status, json.dumps(answer).encode())
                moved = True
            due = self.engine.next_wake_ns if self.engine is not None else None
            if self.engine is not None and due is not None and due <= self.now_ns:
                self._write(self.engine.step(Tick(), self.now_ns))
                moved = True
            if not moved:
                return
        raise AssertionError(f"nothing settles: {self.requests[-20:]}")

    def advance(self, seconds: float) -> None:
        """Let time pass, waking everybody when they want to be."""
        end = self.now_ns + round(seconds * S)
        for _ in range(STEPS_MAX):
            wakes = [self.actors.next_wake_ns]
            if self.engine is not None:
                wakes.append(self.engine.next_wake_ns)
            due = min((w for w in wakes if w is not None), default=end)
            if due >= end:
                break
            self.now_ns = max(self.now_ns, due)
            self.settle()
        else:
            raise AssertionError("woken without end")
        self.now_ns = end
        self.settle()

    def until(self, good: Callable[[], bool], seconds: float = 600) -> None:
        """Let time pass until something holds."""
        end = self.now_ns + round(seconds * S)
        while not good():
            assert self.now_ns < end, (self.phases(), self.requests[-20:])
            self.advance(0.5)

    def _follow_custom_kinds(self) -> None:
        wanted = self.actors.seen.custom
        for kind in [k for k in self.watches if k not in RESOURCES and k not in wanted]:
            del self.watches[kind]
        for kind, resource in tuple(wanted.items()):
            if kind not in self.watches and kind not in self.lagging:
                path = resource_path(resource)
                listed = self.get(path)
                self.actors.handle_list(kind, listed["items"])
                version = listed["metadata"]["resourceVersion"]
                self.watches[kind] = self._watch(kind, version, path)

    def _deliver(self) -> bool:
        self._follow_custom_kinds()
        events = []
        for kind, watch in self.watches.items():
            if kind in self.lagging:
                continue
            for line in b"".join(watch.poll()).splitlines():
                event = json.loads(line)
                version = int(event["object"]["metadata"]["resourceVersion"])
                heapq.heappush(events, (version, len(events), kind, event, line))
        for _, _, kind, event, _ in sorted(events, key=lambda e: e[:2]):
            type = WatchType(event["type"])
            self.actors.handle_event(kind, type, event["object"])
            view = VIEWS.get(kind)
            if self.engine is not None and view is not None:
                obj = decode(json.dumps(event["object"]).encode(), view)
                self._write(self.engine.step(Observed(type, obj), self.now_ns))  # type: ignore[arg-type]
        return bool(events)

    def _write(self, writes: list[Write]) -> None:
        """Carry them out; Events are left out."""
        assert self.engine is not None
        for write in writes:
            status, message = 200, ""
            if not isinstance(write, CreateEvent):
                entry = self.engine.state.pods.get(write.uid)
                known = entry.pod if entry is not None else None
                method, path, body, kind = build_request(write, known, self.now_ns, "")
                status, answer = self.ask(method, path, body, kind)
                message = str(answer.get("message", ""))
            good = 200 <= status < 300
            told = WriteOk(write.id) if good else WriteFailed(write.id, status, message)
            self._write(self.engine.step(told, self.now_ns))
