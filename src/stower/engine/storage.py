"""Changes of what volumes are made of: to the state, to those that wait for them, to the queue."""

from collections.abc import Iterable

from stower.engine.pre_binding import PreBinding
from stower.engine.queue import Queue
from stower.framework.changes import STORAGE_CHANGES, Happened
from stower.model.kinds import STORAGE, ApiObject, Storage
from stower.state.cluster import ClusterState


class StorageEvents:
    """What the engine is told of claims, volumes, classes and drivers."""

    def __init__(self, state: ClusterState, queue: Queue, pre_binding: PreBinding) -> None:
        self._state = state
        self._queue = queue
        self._pre_binding = pre_binding

    def observed(self, obj: Storage, gone: bool, now_ns: int) -> None:
        """One has changed."""
        volumes = self._state.volumes
        old = volumes.seen(obj)
        if gone:
            volumes.drop(obj)
        else:
            volumes.put(obj)
        if self._pre_binding:
            self._pre_binding.look(obj)
        added, updated, deleted = STORAGE_CHANGES[type(obj)]
        change = deleted if gone else added if old is None else updated
        if change and self._queue.is_waiting:
            happened = Happened(change, old_object=old, object=None if gone else obj)
            self._queue.wake(happened, now_ns)

    def listed(self, objects: Iterable[ApiObject], now_ns: int) -> None:
        """These are all there are."""
        found = [obj for obj in objects if isinstance(obj, STORAGE)]
        names = {(type(o), o.metadata.namespace, o.metadata.name) for o in found}
        for known in list(self._state.volumes.known()):
            if (type(known), known.metadata.namespace, known.metadata.name) not in names:
                self.observed(known, True, now_ns)
        for obj in found:
            if self._state.volumes.seen(obj) != obj:
                self.observed(obj, False, now_ns)
