"""A process that runs controllers of controllers/ in a simulation, behind a simulated connection.

The counterpart of live/controllers.py. A process that crashes loses all its state; requests that it
had sent may still be carried out. Applies the API's rules for writes that controllers rely on: uids
and resourceVersions must match, and an object with finalizers is deleted after they are removed.
"""

import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from stower.api.patches import merge
from stower.controllers.runtime import Call, ControllerManager
from stower.framework.events import WatchType
from stower.framework.retries import CONFLICT
from stower.model.kinds import KINDS, ApiObject, Kind, Pod
from stower.model.times import time_text
from stower.sim.agenda import Agenda
from stower.sim.link import Link, Weather
from stower.sim.server import NOT_FOUND, OK, Server

CREATED: Final = 201
KIND_OF: Final = {kind.plural: kind for kind in KINDS}
Answer = tuple[int, bytes]


def as_object(obj: ApiObject, kind: Kind) -> dict[str, Any]:
    """As the API shows it."""
    return {"apiVersion": kind.api_version, "kind": kind.name, **msgspec.to_builtins(obj)}


class ControllerProcess:
    """Some controllers in one process."""

    def __init__(
        self,
        name: str,
        agenda: Agenda,
        server: Server,
        chance: random.Random,
        weather: list[Weather],
        build: Callable[[], ControllerManager],
    ) -> None:
        self.name = name
        self._agenda = agenda
        self._server = server
        self._chance = chance
        self._weather = weather
        self._build = build
        self._life = 0
        self._made = 0
        self._link: Link | None = None
        self._actors: ControllerManager | None = None
        self._is_listed = False
        self._listed_at: dict[str, int] = {}  # by plural: the revision of the list that was taken
        self._wake_ns: int | None = None

    def start(self) -> None:
        """Begin with nothing but what the server says."""
        if self._link is not None:
            return
        self._life += 1
        self._actors = self._build()
        self._is_listed = False
        self._listed_at.clear()
        views = [KIND_OF[plural].view for plural in self._actors.kinds]
        self._link = Link(
            self._agenda, self._server, self._chance, self._weather, views,
            self._on_list, self._on_change,
        )  # fmt: skip

    def stop(self) -> None:
        """It dies, with all that it knew."""
        if self._link is not None:
            self._life += 1
            self._link.close()
            self._link = self._actors = None
            self._wake_ns = None

    def _on_list(self) -> None:
        link, actors = self._link, self._actors
        if link is None or actors is None or not link.is_ready:
            return
        for plural in actors.kinds:
            kind = KIND_OF[plural]
            stream = link.streams[kind.view]
            if self._listed_at.get(plural) != stream.listed_at:
                self._listed_at[plural] = stream.listed_at
                objects = [as_object(obj, kind) for obj in stream.objects.values()]
                actors.handle_list(plural, objects, str(stream.listed_at))
        self._is_listed = True
        self._step()

    def _on_change(self, type: WatchType, obj: ApiObject) -> None:
        if self._actors is None or not self._is_listed:
            return
        kind = next(kind for kind in KINDS if isinstance(obj, kind.view))
        self._actors.handle_event(kind.plural, type, as_object(obj, kind))
        self._step()

    def _step(self) -> None:
        actors, link = self._actors, self._link
        if actors is None or link is None:
            return
        now_ns, life = self._agenda.now_ns, self._life
        for call in actors.step(now_ns):

            def on_answer(status: int, found: Any, call: Call = call) -> None:
                if life != self._life or self._actors is None:
                    return
                code, body = found if status == OK and found is not None else (status, b"")
                self._actors.handle_answer(call.id, code, body)
                self._step()

            link.ask(lambda call=call: self._carry_out(call), on_answer)  # type: ignore[misc]
        if actors.faults:
            raise ValueError(f"{self.name}: {actors.faults[0]}")
        due_ns = actors.next_wake_ns
        if due_ns is not None and (self._wake_ns is None or due_ns < self._wake_ns):
            self._wake_ns = max(due_ns, now_ns)
            self._agenda.schedule_at(self._wake_ns, lambda: self._on_wake(life, self._wake_ns))

    def _on_wake(self, life: int, at_ns: int | None) -> None:
        if (
            life == self._life
            and self._wake_ns is not None
            and self._agenda.now_ns >= self._wake_ns
        ):
            self._wake_ns = None
            self._step()

    # What the server does

    def _carry_out(self, call: Call) -> Answer:
        kind, key = _target(call.path)
        if call.method == "POST":
            return self._create(kind, msgspec.json.decode(call.body))
        found = self._server.get(kind.view, key)
        if found is None:
            return NOT_FOUND, b""
        body = msgspec.json.decode(call.body) if call.body else {}
        if call.method == "GET":
            return OK, _encoded(found, kind)
        if call.method == "DELETE":
            wanted = (body.get("preconditions") or {}).get("uid", found.metadata.uid)
            if wanted != found.metadata.uid:
                return CONFLICT, b""
            if kind.view is Pod:
                self._server.delete_pod(found)
            else:
                self._server.delete(found)
            left = self._server.get(kind.view, key)
            return OK, _encoded(found if left is None else left, kind)
        meta = body.get("metadata") or {}
        wanted = (meta.get("uid", found.metadata.uid),
                  meta.get("resourceVersion", found.metadata.resource_version))  # fmt: skip
        if wanted != (found.metadata.uid, found.metadata.resource_version):
            return CONFLICT, b""
        changed: Any = msgspec.convert(merge(msgspec.to_builtins(found), body), kind.view)
        if changed.metadata.deletion_timestamp is not None and not changed.metadata.finalizers:
            self._server.remove(changed)
        elif changed != found:
            self._server.put(changed)
        return OK, _encoded(self._server.get(kind.view, key) or changed, kind)

    def _create(self, kind: Kind, body: dict[str, Any]) -> Answer:
        self._made += 1
        meta = {
            **body["metadata"],
            "uid": f"{self.name}-{self._made}",
            "creationTimestamp": time_text(self._agenda.now_ns),
        }
        status = {"status": {"phase": "Pending"}} if kind.view is Pod else {}
        made: Any = msgspec.convert({**body, **status, "metadata": meta}, kind.view)
        if self._server.get(kind.view, made.metadata.key) is not None:
            return CONFLICT, b""
        self._server.put(made)
        return CREATED, _encoded(self._server.get(kind.view, made.metadata.key), kind)


def _encoded(obj: ApiObject, kind: Kind) -> bytes:
    return msgspec.json.encode(as_object(obj, kind))


def _target(path: str) -> tuple[Kind, str]:
    """The kind that a path is about, and the key of the object, "" for a collection."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    return KIND_OF[rest[0]], f"{namespace}/{name}" if namespace else name
