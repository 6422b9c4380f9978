"""Tracks approvals that were written to a VM but that its pod does not show yet.

An approval is written to the VM, and the VM's controller copies it to the pod. Until then the pod
shows less than was approved, and the difference could be approved again for another pod. So a pod
counts with the values written for it. A write that was not answered, or was refused, may have been
carried out or not: its amount stays reserved, and the value is written again. If the pod does not
show the value for a while (another client may have overwritten it), the pod counts as it is, and
is reconciled again.

Lost at a restart: an approval that the previous scheduler wrote counts from when the VM or its pod
shows it (vm_approvals.py).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.vms.amounts import BadAmount, Resources, read_resources, resources_text
from stower.vms.pods import APPROVED

LASTS_NS: Final = 30 * SECOND_NS


class _PodApprovals(NamedTuple):
    """What the pod showed before; values in the order in which they were written, each with whether
    it is known that it was; until when they count."""

    before: str | None
    values: tuple[tuple[str, bool], ...]
    until_ns: int


class ApprovedPod(NamedTuple):
    """A pod with what was written for it; `least`: what is to be set aside for it at least."""

    pod: Pod
    least: Resources = Resources()


class PendingApprovals:
    """By pod's uid."""

    def __init__(self) -> None:
        self._known: dict[str, _PodApprovals] = {}

    def add(self, pod: Pod, value: str, now_ns: int) -> int:
        """A value is being written for the pod, as it was seen. Until when that counts."""
        known = self._known.get(pod.metadata.uid) or _PodApprovals(_approved_text(pod), (), 0)
        until_ns = now_ns + LASTS_NS
        values = (*known.values, (value, False))
        self._known[pod.metadata.uid] = _PodApprovals(known.before, values, until_ns)
        return until_ns

    def confirm(self, uid: str, value: str) -> None:
        """It was carried out, the last time at least."""
        known = self._known.get(uid)
        if known is not None and known.values and known.values[-1][0] == value:
            values = (*known.values[:-1], (value, True))
            self._known[uid] = known._replace(values=values)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._known.pop(uid, None)

    @property
    def is_empty(self) -> bool:
        """Whether all shows."""
        return not self._known

    def has_expired(self, uid: str, now_ns: int) -> bool:
        """Whether something was written that has not shown in all that time."""
        known = self._known.get(uid)
        return known is not None and now_ns >= known.until_ns

    def with_approvals(self, pod: Pod, now_ns: int) -> ApprovedPod:
        """The pod with all that was written for it and does not show yet, where that is more."""
        uid, shown = pod.metadata.uid, _approved_text(pod)
        known = self._known.get(uid)
        if known is None:
            return ApprovedPod(pod)
        at = max((i for i, (value, _) in enumerate(known.values) if value == shown), default=-1)
        if at >= 0:
            known = known._replace(before=shown, values=known.values[at + 1 :])
            self._known[uid] = known
        is_foreign = at < 0 and shown != known.before
        if is_foreign or not known.values or now_ns >= known.until_ns:
            del self._known[uid]
            return ApprovedPod(pod)
        own = [shown] if shown is not None else []
        sure = [value for value, is_known in known.values if is_known]
        try:
            least = _max_resources([*own, *(value for value, _ in known.values)])
            if not sure:
                return ApprovedPod(pod, least)
            told = _max_resources([*own, *sure])
        except BadAmount:
            return ApprovedPod(pod)  # it is refused for that
        notes = {**(pod.metadata.annotations or {}), APPROVED: resources_text(told)}
        meta = msgspec.structs.replace(pod.metadata, annotations=notes)
        return ApprovedPod(msgspec.structs.replace(pod, metadata=meta), least)


def _max_resources(values: Iterable[str]) -> Resources:
    amounts = [read_resources(value) for value in values]
    return Resources(max(a.cpu for a in amounts), max(a.memory for a in amounts))


def _approved_text(pod: Pod) -> str | None:
    return (pod.metadata.annotations or {}).get(APPROVED)
