"""PreBind: pods that have their node, and wait until other objects agree before they are bound.

Source: kube-scheduler volumebinding BindPodVolumes; where upstream polls, this looks when something
has changed.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from stower.engine.queue import QueuedPod
from stower.framework.plugin import Plugin
from stower.framework.reserve import Reservation
from stower.framework.writes import Write
from stower.model.kinds import ApiObject
from stower.state.cluster import ClusterState


class Waiting:
    """One pod, its node, and what it waits for."""

    __slots__ = ("failed", "node_name", "parts", "pending", "queued")

    def __init__(
        self, queued: QueuedPod, node_name: str, parts: list[tuple[Plugin, Reservation]]
    ) -> None:
        self.queued = queued
        self.node_name = node_name
        self.parts = parts
        self.pending: set[int] = set()
        self.failed = ""


class PreBinding:
    """All pods that wait so."""

    def __init__(
        self,
        state: ClusterState,
        next_id: Callable[[], int],
        ready: Callable[[QueuedPod, str], None],
        failed: Callable[[QueuedPod, str], None],
    ) -> None:
        """`ready`: the pod may be bound; `failed`: it may not, and why."""
        self._state = state
        self._next_id = next_id
        self._ready = ready
        self._failed = failed
        self._waiting: dict[str, Waiting] = {}
        self._by_write: dict[int, Waiting] = {}
        self._by_object: dict[tuple[type, str, str], dict[str, Waiting]] = {}
        self._deadlines: list[tuple[int, int, Waiting, int]] = []  # due, turn, whose, which part

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, uid: str) -> bool:
        return uid in self._waiting

    def uids(self) -> list[str]:
        """Who waits."""
        return list(self._waiting)

    @property
    def is_writing(self) -> bool:
        """Whether a write is not answered yet."""
        return bool(self._by_write)

    @property
    def next_wake_ns(self) -> int | None:
        """When the first of them has waited for too long."""
        while self._deadlines and not self._is_waiting(self._deadlines[0][2]):
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def begin(
        self,
        queued: QueuedPod,
        node_name: str,
        parts: list[tuple[Plugin, Reservation]],
        now_ns: int,
    ) -> list[Write]:
        """Count on all of it; what has to be written."""
        waiting = Waiting(queued, node_name, parts)
        self._waiting[queued.entry.uid] = waiting
        writes: list[Write] = []
        for i, (_, part) in enumerate(parts):
            writes += part.writes(self._state, self._next_id)
            part.hold(self._state)
            for key in part.awaits:
                self._by_object.setdefault(key, {})[queued.entry.uid] = waiting
            heappush(self._deadlines, (now_ns + part.timeout_ns, self._next_id(), waiting, i))
        for write in writes:
            waiting.pending.add(write.id)
            self._by_write[write.id] = waiting
        return writes

    def begun(self, uid: str) -> None:
        """All that was to be done at first is done: it may have failed, or be enough."""
        waiting = self._waiting.get(uid)
        if waiting is not None:
            self._look(waiting)

    def answered(self, id: int, error: str) -> bool:
        """A write was carried out, or not (`error`). Whether it was one of these."""
        waiting = self._by_write.pop(id, None)
        if waiting is None:
            return False
        waiting.pending.discard(id)
        waiting.failed = waiting.failed or error
        if self._is_waiting(waiting):
            self._look(waiting)
        return True

    def look(self, obj: ApiObject) -> None:
        """This has changed, which some may wait for."""
        key = (type(obj), obj.metadata.namespace, obj.metadata.name)
        for waiting in list(self._by_object.get(key, {}).values()):
            if self._is_waiting(waiting):
                self._look(waiting)

    def expire(self, now_ns: int) -> None:
        """Those that have waited for too long."""
        while (due_ns := self.next_wake_ns) is not None and due_ns <= now_ns:
            _, _, waiting, i = heappop(self._deadlines)
            plugin, part = waiting.parts[i]
            self._fail(waiting, plugin, f"{part.doing}: context deadline exceeded")

    def drop(self, uid: str) -> None:
        """The pod is bound, or is not to be."""
        waiting = self._forget(uid)
        if waiting is not None:
            for _, part in waiting.parts:
                part.release(self._state)

    def cancel(self, uid: str, why: str) -> None:
        """The pod is to give its node up."""
        waiting = self._waiting[uid]
        self._fail(waiting, waiting.parts[0][0], why)

    def _forget(self, uid: str) -> Waiting | None:
        waiting = self._waiting.pop(uid, None)
        for _, part in waiting.parts if waiting is not None else ():
            for key in part.awaits:
                self._by_object[key].pop(uid, None)
                if not self._by_object[key]:
                    del self._by_object[key]
        return waiting

    def _is_waiting(self, waiting: Waiting) -> bool:
        return self._waiting.get(waiting.queued.entry.uid) is waiting

    def _look(self, waiting: Waiting) -> None:
        if waiting.pending:
            return
        if waiting.failed:
            self._fail(waiting, waiting.parts[0][0], waiting.failed)
            return
        for plugin, part in waiting.parts:
            fault = part.fault(self._state)
            if fault:
                self._fail(waiting, plugin, f"{part.doing}: {fault}")
                return
        if all(part.is_done(self._state) for _, part in waiting.parts):
            self._forget(waiting.queued.entry.uid)
            self._ready(waiting.queued, waiting.node_name)

    def _fail(self, waiting: Waiting, plugin: Plugin, why: str) -> None:
        self.drop(waiting.queued.entry.uid)
        self._failed(waiting.queued, f'running PreBind plugin "{plugin.name}": {why}')
