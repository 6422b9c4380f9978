"""PreBind: pods that have their node, and wait until other objects agree before they are bound.

Source: kube-scheduler volumebinding BindPodVolumes, dynamicresources PreBind; where upstream polls,
this looks when something has changed.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from stower.engine.queue.entities import QueuedPod
from stower.framework.plugin import Plugin
from stower.framework.reservation import Pinned, Reservation
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import Write
from stower.model.kinds import ApiObject
from stower.state.cluster import ClusterState

DONE: Final = 0
AGAIN: Final = -1  # no part has waited for too long: ask again


class Waiting:
    """One pod, its node, and what it waits for."""

    __slots__ = ("again_ns", "failed", "node_name", "parts", "pending", "queued")

    def __init__(
        self, queued: QueuedPod, node_name: str, parts: list[tuple[Plugin, Reservation]]
    ) -> None:
        self.queued = queued
        self.node_name = node_name
        self.parts = parts
        self.pending: set[int] = set()
        self.failed = ""
        self.again_ns = 0  # when it was last to be looked at again


class PreBinding:
    """All pods that wait so."""

    def __init__(
        self,
        state: ClusterState,
        next_id: Callable[[], int],
        send: Callable[[Write], None],
        ready: Callable[[QueuedPod, str], None],
        failed: Callable[[QueuedPod, str], None],
    ) -> None:
        """`ready`: the pod may be bound; `failed`: it may not, and why."""
        self._state = state
        self._next_id = next_id
        self._send = send
        self._ready = ready
        self._failed = failed
        self._waiting: dict[str, Waiting] = {}
        self._being_bound: dict[str, Waiting] = {}
        self._by_write: dict[int, tuple[Waiting, Reservation]] = {}
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
    ) -> list[tuple[str, str]]:
        """Count on all of it, and write what has to be written. Events to tell of it."""
        waiting = Waiting(queued, node_name, parts)
        self._waiting[queued.entry.uid] = waiting
        for i, (_, part) in enumerate(parts):
            self._write(waiting, part)
            part.hold(self._state)
            for key in part.awaits:
                self._by_object.setdefault(key, {})[queued.entry.uid] = waiting
            heappush(self._deadlines, (now_ns + part.timeout_ns, self._next_id(), waiting, i))
        return [note for _, part in parts if (note := part.note())[0]]

    def _write(self, waiting: Waiting, part: Reservation) -> None:
        for write in part.writes(self._state, self._next_id):
            waiting.pending.add(write.id)
            self._by_write[write.id] = (waiting, part)
            self._send(write)
        again_ns = part.again_ns
        if again_ns is not None and again_ns != waiting.again_ns and self._is_waiting(waiting):
            waiting.again_ns = again_ns
            heappush(self._deadlines, (again_ns, self._next_id(), waiting, AGAIN))

    def begun(self, uid: str) -> None:
        """All that was to be done at first is done: it may have failed, or be enough."""
        waiting = self._waiting.get(uid)
        if waiting is not None:
            self._look(waiting)

    def answered(self, id: int, code: int, message: str, version: str = "") -> bool:
        """A write was carried out (`code` 0), or not. Whether it was one of these."""
        waiting, part = self._by_write.pop(id, (None, None))
        if waiting is None or part is None:
            return False
        waiting.pending.discard(id)
        if not part.answered(self._state, id, code, version):
            waiting.failed = waiting.failed or message or f"status {code}"
        if self._is_waiting(waiting):
            if part.again_ns is not None:
                heappush(self._deadlines, (part.again_ns, self._next_id(), waiting, AGAIN))
            self._look(waiting)
        elif code in (UNKNOWN, CONFLICT):
            # Nobody waits for it any more; but what may have been written must be known.
            self._write(waiting, part)
        return True

    def look(self, obj: ApiObject) -> None:
        """This has changed, which some may wait for."""
        key = (type(obj), obj.metadata.namespace, obj.metadata.name)
        for waiting in list(self._by_object.get(key, {}).values()):
            if self._is_waiting(waiting):
                self._look(waiting)

    def expire(self, now_ns: int) -> None:
        """Those that have waited for too long, or for what does not come."""
        while (due_ns := self.next_wake_ns) is not None and due_ns <= now_ns:
            _, _, waiting, i = heappop(self._deadlines)
            if i == AGAIN:
                self._look(waiting)
                continue
            plugin, part = waiting.parts[i]
            self._fail(waiting, plugin, part.expired)

    def drop(self, uid: str) -> None:
        """The pod is bound, or is not to be."""
        self._being_bound.pop(uid, None)
        waiting = self._forget(uid)
        if waiting is not None:
            for _, part in waiting.parts:
                part.release(self._state)
                self._write(waiting, part)

    def relies_on(self, uid: str) -> str:
        """The version of the pod that its binding relies on, "" for any."""
        waiting = self._being_bound.get(uid)
        parts = waiting.parts if waiting is not None else ()
        return next((p.relies_on for _, p in parts if isinstance(p, Pinned)), "")

    def renew(self, uid: str) -> bool:
        """The pod had changed when it was to be bound: what relied on it begins anew. Whether
        there is such a part, and it does."""
        waiting = self._being_bound.get(uid)
        pinned = [p for _, p in waiting.parts if isinstance(p, Pinned)] if waiting else []
        if waiting is None or not pinned or not all(part.renew(self._state) for part in pinned):
            return False
        del self._being_bound[uid]
        self._waiting[uid] = waiting
        for i, (_, part) in enumerate(waiting.parts):
            for key in part.awaits:
                self._by_object.setdefault(key, {})[uid] = waiting
            due_ns = self._state.now_ns + part.timeout_ns
            heappush(self._deadlines, (due_ns, self._next_id(), waiting, i))
            if part.again_ns is not None:
                heappush(self._deadlines, (part.again_ns, self._next_id(), waiting, AGAIN))
        self._look(waiting)
        return True

    def pod_changed(self, uid: str) -> None:
        """The pod itself is known in another version."""
        waiting = self._waiting.get(uid)
        if waiting is not None:
            self._look(waiting)

    def undo(self, uid: str) -> None:
        """The pod's binding has failed: take back what was written for it."""
        waiting = self._being_bound.pop(uid, None)
        for _, part in waiting.parts if waiting is not None else ():
            for write in part.undo(self._state, self._next_id):
                self._send(write)

    def cancel(self, uid: str, why: str) -> None:
        """The pod is to give its node up."""
        waiting = self._waiting[uid]
        self._fail(waiting, waiting.parts[0][0], why)

    def _forget(self, uid: str) -> Waiting | None:
        waiting = self._waiting.pop(uid, None)
        for _, part in waiting.parts if waiting is not None else ():
            for key in part.awaits:
                pods = self._by_object.get(key, {})
                pods.pop(uid, None)
                if not pods:
                    self._by_object.pop(key, None)
        return waiting

    def _is_waiting(self, waiting: Waiting) -> bool:
        return self._waiting.get(waiting.queued.entry.uid) is waiting

    def _look(self, waiting: Waiting) -> None:
        if waiting.failed and not waiting.pending:
            self._fail(waiting, waiting.parts[0][0], waiting.failed)
            return
        for plugin, part in waiting.parts:
            fault = part.fault(self._state) if not waiting.pending else ""
            if fault:
                self._fail(waiting, plugin, fault)
                return
            if not waiting.failed:
                self._write(waiting, part)
        if not waiting.pending and all(part.is_done(self._state) for _, part in waiting.parts):
            uid = waiting.queued.entry.uid
            self._forget(uid)
            self._being_bound[uid] = waiting
            self._ready(waiting.queued, waiting.node_name)

    def _fail(self, waiting: Waiting, plugin: Plugin, why: str) -> None:
        uid = waiting.queued.entry.uid
        self.drop(uid)
        self._being_bound[uid] = waiting
        self._failed(waiting.queued, f'running PreBind plugin "{plugin.name}": {why}')
