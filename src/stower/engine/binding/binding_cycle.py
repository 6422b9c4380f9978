"""Bindings: sent, not answered yet, lost, or doubtful.

A binding of which nobody knows whether it was carried out keeps its pod's room and is sent again.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

from stower.engine.binding.permit import Together
from stower.engine.binding.pre_bind import PreBinding
from stower.engine.extenders.extender_calls import bind_error
from stower.engine.limits import Limits
from stower.engine.preemption.pod_eviction import Evictions
from stower.engine.queue.entities import QueuedPod
from stower.engine.queue.scheduling_queue import Queue
from stower.engine.status_reporter import Telling
from stower.framework.decisions import Outcome
from stower.framework.events import ExtenderAnswered, WriteFailed
from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import Bind, CallExtender, Write
from stower.model.kinds import Pod
from stower.state.cluster import ClusterState, PodEntry

# No answer, or a gateway's time-out: the write may have been carried out.
UNKNOWN_OUTCOME: Final = (0, UNKNOWN)


class Binders(Protocol):
    """Extenders that bind."""

    def binder(self, pod: Pod) -> int:
        """The extender that binds the pod, -1 for none."""

    def binder_is_ignorable(self, pod: Pod) -> bool:
        """Whether the pod is bound as usual where that extender fails."""


class Binds:
    """Of all pods."""

    def __init__(
        self,
        state: ClusterState,
        queue: Queue,
        limits: Limits,
        tell: Telling,
        pre_binding: PreBinding,
        together: Together,
        evictions: Evictions,
        next_id: Callable[[], int],
        send: Callable[[Write], None],
        give_up: Callable[[QueuedPod, str], None],
        take_back: Callable[[PodEntry], None],
    ) -> None:
        """`give_up`: the pod is not bound, and why; `take_back`: nobody has shown it on its
        node."""
        self._state = state
        self._queue = queue
        self._limits = limits
        self._tell = tell
        self._pre_binding = pre_binding
        self._together = together
        self._evictions = evictions
        self._next_id = next_id
        self._send = send
        self._give_up = give_up
        self._take_back = take_back
        self._waiting: dict[int, tuple[QueuedPod, str]] = {}  # unanswered, with their node
        self._resend: list[tuple[int, int, QueuedPod, str]] = []  # to send again, by time
        # Assumed pods of which nobody knows whether they were bound, until when they are believed.
        self._doubts: dict[str, int] = {}

    @property
    def is_open(self) -> bool:
        """Whether the outcome of some binding is not known yet."""
        return bool(self._waiting or self._resend or self._doubts)

    def dues(self) -> list[int]:
        """When something has to be done though nothing happens."""
        return [d for d, _, _, _ in self._resend[:1]] + [*self._doubts.values()][:1]

    def awaited(self) -> set[str]:
        """Pods that somebody answers for still."""
        awaited = {queued.entry.uid for queued, _ in self._waiting.values()}
        awaited |= {queued.entry.uid for _, _, queued, _ in self._resend}
        return awaited | {*self._pre_binding.uids(), *self._together.uids()}

    def doubt(self, entry: PodEntry) -> None:
        """Its bind may have been lost: it keeps its room for as long as a watch may need."""
        self._doubts.setdefault(entry.uid, self._state.now_ns + self._limits.doubt_ns)

    def believe(self, uid: str) -> None:
        """It is known what became of the pod."""
        self._doubts.pop(uid, None)

    def bind(self, queued: QueuedPod, node_name: str, binders: Binders | None) -> None:
        """Have the pod bound, by one of these where it is their business."""
        pod = queued.entry.pod
        meta = pod.metadata
        id = self._next_id()
        self._waiting[id] = (queued, node_name)
        binder = binders.binder(pod) if binders is not None else -1
        if binder >= 0:
            self._send(
                CallExtender(id, binder, "bind", meta.namespace, meta.name, meta.uid, (node_name,))
            )
            return
        version = self._pre_binding.relies_on(meta.uid)
        self._send(Bind(id, meta.namespace, meta.name, meta.uid, node_name, version))

    def send_again(self, binders: Binders) -> None:
        """Binds of which nobody knows whether they were carried out: the same once more."""
        while self._resend and self._resend[0][0] <= self._state.now_ns:
            _, _, queued, node_name = heappop(self._resend)
            entry = queued.entry
            if self._queue.get(entry.uid) is not queued or not entry.assumed:
                continue
            if entry.is_leaving or entry in self._evictions:
                self.doubt(entry)  # it was evicted meanwhile: the watch will say that it is gone
            else:
                self.bind(queued, node_name, binders)

    def take_back_doubtful(self) -> None:
        """Pods that no watch has shown on their node, and that nobody answers for, wait again.

        Otherwise their room would stay taken for ever.
        """
        while self._doubts:
            uid, due_ns = next(iter(self._doubts.items()))
            if due_ns > self._state.now_ns:
                return
            del self._doubts[uid]
            entry = self._state.pods.get(uid)
            if entry is not None and entry.assumed and uid not in self.awaited():
                self._take_back(entry)

    def done(self, id: int) -> bool:
        """A write was carried out. Whether it was one of these."""
        queued, node_name = self._waiting.pop(id, (None, ""))
        if queued is None:
            return False
        # Bound, even where it is gone by now. The entry stays assumed until the watch says so too.
        entry = queued.entry
        if entry.row >= 0 and self._queue.get(entry.uid) is queued:
            self._queue.remove(entry.uid)
        note = f"Successfully assigned {entry.pod.key} to {node_name}"
        self._tell.event(entry.pod, "Normal", "Scheduled", "Binding", note)
        return True

    def failed(self, event: WriteFailed) -> None:
        """A write was not carried out, or nobody knows; it may be none of these."""
        queued, node_name = self._waiting.pop(event.id, (None, ""))
        if queued is None or self._queue.get(queued.entry.uid) is not queued:
            return
        entry = queued.entry
        if not entry.assumed:
            return  # taken back meanwhile: it waits in the queue again
        message = f'running Bind plugin "DefaultBinder": {event.message}'
        if event.code in UNKNOWN_OUTCOME:
            queued.bind_tries += 1
            due_ns = self._state.now_ns + self._queue.delay_ns(queued.bind_tries)
            heappush(self._resend, (due_ns, event.id, queued, node_name))
            if queued.bind_tries == self._limits.bind_tries_silent:
                self._tell.decide(queued, Outcome.ERROR, message=message)
                self._tell.report(queued, "SchedulerError", message)
            return
        if event.code == CONFLICT and queued.bind_tries:
            # An earlier try may have bound it: the watch will show where the pod is, or that it is
            # gone. Until then its room stays taken.
            self.doubt(entry)
            return
        if event.code == CONFLICT and self._pre_binding.renew(entry.uid):
            return
        self._give_up(queued, message)

    def extender_answered(self, event: ExtenderAnswered, binders: Binders) -> bool:
        """An extender that binds has answered. True: the pod is bound."""
        queued, node_name = self._waiting.get(event.id, (None, ""))
        if queued is None:
            return False
        error = event.error or bind_error(event.body)
        if not error:
            return True
        del self._waiting[event.id]
        if self._queue.get(queued.entry.uid) is not queued or not queued.entry.assumed:
            return False
        if binders.binder_is_ignorable(queued.entry.pod):
            self.bind(queued, node_name, None)
        else:
            self._give_up(queued, error)
        return False
