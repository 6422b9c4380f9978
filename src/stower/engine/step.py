"""The engine's one entry: an event and the time go in, writes come out.

Same events, seed, times and configuration: same writes, byte for byte. Never blocks, logs, or
reads a clock; every write is answered later by WriteOk or WriteFailed; `next_wake_ns` says when
to send a Tick.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from stower.engine.cycle import Cycle
from stower.engine.decisions import Decision, Outcome
from stower.engine.limits import Limits
from stower.engine.queue import Queue, QueuedPod
from stower.framework.changes import Change, Happened, is_scaled_down, node_change, own_change
from stower.framework.events import (
    Event,
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.profile import Profile
from stower.framework.reasons import Diagnosis
from stower.framework.writes import Bind, CreateEvent, PatchPodStatus, Write
from stower.model.errors import InvalidObject, InvariantError
from stower.model.kinds import ApiObject, Node, Pod
from stower.model.kinds.pod import PodCondition
from stower.state.cluster import ClusterState, PodEntry

POD_SCHEDULED: Final = "PodScheduled"


class Engine:
    """A scheduler over one state, for all its profiles."""

    def __init__(
        self, profiles: Mapping[str, Profile], seed: int = 0, limits: Limits | None = None
    ) -> None:
        """`profiles` by scheduler name; a pod of any other scheduler is only counted."""
        self.profiles = dict(profiles)
        self.limits = limits or Limits()
        self.state = ClusterState()
        self.queue = Queue(self.limits)
        self.cycle = Cycle(self.state, seed)
        self.now_ns = 0
        self._next_id = 1
        self._waiting: dict[int, QueuedPod] = {}  # binds that are not yet answered
        self._decisions: deque[Decision] = deque(maxlen=self.limits.decisions_max)
        self._writes: list[Write] = []
        self._reported: dict[int, QueuedPod] = {}  # conditions that are not yet answered

    def step(self, event: Event, now_ns: int) -> list[Write]:
        """Apply one event, run the cycles that it allows, return the writes in sending order.

        `now_ns` may not go back. Raises InvariantError only for a bug of ours.
        """
        if now_ns < self.now_ns:
            raise InvariantError(f"clock went back: {now_ns=} < {self.now_ns=}")
        self.now_ns = now_ns
        self._writes = []
        HANDLERS[type(event)](self, event)
        self._run_cycles()
        return self._writes

    @property
    def next_wake_ns(self) -> int | None:
        """When to send a Tick if nothing happens before; None where only an event can help."""
        due = self.queue.next_wake_ns
        return None if due is None else max(due, self.now_ns)

    def drain(self) -> list[Decision]:
        """The decisions since the last call, oldest first."""
        decisions = list(self._decisions)
        self._decisions.clear()
        return decisions

    # Events

    def _on_observed(self, event: Observed) -> None:
        obj = event.object
        gone = event.type is WatchType.DELETED
        if isinstance(obj, Pod):
            if gone:
                self._pod_gone(obj.metadata.uid)
            else:
                self._pod(obj)
        elif isinstance(obj, Node):
            if gone:
                self._node_gone(obj.metadata.name)
            else:
                self._node(obj)

    def _on_listed(self, event: Listed) -> None:
        uids = {o.metadata.uid for o in event.objects if isinstance(o, Pod)}
        names = {o.metadata.name for o in event.objects if isinstance(o, Node)}
        for uid in [uid for uid in self.state.pods if uid not in uids]:
            self._pod_gone(uid)
        for row in self.state.present_rows():
            if self.state.names[row] not in names:
                self._node_gone(self.state.names[row])
        _each(event.objects, Node, self._node)
        _each(event.objects, Pod, self._pod)

    def _on_tick(self, event: Tick) -> None:
        """Time alone: what is due is found by the queue."""

    def _on_write_ok(self, event: WriteOk) -> None:
        self._reported.pop(event.id, None)
        queued = self._waiting.pop(event.id, None)
        if queued is None or self.state.pods.get(queued.entry.uid) is not queued.entry:
            return
        # Bound. The entry stays assumed until the watch says so as well.
        entry = queued.entry
        if self.queue.get(entry.uid) is queued:
            self.queue.remove(entry.uid)
        node_name = self.state.names[entry.row]
        note = f"Successfully assigned {entry.pod.key} to {node_name}"
        self._event(entry.pod, "Normal", "Scheduled", "Binding", note)

    def _on_write_failed(self, event: WriteFailed) -> None:
        reported = self._reported.pop(event.id, None)
        if reported is not None:
            reported.condition = None  # it was not written: the next attempt writes it again
        queued = self._waiting.pop(event.id, None)
        if queued is None or self.queue.get(queued.entry.uid) is not queued:
            return
        entry = queued.entry
        self.state.forget(entry)
        self.queue.wake(Happened(Change.PLACED_POD_DELETED, old_pod=entry.pod), self.now_ns)
        message = f'running Bind plugin "DefaultBinder": {event.message}'
        self.queue.retry(queued, self.now_ns)
        self._decide(queued, Outcome.ERROR, message=message)
        self._report(queued, "SchedulerError", message)

    # Objects

    def _node(self, node: Node) -> None:
        row = self.state.row_of(node.metadata.name)
        old = self.state.nodes[row] if row >= 0 else None
        try:
            if not self.state.set_node(node):
                return
        except InvalidObject:
            # Nothing can be placed on a node that does not say what it has.
            self._node_gone(node.metadata.name)
            return
        change = node_change(old, node)
        if change:
            self.queue.wake(Happened(change, old_node=old, node=node), self.now_ns)

    def _node_gone(self, name: str) -> None:
        self.state.remove_node(name)

    def _pod(self, pod: Pod) -> None:
        if pod.status.phase in ("Succeeded", "Failed"):
            self._pod_gone(pod.metadata.uid)
            return
        entry = self.state.pods.get(pod.metadata.uid)
        try:
            if pod.spec.node_name:
                self._pod_on_node(entry, pod)
            elif entry is None:
                self._new_pod(pod)
            else:
                self._pod_waiting(entry, pod)
        except InvalidObject:
            # The API server would not have stored it: it takes no room and gets none.
            self._pod_gone(pod.metadata.uid)

    def _new_pod(self, pod: Pod) -> None:
        profile = self.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            return
        entry = self.state.add_pending(pod)
        if pod.status.nominated_node_name:
            self.state.nominate(entry, pod.status.nominated_node_name)
        self.queue.add(QueuedPod(entry, profile, self.now_ns))

    def _pod_on_node(self, entry: PodEntry | None, pod: Pod) -> None:
        if entry is None:
            self.state.add_placed(pod)
            return
        old = entry.pod
        was_placed = entry.row >= 0
        self.state.confirm(entry, pod)
        self.queue.remove(entry.uid)
        if self.state.nominated:
            self.state.nominate(entry, "")
        if was_placed and old.spec.node_name and is_scaled_down(old, pod):
            happened = Happened(Change.PLACED_POD_SCALED_DOWN, old_pod=old, pod=pod)
            self.queue.wake(happened, self.now_ns)

    def _pod_waiting(self, entry: PodEntry, pod: Pod) -> None:
        old = entry.pod
        queued = self.queue.get(entry.uid)
        self.state.update_pending(entry, pod)
        if entry.row < 0:
            self.state.nominate(entry, pod.status.nominated_node_name)
        if queued is not None:
            happened = Happened(own_change(old, pod), old_pod=old, pod=pod)
            self.queue.update(queued, happened, self.now_ns)

    def _pod_gone(self, uid: str) -> None:
        entry = self.state.pods.get(uid)
        if entry is None:
            return
        held_room = entry.row >= 0 or uid in {u for by in self.state.nominated.values() for u in by}
        self.state.remove_pod(entry)
        self.queue.remove(uid)
        if held_room:
            self.queue.wake(Happened(Change.PLACED_POD_DELETED, old_pod=entry.pod), self.now_ns)

    # Cycles

    def _run_cycles(self) -> None:
        for _ in range(self.limits.cycles_per_step_max):
            queued = self.queue.pop(self.now_ns)
            if queued is None:
                return
            if queued.entry.pod.metadata.deletion_timestamp is not None:
                self._skip_deleted(queued)
                continue
            row = self.cycle.choose(queued.profile, queued.entry)
            if row >= 0:
                self._assume(queued, row)
            else:
                self._refuse(queued)

    def _assume(self, queued: QueuedPod, row: int) -> None:
        entry = queued.entry
        self.state.assume(entry, row)
        if self.state.nominated:
            self.state.nominate(entry, "")
        meta = entry.pod.metadata
        node_name = self.state.names[row]
        id = self._id()
        self._waiting[id] = queued
        self._writes.append(Bind(id, meta.namespace, meta.name, entry.uid, node_name))
        self._decide(queued, Outcome.PLACED, node_name=node_name)

    def _refuse(self, queued: QueuedPod) -> None:
        diagnosis = self.cycle.diagnose(queued.profile, queued.entry)
        message = diagnosis.message()
        self.queue.park(queued, diagnosis.plugins, self.now_ns)
        self._decide(queued, Outcome.UNSCHEDULABLE, "", message, diagnosis)
        self._report(queued, "Unschedulable", message)

    def _skip_deleted(self, queued: QueuedPod) -> None:
        pod = queued.entry.pod
        self.queue.remove(queued.entry.uid)
        note = f"skip schedule deleting pod: {pod.key}"
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", note)

    # Writes

    def _report(self, queued: QueuedPod, reason: str, message: str) -> None:
        """Set the PodScheduled condition and tell of it, unless both already say so."""
        entry, pod = queued.entry, queued.entry.pod
        promised = any(entry.uid in pods for pods in self.state.nominated.values())
        self.state.nominate(entry, "")
        condition = PodCondition(POD_SCHEDULED, "False", reason, message)
        if (queued.condition or pod.condition(POD_SCHEDULED)) == condition and not promised:
            return
        queued.condition = condition
        meta = pod.metadata
        id = self._id()
        self._reported[id] = queued
        nominated = "" if pod.status.nominated_node_name else None
        self._writes.append(
            PatchPodStatus(id, meta.namespace, meta.name, entry.uid, condition, nominated)
        )
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", message)

    def _event(self, pod: Pod, type: str, reason: str, action: str, note: str) -> None:
        limit = self.limits.event_note_length_max
        if len(note) > limit:
            note = f"{note[: limit - 4]} ..."
        meta = pod.metadata
        self._writes.append(
            CreateEvent(
                self._id(),
                meta.namespace,
                meta.name,
                meta.uid,
                type,
                reason,
                action,
                note,
                self.now_ns,
            )
        )

    def _decide(
        self,
        queued: QueuedPod,
        outcome: Outcome,
        node_name: str = "",
        message: str = "",
        diagnosis: Diagnosis | None = None,
    ) -> None:
        meta = queued.entry.pod.metadata
        self._decisions.append(
            Decision(
                meta.namespace,
                meta.name,
                meta.uid,
                outcome,
                self.now_ns,
                queued.attempts,
                node_name,
                message,
                diagnosis,
            )
        )

    def _id(self) -> int:
        id = self._next_id
        self._next_id = id + 1
        return id


def _each(objects: Iterable[ApiObject], kind: type[ApiObject], take: Callable[..., None]) -> None:
    for obj in objects:
        if isinstance(obj, kind):
            take(obj)


HANDLERS: Final[Mapping[type, Callable[..., None]]] = {
    Observed: Engine._on_observed,
    Listed: Engine._on_listed,
    Tick: Engine._on_tick,
    WriteOk: Engine._on_write_ok,
    WriteFailed: Engine._on_write_failed,
}
