"""What groups are told in their status and in Events: whether they were placed as a whole, why not,
and that they have to leave.

Once True the condition stays True, whatever comes (KEP-4671 "PodGroup Status", KEP-6012 "Status").
Nothing is written twice; what was refused is written again once the object has been seen anew.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from stower.engine.preemption.pod_eviction import BY_SCHEDULER
from stower.framework.writes import Write, patch_of
from stower.groups.tree import is_placed
from stower.model.kinds import GroupObject, PodGroup
from stower.model.kinds.pod import DISRUPTION_TARGET
from stower.model.kinds.pod_group import GroupCondition
from stower.model.times import time_text
from stower.state.cluster import ClusterState
from stower.state.groups import GroupKey, group_key

OF_PODS: Final = "PodGroupInitiallyScheduled"
OF_GROUPS: Final = "CompositePodGroupInitiallyScheduled"
# As v1alpha2 has it.
OF_PODS_BEFORE: Final = "PodGroupScheduled"
SCHEDULED: Final = "Scheduled"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
INVALID: Final = "Invalid"
TRUE, FALSE = "True", "False"
MESSAGE_MAX: Final = 32_768


class Word(NamedTuple):
    """What a condition says."""

    status: str
    reason: str
    message: str


class GroupTelling:
    """Of all groups."""

    def __init__(
        self,
        state: ClusterState,
        send: Callable[[Write], None],
        next_id: Callable[[], int],
        event: Callable[[GroupObject, Word], None],
    ) -> None:
        """`event`: an Event about a group: a root that was told something, or one that leaves."""
        self._state = state
        self._send = send
        self._next_id = next_id
        self._event = event
        # What objects do not say yet: of each whether it was placed, and whether it was disrupted.
        self._wanted: dict[GroupKey, dict[bool, Word]] = {}
        self._written: dict[GroupKey, dict[bool, Word]] = {}
        # What is not answered, with the version that it relies on.
        self._open: dict[int, tuple[GroupKey, str]] = {}

    @property
    def is_open(self) -> bool:
        """Whether a write is not answered yet."""
        return bool(self._open)

    def tell(self, which: GroupKey, word: Word) -> None:
        """Have the group say so, unless it was placed before."""
        obj = self._state.groups.get(which)
        if obj is None:
            return
        pending = self._wanted.get(which, {}).get(False)
        if pending is not None and pending.status == TRUE:
            self._write(which, obj)
            return
        self._want(which, obj, False, word)

    def disrupted(self, which: GroupKey, message: str) -> None:
        """Have the group say that its pods have to leave (KEP-5710)."""
        obj = self._state.groups.get(which)
        if obj is not None:
            self._want(which, obj, True, Word(TRUE, BY_SCHEDULER, message))

    def _want(self, which: GroupKey, obj: GroupObject, disrupted: bool, word: Word) -> None:
        word = word._replace(message=word.message[:MESSAGE_MAX])
        if _is_said(obj, disrupted, word):
            return
        wanted = self._wanted.setdefault(which, {})
        is_root = not self._state.groups.parent_of(obj)
        if wanted.get(disrupted) != word and (is_root or disrupted):
            self._event(obj, word)
        wanted[disrupted] = word
        self._write(which, obj)

    def answered(self, id: int, failed: bool) -> bool:
        """A write was carried out, or not. Whether it was one of these."""
        which, version = self._open.pop(id, (None, ""))
        if which is None:
            return False
        if failed:
            self._written.pop(which, None)
        obj = self._state.groups.get(which)
        # Where what came of it is seen already, nothing else will say that there is more to write.
        if obj is not None and obj.metadata.resource_version != version:
            self.seen(obj, False)
        return True

    def seen(self, obj: GroupObject, gone: bool) -> None:
        """An object as it is now."""
        which = group_key(obj)
        wanted = self._wanted.get(which)
        if wanted is None:
            return
        for disrupted, word in list(wanted.items()):
            if gone or _is_said(obj, disrupted, word):
                del wanted[disrupted]
        if wanted:
            self._write(which, obj)
        else:
            del self._wanted[which]
            self._written.pop(which, None)

    def _write(self, which: GroupKey, obj: GroupObject) -> None:
        wanted = self._wanted[which]
        is_open = any(other == which for other, _ in self._open.values())
        if self._written.get(which) == wanted or is_open:
            return
        self._written[which] = dict(wanted)
        id = self._next_id()
        self._open[id] = (which, obj.metadata.resource_version)
        conditions = [*(obj.status.conditions or ())]
        for disrupted, word in wanted.items():
            _put(conditions, _types(obj, disrupted), word, time_text(self._state.now_ns))
        found: list[Any] = msgspec.to_builtins(conditions)
        patch = {"status": {"conditions": [{"message": "", **condition} for condition in found]}}
        self._send(msgspec.structs.replace(patch_of(obj, patch, "status"), id=id))


def _types(obj: GroupObject, disrupted: bool = False) -> tuple[str, ...]:
    if disrupted:
        return (DISRUPTION_TARGET,)
    return (OF_PODS, OF_PODS_BEFORE) if isinstance(obj, PodGroup) else (OF_GROUPS,)


def _condition(obj: GroupObject, disrupted: bool = False) -> GroupCondition | None:
    types = _types(obj, disrupted)
    return next((c for c in obj.status.conditions or () if c.type in types), None)


def _is_said(obj: GroupObject, disrupted: bool, word: Word) -> bool:
    found = _condition(obj, disrupted)
    if not disrupted and is_placed(obj):
        return True
    return found is not None and Word(found.status, found.reason, found.message) == word


def _put(conditions: list[GroupCondition], types: tuple[str, ...], word: Word, now: str) -> None:
    """One condition among the others, changed."""
    at = next((i for i, c in enumerate(conditions) if c.type in types), len(conditions))
    before = conditions[at] if at < len(conditions) else None
    since = now
    if before is not None and before.status == word.status and before.last_transition_time:
        since = before.last_transition_time
    type = before.type if before is not None else types[0]
    conditions[at : at + 1] = [GroupCondition(type, *word, last_transition_time=since)]
