"""Adopts objects that match a controller's selector and have no controller; releases the others.

Source: pkg/controller/controller_ref_manager.go.
"""

from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import is_finished, reference_to, selects
from stower.controllers.runtime import ReconcileResult


class ControllerRefManager:
    """What objects of one kind do about those of another. Both are given as plurals."""

    def __init__(self, owners: str, kind: str) -> None:
        self._owners = owners
        self._kind = kind
        self._wanted: dict[str, None] = {}  # owners that there may be something for

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """Keys of the owners whose selector takes an object that nobody owns."""
        if kind == self._owners and old is None:
            self._wanted[key_of(obj)] = None
        if kind != self._kind or old is obj or owner_of(obj) is not None:
            return ()
        found = tuple(
            key_of(owner)
            for owner in seen.list_namespace(self._owners, namespace_of(obj))
            if selects(owner["spec"].get("selector"), obj)
        )
        self._wanted.update(dict.fromkeys(found))
        return found

    def settle(
        self, seen: ObjectStore, owner: Object, owned: list[Object], todo: ReconcileResult
    ) -> bool:
        """Take and let go; whether there was anything to do."""
        key, selector = key_of(owner), owner["spec"].get("selector")
        lost = [obj for obj in owned if not is_ending(obj) and not selects(selector, obj)]
        for obj in lost:
            gone = {"$patch": "delete", "uid": uid_of(owner)}
            todo.patch(self._kind, obj, {"metadata": {"ownerReferences": [gone]}})
        if key not in self._wanted:
            return bool(lost)
        found = [
            obj
            for obj in seen.orphans(self._kind, namespace_of(owner))
            if not is_ending(obj)
            and not (self._kind == "pods" and is_finished(obj))
            and selects(selector, obj)
        ]
        for obj in found:
            reference = reference_to(owner, self._owners)
            todo.patch(self._kind, obj, {"metadata": {"ownerReferences": [reference]}})
        if not found:
            del self._wanted[key]
        return bool(lost or found)
