"""Law `attempts`: no attempt is repeated before something has changed that its result depends on.

A repeated attempt is one with the same message as the attempt before, by the same scheduler, less
than 5 minutes later, after no change of a kind in CONCERNS of a plugin that refused the pod. The
kinds are those for which kube-scheduler's plugins register; within them, a hint may be as imprecise
as upstream's.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Flag, auto
from functools import cache
from typing import Final

from stower.devices.negotiation.steps import NO_PLACE_FOR_GROUP, WAITS_FOR_GROUP
from stower.engine.groups.tree_preemption import GIVEN_UP
from stower.engine.preemption.eviction_pauses import SPARES
from stower.engine.status_reporter import POD_SCHEDULED
from stower.framework.decisions import Decision, Outcome
from stower.framework.events import Event, Listed, WriteFailed, WriteOk
from stower.framework.writes import ObjectWrite, PatchPodStatus, Write
from stower.model.kinds import GROUPS, STORAGE, Node, Pod, WarmPool
from stower.model.kinds.pod import DISRUPTION_TARGET
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.checkers.step_reader import ObjectChange
from stower.sim.scheduler import SchedulerProcess
from stower.sim.vm_load import SCHEDULER
from stower.warm.pools import Role, pool_role_of

# After this, kube-scheduler tries an unschedulable pod again without any event.
FLUSH_NS: Final = 300 * SECOND_NS
# Conditions of pods that say what was decided; no pod waits for them to be written.
REPORTS: Final = (POD_SCHEDULED, DISRUPTION_TARGET)


class Kind(Flag):
    """Kinds of change, as far as plugins distinguish them."""

    NONE = 0
    NODE_ADDED = auto()
    NODE_DELETED = auto()
    ALLOCATABLE = auto()
    NODE_LABELS = auto()
    TAINTS = auto()
    POD_PLACED = auto()
    POD_GONE = auto()  # or its nomination was withdrawn, or its binding failed
    POD_CHANGED = auto()  # the labels, annotations or requests of a pod with a node
    STORAGE = auto()
    OTHER = auto()  # claims, devices, groups, pools and anything else
    PLACEHOLDER = auto()  # of a warm pool, on a node: it makes way for users
    OWN = auto()  # the waiting pod itself: its object, writes about it, the end of its evictions


NEW_NODE: Final = Kind.NODE_ADDED | Kind.OWN
ROOM: Final = NEW_NODE | Kind.ALLOCATABLE | Kind.POD_GONE | Kind.POD_CHANGED
OTHER_PODS: Final = (
    NEW_NODE | Kind.NODE_LABELS | Kind.POD_PLACED | Kind.POD_GONE | Kind.POD_CHANGED
)  # fmt: skip
VOLUMES: Final = NEW_NODE | Kind.NODE_LABELS | Kind.STORAGE | Kind.POD_GONE
CONCERNS: Final[Mapping[str, Kind]] = {
    "NodeResourcesFit": ROOM,
    "NodeName": NEW_NODE,
    "NodePorts": NEW_NODE | Kind.POD_GONE,
    "NodeAffinity": NEW_NODE | Kind.NODE_LABELS,
    "NodeUnschedulable": NEW_NODE | Kind.TAINTS,
    "TaintToleration": NEW_NODE | Kind.TAINTS,
    "InterPodAffinity": OTHER_PODS,
    "PodTopologySpread": OTHER_PODS | Kind.NODE_DELETED | Kind.TAINTS,
    "VolumeBinding": VOLUMES,
    "VolumeRestrictions": VOLUMES,
    "VolumeZone": VOLUMES,
    "NodeVolumeLimits": VOLUMES,
}
# Plugins that try a pod again at a time of their own: drivers and images are waited for, and an
# approval that no VM shows expires.
TIMED: Final = frozenset(("NegotiatedResources", "ImageReadiness", "AutoscaleEnforcer"))
# Of plugins that are not named above, and of pod groups: any change.
ANYTHING: Final = ~Kind.NONE
GROUP: Final = "its pod group"
# What is said of groups that are tried again at a time of their own.
TIMED_TEXTS: Final = re.compile(
    "^not found yet|^waiting for|partially bound|^no suitable node for "
    f"|{WAITS_FOR_GROUP}|{NO_PLACE_FOR_GROUP}|{SPARES}|{GIVEN_UP}"
)


class _Refusal:
    """The last refused attempt for a pod."""

    __slots__ = ("at_ns", "is_preempting", "kinds", "message", "number", "own", "plugins")

    def __init__(self, decision: Decision, kinds: Kind, plugins: str, number: int) -> None:
        self.at_ns = decision.at_ns
        self.message = decision.message
        self.is_preempting = bool(decision.victims)
        self.kinds = kinds
        self.plugins = plugins
        self.number = number  # of changes and decisions so far
        self.own = False  # whether the pod has changed, or a write about it was answered


class Attempts(Checker):
    """Compares each refused attempt with the attempt before.

    Not compared: attempts for which time matters (negotiations, images that are waited for), and
    searches whose budget ran out, as the next attempt goes on with more.
    """

    law = "attempts"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._reader = court.step_reader
        self._refused: dict[str, _Refusal] = {}  # by uid
        self._last: dict[Kind, int] = {}  # the number of the last change of each kind
        self._number = 0
        # By the id of an unanswered write: the uid of its pod, and whether a pod waits for it.
        self._subjects: dict[int, tuple[str, bool]] = {}
        self._nominated: set[str] = set()  # uids of pods that were nominated, until they are placed

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """Take the changes of the step, then look at its decisions in their order."""
        step = self._reader.read(process, event)
        if step.is_first:
            self._refused.clear()
            self._subjects.clear()
        if isinstance(event, WriteOk | WriteFailed):
            self._on_answer(event)
        if isinstance(event, Listed):
            self._add(ANYTHING)
        for change in step.changes:
            self._on_change(change)
        withdrawn = {
            write.uid
            for write in writes
            if isinstance(write, PatchPodStatus) and write.nominated_node_name == ""
        }
        for decision in step.decisions:
            self._on_decision(decision)
            if decision.uid in withdrawn or decision.uid in self._nominated:
                self._add(ANYTHING)  # the write may be behind another of the pod
        for write in writes:
            self._on_write(write)

    # Changes

    def _add(self, kinds: Kind) -> None:
        self._number += 1
        for kind in _members(kinds):
            self._last[kind] = self._number

    def _on_answer(self, event: WriteOk | WriteFailed) -> None:
        uid, is_awaited = self._subjects.pop(event.id, ("", False))
        if isinstance(event, WriteFailed):
            self._add(Kind.POD_GONE | Kind.OTHER | Kind.STORAGE)  # what was assumed is taken back
        elif is_awaited and not uid:
            self._add(Kind.OTHER)
        if uid in self._refused and (is_awaited or isinstance(event, WriteFailed)):
            self._refused[uid].own = True

    def _on_write(self, write: Write) -> None:
        if isinstance(write, ObjectWrite):
            self._subjects[write.id] = ("", True)
        elif isinstance(write, PatchPodStatus):
            condition = write.condition
            is_report = condition is None or condition.type in REPORTS
            self._subjects[write.id] = (write.uid, not is_report)
            if write.nominated_node_name:
                self._nominated.add(write.uid)

    def _on_change(self, change: ObjectChange) -> None:
        obj = change.object
        if isinstance(obj, Node):
            self._add(_node_kinds(change))
        elif isinstance(obj, Pod):
            self._add(_pod_kinds(change))
            if change.new is not None and self._role(obj) is Role.PLACEHOLDER:
                self._add(Kind.PLACEHOLDER)
            refused = self._refused.get(obj.metadata.uid)
            if _has_pod_changed(change):
                if refused is not None:
                    refused.own = True
                if obj.group_name:
                    self._add(Kind.OTHER)  # its group is tried as a whole
            if change.new is None:
                self._refused.pop(obj.metadata.uid, None)
        elif isinstance(obj, STORAGE):
            self._add(Kind.STORAGE)
        elif not isinstance(obj, GROUPS) or _has_group_changed(change):
            self._add(Kind.OTHER)

    # Decisions

    def _on_decision(self, decision: Decision) -> None:
        if decision.outcome is not Outcome.UNSCHEDULABLE:
            self._refused.pop(decision.uid, None)
            is_placed = decision.outcome is Outcome.PLACED
            self._nominated.discard(decision.uid)
            self._add(Kind.POD_PLACED if is_placed else Kind.POD_GONE | Kind.OTHER)
            return
        before = self._refused.get(decision.uid)
        if before is not None and before.message == decision.message:
            self._compare(before, decision)
        diagnosis = decision.diagnosis
        plugins = sorted(diagnosis.plugins) if diagnosis is not None else []
        if not TIMED.isdisjoint(plugins):
            plugins = []
        elif self._is_of_group(decision):
            plugins = [GROUP]
        kinds = _concerns(plugins)
        pod = self._reader.pod(f"{decision.namespace}/{decision.name}")
        if pod is not None and self._role(pod) is Role.USER:
            kinds |= Kind.PLACEHOLDER
        if decision.victims:
            kinds |= Kind.POD_GONE
        self._number += 1
        self._refused[decision.uid] = _Refusal(decision, kinds, ", ".join(plugins), self._number)

    def _is_of_group(self, decision: Decision) -> bool:
        """Returns whether a pod was refused with its group, for what only a change can lift."""
        pod = self._reader.pod(f"{decision.namespace}/{decision.name}")
        if pod is None or not pod.group_name or pod.spec.scheduler_name == SCHEDULER:
            return False  # in the profile of VMs, an approval that expires wakes it
        return TIMED_TEXTS.search(decision.message) is None

    def _role(self, pod: Pod) -> Role | None:
        """Returns what the pod is in a warm pool."""
        found = pool_role_of(self.court.server.all(WarmPool).values(), pod)
        return found[1] if found is not None else None

    def _compare(self, before: _Refusal, decision: Decision) -> None:
        passed_ns = decision.at_ns - before.at_ns
        if before.own or passed_ns >= FLUSH_NS or not before.plugins:
            return
        if any(self._last.get(kind, 0) > before.number for kind in _members(before.kinds)):
            return
        raise self.violation(
            f"pod {decision.namespace}/{decision.name} is tried again {passed_ns / SECOND_NS:.3f} "
            f"s after it was refused by {before.plugins}, and nothing has changed that concerns "
            f"them: {decision.message}"
        )


@cache
def _members(kinds: Kind) -> tuple[Kind, ...]:
    return tuple(kinds)


def _concerns(plugins: Iterable[str]) -> Kind:
    found = Kind.OWN
    for name in plugins:
        found |= CONCERNS.get(name, ANYTHING)
    return found


def _node_kinds(change: ObjectChange) -> Kind:
    old, new = change
    if not isinstance(old, Node):
        return Kind.NODE_ADDED
    if not isinstance(new, Node):
        return Kind.NODE_DELETED
    kinds = Kind.NONE
    if old.status.allocatable != new.status.allocatable:
        kinds |= Kind.ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        kinds |= Kind.NODE_LABELS
    if old.spec != new.spec:
        kinds |= Kind.TAINTS
    if old.status != new.status or old.metadata.annotations != new.metadata.annotations:
        kinds |= Kind.OTHER
    return kinds


def _pod_kinds(change: ObjectChange) -> Kind:
    """Returns what a change of a pod may mean for other pods."""
    old, new = change
    if not isinstance(new, Pod) or new.is_terminal:
        return Kind.POD_GONE
    if not isinstance(old, Pod):
        return Kind.POD_PLACED if new.spec.node_name else Kind.NONE
    kinds = Kind.NONE
    if new.status.nominated_node_name != old.status.nominated_node_name:
        kinds |= Kind.POD_GONE
    if new.spec.node_name != old.spec.node_name:
        kinds |= Kind.POD_PLACED
    if not new.spec.node_name:
        return kinds if old.group_name == new.group_name else kinds | Kind.OTHER
    if new.metadata.deletion_timestamp != old.metadata.deletion_timestamp:
        kinds |= Kind.POD_CHANGED
    if (new.metadata.labels, new.metadata.annotations, new.spec.containers) != (
        old.metadata.labels, old.metadata.annotations, old.spec.containers,
    ):  # fmt: skip
        kinds |= Kind.POD_CHANGED
    return kinds


def _has_pod_changed(change: ObjectChange) -> bool:
    """Returns whether more has changed than what reports decisions: its condition and the nominated
    node."""
    old, new = change
    if not isinstance(old, Pod) or not isinstance(new, Pod):
        return True
    return _waiting_key(old) != _waiting_key(new)


def _waiting_key(pod: Pod) -> tuple[object, ...]:
    meta, status = pod.metadata, pod.status
    conditions = [each for each in status.conditions or () if each.type not in REPORTS]
    return (
        meta.labels, meta.annotations, meta.deletion_timestamp, pod.spec, conditions,
        status.resource_claim_statuses,
    )  # fmt: skip


def _has_group_changed(change: ObjectChange) -> bool:
    old, new = change
    return old is None or new is None or old.spec != new.spec  # type: ignore[union-attr]
