"""What the engine tells: conditions and Events for people, decisions for whoever counts."""

from collections import deque
from collections.abc import Callable
from typing import Final

from stower.engine.groups.group_status import Word
from stower.engine.limits import Limits
from stower.engine.preemption.pod_eviction import BY_SCHEDULER
from stower.engine.queue.entities import QueuedPod
from stower.framework.decisions import Decision, Outcome
from stower.framework.post_filter import Remedy
from stower.framework.reasons import Diagnosis
from stower.framework.stopwatch import STOPPED, Stopwatch
from stower.framework.writes import CreateEvent, PatchPodStatus, Write
from stower.model.kinds import KIND_BY_VIEW, GroupObject, Pod
from stower.model.kinds.pod import PodCondition
from stower.model.meta import ObjectMeta
from stower.state.cluster import ClusterState, PodEntry

POD_SCHEDULED: Final = "PodScheduled"
POD: Final = ("v1", "Pod")


class Telling:
    """Writes that say something, but nothing twice."""

    def __init__(
        self,
        state: ClusterState,
        limits: Limits,
        write: Callable[[Write], None],
        next_id: Callable[[], int],
        stopwatch: Stopwatch = STOPPED,
    ) -> None:
        self.now_ns = 0
        self._stopwatch = stopwatch
        self._state = state
        self._limits = limits
        self._write = write
        self._next_id = next_id
        self._decisions: deque[Decision] = deque(maxlen=limits.decisions_max)
        # What is not answered yet: whose it is, and of conditions, of which attempts.
        self._open: dict[int, tuple[PodEntry, QueuedPod | None]] = {}

    def drain(self) -> list[Decision]:
        """The decisions since the last call, oldest first."""
        decisions = list(self._decisions)
        self._decisions.clear()
        return decisions

    def answered(self, id: int, failed: bool, version: str = "") -> str:
        """A write was carried out, or not: then the next attempt writes it again. Whose it was, by
        uid; "" for none of these."""
        entry, reported = self._open.pop(id, (None, None))
        if entry is None:
            return ""
        entry.writes -= 1
        if version:
            entry.version = version
        if reported is not None and failed:
            reported.condition = None
        return entry.uid

    def report(
        self, queued: QueuedPod, reason: str, message: str, nominate: str | None = ""
    ) -> None:
        """Set the PodScheduled condition and tell of it, unless both already say so.

        `nominate`: the node that is promised to the pod; "" takes a promise back, None leaves it.
        """
        entry, pod = queued.entry, queued.entry.pod
        nominated = None
        shown = pod.status.nominated_node_name
        if nominate is None and shown and not entry.nominated_to and not entry.writes:
            nominate = ""  # taken back before, in a write that was lost
        if nominate is not None:
            known = {entry.nominated_to, shown}
            # Written already, and not shown yet.
            is_told = queued.condition is not None and entry.nominated_to == nominate
            is_told &= queued.condition == PodCondition(POD_SCHEDULED, "False", reason, message)
            if (known != {nominate} and not is_told) or queued.is_promised:
                nominated = nominate
            queued.is_promised = False
            self._state.nominate(entry, nominate)
        condition = PodCondition(POD_SCHEDULED, "False", reason, message)
        told = queued.condition or pod.condition(POD_SCHEDULED)
        if told == condition and nominated is None:
            return
        queued.condition = condition
        self._patch(entry, condition, nominated, queued)
        self.event(pod, "Warning", "FailedScheduling", "Scheduling", message)

    def promise(self, entry: PodEntry, node_name: str) -> None:
        """Set the nominated node name alone; "" takes it away."""
        self._patch(entry, None, node_name)

    def _patch(
        self,
        entry: PodEntry,
        condition: PodCondition | None,
        nominated: str | None,
        queued: QueuedPod | None = None,
    ) -> None:
        meta, id = entry.pod.metadata, self._next_id()
        entry.writes += 1
        self._open[id] = (entry, queued)
        self._write(PatchPodStatus(id, meta.namespace, meta.name, entry.uid, condition, nominated))

    def event(self, pod: Pod, type: str, reason: str, action: str, note: str) -> None:
        """An Event about a pod."""
        self._event(pod.metadata, POD, type, reason, action, note)

    def about_group(self, group: GroupObject, word: Word) -> None:
        """An Event about a group, of what its condition says."""
        kind = KIND_BY_VIEW[type(group)]
        reason, action, note = "FailedScheduling", "Scheduling", word.message
        if word.reason == BY_SCHEDULER:
            reason, action = "Preempted", "Preempting"
        elif word.status == "True":
            reason, action, note = "Scheduled", "Binding", "its minimum has been placed as a whole"
        is_good = reason != "FailedScheduling"
        about = (kind.api_version, kind.name)
        self._event(group.metadata, about, "Normal" if is_good else "Warning", reason, action, note)

    def _event(
        self,
        meta: ObjectMeta,
        about: tuple[str, str],
        type: str,
        reason: str,
        action: str,
        note: str,
    ) -> None:
        limit = self._limits.event_note_bytes_max
        if len(note.encode()) > limit:
            note = note.encode()[: limit - 4].decode(errors="ignore") + " ..."
        id, now_ns = self._next_id(), self.now_ns
        self._write(
            CreateEvent(
                id, meta.namespace, meta.name, meta.uid, type, reason, action, note, now_ns, about
            )
        )

    def decide(
        self,
        queued: QueuedPod,
        outcome: Outcome,
        node_name: str = "",
        message: str = "",
        diagnosis: Diagnosis | None = None,
        scores: tuple[tuple[str, int], ...] = (),
        remedy: Remedy | None = None,
    ) -> None:
        """An attempt has ended."""
        victims = tuple(victim.pod.key for victim in remedy.victims) if remedy is not None else ()
        meta = queued.entry.pod.metadata
        self._decisions.append(
            Decision(
                meta.namespace, meta.name, meta.uid, outcome, self.now_ns, queued.attempts,
                node_name, message, diagnosis, scores, victims,
                (remedy.nominate or "") if remedy is not None else "",
                queued.profile.scheduler_name, self.now_ns - queued.came_ns,
                self._stopwatch.split_ns(),
            )
        )  # fmt: skip
