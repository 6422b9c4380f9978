"""Namespace controller: deletes all objects of a terminating namespace, then removes its finalizer.

Source: pkg/controller/namespace.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from stower.controllers.objects import Object, ObjectStore, is_ending, name_of, namespace_of
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.times import SECOND_NS

LEASES: Final = "kube-node-lease"
FINALIZER: Final = "kubernetes"
NOT_SERVED: Final = (404, 405)
AGAIN_NS: Final = SECOND_NS


class _List(msgspec.Struct):
    items: list[msgspec.Raw] = []


class NamespaceController(BaseController):
    """One namespace is one key. Collections are emptied, then looked into until nothing is left."""

    name = "namespace-controller"
    kinds = ("namespaces", "customresourcedefinitions", "pods")

    def __init__(self, collections: Sequence[str]) -> None:
        """`collections`: paths of all kinds in namespaces, `{}` for the namespace."""
        self._collections = tuple(collections)
        self._left: dict[str, dict[str, None]] = {}  # what is not yet known to be empty
        self._emptied: dict[str, dict[str, None]] = {}
        self._due_ns: dict[str, int] = {}  # when to look again

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The namespace itself, or that of a pod that is gone."""
        if kind == "namespaces":
            return (name_of(obj),)
        if kind == "pods" and old is obj:
            return (namespace_of(obj),)
        return ()

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """One round of emptying."""
        obj = seen.get("namespaces", key)
        if obj is None or not is_ending(obj):
            self._left.pop(key, None)
            self._emptied.pop(key, None)
            self._due_ns.pop(key, None)
            if obj is None and key == LEASES:
                todo.create("namespaces", {"metadata": {"name": key}})  # nodes live by it
            return
        if FINALIZER not in (obj["spec"].get("finalizers") or ()):
            return
        emptied = self._emptied.setdefault(key, {})
        left = self._left.get(key)
        if left is None:
            left = self._left[key] = dict.fromkeys(self._paths(seen, key))
        new = [path for path in left if path not in emptied]
        if new:
            for path in new:
                todo.ask("DELETE", path)
            return
        if not left:
            del self._left[key], self._emptied[key]
            others = [f for f in obj["spec"]["finalizers"] if f != FINALIZER]
            todo.update("namespaces", {**obj, "spec": {"finalizers": others}}, "finalize")
            return
        if any(seen.list_namespace("pods", key)):
            return  # their end wakes this
        due_ns = self._due_ns.get(key, 0)
        if due_ns <= todo.now_ns:  # not at once after each answer
            for path in left:
                todo.ask("GET", path, limit="1")
            due_ns = self._due_ns[key] = todo.now_ns + AGAIN_NS
        todo.requeue_at(due_ns)

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
        """A collection was emptied, or looked into."""
        empty = status in NOT_SERVED
        if method == "DELETE" and (status in (200, 202) or empty):
            self._emptied.setdefault(key, {})[path] = None
        if method == "GET" and status == 200:
            try:
                empty = not msgspec.json.decode(body, type=_List).items
            except (msgspec.DecodeError, UnicodeDecodeError):
                empty = False
        if empty:
            self._left.get(key, {}).pop(path, None)


def collections_of(paths: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Templates for (apiVersion, plural) pairs of kinds in namespaces; of several versions of a
    kind, the first one's."""
    found: dict[tuple[str, str], str] = {}
    for api_version, plural in paths:
        group, slash, _ = api_version.rpartition("/")
        base = "/apis/" if slash else "/api/"
        found.setdefault((group, plural), f"{base}{api_version}/namespaces/{{}}/{plural}")
    return tuple(found.values())
