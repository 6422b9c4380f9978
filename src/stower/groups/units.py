"""Disruption units: the sets of pods that preemption evicts together. A unit is a single pod, or
all pods of the highest group around the pod whose disruption mode is the whole group.

Must not know how victims are chosen.

Source: KEP-5710 "Preemption unit", KEP-6012 "Integration with workload-aware preemption".
"""

from collections.abc import Iterable

import msgspec

from stower.model.kinds.pod_group import is_whole
from stower.state.groups import GroupKey, Groups
from stower.state.pod_entry import PodEntry
from stower.state.pod_table import importance


class Unit(msgspec.Struct, frozen=True, eq=False):
    """Pods that are evicted together. `group`: the group that is disrupted as a whole, None for a
    single pod."""

    group: GroupKey | None
    priority: int
    pods: tuple[PodEntry, ...]

    @property
    def importance(self) -> tuple[int, bool, int, tuple[int, int, int, str]]:
        """The sort key of units; more important units have smaller keys. By priority, then groups
        before single pods, many pods before few, and older before newer."""
        oldest = min(importance(entry) for entry in self.pods)
        return (-self.priority, self.group is None, -len(self.pods), oldest)


def group_of(groups: Groups, entry: PodEntry) -> GroupKey | None:
    """Returns the highest group around a pod that is disrupted as a whole, or None."""
    if not entry.group_name:
        return None
    key = GroupKey(False, f"{entry.pod.metadata.namespace}/{entry.group_name}")
    whole = None
    for which in groups.lineage(key):
        obj = groups.get(which)
        if obj is not None and is_whole(obj.spec.disruption_mode):
            whole = which
    return whole


def groups_below(groups: Groups, which: GroupKey) -> list[GroupKey]:
    """Returns the group and all groups below it."""
    found = [which]
    for group in found:
        if group.is_composite:
            found += [g for g in groups.children.get(group.key, ()) if g not in found]
    return found


def members_of(groups: Groups, which: GroupKey) -> list[PodEntry]:
    """Returns all pods of a group and of the groups below it, with or without a node."""
    return [
        entry
        for group in groups_below(groups, which)
        if not group.is_composite
        for entry in groups.members.get(group.key, {}).values()
    ]


def unit_of(groups: Groups, entry: PodEntry) -> Unit:
    """Returns the disruption unit of a placed pod, with all placed pods of the unit."""
    which = group_of(groups, entry)
    if which is None:
        return Unit(None, priority_of(groups, entry), (entry,))
    pods = tuple(other for other in members_of(groups, which) if other.row >= 0)
    return Unit(which, max(priority_of(groups, other) for other in pods), pods)


def disrupted_groups(groups: Groups, victims: Iterable[PodEntry]) -> list[GroupKey]:
    """Returns the groups that are disrupted as a whole if these pods are evicted, with all groups
    below them."""
    wholes = dict.fromkeys(which for e in victims if (which := group_of(groups, e)) is not None)
    return [which for whole in wholes for which in groups_below(groups, whole)]


def whole_rows(groups: Groups) -> list[int]:
    """Returns, sorted, the rows (indices of nodes in the state's arrays) of all pods that can only
    be evicted together with others."""
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
    """Returns the priority of a pod as a victim: of its pod group if the group has a priority, else
    its own."""
    if entry.group_name:
        group = groups.pod_groups.get(f"{entry.pod.metadata.namespace}/{entry.group_name}")
        if group is not None and group.spec.priority is not None:
            return group.spec.priority
    return entry.pod.priority


def units(groups: Groups, placed: Iterable[PodEntry]) -> list[Unit]:
    """Returns the disruption units of these pods, single pods first. The priority of a unit is the
    highest of its pods."""
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
