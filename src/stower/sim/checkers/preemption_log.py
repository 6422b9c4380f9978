"""Records the preemptions of the leading scheduler, and for each what has changed since.

A preemption ends with the placement of its preemptor, or with the first change that may keep the
preemptor from its node: of the preemptor; of the node or its pods; of claims, and of the nodes that
are selected for other pods, where the preemptor has claims; of any node, and of pods that it
requires or avoids, where the preemptor's requirements concern other pods; of any node and pod,
where it is a pod group; a pod that avoids the preemptor; a nomination of equal or higher priority
to the node; for a VM, a placement on the node under another profile; a write about the preemptor or
a victim that failed; a restart of the scheduler. Room that a pod of lower or equal priority takes
is no such change, as it is reserved.

Shared by `preemptions` and `evictions`. Must not know the engine.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from stower.framework.decisions import Decision, Outcome
from stower.framework.events import Event, WriteFailed, WriteOk
from stower.framework.writes import (
    ApiWrite,
    CreateEvent,
    DeletePod,
    ObjectWrite,
    PatchPodStatus,
    Write,
)
from stower.model.kinds import (
    DEVICES,
    GROUPS,
    NEGOTIATING,
    STORAGE,
    Node,
    Pod,
    PodScheduling,
    ResourceClaim,
)
from stower.model.kinds.pod import DISRUPTION_TARGET
from stower.model.selectors import LabelSelector
from stower.sim.agenda import Agenda
from stower.sim.checkers.group_roots import root_group
from stower.sim.checkers.step_reader import ObjectChange, StepReader
from stower.sim.scheduler import SchedulerProcess
from stower.sim.server import Server
from stower.vms.pods import vm_owner

BY_GROUP: Final = "Preempted by podgroup "
IN_MEMORY: Final = "(in kube-scheduler memory)"


class Preemption:
    """The evictions of one attempt, as long as nothing else has happened since."""

    __slots__ = (
        "chosen", "claim_keys", "gone_ns", "has_volumes", "is_group", "is_vm", "labels", "names",
        "node_name", "priority", "scheduler_name", "selectors", "uid", "victims", "who",
    )  # fmt: skip

    def __init__(self, uid: str, who: str, priority: int, node_name: str) -> None:
        self.uid = uid  # of the pod, or of the root group
        self.who = who
        self.priority = priority
        self.node_name = node_name  # "" for a group
        self.is_group = not node_name
        self.is_vm = False  # its amounts are known to its own profile alone
        self.scheduler_name = ""
        self.labels: Mapping[str, str] = {}
        self.selectors: list[LabelSelector] = []  # of pods that it requires or avoids
        self.has_volumes = self.is_group
        self.claim_keys: set[str] = set()  # of the pod, "" where claims are made for it
        self.chosen: set[str] = set()  # uids of all victims, also of those that leave anyway
        self.victims: dict[str, str] = {}  # keys of those that are not gone, by uid
        self.names: list[str] = []  # keys of all victims
        self.gone_ns: int | None = None  # when the last victim was seen to be gone

    @property
    def is_about_others(self) -> bool:
        """Whether it has requirements that concern other pods."""
        return self.is_group or bool(self.selectors)

    def concerns(self, pod: Pod) -> bool:
        """Returns whether it requires or avoids a pod wherever that is, or is avoided by it."""
        labels = pod.metadata.labels or {}
        return (
            self.is_group
            or any(one.matches(labels) for one in self.selectors)
            or any(one.matches(self.labels) for one in _avoided(pod))
        )

    def add_victim(self, pod: Pod) -> None:
        """Adds a pod that is evicted."""
        self.chosen.add(pod.metadata.uid)
        self.victims[pod.metadata.uid] = pod.key
        self.names.append(pod.key)


class PreemptionLog:
    """All preemptions after which nothing has changed yet."""

    def __init__(self, server: Server, agenda: Agenda, reader: StepReader) -> None:
        self._server = server
        self._agenda = agenda
        self._reader = reader
        self._event: Event | None = None  # the last that was read, and what came of it
        self._again: list[tuple[Preemption, Preemption]] = []
        self.open: dict[str, Preemption] = {}  # by the preemptor's uid
        self._started: dict[str, Preemption] = {}  # of groups: no Event has named a victim yet
        self._subjects: dict[int, str] = {}  # uids that unanswered writes are about, by id
        self._deleted: set[str] = set()  # uids of pods whose deletion was written
        self.ends: dict[str, int] = {}  # how preemptions ended, for reports
        self.begun: list[Preemption] = []  # in the last step
        self.placed: list[str] = []  # uids of preemptors that were placed in the last step

    def read(
        self, process: SchedulerProcess, event: Event, writes: list[Write]
    ) -> list[tuple[Preemption, Preemption]]:
        """Takes a step. Returns preemptions without any change since an earlier one for the same
        preemptor: the earlier, the new. Every law that asks for a step gets the same."""
        if event is self._event:
            return self._again
        self._event = event
        step = self._reader.read(process, event)
        self.begun.clear()
        self.placed.clear()
        if step.is_first:
            self._end_all("restart")
            self._started.clear()
            self._subjects.clear()
            self._deleted.clear()
        if isinstance(event, WriteOk | WriteFailed):
            subject = self._subjects.pop(event.id, "")
            if isinstance(event, WriteFailed) and subject:
                self._on_failed_write(subject)
        for change in step.changes:
            self._on_change(change)
        again = []
        for write in writes:
            if isinstance(write, CreateEvent) and write.note.startswith(BY_GROUP):
                again += self._on_group_victim(write)
        self._follow_groups(step.decisions, writes)
        for decision in step.decisions:
            again += self._on_decision(decision, writes)
        for write in writes:
            if isinstance(write, ObjectWrite | PatchPodStatus | DeletePod):
                self._subjects[write.id] = _subject(write)
            if isinstance(write, DeletePod):
                self._deleted.add(write.uid)
        self._again = again
        return again

    # Beginnings

    def _on_decision(
        self, decision: Decision, writes: list[Write]
    ) -> list[tuple[Preemption, Preemption]]:
        pod = self._reader.pod(f"{decision.namespace}/{decision.name}")
        if pod is None:
            return []
        uid = self._preemptor_uid(pod)
        if decision.outcome is not Outcome.UNSCHEDULABLE:
            self._end(uid, "placed" if decision.outcome is Outcome.PLACED else "error")
            if decision.outcome is Outcome.PLACED:
                self.placed.append(uid)
                self._on_placement(pod, decision.node_name)
            return []
        nominated = {decision.nominated} | {
            write.nominated_node_name or ""
            for write in writes
            if isinstance(write, PatchPodStatus) and write.uid == decision.uid
        }
        nominated.discard("")
        for other in [*self.open.values()]:
            is_near = bool(nominated) if other.is_group else other.node_name in nominated
            if other.uid != uid and is_near and other.priority <= pod.priority:
                self._end(other.uid, "room is reserved for another pod")
        if not decision.victims:
            return []
        new = Preemption(uid, f"pod {pod.key}", pod.priority, decision.nominated)
        spec = pod.spec
        new.labels = pod.metadata.labels or {}
        new.selectors = _selectors(pod)
        new.is_vm = vm_owner(pod) is not None
        new.scheduler_name = spec.scheduler_name
        new.has_volumes = bool(spec.volumes)
        new.claim_keys = _claim_keys(pod)
        in_memory = {w.uid for w in writes if isinstance(w, CreateEvent) and IN_MEMORY in w.note}
        for key in decision.victims:
            victim = self._reader.pod(key)
            if victim is None:
                continue
            new.chosen.add(victim.metadata.uid)
            if (
                victim.metadata.deletion_timestamp is None
                and victim.metadata.uid not in in_memory | self._deleted
            ):
                new.add_victim(victim)
        return self._begin(new) if new.names else []

    def _begin(self, new: Preemption) -> list[tuple[Preemption, Preemption]]:
        earlier = self.open.get(new.uid)
        self.open[new.uid] = new
        self.begun.append(new)
        return [(earlier, new)] if earlier is not None else []

    def _follow_groups(self, decisions: Iterable[Decision], writes: list[Write]) -> None:
        """Starts a preemption for each group that is refused in a step with evictions; the Events
        that follow name its victims."""
        starts = any(
            isinstance(write, DeletePod)
            or (isinstance(write, PatchPodStatus) and write.condition is not None
                and write.condition.type == DISRUPTION_TARGET)
            for write in writes
        )  # fmt: skip
        for decision in decisions:
            pod = self._reader.pod(f"{decision.namespace}/{decision.name}")
            if pod is None or not pod.group_name:
                continue
            uid = self._preemptor_uid(pod)
            self._started.pop(uid, None)
            if starts and decision.outcome is Outcome.UNSCHEDULABLE:
                self._started[uid] = Preemption(uid, f"group of pod {pod.key}", pod.priority, "")

    def _on_group_victim(self, write: CreateEvent) -> list[tuple[Preemption, Preemption]]:
        uid = write.note.removeprefix(BY_GROUP).split(" ", 1)[0]
        victim = self._reader.pod(f"{write.namespace}/{write.name}")
        if IN_MEMORY in write.note or victim is None:
            return []
        new = self._started.pop(uid, None)
        if new is not None:
            new.add_victim(victim)
            return self._begin(new)
        if uid in self.open:
            self.open[uid].add_victim(victim)
            self.open[uid].gone_ns = None
        return []

    def _preemptor_uid(self, pod: Pod) -> str:
        """Returns the uid of the root of the pod's groups, or the pod's."""
        if not pod.group_name:
            return pod.metadata.uid
        root = root_group(self._server, pod)
        return root.metadata.uid if root is not None else ""

    # Ends

    def _end(self, uid: str, why: str) -> None:
        found = self.open.pop(uid, None)
        if found is not None:
            self.ends[why] = self.ends.get(why, 0) + 1
        if why != "placed":
            self._started.pop(uid, None)

    def _end_all(self, why: str) -> None:
        for uid in [*self.open]:
            self._end(uid, why)

    def _on_failed_write(self, subject: str) -> None:
        for one in [*self.open.values(), *self._started.values()]:
            keys = {one.uid} | one.chosen | one.claim_keys
            if one.is_group or subject in keys:
                self._end(one.uid, "write failed")

    def _on_placement(self, pod: Pod, node_name: str) -> None:
        for one in [*self.open.values()]:
            if one.node_name == node_name and pod.priority > one.priority:
                self._end(one.uid, "room is taken by a higher priority")
            elif (
                one.node_name == node_name
                and one.is_vm
                and (pod.spec.scheduler_name != one.scheduler_name)
            ):
                self._end(one.uid, "room is taken under another profile")
            elif one.concerns(pod):
                self._end(one.uid, "a pod that it requires or avoids is placed")

    def _on_change(self, change: ObjectChange) -> None:
        if not (self.open or self._started):
            return
        for one in [*self.open.values(), *self._started.values()]:
            if why := self._ended_by(one, change):
                self._end(one.uid, why)
        if isinstance(change.object, Pod):
            self._on_pod_end(change)

    def _on_pod_end(self, change: ObjectChange) -> None:
        new, uid = change.new, change.object.metadata.uid
        if isinstance(new, Pod) and not new.is_terminal:
            return
        for one in self.open.values():
            if one.victims.pop(uid, None) and not one.victims:
                one.gone_ns = self._agenda.now_ns

    def _ended_by(self, one: Preemption, change: ObjectChange) -> str:
        """Returns how a change ends a preemption, "" where it does not."""
        obj = change.object
        if isinstance(obj, Node):
            is_near = one.is_about_others or obj.metadata.name == one.node_name
            return "node changed" if is_near and _has_node_changed(change) else ""
        if isinstance(obj, Pod):
            return self._ended_by_pod(one, change, obj)
        if isinstance(obj, GROUPS):
            old, new = change
            changed = old is None or new is None or old.spec != new.spec  # type: ignore[union-attr]
            return "group changed" if one.is_group and changed else ""
        if isinstance(obj, PodScheduling):
            return self._ended_by_negotiation(one, change, obj)
        if isinstance(obj, ResourceClaim):
            return "claim changed" if _concerns(one, change, obj) else ""
        if isinstance(obj, DEVICES + NEGOTIATING):
            return "devices changed" if one.claim_keys or one.is_group else ""
        if isinstance(obj, STORAGE):
            return "volumes changed" if one.has_volumes else ""
        return ""

    def _ended_by_negotiation(
        self, one: Preemption, change: ObjectChange, own: PodScheduling
    ) -> str:
        """Another pod whose turn begins may take half a minute, or the preemptor's devices."""
        if own.owner_uid == one.uid or one.is_group:
            return "drivers answered"
        old, new = change
        selected = new.spec.selected_node if isinstance(new, PodScheduling) else ""
        before = old.spec.selected_node if isinstance(old, PodScheduling) else ""
        return "another pod negotiates" if one.claim_keys and selected not in ("", before) else ""

    def _ended_by_pod(self, one: Preemption, change: ObjectChange, pod: Pod) -> str:
        old, new, uid = change.old, change.new, pod.metadata.uid
        is_gone = not isinstance(new, Pod) or new.is_terminal
        is_own = uid == one.uid or (one.is_group and bool(pod.group_name))
        if is_own:
            same = (
                isinstance(new, Pod) and isinstance(old, Pod) and not is_gone
                and _own_key(old) == _own_key(new)
            )  # fmt: skip
            return "" if same else "preemptor changed"
        if is_gone:
            is_other = pod.spec.node_name and uid not in one.victims and one.concerns(pod)
            return "a pod is gone" if is_other else ""
        if not isinstance(new, Pod) or not new.spec.node_name:
            return ""
        if new.spec.node_name != one.node_name and not one.concerns(new):
            return ""
        was_on = old.spec.node_name if isinstance(old, Pod) else ""
        if not isinstance(old, Pod):
            return "a pod came that was not placed by this scheduler"
        if not was_on or uid in one.victims:
            return ""
        is_leaving = new.metadata.deletion_timestamp != old.metadata.deletion_timestamp
        is_other = _own_key(old)[1:] != _own_key(new)[1:] or (is_leaving and one.concerns(new))
        return "a pod on the node changed" if is_other else ""


def _subject(write: ApiWrite) -> str:
    """Returns the uid of the pod, or the key of the object, that a write is about."""
    if isinstance(write, ObjectWrite):
        return f"{write.namespace}/{write.name}"
    return write.uid


def _own_key(pod: Pod) -> tuple[object, ...]:
    """Returns all of a pod but its status, its version and its node."""
    meta = pod.metadata
    return (
        meta.deletion_timestamp, meta.labels, meta.annotations, pod.spec.containers,
        pod.spec.resources, pod.spec.tolerations, pod.spec.scheduling_gates, pod.spec.priority,
    )  # fmt: skip


def _selectors(pod: Pod) -> list[LabelSelector]:
    """Returns the selectors of pods that a pod requires, avoids or is spread with."""
    affinity, spread = pod.spec.affinity, pod.spec.topology_spread_constraints
    terms = () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity)
    found = [term.label_selector for one in terms if one for term in one.required or ()]
    found += [
        term.label_selector for term in spread or () if term.when_unsatisfiable == "DoNotSchedule"
    ]
    return [one for one in found if one is not None]


def _avoided(pod: Pod) -> list[LabelSelector]:
    """Returns the selectors of pods that a pod avoids."""
    affinity = pod.spec.affinity
    anti = affinity.pod_anti_affinity if affinity is not None else None
    terms = () if anti is None else anti.required or ()
    return [term.label_selector for term in terms if term.label_selector is not None]


def _claim_keys(pod: Pod) -> set[str]:
    names = [entry.resource_claim_name for entry in pod.spec.resource_claims or ()]
    names += [said.resource_claim_name for said in pod.status.resource_claim_statuses or ()]
    keys = {f"{pod.metadata.namespace}/{name}" for name in names if name}
    wants = [c.resources.requests or {} for c in pod.spec.containers if c.resources is not None]
    if pod.spec.resource_claims or any("/" in name for amounts in wants for name in amounts):
        keys.add("")
    return keys


def _has_node_changed(change: ObjectChange) -> bool:
    old, new = change
    if not isinstance(old, Node) or not isinstance(new, Node):
        return True
    return (old.spec, old.metadata.labels, old.status.allocatable) != (
        new.spec, new.metadata.labels, new.status.allocatable,
    )  # fmt: skip


def _concerns(one: Preemption, change: ObjectChange, claim: ResourceClaim) -> bool:
    """Returns whether a change of a claim may keep the preemptor from its devices: of its own
    claims, or an allocation for another."""
    if not one.claim_keys and not one.is_group:
        return False
    if claim.metadata.key in one.claim_keys or one.is_group:
        return True
    old, new = change
    if not isinstance(new, ResourceClaim) or new.status.allocation is None:
        return False
    had = isinstance(old, ResourceClaim) and old.status.allocation is not None
    return not had or bool(_users(new) - _users(old))


def _users(claim: Any) -> set[str]:
    return {user.uid for user in claim.status.reserved_for or ()}
