"""Runs controllers: takes watch events, returns API requests, takes the answers.

A controller has keys. A key is reconciled when an object that it depends on has changed, but not
while one of its requests is unanswered. The object in the answer is stored first, so that no
controller acts on an outdated object.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, Protocol
from zlib import crc32

import msgspec

from stower.controllers.custom_kinds import DEFINITIONS, resource_of_definition
from stower.controllers.objects import (
    RESOURCES,
    Object,
    ObjectStore,
    Resource,
    key_of,
    name_of,
    namespace_of,
    uid_of,
    version_of,
)
from stower.controllers.write_answers import NOT_FOUND, WriteAnswer
from stower.framework.events import WatchType
from stower.model.times import SECOND_NS, time_text

JSON: Final = "application/json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"
PAUSE_NS: Final = SECOND_NS // 10
PAUSE_NS_MAX: Final = 30 * SECOND_NS
CONFLICT: Final = 409
FAULTS_MAX: Final = 100
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class Call(msgspec.Struct, frozen=True, gc=False):
    """One request."""

    id: int
    method: str
    path: str  # as it is, not quoted
    query: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = ""


class _PlannedCall(msgspec.Struct, gc=False):
    kind: str
    method: str
    path: str
    body: bytes = b""
    content_type: str = ""
    target: Object | None = None
    query: tuple[tuple[str, str], ...] = ()
    awaited: bool = True  # the key is not reconciled before the answer, and again if it fails


class ReconcileResult:
    """What a controller wants done for one key."""

    def __init__(
        self,
        now_ns: int,
        versions: Mapping[str, str] = {},
        custom: Mapping[str, Resource] = {},
    ) -> None:
        self.now_ns = now_ns
        self.versions = versions  # see ControllerManager
        self.custom = custom  # see ObjectStore
        self.wake_ns: int | None = None
        self.others: list[tuple[str, int]] = []
        self.calls: list[_PlannedCall] = []

    def requeue_at(self, when_ns: int) -> None:
        """Look at the key again then, at the latest."""
        self.wake_ns = when_ns if self.wake_ns is None else min(self.wake_ns, when_ns)

    def requeue_key_at(self, key: str, when_ns: int) -> None:
        """Look at another key of the same controller then."""
        self.others.append((key, when_ns))

    def create(self, kind: str, obj: Object) -> None:
        """Make an object."""
        resource = self._resource(kind)
        version = self.versions.get(kind, resource.api_version)
        body = {"apiVersion": version, "kind": resource.kind, **obj}
        path = self.path_to(kind, namespace_of(obj))
        self.calls.append(_PlannedCall(kind, "POST", path, encode(body), JSON))

    def update(self, kind: str, obj: Object, subresource: str = "") -> None:
        """Replace an object as a whole."""
        path = self._path(kind, obj, subresource)
        self.calls.append(_PlannedCall(kind, "PUT", path, encode(obj), JSON, obj))

    def patch(
        self,
        kind: str,
        obj: Object,
        patch: Object,
        subresource: str = "",
        form: str = "",
    ) -> None:
        """Merge into an object, which must still be this one; strategically where that is done,
        unless another form is asked for."""
        meta = {**(patch.get("metadata") or {}), "uid": uid_of(obj)}
        body = encode({**patch, "metadata": meta})
        path = self._path(kind, obj, subresource)
        own = MERGE if self._resource(kind).custom else STRATEGIC
        self.calls.append(_PlannedCall(kind, "PATCH", path, body, form or own, obj))

    def unprotect(self, kind: str, obj: Object, finalizer: str) -> None:
        """Nobody uses it any more: it may go."""
        if finalizer in (obj["metadata"].get("finalizers") or ()):
            self.patch(
                kind, obj, {"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer]}}
            )

    def replace_metadata(self, kind: str, obj: Object, **fields: Any) -> None:
        """Replace fields of the metadata, which must be as it was seen. Custom resources know no
        strategic patch."""
        meta = {**fields, "resourceVersion": obj["metadata"]["resourceVersion"]}
        self.patch(kind, obj, {"metadata": meta}, form=MERGE)

    def delete(
        self, kind: str, obj: Object, grace_s: int | None = None, policy: str | None = None
    ) -> None:
        """Delete an object, which must still be this one."""
        options: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid_of(obj)},
        }
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if policy is not None:
            options["propagationPolicy"] = policy
        path = self._path(kind, obj)
        self.calls.append(_PlannedCall(kind, "DELETE", path, encode(options), JSON, obj))

    def warn(self, pod: Object, reason: str, message: str, component: str) -> None:
        """A warning about a pod; the controller is told of the answer."""
        self.event("pods", pod, "Warning", reason, message, component)

    def event(
        self,
        kind: str,
        obj: Object,
        type: str,
        reason: str,
        message: str,
        component: str,
        awaited: bool = True,
    ) -> None:
        """An Event about an object. Not awaited: nobody hears of the answer."""
        namespace = namespace_of(obj) or "default"
        host = str(obj["spec"].get("nodeName") or "") if kind == "pods" else ""
        now, resource = time_text(self.now_ns), self._resource(kind)
        what = f"{reason}{message}".encode("utf-8", "surrogatepass")
        suffix = self.now_ns ^ crc32(what)  # for several at the same moment
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{name_of(obj)[:200]}.{suffix:x}",
                "namespace": namespace,
            },
            "involvedObject": {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "namespace": namespace_of(obj),
                "name": name_of(obj),
                "uid": uid_of(obj),
            },
            "type": type,
            "reason": reason,
            "message": message,
            "source": {"component": component, "host": host},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        path = f"/api/v1/namespaces/{namespace}/events"
        self.calls.append(_PlannedCall("", "POST", path, encode(event), JSON, awaited=awaited))

    def path_to(self, kind: str, namespace: str = "", name: str = "") -> str:
        """The path of a collection, or of an object in it."""
        return resource_path(self._resource(kind), namespace, name, self.versions.get(kind, ""))

    def _resource(self, kind: str) -> Resource:
        return RESOURCES.get(kind) or self.custom[kind]

    def _path(self, kind: str, obj: Object, subresource: str = "") -> str:
        path = self.path_to(kind, namespace_of(obj), name_of(obj))
        return f"{path}/{subresource}" if subresource else path

    def ask(self, method: str, path: str, **query: str) -> None:
        """Any other request; the controller is told of the answer."""
        self.calls.append(_PlannedCall("", method, path, query=tuple(query.items())))


def path_to(kind: str, namespace: str = "", name: str = "", version: str = "") -> str:
    """The path of a collection, or of an object in it; in this apiVersion, or the kind's first."""
    return resource_path(RESOURCES[kind], namespace, name, version)


def resource_path(
    resource: Resource, namespace: str = "", name: str = "", version: str = ""
) -> str:
    """The path of a collection of these resources, or of an object in it."""
    version = version or resource.api_version
    group = "/apis/" if "/" in version else "/api/"
    within = f"/namespaces/{namespace}" if resource.namespaced and namespace else ""
    path = f"{group}{version}{within}/{resource.plural}"
    return f"{path}/{name}" if name else path


class Controller(Protocol):
    """One controller of kube-controller-manager, or a kubelet: maps objects to keys and reconciles
    keys."""

    @property
    def name(self) -> str:
        """What it is called upstream."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The objects that it looks at."""

    @property
    def has_custom_kinds(self) -> bool:
        """Whether it looks at the objects of all custom resources, too."""

    def first_keys(self) -> Iterable[str]:
        """What to look at once everything was listed, whatever there is."""

    def custom_kind_keys(self, seen: ObjectStore, kind: str) -> Iterable[str]:
        """Returns the keys that depend on which objects there are of a custom kind, which is now
        listed, or no longer served."""

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """Returns the keys that depend on an object that was added, was modified from `old`, or was
        deleted (then `old` is the object)."""

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Say what is to be done for the key, as things are."""

    def handle_answer(self, key: str, method: str, path: str, status: int, body: bytes) -> None:
        """The answer to what was asked besides writes."""

    @property
    def reported_kinds(self) -> tuple[str, ...]:
        """The kinds whose writes `report_write` is called for."""

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        """Record Events about a write, once it was answered."""


class _PendingCall(msgspec.Struct, gc=False):
    work: tuple[int, str] | None  # None: nobody waits for the answer
    kind: str
    method: str
    path: str
    target: Object | None


class _CallState(msgspec.Struct, gc=False):
    count: int = 0
    failed: bool = False


class ControllerManager:
    """All controllers of a cluster over one view of it."""

    def __init__(self, controllers: Sequence[Controller], versions: Mapping[str, str] = {}) -> None:
        """`versions`: the apiVersion of kinds that are served in another than their first."""
        self.controllers = tuple(controllers)
        self.versions = versions
        self.seen = ObjectStore()
        self.now_ns = 0
        kinds = dict.fromkeys(k for c in controllers for k in c.kinds)
        self.kinds = tuple(kinds)
        self._listening = {
            kind: [(i, c) for i, c in enumerate(self.controllers) if kind in c.kinds]
            for kind in kinds
        }
        followers = [(i, c) for i, c in enumerate(self.controllers) if c.has_custom_kinds]
        self._custom_listening = followers if DEFINITIONS in kinds else []
        self._unlisted = set(kinds)
        self._due: dict[tuple[int, str], None] = {}
        self._busy: dict[tuple[int, str], _CallState] = {}
        self._failed: dict[tuple[int, str], int] = {}
        self._timers: list[tuple[int, tuple[int, str]]] = []
        self._timer_of: dict[tuple[int, str], int] = {}
        self._unanswered: dict[int, _PendingCall] = {}
        self._reports: list[tuple[tuple[int, str], _PlannedCall]] = []
        self._next_id = 1
        self.faults: deque[str] = deque(maxlen=FAULTS_MAX)  # what went wrong within

    # In

    def handle_list(self, kind: str, objects: Iterable[Object], version: str = "") -> None:
        """All objects of a kind, at the start and after a watch was lost; `version`: as of when.
        An answer may have shown an object that is newer than the list."""
        if not self._is_followed(kind):
            return
        found = {uid_of(obj): obj for obj in objects}
        limit = int(version) if version.isdecimal() else None
        for old in self.seen.all(kind):
            if uid_of(old) not in found and (limit is None or version_of(old) <= limit):
                self._on_deletion(kind, old)
        for obj in found.values():
            self._put(kind, obj)
        if kind in self._unlisted:
            self._unlisted.remove(kind)
            if not self._unlisted:
                for index, controller in enumerate(self.controllers):
                    self._due.update(dict.fromkeys((index, k) for k in controller.first_keys()))
        elif self.seen.unlisted.pop(kind, None) is not None:
            self._notify_custom(kind)

    def handle_event(self, kind: str, type: WatchType, obj: Object) -> None:
        """A watch event."""
        if not self._is_followed(kind):
            return
        if type is WatchType.DELETED:
            self._on_deletion(kind, obj)
        else:
            self._put(kind, obj)

    def _is_followed(self, kind: str) -> bool:
        """Whether it is a kind to watch: a custom one may just have been removed."""
        return kind in self._listening or kind in self.seen.custom

    def handle_answer(self, id: int, status: int, body: bytes) -> None:
        """The answer to a call; status 0: there was none."""
        call = self._unanswered.pop(id)
        work = call.work
        if work is None:
            return
        controller = self.controllers[work[0]]
        is_good = 200 <= status < 300
        if not call.kind:
            try:
                controller.handle_answer(work[1], call.method, call.path, status, body)
            except Exception as error:
                self._fault(controller, work[1], error)
        else:
            is_reported = call.kind in controller.reported_kinds
            answer = _decode_object(body) if is_good or is_reported else {}
            if call.kind not in RESOURCES and call.kind not in self.seen.custom:
                pass  # its definition has gone, and all its objects
            elif is_good:
                self._take(call, answer)
            elif status == NOT_FOUND and call.target is not None:
                self._on_deletion(call.kind, call.target)
            if is_reported:
                what = WriteAnswer(call.kind, call.method, call.target, status, answer)
                self._report(controller, work, what)
        gone = status == NOT_FOUND and call.method != "POST"
        self._finish_call(work, not (is_good or gone))

    def _report(self, controller: Controller, work: tuple[int, str], answer: WriteAnswer) -> None:
        todo = ReconcileResult(self.now_ns, self.versions, self.seen.custom)
        try:
            controller.report_write(self.seen, work[1], answer, todo)
        except Exception as error:
            self._fault(controller, work[1], error)
            return
        self._reports += [(work, planned) for planned in todo.calls]

    def _finish_call(self, work: tuple[int, str], failed: bool) -> None:
        busy = self._busy[work]
        busy.count -= 1
        busy.failed |= failed
        if busy.count:
            return
        del self._busy[work]
        if not busy.failed:
            self._failed.pop(work, None)
            self._due[work] = None
            return
        self._due.pop(work, None)
        self._back_off(work)

    def _back_off(self, work: tuple[int, str]) -> None:
        """It did not work: look at it again after a while, which grows."""
        self._failed[work] = failures = self._failed.get(work, 0) + 1
        self._wake(work, self.now_ns + min(PAUSE_NS << min(failures, 9), PAUSE_NS_MAX))

    def _fault(self, controller: Controller, what: str, error: Exception) -> None:
        """One odd object must not stop the others."""
        self.faults.append(f"{controller.name}: {what}: {type(error).__name__}: {error}")

    def _take(self, call: _PendingCall, obj: Object) -> None:
        meta = obj.get("metadata")
        if not isinstance(meta, dict):
            return
        if obj.get("kind") != self.seen.resource(call.kind).kind:
            if call.method == "DELETE" and call.target is not None:
                self._on_deletion(call.kind, call.target)
        elif call.method == "DELETE" and "deletionTimestamp" not in meta:
            self._on_deletion(call.kind, obj)
        elif "uid" in meta and self._is_followed(call.kind):
            self._put(call.kind, obj)

    def _put(self, kind: str, obj: Object) -> None:
        news, old = self.seen.put(kind, obj)
        if news and kind == DEFINITIONS and self._custom_listening:
            self._follow_definition(name_of(obj), resource_of_definition(obj))
        if news:
            self._notify(kind, old, obj)

    def _on_deletion(self, kind: str, obj: Object) -> None:
        old = self.seen.drop(kind, obj)
        if old is None:
            return
        if kind == DEFINITIONS:
            self._follow_definition(name_of(obj), None)
        self._notify(kind, old, old)

    def _follow_definition(self, kind: str, resource: Resource | None) -> None:
        """Adds, replaces or removes the kind of a definition."""
        known = self.seen.custom.get(kind)
        if known == resource:
            return
        if known is not None:
            for obj in self.seen.all(kind):
                self._on_deletion(kind, obj)
            self.seen.drop_kind(kind)
        if resource is not None:
            self.seen.add_kind(kind, resource, self.now_ns)
        self._notify_custom(kind)

    def _notify_custom(self, kind: str) -> None:
        for index, controller in self._custom_listening:
            for key in controller.custom_kind_keys(self.seen, kind):
                self._due[(index, key)] = None

    def _notify(self, kind: str, old: Object | None, obj: Object) -> None:
        is_custom = kind in self.seen.custom
        for index, controller in (
            self._custom_listening if is_custom else self._listening.get(kind, ())
        ):
            try:
                keys = tuple(controller.keys(self.seen, kind, old, obj))
            except Exception as error:
                self._fault(controller, f"{kind} {key_of(obj)}", error)
                continue
            for key in keys:
                self._due[(index, key)] = None

    # Out

    @property
    def next_wake_ns(self) -> int | None:
        """When to step again if nothing happens before."""
        if (self._due or self._reports) and not self._unlisted:
            return self.now_ns
        return self._timers[0][0] if self._timers else None

    def step(self, now_ns: int, most: int = 1_000) -> list[Call]:
        """What to ask for now. Nothing before all kinds were listed; `most` keys are looked at."""
        self.now_ns = max(self.now_ns, now_ns)
        if self._unlisted:
            return []
        while self._timers and self._timers[0][0] <= self.now_ns:
            due_ns, work = heappop(self._timers)
            if self._timer_of.get(work) == due_ns:
                del self._timer_of[work]
                self._due[work] = None
        calls = [self._call(*report) for report in self._reports]
        self._reports.clear()
        for _ in range(most):
            if not self._due:
                break
            work = next(iter(self._due))
            del self._due[work]
            if work in self._busy:
                continue  # it comes back when its answers are here
            todo = ReconcileResult(self.now_ns, self.versions, self.seen.custom)
            try:
                self.controllers[work[0]].reconcile(self.seen, work[1], todo)
            except Exception as error:
                self._fault(self.controllers[work[0]], work[1], error)
                self._back_off(work)
                continue
            if todo.wake_ns is not None:
                self._wake(work, todo.wake_ns)
            for key, when_ns in todo.others:
                self._wake((work[0], key), when_ns)
            calls += [self._call(work, wanted) for wanted in todo.calls]
            if not todo.calls:
                self._failed.pop(work, None)
        return calls

    def _call(self, work: tuple[int, str], wanted: _PlannedCall) -> Call:
        id = self._next_id
        self._next_id = id + 1
        if wanted.awaited:
            self._busy.setdefault(work, _CallState()).count += 1
        waiting = work if wanted.awaited else None
        self._unanswered[id] = _PendingCall(
            waiting, wanted.kind, wanted.method, wanted.path, wanted.target
        )
        return Call(id, wanted.method, wanted.path, wanted.query, wanted.body, wanted.content_type)

    def _wake(self, work: tuple[int, str], when_ns: int) -> None:
        known = self._timer_of.get(work)
        if known is None or when_ns < known:
            self._timer_of[work] = when_ns
            heappush(self._timers, (when_ns, work))


def _decode_object(body: bytes) -> Object:
    """Decodes an answer; empty where it is no object."""
    try:
        found = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


class BaseController:
    """What controllers have in common."""

    name = ""
    kinds: tuple[str, ...] = ()
    reported_kinds: tuple[str, ...] = ()
    has_custom_kinds = False

    def custom_kind_keys(self, seen: ObjectStore, kind: str) -> Iterable[str]:
        """None."""
        return ()

    def first_keys(self) -> Iterable[str]:
        """Nothing that is not there."""
        return ()

    def handle_answer(self, key: str, method: str, path: str, status: int, body: bytes) -> None:
        """Nothing was asked."""

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        """Nothing is reported."""


class OwnerController(BaseController):
    """Controllers whose key is the key of an object of their own kind."""

    own = ""

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The object itself, or those that it belongs to."""
        if kind == self.own:
            return (key_of(obj),)
        found = self._owners(obj)
        if old is None or old is obj:
            return found
        before = self._owners(old)
        return found if before == found else tuple(dict.fromkeys(before + found))

    def _owners(self, obj: Object) -> tuple[str, ...]:
        references = obj["metadata"].get("ownerReferences")
        if not references:
            return ()
        kind = RESOURCES[self.own].kind
        return tuple(
            f"{namespace_of(obj)}/{reference['name']}"
            for reference in references
            if reference.get("kind") == kind and reference.get("controller")
        )

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Say what is to be done for the key, as things are."""
        obj = seen.get(self.own, key)
        if obj is None:
            self.forget(key)
        else:
            self.reconcile_owner(seen, obj, todo)

    def forget(self, key: str) -> None:
        """The object is gone: drop what is remembered of it."""

    def reconcile_owner(self, seen: ObjectStore, obj: Any, todo: ReconcileResult) -> None:
        """Say what is to be done for an object."""
        raise NotImplementedError
