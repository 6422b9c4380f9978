"""Namespace controller: deletes all objects of a terminating namespace, pods before all others,
says in conditions what is left, then removes its finalizer.

Source: pkg/controller/namespace, Kubernetes 1.36.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from stower.controllers.namespace_conditions import Leftovers, updated_conditions
from stower.controllers.objects import Object, ObjectStore, is_ending, name_of, namespace_of
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.controllers.write_answers import NOT_FOUND
from stower.model.times import SECOND_NS, time_ns

LEASES: Final = "kube-node-lease"
FINALIZER: Final = "kubernetes"
NOT_SERVED: Final = (NOT_FOUND, 405)
AGAIN_NS: Final = SECOND_NS
# Pods come to their end by themselves, and this is seen: they are looked for in case it is not.
PODS_AGAIN_NS: Final = 5 * SECOND_NS
GONE_NS: Final = SECOND_NS // 10  # and when all pods were seen to go
# Arbitrary: of more objects, those beyond are counted, but their finalizers are not.
LISTED_MAX: Final = 500
GRACE_SECONDS: Final = 30  # of pods that do not say how long they may take


class _Meta(msgspec.Struct):
    finalizers: list[str] = []


class _Spec(msgspec.Struct, rename="camel"):
    termination_grace_period_seconds: int = GRACE_SECONDS


class _Status(msgspec.Struct):
    phase: str = ""


class _Item(msgspec.Struct):
    metadata: _Meta


class _Pod(msgspec.Struct):
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _ListMeta(msgspec.Struct):
    remaining: int = msgspec.field(default=0, name="remainingItemCount")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[_Item] = []


class _Pods(msgspec.Struct):
    items: list[_Pod] = []


class _Round:
    """One attempt to empty collections: each is deleted, then listed."""

    def __init__(self, paths: Iterable[str], has_pods: bool, deleted: Iterable[str] = ()) -> None:
        """`deleted`: paths of collections that are listed only: nothing new comes into them."""
        self.has_pods = has_pods  # whether the pods still have to go, before all others
        self.paths = tuple(paths)
        self.asked = dict.fromkeys(("DELETE", path) for path in deleted)  # method and path
        self.leftovers: dict[str, Leftovers] = {}  # by path; those that are not empty
        self.grace_s = 0  # the longest time that a pod that is left may take to end
        self.due_ns = 0  # when the next round begins; 0: this one is not over
        self.gone_ns = 0  # and when, if no pods are seen any more


class NamespaceController(BaseController):
    """One namespace is one key. Its collections are emptied in rounds, until nothing is left."""

    name = "namespace-controller"
    kinds = ("namespaces", "customresourcedefinitions", "pods")

    def __init__(self, collections: Sequence[str]) -> None:
        """`collections`: paths of all kinds in namespaces, `{}` for the namespace."""
        self._collections = tuple(collections)
        self._rounds: dict[str, _Round] = {}

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The namespace itself, or that of a pod that is gone."""
        if kind == "namespaces":
            return (name_of(obj),)
        if kind == "pods" and old is obj:
            return (namespace_of(obj),)
        return ()

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """One step of emptying."""
        obj = seen.get("namespaces", key)
        if obj is None or not is_ending(obj):
            self._rounds.pop(key, None)
            if obj is None and key == LEASES:
                todo.create("namespaces", {"metadata": {"name": key}})  # nodes live by it
            return
        if FINALIZER not in (obj["spec"].get("finalizers") or ()):
            return
        now = self._rounds.get(key)
        if now is None:
            now = self._rounds[key] = _Round([f"/api/v1/namespaces/{key}/pods"], has_pods=True)
        if now.has_pods and now.due_ns and not seen.list_namespace("pods", key):
            now.due_ns = min(now.due_ns, now.gone_ns)
        if now.due_ns and now.due_ns <= todo.now_ns:
            deleted = [path for path, left in now.leftovers.items() if not left.fault]
            now = self._rounds[key] = _Round(now.leftovers, now.has_pods, deleted)
        if now.due_ns:
            todo.requeue_at(now.due_ns)
            return
        if not self._has_asked(now, todo):
            self._judge(seen, obj, now, todo)

    def _has_asked(self, now: _Round, todo: ReconcileResult) -> bool:
        """Deletes all collections, then lists them; whether something was asked for."""
        for method, query in (
            ("DELETE", {"propagationPolicy": "Background"}),
            ("GET", {"limit": str(LISTED_MAX)}),
        ):
            new = [(method, path) for path in now.paths if (method, path) not in now.asked]
            now.asked.update(dict.fromkeys(new))
            for _, path in new:
                todo.ask(method, path, **query)
            if new:
                return True
        return False

    def _judge(self, seen: ObjectStore, obj: Object, now: _Round, todo: ReconcileResult) -> None:
        """Says what is left; goes on where nothing is."""
        key = name_of(obj)
        if now.has_pods and not now.leftovers:
            self._rounds[key] = _Round(self._paths(seen, key), has_pods=False)
            todo.requeue_at(todo.now_ns)
            return
        # While pods are left, upstream looks at nothing else, and counts nothing.
        totals = {} if now.has_pods else now.leftovers
        faults = [
            fault
            for path, leftovers in now.leftovers.items()
            if (fault := _fault(obj, path, leftovers, now, todo.now_ns))
        ]
        conditions = updated_conditions(obj, totals, faults, todo.now_ns)
        if conditions is not None:
            status = {**(obj.get("status") or {}), "conditions": conditions}
            todo.update("namespaces", {**obj, "status": status}, "status")
            return  # looked at again with the answer
        if now.leftovers:
            now.due_ns = todo.now_ns + (PODS_AGAIN_NS if now.has_pods else AGAIN_NS)
            now.gone_ns = todo.now_ns + GONE_NS
            todo.requeue_at(now.gone_ns if now.has_pods else now.due_ns)
            return
        del self._rounds[key]
        others = [f for f in obj["spec"]["finalizers"] if f != FINALIZER]
        todo.update("namespaces", {**obj, "spec": {"finalizers": others}}, "finalize")

    def _paths(self, seen: ObjectStore, namespace: str) -> Iterable[str]:
        for collection in self._collections:
            yield collection.format(namespace)
        for definition in seen.all("customresourcedefinitions"):
            spec = definition["spec"]
            if spec["scope"] == "Namespaced":
                version = next((v["name"] for v in spec["versions"] if v.get("served")), None)
                if version is not None:
                    plural = spec["names"]["plural"]
                    yield f"/apis/{spec['group']}/{version}/namespaces/{namespace}/{plural}"

    def handle_answer(self, key: str, method: str, path: str, status: int, body: bytes) -> None:
        """A collection was deleted, or listed. What is left, or went wrong, is kept."""
        now = self._rounds.get(key)
        if now is None or path not in now.paths or status in NOT_SERVED:
            return
        if not 200 <= status < 300:
            now.leftovers[path] = Leftovers.of(path, fault=_message(body) or f"status {status}")
            return
        if method != "GET":
            return
        try:
            listed = msgspec.json.decode(body, type=_List)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            now.leftovers[path] = Leftovers.of(path, fault=str(error))
            return
        finalizers: dict[str, int] = {}
        for item in listed.items:
            for finalizer in item.metadata.finalizers:
                finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
        if now.has_pods:
            now.grace_s = _grace_seconds(body)
        count, known = len(listed.items) + listed.metadata.remaining, now.leftovers.get(path)
        fault = known.fault if known is not None else ""  # of the deletion
        if count or fault:
            now.leftovers[path] = Leftovers.of(path, count, finalizers, fault)


def _fault(obj: Object, path: str, leftovers: Leftovers, now: _Round, now_ns: int) -> str:
    """Why a collection cannot be emptied, in upstream's words; "" where it only takes time."""
    name, fault = name_of(obj), leftovers.fault
    if not fault and not leftovers.finalizers:
        begun_ns = time_ns(obj["metadata"]["deletionTimestamp"]) or 0
        if now_ns >= begun_ns + now.grace_s * SECOND_NS:
            group, version, plural = leftovers.resource
            fault = (
                f"unexpected items still remain in namespace: {name} for gvr: "
                f"{group}/{version}, Resource={plural}"
            )
    if fault and now.has_pods:
        return f"failed to delete pods for namespace: {name}, err: {fault}"
    return fault


def _grace_seconds(body: bytes) -> int:
    try:
        pods = msgspec.json.decode(body, type=_Pods).items
    except (msgspec.DecodeError, UnicodeDecodeError):
        return GRACE_SECONDS
    return max(
        (
            pod.spec.termination_grace_period_seconds
            for pod in pods
            if pod.status.phase not in ("Succeeded", "Failed")
        ),
        default=0,
    )


def _message(body: bytes) -> str:
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return str(found.get("message") or "") if isinstance(found, dict) else ""


def collections_of(paths: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Templates for (apiVersion, plural) pairs of kinds in namespaces; of several versions of a
    kind, the first one's."""
    found: dict[tuple[str, str], str] = {}
    for api_version, plural in paths:
        group, slash, _ = api_version.rpartition("/")
        base = "/apis/" if slash else "/api/"
        found.setdefault((group, plural), f"{base}{api_version}/namespaces/{{}}/{plural}")
    return tuple(found.values())
