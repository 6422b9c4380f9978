"""Writes the conditions of pod groups: whether they were placed as a whole, why not, and that their
pods are evicted.

Once True, the condition stays True (KEP-4671 "PodGroup Status", KEP-6012 "Status"). A condition
that says nothing new is not written; a refused write is repeated once the object was seen again.
Must not know how trees are placed.
"""

from typing import Any, Final, NamedTuple

import msgspec

from stower.engine.context import Context
from stower.engine.outbox import Answer
from stower.engine.preemption.pod_eviction import BY_SCHEDULER
from stower.framework.writes import patch_of
from stower.groups.tree import is_placed
from stower.model.kinds import KIND_BY_VIEW, GroupObject, PodGroup
from stower.model.kinds.pod import DISRUPTION_TARGET
from stower.model.kinds.pod_group import GroupCondition
from stower.model.times import time_text
from stower.state.groups import GroupKey, group_key

OF_PODS: Final = "PodGroupInitiallyScheduled"
OF_GROUPS: Final = "CompositePodGroupInitiallyScheduled"
# In v1alpha2.
OF_PODS_ALPHA: Final = "PodGroupScheduled"
SCHEDULED: Final = "Scheduled"
INVALID: Final = "Invalid"
TRUE, FALSE = "True", "False"
MESSAGE_MAX: Final = 32_768


class ConditionValue(NamedTuple):
    """The status, reason and message of a condition."""

    status: str
    reason: str
    message: str


class GroupStatus:
    """The conditions of all groups that their objects do not show yet."""

    def __init__(self, context: Context) -> None:
        self._state = context.state
        self._outbox = context.outbox
        self._reporter = context.reporter
        # Conditions wanted, and as last written; False: placed or not, True: disrupted.
        self._wanted: dict[GroupKey, dict[bool, ConditionValue]] = {}
        self._written: dict[GroupKey, dict[bool, ConditionValue]] = {}
        # Unanswered writes, with the resourceVersion that they rely on.
        self._writes: dict[int, tuple[GroupKey, str]] = {}

    @property
    def is_open(self) -> bool:
        """Whether a write is not answered yet."""
        return bool(self._writes)

    def set(self, which: GroupKey, value: ConditionValue) -> None:
        """Sets the condition for whether the group was placed; a True condition stays True."""
        obj = self._state.groups.get(which)
        if obj is None:
            return
        pending = self._wanted.get(which, {}).get(False)
        if pending is not None and pending.status == TRUE:
            self._write(which, obj)
            return
        self._want(which, obj, False, value)

    def disrupt(self, which: GroupKey, message: str) -> None:
        """Sets the condition DisruptionTarget (KEP-5710)."""
        obj = self._state.groups.get(which)
        if obj is not None:
            self._want(which, obj, True, ConditionValue(TRUE, BY_SCHEDULER, message))

    def _want(
        self, which: GroupKey, obj: GroupObject, disrupted: bool, value: ConditionValue
    ) -> None:
        value = value._replace(message=value.message[:MESSAGE_MAX])
        if _is_shown(obj, disrupted, value):
            return
        wanted = self._wanted.setdefault(which, {})
        is_root = not self._state.groups.parent_of(obj)
        if wanted.get(disrupted) != value and (is_root or disrupted):
            self._record_event(obj, value)
        wanted[disrupted] = value
        self._write(which, obj)

    def handle_answer(self, answer: Answer) -> None:
        """Takes the answer to a status patch."""
        which, version = self._writes.pop(answer.id)
        if answer.code:
            self._written.pop(which, None)
        obj = self._state.groups.get(which)
        # Where the result is seen already, no other event says that there is more to write.
        if obj is not None and obj.metadata.resource_version != version:
            self.observe(obj, False)

    def observe(self, obj: GroupObject, is_deleted: bool) -> None:
        """Takes an object that the watch has shown; writes the conditions that it lacks."""
        which = group_key(obj)
        wanted = self._wanted.get(which)
        if wanted is None:
            return
        for disrupted, value in list(wanted.items()):
            if is_deleted or _is_shown(obj, disrupted, value):
                del wanted[disrupted]
        if wanted:
            self._write(which, obj)
        else:
            del self._wanted[which]
            self._written.pop(which, None)

    def _write(self, which: GroupKey, obj: GroupObject) -> None:
        wanted = self._wanted[which]
        is_open = any(other == which for other, _ in self._writes.values())
        if self._written.get(which) == wanted or is_open:
            return
        self._written[which] = dict(wanted)
        id = self._outbox.next_id()
        self._writes[id] = (which, obj.metadata.resource_version)
        conditions = [*(obj.status.conditions or ())]
        for disrupted, value in wanted.items():
            _put(conditions, obj, disrupted, value, time_text(self._state.now_ns))
        found: list[Any] = msgspec.to_builtins(conditions)
        patch = {"status": {"conditions": [{"message": "", **condition} for condition in found]}}
        self._outbox.send(msgspec.structs.replace(patch_of(obj, patch, "status"), id=id), self)

    def _record_event(self, group: GroupObject, value: ConditionValue) -> None:
        kind = KIND_BY_VIEW[type(group)]
        type_, reason, action, note = "Warning", "FailedScheduling", "Scheduling", value.message
        if value.reason == BY_SCHEDULER:
            type_, reason, action = "Normal", "Preempted", "Preempting"
        elif value.status == TRUE:
            type_, reason, action = "Normal", "Scheduled", "Binding"
            note = "Successfully placed the minimum of the group"
        about = (kind.api_version, kind.name)
        self._reporter.object_event(group.metadata, about, type_, reason, action, note)


def _types(obj: GroupObject, disrupted: bool = False) -> tuple[str, ...]:
    if disrupted:
        return (DISRUPTION_TARGET,)
    return (OF_PODS, OF_PODS_ALPHA) if isinstance(obj, PodGroup) else (OF_GROUPS,)


def _condition(obj: GroupObject, disrupted: bool = False) -> GroupCondition | None:
    types = _types(obj, disrupted)
    return next((c for c in obj.status.conditions or () if c.type in types), None)


def _is_shown(obj: GroupObject, disrupted: bool, value: ConditionValue) -> bool:
    found = _condition(obj, disrupted)
    if not disrupted and is_placed(obj):
        return True
    return found is not None and ConditionValue(found.status, found.reason, found.message) == value


def _put(
    conditions: list[GroupCondition],
    obj: GroupObject,
    disrupted: bool,
    value: ConditionValue,
    now: str,
) -> None:
    """Sets one condition of a group, in place."""
    types = _types(obj, disrupted)
    at = next((i for i, c in enumerate(conditions) if c.type in types), len(conditions))
    before = conditions[at] if at < len(conditions) else None
    since = now
    if before is not None and before.status == value.status and before.last_transition_time:
        since = before.last_transition_time
    type = before.type if before is not None else types[0]
    conditions[at : at + 1] = [GroupCondition(type, *value, since, obj.metadata.generation)]
