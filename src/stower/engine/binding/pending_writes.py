"""Tracks writes for a pod (claims, PodScheduling) until the API server has answered them and the
watch has shown them. The pod is not retried before that.

Must not know what is negotiated.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

import msgspec

from stower.engine.context import Context
from stower.engine.due_work import DueWork
from stower.engine.outbox import Answer
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.negotiation import Wait
from stower.framework.retries import CONFLICT
from stower.framework.writes import CreateObject, ObjectWrite
from stower.model.kinds import ApiObject, Pod, ResourceClaim
from stower.model.times import SECOND_NS
from stower.state.devices import is_same_or_newer

# How long a change is awaited: after it was made, and after a conflict has shown that there is one.
# A watch that was cut is resumed within this.
ECHO_NS: Final = 30 * SECOND_NS
CONFLICT_NS: Final = 3 * SECOND_NS

_ObjectKey = tuple[type, str, str]  # view, namespace, name


class _PodWrites:
    """The unanswered writes and awaited objects of one pod."""

    __slots__ = ("awaited", "due_ns", "retries", "unanswered")

    def __init__(self) -> None:
        self.retries = False  # the pod is retried as soon as everything was seen
        self.unanswered: dict[int, tuple[_ObjectKey, str]] = {}  # with the version relied on
        self.awaited: dict[_ObjectKey, str] = {}  # the version that the watch has to show
        self.due_ns = 0

    def __lt__(self, other: "_PodWrites") -> bool:
        """Orders equal heap entries, where either order is right."""
        return False


class PendingWrites:
    """The pending writes of all pods, by uid."""

    def __init__(self, context: Context, queue: SchedulingQueue) -> None:
        self._state = context.state
        self._outbox = context.outbox
        self._queue = queue
        self.pods: dict[str, _PodWrites] = {}
        self._pod_of: dict[int, str] = {}  # by the id of an unanswered write
        self._by_object: dict[_ObjectKey, dict[str, None]] = {}
        # Pods that wait for a change of an object before they may write, both ways round.
        self._blockers: dict[str, tuple[type, str]] = {}
        self._blocked: dict[tuple[type, str], dict[str, None]] = {}
        self._deadlines: list[tuple[int, str, _PodWrites]] = []

    @property
    def is_open(self) -> bool:
        """Whether some write is not answered or not seen yet."""
        return bool(self._pod_of or self.pods)

    def begin(self, uid: str, wait: Wait) -> None:
        """Sends the writes of `wait` for the pod and tracks them."""
        self._unblock(uid)
        if wait.awaited_object is not None:
            self._blockers[uid] = wait.awaited_object
            self._blocked.setdefault(wait.awaited_object, {})[uid] = None
        for write in wait.writes:
            numbered = msgspec.structs.replace(write, id=self._outbox.next_id())
            view = write.view if isinstance(write, ObjectWrite) else Pod
            version = "" if isinstance(write, CreateObject) else write.resource_version
            key = (view, write.namespace, write.name)
            writes = self.pods.setdefault(uid, _PodWrites())
            writes.unanswered[numbered.id] = (key, version)
            writes.retries |= wait.is_retried_at_once
            self._pod_of[numbered.id] = uid
            self._outbox.send(numbered, self)

    def retry_when_seen(self, uid: str) -> None:
        """Has the pod retried once its writes were seen: an event came that may help it."""
        self.pods[uid].retries = True

    def handle_answer(self, answer: Answer) -> None:
        """Takes the answer to one of the writes, and awaits the object that it changed."""
        uid = self._pod_of.pop(answer.id)
        writes = self.pods.get(uid)
        found = writes.unanswered.pop(answer.id, None) if writes is not None else None
        if writes is None or found is None:
            return  # the pod was dropped meanwhile
        key, relied_on = found
        code, now_ns = answer.code, self._state.now_ns
        writes.retries |= code != 0
        if code == 0 and answer.version:
            self._await(uid, writes, key, answer.version, now_ns + ECHO_NS)
        elif code == CONFLICT:
            newer = str(int(relied_on) + 1) if relied_on.isdigit() else ""
            self._await(uid, writes, key, newer, now_ns + CONFLICT_NS)
        elif code:
            self._await(uid, writes, key, "", now_ns + CONFLICT_NS)
        self._finish_if_seen(uid, writes)

    def observe(self, obj: ApiObject, is_deleted: bool) -> None:
        """Takes an object that the watch has shown."""
        key = (type(obj), obj.metadata.namespace, obj.metadata.name)
        for uid in [*self._blocked.get((type(obj), obj.metadata.key), ())]:
            self._unblock(uid)
            self._retry(uid)
        for uid in [*self._by_object.get(key, ())]:
            writes = self.pods[uid]
            version = writes.awaited[key]
            # Where the awaited version is unknown, any change counts.
            if (
                is_deleted
                or not version
                or is_same_or_newer(obj.metadata.resource_version, version)
            ):
                self._stop_awaiting(uid, writes, key)
                self._finish_if_seen(uid, writes)

    @property
    def next_wake_ns(self) -> int | None:
        """The time at which the first awaited object is overdue."""
        deadlines = self._deadlines
        while deadlines and not self._is_valid(*deadlines[0]):
            heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def _is_valid(self, due_ns: int, uid: str, writes: _PodWrites) -> bool:
        return self.pods.get(uid) is writes and writes.due_ns == due_ns and bool(writes.awaited)

    def due_work(self) -> Iterator[DueWork]:
        """Stops waiting for objects that are overdue; their pods are retried."""
        now_ns = self._state.now_ns
        while (due_ns := self.next_wake_ns) is not None and due_ns <= now_ns:
            _, uid, writes = heappop(self._deadlines)

            def do(uid: str = uid, writes: _PodWrites = writes) -> None:
                for key in [*writes.awaited]:
                    self._stop_awaiting(uid, writes, key)
                writes.retries = True
                self._finish_if_seen(uid, writes)

            def postpone(due_ns: int, uid: str = uid, writes: _PodWrites = writes) -> None:
                writes.due_ns = due_ns
                heappush(self._deadlines, (due_ns, uid, writes))

            yield DueWork(uid, do, postpone)

    def drop(self, uid: str) -> None:
        """Forgets a pod that is bound or deleted."""
        self._unblock(uid)
        writes = self.pods.pop(uid, None)
        for key in [*writes.awaited] if writes is not None else ():
            self._stop_awaiting(uid, writes, key)

    def _unblock(self, uid: str) -> None:
        key = self._blockers.pop(uid, None)
        if key is not None:
            waiting = self._blocked[key]
            del waiting[uid]
            if not waiting:
                del self._blocked[key]

    def _await(
        self, uid: str, writes: _PodWrites, key: _ObjectKey, version: str, due_ns: int
    ) -> None:
        known = self._known_version(*key)
        if known and version and is_same_or_newer(known, version):
            return
        writes.awaited[key] = version
        writes.due_ns = max(writes.due_ns, due_ns)
        heappush(self._deadlines, (writes.due_ns, uid, writes))
        self._by_object.setdefault(key, {})[uid] = None

    def _stop_awaiting(self, uid: str, writes: _PodWrites | None, key: _ObjectKey) -> None:
        if writes is not None:
            del writes.awaited[key]
        users = self._by_object[key]
        del users[uid]
        if not users:
            del self._by_object[key]

    def _finish_if_seen(self, uid: str, writes: _PodWrites) -> None:
        if not writes.unanswered and not writes.awaited:
            del self.pods[uid]
            if writes.retries:
                self._retry(uid)

    def _retry(self, uid: str) -> None:
        queued = self._queue.get(uid)
        if queued is not None:
            self._queue.activate(queued.tree or queued, self._state.now_ns)

    def _known_version(self, view: type, namespace: str, name: str) -> str:
        """Returns the resourceVersion in which an object is known, or ""."""
        key = f"{namespace}/{name}"
        state = self._state
        if view is Pod:
            entry = state.pods.get(state.uid_by_key.get(key, ""))
            return entry.pod.metadata.resource_version if entry is not None else ""
        is_claim = view is ResourceClaim
        found = state.devices.api_claim(key) if is_claim else state.negotiations.pod_scheduling(key)
        return found.metadata.resource_version if found is not None else ""
