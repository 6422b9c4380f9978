"""Garbage collector: deletes objects whose owners are all deleted, and handles deletion finalizers.

Foreground deletion waits for the dependents; orphan deletion removes the references to the owner.
A custom kind is a kind like any other, from when it is defined. An owner that is not in the store
may only be unseen yet: an object is deleted only after its owners are known to be deleted
(absence.py).

Source: pkg/controller/garbagecollector.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.absence import AbsenceCache
from stower.controllers.event_recorder import EventRecorder
from stower.controllers.objects import (
    RESOURCES,
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.times import SECOND_NS

EVENT_SOURCE: Final = "garbage-collector-controller"
FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
PARTS: Final = ("podschedulings",)  # nothing without their owner, which cannot be taken away
# How long a finalizer stays while the dependents of a custom kind cannot be listed. Upstream waits
# as long for its caches.
LISTING_NS: Final = 30 * SECOND_NS
LISTING_RETRY_NS: Final = SECOND_NS


class GarbageCollector(BaseController):
    """A key is kind/key of an object."""

    name = "generic-garbage-collector"
    kinds = tuple(RESOURCES)
    has_custom_kinds = True

    def __init__(self, kinds: tuple[str, ...] = kinds) -> None:
        self.kinds = kinds
        self._dependents: dict[str, dict[str, None]] = {}  # by uid of the owner
        # Keys of objects with an owner of a kind that is not known, by its apiVersion and kind.
        self._unresolved: dict[tuple[str, str], dict[str, None]] = {}
        self._absence = AbsenceCache()
        self._events = EventRecorder(EVENT_SOURCE)

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The object, and with one that ends or is gone, its dependents and owners."""
        own = f"{kind}/{key_of(obj)}"
        references = obj["metadata"].get("ownerReferences") or ()
        before = () if old is None else old["metadata"].get("ownerReferences") or ()
        if old is not obj:
            for reference in before:
                self._dependents.get(reference["uid"], {}).pop(own, None)
        for reference in references:
            self._dependents.setdefault(reference["uid"], {})[own] = None
        gone = old is obj
        keys: dict[str, None] = {}
        if is_ending(obj) or gone:
            keys.update(self._dependents.get(uid_of(obj), {}))
            keys.update(_ending_owners(seen, obj, references))
        elif before and before != references:
            keys.update(_ending_owners(seen, obj, before))  # they may wait for it no longer
        if gone:
            self._dependents.pop(uid_of(obj), None)
            for reference in references:
                of_owner = self._dependents.get(reference["uid"], {})
                of_owner.pop(own, None)
                owner_type = reference["apiVersion"], reference["kind"]
                self._unresolved.get(owner_type, {}).pop(own, None)
        elif is_ending(obj) or (references and before != references):
            keys[own] = None
        return tuple(keys)

    def custom_kind_keys(self, seen: ObjectStore, kind: str) -> Iterable[str]:
        """The objects with an owner of a kind that was not known until now."""
        resource = seen.custom.get(kind)
        if resource is None or not self._unresolved:
            return ()
        keys: dict[str, None] = {}
        for version in (resource.api_version, *resource.also):
            keys.update(self._unresolved.pop((version, resource.kind), {}))
        return tuple(keys)

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Delete it where all its owners are gone; let it go where its dependents are."""
        found = _find(seen, key)
        if found is None:
            return
        kind, obj = found
        if is_ending(obj):
            self._remove_finalizer(seen, kind, obj, todo)
            return
        references = obj["metadata"].get("ownerReferences") or ()
        for reference in references:
            if _owner(seen, obj, reference) is None and _is_elsewhere(seen, obj, reference):
                self._report_elsewhere(kind, obj, reference, todo)
        if not references or self._has_unknown_owner(seen, kind, obj, key):
            return
        owners = [_owner(seen, obj, reference) for reference in references]
        missing = [r for r, owner in zip(references, owners, strict=True) if owner is None]
        gone = [r for r in missing if self._is_gone(seen, obj, r, key, todo)]
        waiting = [
            reference
            for reference, owner in zip(references, owners, strict=True)
            if owner is not None and _waits_for_dependents(owner[1])
        ]
        if any(owner is not None and not _waits_for_dependents(owner[1]) for owner in owners):
            if gone or waiting:
                rest = [r for r in references if r not in gone and r not in waiting]
                todo.replace_metadata(kind, obj, ownerReferences=rest)
        elif len(gone) == len(missing):
            self._delete(seen, kind, obj, waiting, todo)

    def _report_elsewhere(
        self, kind: str, obj: Object, reference: Object, todo: ReconcileResult
    ) -> None:
        namespace = namespace_of(obj)
        owner = (
            f"[{reference['apiVersion']}/{reference['kind']}, namespace: {namespace}, "
            f"name: {reference['name']}, uid: {reference['uid']}]"
        )
        text = f'ownerRef {owner} does not exist in namespace "{namespace}"'
        self._events.record_state(todo, kind, obj, "Warning", "OwnerRefInvalidNamespace", text)

    def _delete(
        self,
        seen: ObjectStore,
        kind: str,
        obj: Object,
        waiting: list[Object],
        todo: ReconcileResult,
    ) -> None:
        """Deletes an object that no owner holds. `waiting`: references to owners that wait for it.

        In a circle of owners, one of its dependents waits already: it then blocks none of its own
        owners, or all would wait for each other.
        """
        dependents = [found for _, found in self._find_dependents(seen, obj)]
        if waiting and dependents:
            if any(map(_waits_for_dependents, dependents)) and any(
                reference.get("blockOwnerDeletion") for reference in waiting
            ):
                freed = [
                    {**reference, "blockOwnerDeletion": False}
                    for reference in obj["metadata"]["ownerReferences"]
                ]
                todo.replace_metadata(kind, obj, ownerReferences=freed)
                return  # deleted when that is done
            todo.delete(kind, obj, policy="Foreground")
            return
        finalizers = obj["metadata"].get("finalizers") or ()
        todo.delete(
            kind,
            obj,
            policy="Orphan"
            if ORPHAN in finalizers
            else "Foreground"
            if FOREGROUND in finalizers
            else "Background",
        )

    def handle_answer(self, key: str, method: str, path: str, status: int, body: bytes) -> None:
        """Whether an owner is there."""
        self._absence.handle_answer(key, path, status, body)

    def _is_gone(
        self, seen: ObjectStore, obj: Object, reference: Object, key: str, todo: ReconcileResult
    ) -> bool:
        kind = seen.find_kind(reference["apiVersion"], reference["kind"])
        assert kind is not None  # _has_unknown_owner
        namespace = namespace_of(obj) if seen.resource(kind).namespaced else ""
        name, uid = reference["name"], reference["uid"]
        return self._absence.is_gone(seen, kind, namespace, name, uid, key, todo)

    def _find_dependents(self, seen: ObjectStore, obj: Object) -> list[tuple[str, Object]]:
        found = (_find(seen, key) for key in self._dependents.get(uid_of(obj), {}))
        return [dependent for dependent in found if dependent is not None]

    def _has_unknown_owner(self, seen: ObjectStore, kind: str, obj: Object, key: str) -> bool:
        """Whether some owner is of a kind that is not looked at, so that it may well be there."""
        for reference in obj["metadata"]["ownerReferences"]:
            owner_type = reference["apiVersion"], reference["kind"]
            owner_kind = seen.find_kind(*owner_type)
            if owner_kind is None:
                self._unresolved.setdefault(owner_type, {})[key] = None
                return True
            # What is in no namespace can have no owner in one: nobody can tell which is meant.
            if seen.resource(owner_kind).namespaced and not seen.resource(kind).namespaced:
                return True
        return False

    def _remove_finalizer(
        self, seen: ObjectStore, kind: str, obj: Object, todo: ReconcileResult
    ) -> None:
        finalizers = obj["metadata"].get("finalizers") or ()
        if ORPHAN not in finalizers and FOREGROUND not in finalizers:
            return
        if any(todo.now_ns - since_ns < LISTING_NS for since_ns in seen.unlisted.values()):
            todo.requeue_at(todo.now_ns + LISTING_RETRY_NS)  # there may be more dependents
            return
        dependents = self._find_dependents(seen, obj)
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
    if kind not in RESOURCES and kind not in seen.custom:
        return None
    obj = seen.get(kind, name)
    return None if obj is None else (kind, obj)


def _ending_owners(seen: ObjectStore, obj: Object, references: Iterable[Object]) -> dict[str, None]:
    """Keys of the owners that are being deleted."""
    owners = (_owner(seen, obj, reference) for reference in references)
    return {
        f"{kind}/{key_of(owner)}": None for kind, owner in filter(None, owners) if is_ending(owner)
    }


def _owner(seen: ObjectStore, obj: Object, reference: Object) -> tuple[str, Object] | None:
    kind = seen.find_kind(reference["apiVersion"], reference["kind"])
    if kind is None:
        return None
    namespace = obj["metadata"].get("namespace")
    name = reference["name"]
    key = f"{namespace}/{name}" if seen.resource(kind).namespaced and namespace else name
    owner = seen.get(kind, key)
    return (kind, owner) if owner is not None and uid_of(owner) == reference["uid"] else None


def _is_elsewhere(seen: ObjectStore, obj: Object, reference: Object) -> bool:
    """Whether an owner is in another namespace than the object, which may be in none."""
    kind = seen.find_kind(reference["apiVersion"], reference["kind"])
    if kind is None or not seen.resource(kind).namespaced or seen.is_gone(reference["uid"]):
        return False
    found = (
        seen.get(kind, f"{name_of(namespace)}/{reference['name']}")
        for namespace in seen.all("namespaces")
    )
    return any(owner is not None and uid_of(owner) == reference["uid"] for owner in found)


def _waits_for_dependents(owner: Object) -> bool:
    return is_ending(owner) and FOREGROUND in (owner["metadata"].get("finalizers") or ())
