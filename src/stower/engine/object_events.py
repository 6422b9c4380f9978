"""Changes of volumes and devices: to the state, to those that wait for them, to the queue."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from stower.engine.binding.pending_writes import Settling
from stower.engine.binding.pre_bind import PreBinding
from stower.engine.groups.group_status import GroupTelling
from stower.engine.groups.tree_queue import Trees
from stower.engine.queue.scheduling_queue import Queue
from stower.framework.cluster_events import STORE_CHANGES, Change, Happened
from stower.model.kinds import (
    DEVICES,
    GROUPS,
    NEGOTIATING,
    STORAGE,
    ApiObject,
    GroupObject,
    PodScheduling,
    ResourceClaim,
)
from stower.state.cluster import ClusterState
from stower.state.devices import extended_owner

STORED: Final = (*STORAGE, *DEVICES, *GROUPS, *NEGOTIATING)


def each(
    objects: Iterable[ApiObject],
    kind: type[ApiObject] | tuple[type[ApiObject], ...],
    take: Callable[..., None],
) -> None:
    """Take the objects of a kind."""
    for obj in objects:
        if isinstance(obj, kind):
            take(obj)


def _gives_back(old: Any, new: Any) -> bool:
    """Whether devices that a claim had are free, for whoever waits for such."""
    if old is None or extended_owner(old):
        return old is not None
    had, has = old.status.allocation, new.status.allocation if new is not None else None
    return had is not None and has is None


def _says_other(old: GroupObject, new: GroupObject) -> bool:
    """Whether more than a group's status has changed: what it says of itself."""
    was, now = old.metadata, new.metadata
    return old.spec != new.spec or (was.labels, was.annotations, was.uid) != (
        now.labels, now.annotations, now.uid,
    )  # fmt: skip


class StoreEvents:
    """What the engine is told of claims, and of what claims are met with."""

    def __init__(
        self,
        state: ClusterState,
        queue: Queue,
        pre_binding: PreBinding,
        settling: Settling,
        trees: Trees,
        telling: GroupTelling,
    ) -> None:
        self._telling = telling
        self._trees = trees
        self._state = state
        self._queue = queue
        self._pre_binding = pre_binding
        self._settling = settling

    def observed(self, obj: ApiObject, gone: bool, now_ns: int) -> None:
        """One has changed. What is neither is nobody's concern."""
        store = self._store(obj)
        if store is None:
            return
        old = store.seen(obj)
        if gone:
            store.drop(obj)
        else:
            store.put(obj)
        self._pre_binding.look(obj)
        self._settling.seen(obj, gone)
        if isinstance(obj, GROUPS):
            if gone or old is None or _says_other(old, obj):
                self._trees.group_changed(obj)
            self._telling.seen(obj, gone)
        added, updated, deleted = STORE_CHANGES[type(obj)]
        change = deleted if gone else added if old is None else updated
        if change and self._queue.is_waiting:
            new = None if gone else obj
            happened = Happened(change, old_object=old, object=new)
            if isinstance(obj, PodScheduling):
                queued = self._queue.get(self._state.uid_by_key.get(obj.metadata.key, ""))
                if queued is not None:
                    self._queue.update(queued, happened, now_ns)
                return
            own = isinstance(obj, ResourceClaim) and not _gives_back(old, new)
            self._queue.wake(happened, now_ns, obj.metadata.key if own else "")

    def given_back(self, now_ns: int) -> None:
        """Devices are free of which the API never knew that they were not: no event will say so."""
        devices = self._state.devices
        given_back, devices.given_back = devices.given_back, []
        for old in given_back if self._queue.is_waiting else ():
            seen = devices.seen_claim(old.metadata.key)
            change = Change.RESOURCE_CLAIM_UPDATED
            self._queue.wake(Happened(change, old_object=old, object=seen), now_ns)

    def listed(self, objects: Iterable[ApiObject], now_ns: int) -> None:
        """These are all there are."""
        found = [obj for obj in objects if isinstance(obj, STORED)]
        names = {(type(o), o.metadata.namespace, o.metadata.name) for o in found}
        stores: tuple[Any, ...] = (
            self._state.volumes, self._state.devices, self._state.groups,
            self._state.negotiations,
        )  # fmt: skip
        for known in [obj for store in stores for obj in store.known()]:
            if (type(known), known.metadata.namespace, known.metadata.name) not in names:
                self.observed(known, True, now_ns)
        for obj in found:
            store = self._store(obj)
            if store is not None and store.seen(obj) != obj:
                self.observed(obj, False, now_ns)

    def _store(self, obj: ApiObject) -> Any:
        """Where objects of the kind are kept."""
        if isinstance(obj, STORAGE):
            return self._state.volumes
        if isinstance(obj, NEGOTIATING):
            return self._state.negotiations
        if isinstance(obj, GROUPS):
            return self._state.groups
        return self._state.devices if isinstance(obj, DEVICES) else None
