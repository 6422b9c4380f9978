"""Adopts objects that match a controller's selector and have no controller; releases the others.

Source: pkg/controller/controller_ref_manager.go.
"""

from collections.abc import Callable

from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import is_finished, reference_to, selection, selects
from stower.controllers.runtime import ReconcileResult


class ControllerRefManager:
    """What objects of one kind do about those of another. Both are given as plurals.

    `is_member`: what an owner asks of an object besides its selector; `finalizer`: keeps owned
    objects until their end is counted; `finished`: whether pods that have ended are taken too, as
    they are where there is a finalizer.
    """

    def __init__(
        self,
        owners: str,
        kind: str,
        is_member: Callable[[Object, Object], bool] | None = None,
        finished: bool = False,
        finalizer: str = "",
    ) -> None:
        self._owners = owners
        self._kind = kind
        self._is_member = is_member
        self._finished = finished or bool(finalizer)
        self._finalizer = finalizer
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
            if self.matches(owner, obj)
        )
        self._wanted.update(dict.fromkeys(found))
        return found

    def matches(self, owner: Object, obj: Object) -> bool:
        """Whether the owner may own the object."""
        if not selects(owner["spec"].get("selector"), obj):
            return False
        return self._is_member is None or self._is_member(owner, obj)

    def settle(
        self, seen: ObjectStore, owner: Object, owned: list[Object], todo: ReconcileResult
    ) -> bool:
        """Take and let go; whether there was anything to do."""
        key = key_of(owner)
        selected = selection(owner["spec"].get("selector"))

        def matches(obj: Object) -> bool:
            return selected(obj) and (self._is_member is None or self._is_member(owner, obj))

        lost = [obj for obj in owned if not matches(obj) and not is_ending(obj)]
        for obj in lost:
            gone = {"$patch": "delete", "uid": uid_of(owner)}
            meta: Object = {"ownerReferences": [gone]}
            if self._finalizer:
                meta["$deleteFromPrimitiveList/finalizers"] = [self._finalizer]
            todo.patch(self._kind, obj, {"metadata": meta})
        if key not in self._wanted:
            return bool(lost)
        found = [
            obj
            for obj in seen.orphans(self._kind, namespace_of(owner))
            if not is_ending(obj)
            and (self._finished or self._kind != "pods" or not is_finished(obj))
            and matches(obj)
        ]
        for obj in found:
            reference = reference_to(owner, self._owners)
            meta = {"ownerReferences": [reference]}
            if self._finalizer:
                meta["finalizers"] = [self._finalizer]
            todo.patch(self._kind, obj, {"metadata": meta})
        if not found:
            del self._wanted[key]
        return bool(lost or found)
