"""Who is disrupted with whom: a pod alone, or all pods of the highest group that says so.

Source: KEP-5710 "Preemption unit", KEP-6012 "Integration with workload-aware preemption".
"""

from collections.abc import Iterable

import msgspec

from stower.model.kinds.pod_group import is_whole
from stower.state.groups import GroupKey, Groups
from stower.state.pod_entry import PodEntry
from stower.state.pod_table import importance


class Unit(msgspec.Struct, frozen=True, eq=False):
    """Pods that leave together. `group`: which, None for a pod alone."""

    group: GroupKey | None
    priority: int
    pods: tuple[PodEntry, ...]

    @property
    def importance(self) -> tuple[int, bool, int, tuple[int, int, int, str]]:
        """Smaller for what is worse to lose: priority, groups before pods, many before few, old
        before new."""
        oldest = min(importance(entry) for entry in self.pods)
        return (-self.priority, self.group is None, -len(self.pods), oldest)


def group_of(groups: Groups, entry: PodEntry) -> GroupKey | None:
    """The highest group around a pod that is disrupted as a whole, None where there is none."""
    if not entry.pod.group_name:
        return None
    key = GroupKey(False, f"{entry.pod.metadata.namespace}/{entry.pod.group_name}")
    whole = None
    for which in groups.lineage(key):
        obj = groups.get(which)
        if obj is not None and is_whole(obj.spec.disruption_mode):
            whole = which
    return whole


def below(groups: Groups, which: GroupKey) -> list[GroupKey]:
    """The group and all groups in it."""
    found = [which]
    for group in found:
        if group.is_composite:
            found += [g for g in groups.children.get(group.key, ()) if g not in found]
    return found


def members_of(groups: Groups, which: GroupKey) -> list[PodEntry]:
    """All pods of a group and of those in it, placed or not."""
    return [
        entry
        for group in below(groups, which)
        if not group.is_composite
        for entry in groups.members.get(group.key, {}).values()
    ]


def unit_of(groups: Groups, entry: PodEntry) -> Unit:
    """The unit of a placed pod, with all pods of it that are placed."""
    which = group_of(groups, entry)
    if which is None:
        return Unit(None, priority_of(groups, entry), (entry,))
    pods = tuple(other for other in members_of(groups, which) if other.row >= 0)
    return Unit(which, max(priority_of(groups, other) for other in pods), pods)


def leaving(groups: Groups, victims: Iterable[PodEntry]) -> list[GroupKey]:
    """The groups that leave as a whole, and all in them, where these pods do."""
    wholes = dict.fromkeys(which for e in victims if (which := group_of(groups, e)) is not None)
    return [which for whole in wholes for which in below(groups, whole)]


def whole_rows(groups: Groups) -> list[int]:
    """Rows with pods that leave with others or not at all, in their order."""
    if not groups.disruption_units:
        return []
    return sorted(
        {
            e.row
            for which in groups.disruption_units
            for e in members_of(groups, which)
            if e.row >= 0
        }
    )


def priority_of(groups: Groups, entry: PodEntry) -> int:
    """By which a pod is compared as a victim: its group's, where that has one."""
    if entry.pod.group_name:
        group = groups.pod_groups.get(f"{entry.pod.metadata.namespace}/{entry.pod.group_name}")
        if group is not None and group.spec.priority is not None:
            return group.spec.priority
    return entry.pod.priority


def units(groups: Groups, placed: Iterable[PodEntry]) -> list[Unit]:
    """The units that these pods are, in their order; the priority of one is that of its highest."""
    by_group: dict[GroupKey, list[PodEntry]] = {}
    found: list[Unit] = []
    for entry in placed:
        which = group_of(groups, entry)
        if which is None:
            found.append(Unit(None, priority_of(groups, entry), (entry,)))
        else:
            by_group.setdefault(which, []).append(entry)
    for which, pods in by_group.items():
        priority = max(priority_of(groups, entry) for entry in pods)
        found.append(Unit(which, priority, tuple(pods)))
    return found
