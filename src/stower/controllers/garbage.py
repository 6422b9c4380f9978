"""Garbage collector: deletes objects whose owners are all deleted, and handles deletion finalizers.

Foreground deletion waits for the dependents; orphan deletion removes the references to the owner.
An owner that is not in the store may only be unseen yet: an object is deleted only after its owners
are known to be deleted (absence.py).

Source: pkg/controller/garbagecollector.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.absence import AbsenceCache
from stower.controllers.objects import (
    PLURAL_OF,
    RESOURCES,
    Object,
    ObjectStore,
    is_ending,
    key_of,
    namespace_of,
    uid_of,
)
from stower.controllers.runtime import BaseController, ReconcileResult

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
PARTS: Final = ("podschedulings",)  # nothing without their owner, which cannot be taken away
SKIPPED: Final = ("customresourcedefinitions", "storageclasses")  # nobody owns them


class GarbageCollector(BaseController):
    """A key is kind/key of an object."""

    name = "generic-garbage-collector"
    kinds = tuple(kind for kind in RESOURCES if kind not in SKIPPED)

    def __init__(self, kinds: tuple[str, ...] = kinds) -> None:
        self.kinds = kinds
        self._dependents: dict[str, dict[str, None]] = {}  # by uid of the owner
        self._absence = AbsenceCache()

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The object, and with one that ends or is gone, its dependents and owners."""
        own = f"{kind}/{key_of(obj)}"
        references = obj["metadata"].get("ownerReferences") or ()
        if old is not None and old is not obj:
            for reference in old["metadata"].get("ownerReferences") or ():
                self._dependents.get(reference["uid"], {}).pop(own, None)
        for reference in references:
            self._dependents.setdefault(reference["uid"], {})[own] = None
        gone = old is obj
        keys: dict[str, None] = {}
        if is_ending(obj) or gone:
            keys.update(self._dependents.get(uid_of(obj), {}))
            for reference in references:
                owner = _owner(seen, obj, reference)
                if owner is not None and is_ending(owner[1]):
                    keys[f"{owner[0]}/{key_of(owner[1])}"] = None
        if gone:
            self._dependents.pop(uid_of(obj), None)
            for reference in references:
                of_owner = self._dependents.get(reference["uid"], {})
                of_owner.pop(own, None)
        elif is_ending(obj) or (
            references and (old is None or old["metadata"].get("ownerReferences") != references)
        ):
            keys[own] = None
        return tuple(keys)

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Delete it where all its owners are gone; let it go where its dependents are."""
        kind, _, name = key.partition("/")
        obj = seen.get(kind, name)
        if obj is None:
            return
        if is_ending(obj):
            self._remove_finalizer(seen, kind, obj, todo)
            return
        references = obj["metadata"].get("ownerReferences") or ()
        owners = [_owner(seen, obj, reference) for reference in references]
        if not owners or any(_unknown(obj, reference) for reference in references):
            return  # of a kind that is not looked at: it may well be there
        missing = [r for r, owner in zip(references, owners, strict=True) if owner is None]
        gone = [r for r in missing if self._is_gone(seen, obj, r, key, todo)]
        if any(owner is not None and not _waits_for_dependents(owner[1]) for owner in owners):
            if gone:
                rest = [reference for reference in references if reference not in gone]
                todo.replace_metadata(kind, obj, ownerReferences=rest)
            return
        if len(gone) < len(missing):
            return
        waited_for = any(owner is not None for owner in owners)
        todo.delete(kind, obj, policy="Foreground" if waited_for else "Background")

    def handle_answer(self, key: str, method: str, path: str, status: int, body: bytes) -> None:
        """Whether an owner is there."""
        self._absence.handle_answer(key, path, status, body)

    def _is_gone(
        self, seen: ObjectStore, obj: Object, reference: Object, key: str, todo: ReconcileResult
    ) -> bool:
        kind = PLURAL_OF[reference["apiVersion"], reference["kind"]]
        namespace = namespace_of(obj) if RESOURCES[kind].namespaced else ""
        name, uid = reference["name"], reference["uid"]
        return self._absence.is_gone(seen, kind, namespace, name, uid, key, todo)

    def _remove_finalizer(
        self, seen: ObjectStore, kind: str, obj: Object, todo: ReconcileResult
    ) -> None:
        finalizers = obj["metadata"].get("finalizers") or ()
        dependents = [
            found
            for key in self._dependents.get(uid_of(obj), {})
            if (found := _find(seen, key)) is not None
        ]
        if ORPHAN in finalizers:
            for dependent_kind, dependent in dependents:
                if dependent_kind in PARTS:
                    todo.delete(dependent_kind, dependent)
                    continue
                others = [
                    r for r in dependent["metadata"]["ownerReferences"] if r["uid"] != uid_of(obj)
                ]
                todo.replace_metadata(dependent_kind, dependent, ownerReferences=others)
            if not dependents:
                self._remove(kind, obj, ORPHAN, todo)
        elif FOREGROUND in finalizers:
            blocking = [
                dependent
                for _, dependent in dependents
                if any(
                    r["uid"] == uid_of(obj) and r.get("blockOwnerDeletion")
                    for r in dependent["metadata"]["ownerReferences"]
                )
            ]
            if not blocking:
                self._remove(kind, obj, FOREGROUND, todo)

    def _remove(self, kind: str, obj: Object, finalizer: str, todo: ReconcileResult) -> None:
        others = [other for other in obj["metadata"]["finalizers"] if other != finalizer]
        todo.replace_metadata(kind, obj, finalizers=others)


def _find(seen: ObjectStore, key: str) -> tuple[str, Object] | None:
    kind, _, name = key.partition("/")
    obj = seen.get(kind, name)
    return None if obj is None else (kind, obj)


def _owner(seen: ObjectStore, obj: Object, reference: Object) -> tuple[str, Object] | None:
    kind = PLURAL_OF.get((reference["apiVersion"], reference["kind"]))
    if kind is None:
        return None
    namespace = obj["metadata"].get("namespace")
    name = reference["name"]
    key = f"{namespace}/{name}" if RESOURCES[kind].namespaced and namespace else name
    owner = seen.get(kind, key)
    return (kind, owner) if owner is not None and uid_of(owner) == reference["uid"] else None


def _unknown(obj: Object, reference: Object) -> bool:
    kind = PLURAL_OF.get((reference["apiVersion"], reference["kind"]))
    if kind is None or kind in SKIPPED:
        return True
    # What is in no namespace can have no owner in one: nobody can tell which is meant.
    return RESOURCES[kind].namespaced and not namespace_of(obj)


def _waits_for_dependents(owner: Object) -> bool:
    return is_ending(owner) and FOREGROUND in (owner["metadata"].get("finalizers") or ())
