"""Evicts the victims of a preemption, in the order in which upstream writes it.

Each victim gets the condition DisruptionTarget and is then deleted; all at once, but for the last,
which follows when all others were deleted. Until then the preemptor is not tried again.
Must not know how victims are chosen.

Source: kube-scheduler framework/preemption/executor.go prepareCandidateAsync; KEP-4832.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.context import Context
from stower.engine.outbox import Answer
from stower.engine.queue.entities import QueuedEntity, QueuedPod, QueuedTree
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.framework.writes import DeletePod, PatchPodStatus
from stower.groups.units import disrupted_groups
from stower.model.kinds.pod import DISRUPTION_TARGET, PodCondition
from stower.state.devices import claim_keys
from stower.state.groups import GroupKey
from stower.state.pod_entry import PodEntry

BY_SCHEDULER: Final = "PreemptionByScheduler"
NOT_FOUND: Final = 404
# In place of a node's name where the victims of a tree are on several nodes.
CLUSTER: Final = "cluster"


class DisruptedGroups(Protocol):
    """Reports pod groups whose pods are evicted as a whole; attached where groups are used."""

    def disrupt(self, which: GroupKey, message: str) -> None:
        """Sets the DisruptionTarget condition of the group."""


class _Preemption:
    """One preemptor and the victims that are not deleted yet."""

    __slots__ = ("failed", "last", "node_name", "preemptor", "unanswered", "victims")

    def __init__(self, preemptor: QueuedEntity, node_name: str, victims: list[PodEntry]) -> None:
        self.preemptor = preemptor
        self.node_name = node_name
        self.victims = victims
        self.last: PodEntry | None = victims[-1]
        self.unanswered = 0
        self.failed = False


class PodEviction:
    """All evictions that are under way."""

    def __init__(self, context: Context, queue: SchedulingQueue, binding: BindingCycle) -> None:
        self._context = context
        self._state = context.state
        self._reporter = context.reporter
        self._queue = queue
        self._binding = binding
        binding.evictions = self
        self.groups: DisruptedGroups | None = None
        # By the id of an unanswered write: the preemption, the victim, whether it is a deletion.
        self._writes: dict[int, tuple[_Preemption, PodEntry, bool]] = {}
        self._victims: dict[str, int] = {}  # how many open preemptions evict a pod, by its uid

    @property
    def is_open(self) -> bool:
        """Whether a write is not answered yet."""
        return bool(self._writes)

    def recount(self) -> list[QueuedEntity]:
        """Counts the open preemptions again, after an internal error; returns the preemptors."""
        preemptions = {id(p): p for p, _, _ in self._writes.values()}
        self._victims.clear()
        for preemption in preemptions.values():
            for victim in preemption.victims:
                self._victims[victim.uid] = self._victims.get(victim.uid, 0) + 1
        return [preemption.preemptor for preemption in preemptions.values()]

    def is_evicting(self, entry: PodEntry) -> bool:
        """Returns whether the pod is being evicted, until the watch shows its deletion."""
        return entry.is_deletion_pending or entry.uid in self._victims

    def evict(self, preemptor: QueuedEntity, where: str, victims: Sequence[PodEntry]) -> None:
        """Evicts the victims for a pod or a tree: cancels PreBind where a victim is in it, deletes
        the others. A victim in PreBind is deleted as well where the preemptor needs devices and the
        victim has some: they stay allocated until it is deleted."""
        for which in disrupted_groups(self._state.groups, victims):
            if self.groups is not None:
                self.groups.disrupt(which, _condition_message(preemptor))
        pre_bind = self._binding.pre_bind
        to_cancel = [victim for victim in victims if victim.uid in pre_bind]
        if to_cancel and self._needs_devices(preemptor):
            holders = self._device_holders(victims)
            to_cancel = [victim for victim in to_cancel if victim.uid not in holders]
        cancelled = {victim.uid for victim in to_cancel}
        to_delete = [victim for victim in victims if victim.uid not in cancelled]
        self._queue.await_victims(preemptor, (victim.uid for victim in to_delete))
        self._begin(preemptor, where, to_delete)
        for victim in to_cancel:
            if victim.uid in pre_bind:  # else it was rejected with another pod of its group
                pre_bind.cancel(victim.uid, "preempted by DefaultPreemption")
            note = _event_note(preemptor, where) + " (in kube-scheduler memory)."
            self._event(victim, note)

    def _needs_devices(self, preemptor: QueuedEntity) -> bool:
        """Returns whether a pod of the preemptor has a claim to allocate, or extended resources
        that devices back."""
        members = preemptor.members.values() if isinstance(preemptor, QueuedTree) else [preemptor]
        devices = self._state.devices
        for member in members:
            for key in claim_keys(member.pod):
                claim = devices.api_claim(key)
                if claim is not None and claim.status.allocation is None:
                    return True
            if isinstance(member, QueuedPod):
                requests = member.entry.shape.extended_requests
                if any(column.name in devices.class_by_resource for column, _ in requests):
                    return True
        return False

    def _device_holders(self, victims: Sequence[PodEntry]) -> set[str]:
        """Returns the uids of the victims with an allocated claim that only victims use."""
        devices, uids, holders = self._state.devices, {victim.uid for victim in victims}, set()
        for victim in victims:
            for key in claim_keys(victim.pod):
                claim = devices.api_claim(key)
                if (
                    claim is not None
                    and claim.status.allocation
                    and devices.users(key).keys() <= uids
                ):
                    holders.add(victim.uid)
        return holders

    def withdraw_nominations(self, node_name: str, priority: int) -> None:
        """Takes back the nominations of pods of lower priority, which may no longer fit once the
        new preemptor is on the node."""
        for _, entry in sorted(self._state.nominated_pods.get(node_name, {}).items()):
            if entry.pod.priority < priority:
                self._state.nominate(entry, "")
                self._reporter.nominate(entry, "")

    def _begin(self, preemptor: QueuedEntity, node_name: str, victims: Iterable[PodEntry]) -> None:
        """Evicts victims, but for those that are being deleted already."""
        alive = [
            v
            for v in victims
            if v.pod.metadata.deletion_timestamp is None and not v.is_deletion_pending
        ]
        if not alive:
            return
        preemptor.is_preempting = True
        preemption = _Preemption(preemptor, node_name, alive)
        for victim in alive:
            self._victims[victim.uid] = self._victims.get(victim.uid, 0) + 1
        for victim in alive[:-1]:
            self._start(preemption, victim)
        self._continue(preemption)

    def handle_answer(self, answer: Answer) -> None:
        """Takes the answer to a status patch or deletion of a victim."""
        preemption, victim, is_deletion = self._writes.pop(answer.id)
        preemption.unanswered -= 1
        if answer.code == 0 and not is_deletion:
            self._delete(preemption, victim)
        elif answer.code == 0:
            victim.is_deletion_pending = True
            self._event(victim, _event_note(preemption.preemptor, preemption.node_name))
        elif answer.code != NOT_FOUND:
            preemption.failed = True
        self._continue(preemption)

    def _continue(self, preemption: _Preemption) -> None:
        """Evicts the last victim once all others are deleted, then ends the preemption."""
        if preemption.unanswered:
            return
        last, preemption.last = preemption.last, None
        if last is not None and not preemption.failed:
            self._start(preemption, last)
        else:
            self._finish(preemption)

    def _finish(self, preemption: _Preemption) -> None:
        preemptor, failed = preemption.preemptor, preemption.failed
        for victim in preemption.victims:
            self._victims[victim.uid] -= 1
            if not self._victims[victim.uid]:
                del self._victims[victim.uid]
        preemptor.is_preempting = False
        if failed:  # pods that are not deleted are not awaited
            deleted = [uid for uid in preemptor.victims if self._is_deleted(uid)]
            self._queue.await_victims(preemptor, deleted)
        self._queue.finish_preemption(preemptor, failed, self._state.now_ns)

    def _is_deleted(self, uid: str) -> bool:
        entry = self._state.pods.get(uid)
        is_deleted = entry is not None and entry.pod.metadata.deletion_timestamp is not None
        return entry is not None and (entry.is_deletion_pending or is_deleted)

    def _start(self, preemption: _Preemption, victim: PodEntry) -> None:
        message = _condition_message(preemption.preemptor)
        condition = PodCondition(DISRUPTION_TARGET, "True", BY_SCHEDULER, message)
        if victim.pod.condition(DISRUPTION_TARGET) == condition:
            self._delete(preemption, victim)
            return
        meta, outbox = victim.pod.metadata, self._context.outbox
        id = outbox.next_id()
        self._expect(id, preemption, victim, False)
        write = PatchPodStatus(
            id, meta.namespace, meta.name, meta.uid, condition, generation=meta.generation
        )
        outbox.send(write, self)

    def _delete(self, preemption: _Preemption, victim: PodEntry) -> None:
        meta, outbox = victim.pod.metadata, self._context.outbox
        id = outbox.next_id()
        self._expect(id, preemption, victim, True)
        outbox.send(DeletePod(id, meta.namespace, meta.name, meta.uid), self)

    def _expect(self, id: int, preemption: _Preemption, victim: PodEntry, deletion: bool) -> None:
        preemption.unanswered += 1
        self._writes[id] = (preemption, victim, deletion)

    def _event(self, victim: PodEntry, note: str) -> None:
        self._reporter.event(victim.pod, "Normal", "Preempted", "Preempting", note)


def _event_note(preemptor: QueuedEntity, node_name: str) -> str:
    kind = "podgroup" if isinstance(preemptor, QueuedTree) else "pod"
    return f"Preempted by {kind} {preemptor.preemptor_uid} on node {node_name}"


def _condition_message(preemptor: QueuedEntity) -> str:
    kind = "podgroup" if isinstance(preemptor, QueuedTree) else "pod"
    name = preemptor.profile.scheduler_name
    return f"{name}: preempting to accommodate a higher priority {kind}"
