"""Evictions: victims leave for a pod that preempted them, in the order in which upstream writes it.

Each victim is told (condition DisruptionTarget), then deleted; all at once, but the last, whose
turn comes when all others are on their way. Until then the preemptor is not tried again.

Source: kube-scheduler framework/preemption/executor.go prepareCandidateAsync; KEP-4832.
"""

from collections.abc import Callable, Iterable
from typing import Final

from stower.engine.queue.entities import Queued, QueuedTree
from stower.framework.writes import DeletePod, PatchPodStatus, Write
from stower.model.kinds.pod import DISRUPTION_TARGET, PodCondition
from stower.state.cluster import PodEntry

BY_SCHEDULER: Final = "PreemptionByScheduler"
NOT_FOUND: Final = 404


# Where pods of a group are told to leave from: anywhere.
CLUSTER: Final = "cluster"


def told(preemptor: Queued, node_name: str) -> str:
    """What a victim's Event says."""
    kind = "podgroup" if isinstance(preemptor, QueuedTree) else "pod"
    return f"Preempted by {kind} {preemptor.told_as} on node {node_name}"


def why_told(preemptor: Queued) -> str:
    """What a victim's condition says."""
    kind = "podgroup" if isinstance(preemptor, QueuedTree) else "pod"
    name = preemptor.profile.scheduler_name
    return f"{name}: preempting to accommodate a higher priority {kind}"


class _Preemption:
    """One preemptor and those that leave for it."""

    __slots__ = ("failed", "last", "node_name", "pending", "queued")

    def __init__(self, queued: Queued, node_name: str, last: PodEntry) -> None:
        self.queued = queued
        self.node_name = node_name
        self.last: PodEntry | None = last
        self.pending = 0
        self.failed = False


class Evictions:
    """All that are under way, by the write whose answer they wait for."""

    def __init__(
        self,
        write: Callable[[Write], None],
        next_id: Callable[[], int],
        told: Callable[[PodEntry, str], None],
        over: Callable[[Queued, bool], None],
    ) -> None:
        """`told`: an Event for a victim; `over`: the preemptor waits no longer for answers."""
        self._write = write
        self._next_id = next_id
        self._told = told
        self._over = over
        self._waiting: dict[int, tuple[_Preemption, PodEntry, bool]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, entry: PodEntry) -> bool:
        """Whether the pod is being sent away."""
        return any(victim is entry for _, victim, _ in self._waiting.values())

    def begin(self, queued: Queued, node_name: str, victims: Iterable[PodEntry]) -> None:
        """Send them away; those that leave already are left alone."""
        alive = [
            v for v in victims if v.pod.metadata.deletion_timestamp is None and not v.is_leaving
        ]
        if not alive:
            return
        queued.is_preempting = True
        preemption = _Preemption(queued, node_name, alive[-1])
        for victim in alive[:-1]:
            self._start(preemption, victim)
        self._go_on(preemption)

    def answered(self, id: int, code: int) -> bool:
        """An answer came (code 0: carried out). Whether it was for one of ours."""
        found = self._waiting.pop(id, None)
        if found is None:
            return False
        preemption, victim, is_deletion = found
        preemption.pending -= 1
        if code == 0 and not is_deletion:
            self._delete(preemption, victim)
        elif code == 0:
            victim.is_leaving = True
            self._told(victim, told(preemption.queued, preemption.node_name))
        elif code != NOT_FOUND:
            preemption.failed = True
        self._go_on(preemption)
        return True

    def _go_on(self, preemption: _Preemption) -> None:
        if preemption.pending:
            return
        last, preemption.last = preemption.last, None
        if last is not None and not preemption.failed:
            self._start(preemption, last)
        else:
            self._over(preemption.queued, preemption.failed)

    def _start(self, preemption: _Preemption, victim: PodEntry) -> None:
        message = why_told(preemption.queued)
        condition = PodCondition(DISRUPTION_TARGET, "True", BY_SCHEDULER, message)
        if victim.pod.condition(DISRUPTION_TARGET) == condition:
            self._delete(preemption, victim)
            return
        meta, id = victim.pod.metadata, self._next_id()
        self._expect(id, preemption, victim, False)
        self._write(PatchPodStatus(id, meta.namespace, meta.name, meta.uid, condition))

    def _delete(self, preemption: _Preemption, victim: PodEntry) -> None:
        meta, id = victim.pod.metadata, self._next_id()
        self._expect(id, preemption, victim, True)
        self._write(DeletePod(id, meta.namespace, meta.name, meta.uid))

    def _expect(self, id: int, preemption: _Preemption, victim: PodEntry, deletion: bool) -> None:
        preemption.pending += 1
        self._waiting[id] = (preemption, victim, deletion)
