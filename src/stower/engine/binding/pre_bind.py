"""PreBind: holds pods that have a node until the API objects show what their plugins reserved.

A reservation (a volume to bind, a device to allocate) writes what it needs, waits for objects to
show it, and has a deadline, after which the pod is unreserved and queued again. Where upstream
polls, this looks again when an object has changed. Must not know what plugins reserve.

Source: kube-scheduler volumebinding BindPodVolumes, dynamicresources PreBind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Final, Protocol

from stower.engine.context import Context
from stower.engine.due_work import DueWork
from stower.engine.outbox import UNTRACKED, Answer
from stower.engine.queue.entities import QueuedPod
from stower.framework.plugin import Plugin
from stower.framework.reservation import Reservation, oldest_version, versioned
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.model.kinds import ApiObject

RETRY: Final = -1  # in place of a reservation's index: no deadline, but time to look again

Parts = list[tuple[Plugin, Reservation]]


class WaitingPod:
    """A pod with its node, and the reservations that it waits for."""

    __slots__ = ("failure", "node_name", "parts", "queued", "retry_ns", "unanswered")

    def __init__(self, queued: QueuedPod, node_name: str, parts: Parts) -> None:
        self.queued = queued
        self.node_name = node_name
        self.parts = parts
        self.unanswered: set[int] = set()
        self.failure = ""
        self.retry_ns = 0  # when it was last scheduled to be looked at again


class PreBindListener(Protocol):
    """Receives the results of PreBind."""

    def on_pre_bind(self, queued: QueuedPod, node_name: str) -> None:
        """Called when the pod can be bound to the node as far as its reservations are concerned."""

    def fail(self, queued: QueuedPod, message: str) -> None:
        """Called when the pod cannot be bound."""


class PreBind:
    """Holds all pods in PreBind, by uid."""

    def __init__(self, context: Context, listener: PreBindListener) -> None:
        self._state = context.state
        self._outbox = context.outbox
        self._listener = listener
        self.waiting: dict[str, WaitingPod] = {}
        self.done: dict[str, WaitingPod] = {}  # pods that are not bound yet, by uid
        self._owners: dict[int, tuple[WaitingPod, Reservation]] = {}
        self._by_object: dict[tuple[type, str, str], dict[str, WaitingPod]] = {}
        self._deadlines: list[tuple[int, int, WaitingPod, int]] = []  # due, order, pod, which part
        self.is_suspended = False  # while the state is built again, no reservation is checked

    def __contains__(self, uid: str) -> bool:
        return uid in self.waiting

    @property
    def is_writing(self) -> bool:
        """Whether a write is not answered yet."""
        return bool(self._owners)

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which the first reservation is overdue, or has to be checked again."""
        while self._deadlines and not self._is_waiting(self._deadlines[0][2]):
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def begin(
        self, queued: QueuedPod, node_name: str, parts: Parts, now_ns: int
    ) -> list[tuple[str, str]]:
        """Holds all reservations and sends their first writes. Returns Events (reason, note)."""
        waiting = WaitingPod(queued, node_name, parts)
        self.waiting[queued.entry.uid] = waiting
        for i, (_, part) in enumerate(parts):
            self._write(waiting, part)
            part.assume(self._state)
            for key in part.awaited_objects:
                self._by_object.setdefault(key, {})[queued.entry.uid] = waiting
            due_ns = now_ns + part.timeout_ns
            heappush(self._deadlines, (due_ns, self._outbox.next_id(), waiting, i))
        return [note for _, part in parts if (note := part.waiting_event())[0]]

    def _write(self, waiting: WaitingPod, part: Reservation) -> None:
        for write in part.writes(self._state, self._outbox.next_id):
            waiting.unanswered.add(write.id)
            self._owners[write.id] = (waiting, part)
            self._outbox.send(write, self)
        retry_ns = part.retry_at_ns
        if retry_ns is not None and retry_ns != waiting.retry_ns and self._is_waiting(waiting):
            waiting.retry_ns = retry_ns
            heappush(self._deadlines, (retry_ns, self._outbox.next_id(), waiting, RETRY))

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Checks no reservation inside it, and all of them at its end."""
        self.is_suspended = True
        try:
            yield
        finally:
            self.is_suspended = False
        self.check_all()

    def check_all(self) -> None:
        """Checks all pods."""
        for uid in [*self.waiting]:
            self.check_pod(uid)

    def check_pod(self, uid: str) -> None:
        """Checks a pod once all of its decision was applied: it may have failed or be done."""
        waiting = self.waiting.get(uid)
        if waiting is not None:
            self._check(waiting)

    def handle_answer(self, answer: Answer) -> None:
        """Takes the answer to a reservation's write."""
        waiting, part = self._owners.pop(answer.id)
        waiting.unanswered.discard(answer.id)
        if not part.on_answer(self._state, answer.id, answer.code, answer.version):
            waiting.failure = waiting.failure or answer.reason or f"HTTP status {answer.code}"
        if self._is_waiting(waiting):
            if part.retry_at_ns is not None:
                next_id = self._outbox.next_id()
                heappush(self._deadlines, (part.retry_at_ns, next_id, waiting, RETRY))
            self._check(waiting)
        elif answer.code in (UNKNOWN, CONFLICT):
            # The pod does not wait any more; but what may have been written must be known.
            self._write(waiting, part)

    def on_object_change(self, obj: ApiObject) -> None:
        """Checks the pods whose reservations wait for the object."""
        if self.is_suspended:
            return
        key = (type(obj), obj.metadata.namespace, obj.metadata.name)
        for waiting in list(self._by_object.get(key, {}).values()):
            if self._is_waiting(waiting):
                self._check(waiting)

    def on_pod_change(self, uid: str) -> None:
        """Checks a pod whose own object changed, or whose status patch was answered."""
        if self.is_suspended:
            return
        waiting = self.waiting.get(uid)
        if waiting is not None:
            self._check(waiting)

    def due_work(self, now_ns: int) -> Iterator[DueWork]:
        """Fails pods whose reservations are overdue, and checks reservations again at their
        `retry_at_ns`."""
        while (due_ns := self.next_wake_ns) is not None and due_ns <= now_ns:
            _, order, waiting, i = heappop(self._deadlines)

            def do(waiting: WaitingPod = waiting, i: int = i) -> None:
                if i == RETRY:
                    self._check(waiting)
                else:
                    plugin, part = waiting.parts[i]
                    self._fail(waiting, plugin, part.timeout_message)

            def postpone(
                due_ns: int, order: int = order, waiting: WaitingPod = waiting, i: int = i
            ) -> None:
                heappush(self._deadlines, (due_ns, order, waiting, i))

            yield DueWork(waiting.queued.uid, do, postpone)

    def drop(self, uid: str) -> None:
        """Releases the reservations of a pod that is bound, or is not to be bound."""
        self.done.pop(uid, None)
        waiting = self._forget(uid)
        if waiting is not None:
            for _, part in waiting.parts:
                part.forget(self._state)
                self._write(waiting, part)

    def bind_version(self, uid: str) -> str:
        """Returns the resourceVersion of the pod that its binding relies on, "" for any: the
        oldest that one of its reservations relies on."""
        waiting = self.done.get(uid)
        return oldest_version(part for _, part in waiting.parts) if waiting is not None else ""

    def renew(self, uid: str) -> bool:
        """Begins PreBind again for a pod that had changed when it was to be bound. Returns False
        where no reservation is pinned to the pod's version, or one cannot be renewed."""
        waiting = self.done.get(uid)
        pinned = versioned(part for _, part in waiting.parts) if waiting else []
        if waiting is None or not pinned or not all(part.restart(self._state) for part in pinned):
            return False
        del self.done[uid]
        self.waiting[uid] = waiting
        for i, (_, part) in enumerate(waiting.parts):
            for key in part.awaited_objects:
                self._by_object.setdefault(key, {})[uid] = waiting
            due_ns = self._state.now_ns + part.timeout_ns
            heappush(self._deadlines, (due_ns, self._outbox.next_id(), waiting, i))
            if part.retry_at_ns is not None:
                next_id = self._outbox.next_id()
                heappush(self._deadlines, (part.retry_at_ns, next_id, waiting, RETRY))
        self._check(waiting)
        return True

    def undo(self, uid: str) -> None:
        """Takes back what was written for a pod whose binding failed."""
        waiting = self.done.pop(uid, None)
        for _, part in waiting.parts if waiting is not None else ():
            for write in part.unreserve(self._state, self._outbox.next_id):
                self._outbox.send(write, UNTRACKED)

    def cancel(self, uid: str, why: str) -> None:
        """Fails a pod that has to give up its node."""
        waiting = self.waiting[uid]
        self._fail(waiting, waiting.parts[0][0], why)

    def _forget(self, uid: str) -> WaitingPod | None:
        waiting = self.waiting.pop(uid, None)
        for _, part in waiting.parts if waiting is not None else ():
            for key in part.awaited_objects:
                pods = self._by_object.get(key, {})
                pods.pop(uid, None)
                if not pods:
                    self._by_object.pop(key, None)
        return waiting

    def _is_waiting(self, waiting: WaitingPod) -> bool:
        return self.waiting.get(waiting.queued.entry.uid) is waiting

    def _check(self, waiting: WaitingPod) -> None:
        """Sends the pod's due writes; ends PreBind when all conditions hold or one has failed."""
        if waiting.failure and not waiting.unanswered:
            self._fail(waiting, waiting.parts[0][0], waiting.failure)
            return
        for plugin, part in waiting.parts:
            fault = part.failure_reason(self._state) if not waiting.unanswered else ""
            if fault:
                self._fail(waiting, plugin, fault)
                return
            if not waiting.failure:
                self._write(waiting, part)
        if not waiting.unanswered and all(part.is_done(self._state) for _, part in waiting.parts):
            uid = waiting.queued.entry.uid
            self._forget(uid)
            self.done[uid] = waiting
            self._listener.on_pre_bind(waiting.queued, waiting.node_name)

    def _fail(self, waiting: WaitingPod, plugin: Plugin, why: str) -> None:
        uid = waiting.queued.entry.uid
        self.drop(uid)
        self.done[uid] = waiting
        self._listener.fail(waiting.queued, f'running PreBind plugin "{plugin.name}": {why}')
