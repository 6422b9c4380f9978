"""What groups are told in their status: whether they were placed as a whole, and why not.

Once True the condition stays True, whatever comes (KEP-4671 "PodGroup Status", KEP-6012 "Status").
Nothing is written twice; what was refused is written again once the object has been seen anew.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from stower.framework.writes import Write, patch_of
from stower.model.kinds import GroupObject, PodGroup
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
        self, state: ClusterState, send: Callable[[Write], None], next_id: Callable[[], int]
    ) -> None:
        self._state = state
        self._send = send
        self._next_id = next_id
        self._wanted: dict[GroupKey, Word] = {}  # what objects do not say yet
        self._written: dict[GroupKey, Word] = {}
        # What is not answered, with the version that it relies on.
        self._open: dict[int, tuple[GroupKey, str]] = {}

    @property
    def is_open(self) -> bool:
        """Whether a write is not answered yet."""
        return bool(self._open)

    def tell(self, which: GroupKey, word: Word) -> None:
        """Have the group say so, unless it was placed before."""
        obj = self._state.groups.get(which)
        pending = self._wanted.get(which)
        if obj is None:
            return
        if pending is not None and pending.status == TRUE:
            self._write(which, obj)
            return
        word = word._replace(message=word.message[:MESSAGE_MAX])
        if _said(obj) == word or is_placed(obj):
            return
        self._wanted[which] = word
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
        word = self._wanted.get(which)
        if word is None:
            return
        if gone or _said(obj) == word or is_placed(obj):
            self._wanted.pop(which, None)
            self._written.pop(which, None)
        else:
            self._write(which, obj)

    def _write(self, which: GroupKey, obj: GroupObject) -> None:
        word = self._wanted[which]
        is_open = any(other == which for other, _ in self._open.values())
        if self._written.get(which) == word or is_open:
            return
        self._written[which] = word
        id = self._next_id()
        self._open[id] = (which, obj.metadata.resource_version)
        patch = {"status": {"conditions": _with(obj, word, time_text(self._state.now_ns))}}
        self._send(msgspec.structs.replace(patch_of(obj, patch, "status"), id=id))


def _types(obj: GroupObject) -> tuple[str, ...]:
    return (OF_PODS, OF_PODS_BEFORE) if isinstance(obj, PodGroup) else (OF_GROUPS,)


def _condition(obj: GroupObject) -> GroupCondition | None:
    types = _types(obj)
    return next((c for c in obj.status.conditions or () if c.type in types), None)


def _said(obj: GroupObject) -> Word | None:
    found = _condition(obj)
    return Word(found.status, found.reason, found.message) if found is not None else None


def is_placed(obj: GroupObject) -> bool:
    """Whether the group says that it was placed as a whole, once."""
    found = _condition(obj)
    return found is not None and found.status == TRUE


def _with(obj: GroupObject, word: Word, now: str) -> list[Any]:
    """All conditions of the object, this one changed."""
    before = _condition(obj)
    since = now
    if before is not None and before.status == word.status and before.last_transition_time:
        since = before.last_transition_time
    type = before.type if before is not None else _types(obj)[0]
    new = GroupCondition(type, *word, last_transition_time=since)
    others = [c for c in obj.status.conditions or () if c is not before]
    found: list[Any] = msgspec.to_builtins([*others, new])
    return [{"message": "", **condition} for condition in found]
