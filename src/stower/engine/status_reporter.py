"""Reports the result of each scheduling attempt as pod conditions, Events and Decision records.

A condition that says nothing new is not written. Must not know how results come about.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from stower.devices.given_back import outdated_conditions
from stower.engine.limits import Limits
from stower.engine.outbox import UNTRACKED, Answer, Outbox
from stower.engine.queue.entities import QueuedPod
from stower.framework.decisions import Decision, Outcome
from stower.framework.negotiation import Wait
from stower.framework.post_filter import PostFilterResult
from stower.framework.reasons import Diagnosis
from stower.framework.stopwatch import Stopwatch
from stower.framework.writes import CreateEvent, PatchPodStatus
from stower.model.kinds import KIND_BY_VIEW, ApiObject, Pod
from stower.model.kinds.pod import PodCondition
from stower.model.meta import ObjectMeta
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

POD_SCHEDULED: Final = "PodScheduled"
# Reasons of the PodScheduled condition and of conditions of pod groups.
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
POD: Final = ("v1", "Pod")


class PodWriteListener(Protocol):
    """Receives the answers to status patches of pods."""

    def on_pod_change(self, uid: str) -> None:
        """Called when the pod's status may have changed."""


class StatusReporter:
    """Writes what was decided about pods, and keeps Decision records until they are drained."""

    def __init__(
        self, state: ClusterState, limits: Limits, outbox: Outbox, stopwatch: Stopwatch
    ) -> None:
        self._state = state
        self._limits = limits
        self._outbox = outbox
        self._stopwatch = stopwatch
        self.pod_writes: PodWriteListener | None = None
        self._decisions: deque[Decision] = deque(maxlen=limits.decisions_max)
        # Unanswered status patches: the pod, and of conditions, the queued pod.
        self._patches: dict[int, tuple[PodEntry, QueuedPod | None]] = {}
        self._touches: dict[int, Callable[[], None]] = {}  # by write: what follows

    def drain(self) -> list[Decision]:
        """Returns the decisions since the last call, oldest first."""
        decisions = list(self._decisions)
        self._decisions.clear()
        return decisions

    def handle_answer(self, answer: Answer) -> None:
        """Takes the answer to a status patch; the next attempt repeats one that failed."""
        entry, reported = self._patches.pop(answer.id)
        entry.pending_write_count -= 1
        if answer.version:
            entry.written_version = answer.version
        if reported is not None and answer.code:
            reported.condition = None
        follow = self._touches.pop(answer.id, None)
        if follow is not None and not answer.code:
            follow()
        if self.pod_writes is not None:
            self.pod_writes.on_pod_change(entry.uid)

    def report(
        self,
        queued: QueuedPod,
        reason: str,
        message: str,
        nominate: str | None = "",
        stage: tuple[int, str] | None = None,
    ) -> None:
        """Sets the PodScheduled condition and records an Event, unless both already say so.

        `nominate`: the node to nominate; "" takes a nomination back, None leaves it. `stage`: of a
        negotiation, of which only the first message is an Event.
        """
        entry, pod = queued.entry, queued.entry.pod
        nominated = None
        shown = pod.status.nominated_node_name
        if (
            nominate is None
            and shown
            and not entry.nominated_node_name
            and not entry.pending_write_count
        ):
            nominate = ""  # removed before, in a write that was lost
        if nominate is not None:
            known = {entry.nominated_node_name, shown}
            # Written already, and not shown yet.
            is_written = queued.condition is not None and entry.nominated_node_name == nominate
            is_written &= queued.condition == PodCondition(POD_SCHEDULED, "False", reason, message)
            if (known != {nominate} and not is_written) or queued.has_open_nomination:
                nominated = nominate
            queued.has_open_nomination = False
            self._state.nominate(entry, nominate)
        condition = PodCondition(POD_SCHEDULED, "False", reason, message)
        reported = queued.condition or pod.condition(POD_SCHEDULED)
        if reported == condition and nominated is None:
            return
        queued.condition = condition
        removed = outdated_conditions(pod, self._state.devices)
        if removed and not entry.pending_write_count:
            # On this version, as a newer condition of the type may be on its way.
            self._patch(entry, None, None, None, pod.metadata.resource_version, removed)
        self._patch(entry, condition, nominated, queued)
        if stage is None or stage not in queued.told_stages:
            self.event(pod, "Warning", "FailedScheduling", "Scheduling", message)
            round = None if stage is None else stage[0]
            queued.told_stages = {told for told in queued.told_stages if told[0] == round}
            if stage is not None:
                queued.told_stages.add(stage)

    def report_wait(self, queued: QueuedPod, wait: Wait) -> None:
        """Reports that the pod waits for other components."""
        self.report(queued, UNSCHEDULABLE, wait.message, wait.nominated_node_name, wait.stage)

    def nominate(self, entry: PodEntry, node_name: str) -> None:
        """Writes the nominated node name alone; "" takes it away."""
        self._patch(entry, None, node_name)

    def touch(self, entry: PodEntry, condition: PodCondition, follow: Callable[[], None]) -> None:
        """Sets a condition in exactly this version of the pod, which thereby changes; calls
        `follow` once that is done."""
        self._touches[self._outbox.free_id] = follow
        self._patch(entry, condition, None, version=entry.pod.metadata.resource_version)

    def _patch(
        self,
        entry: PodEntry,
        condition: PodCondition | None,
        nominated: str | None,
        queued: QueuedPod | None = None,
        version: str = "",
        removed: tuple[str, ...] = (),
    ) -> None:
        meta, id = entry.pod.metadata, self._outbox.next_id()
        entry.pending_write_count += 1
        self._patches[id] = (entry, queued)
        write = PatchPodStatus(
            id, meta.namespace, meta.name, entry.uid, condition, nominated,
            resource_version=version, removed_conditions=removed,
            generation=meta.generation if condition is not None else 0,
        )  # fmt: skip
        self._outbox.send(write, self)

    def remove_outdated_conditions(self, pod: Pod) -> None:
        """Removes conditions that no longer hold from a pod with a node, if there are some."""
        removed, meta = outdated_conditions(pod, self._state.devices), pod.metadata
        if removed:
            write = PatchPodStatus(
                self._outbox.next_id(), meta.namespace, meta.name, meta.uid,
                removed_conditions=removed,
            )  # fmt: skip
            self._outbox.send(write, UNTRACKED)

    def event(self, pod: Pod, type: str, reason: str, action: str, note: str) -> None:
        """Records an Event about a pod."""
        self.object_event(pod.metadata, POD, type, reason, action, note)

    def object_event(
        self,
        meta: ObjectMeta,
        about: tuple[str, str],
        type: str,
        reason: str,
        action: str,
        note: str,
    ) -> None:
        """Records an Event about any object, of the apiVersion and kind in `about`."""
        limit = self._limits.event_note_bytes_max
        if len(note.encode()) > limit:
            note = note.encode()[: limit - 4].decode(errors="ignore") + " ..."
        id, now_ns = self._outbox.next_id(), self._state.now_ns
        write = CreateEvent(
            id, meta.namespace, meta.name, meta.uid, type, reason, action, note, now_ns, about
        )
        self._outbox.send(write, UNTRACKED)

    def internal_error(self, obj: ApiObject, message: str) -> None:
        """Records an Event about an object on which the scheduler has failed."""
        kind = KIND_BY_VIEW.get(type(obj))
        about = (kind.api_version, kind.name) if kind is not None else POD
        self.object_event(obj.metadata, about, "Warning", SCHEDULER_ERROR, "Scheduling", message)

    def decide(
        self,
        queued: QueuedPod,
        outcome: Outcome,
        node_name: str = "",
        message: str = "",
        diagnosis: Diagnosis | None = None,
        scores: tuple[tuple[str, int], ...] = (),
        post_filter_result: PostFilterResult | None = None,
    ) -> None:
        """Records the decision that ended an attempt."""
        victims: tuple[str, ...] = ()
        nominated = ""
        if post_filter_result is not None:
            victims = tuple(victim.pod.key for victim in post_filter_result.victims)
            nominated = post_filter_result.nominated_node_name or ""
        meta, now_ns = queued.entry.pod.metadata, self._state.now_ns
        took_ns = self._stopwatch.elapsed_ns() if self._stopwatch.is_running else 0
        self._decisions.append(
            Decision(
                meta.namespace, meta.name, meta.uid, outcome, now_ns, queued.attempts, node_name,
                message, diagnosis, scores, victims, nominated, queued.profile.scheduler_name,
                now_ns - queued.first_added_ns, took_ns,
            )
        )  # fmt: skip
