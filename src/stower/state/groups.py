"""Pod groups and composite pod groups as the API has them, their member pods, and their tree.

Links go upwards only: a pod names its PodGroup, and a group names its parent. Either end may be
observed first. Must not know how groups are scheduled.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from stower.model.kinds import GroupObject, PodGroup
from stower.model.kinds.composite_pod_group import CompositePodGroup
from stower.model.kinds.pod_group import PARENT_GROUP, is_whole
from stower.state.journal import Journal

if TYPE_CHECKING:
    from stower.state.pod_entry import PodEntry

# Bound on walks up the tree: groups that are their own ancestors have no root.
DEPTH_MAX: Final = 64


class GroupKey(NamedTuple):
    """Identifies a group: `key` is namespace/name; `is_composite`: whether it is a
    CompositePodGroup rather than a PodGroup."""

    is_composite: bool
    key: str


class Groups:
    """All groups, their members and their links. `generation` grows with every change of a group
    object."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.pod_groups: dict[str, PodGroup] = {}
        self.composite_groups: dict[str, CompositePodGroup] = {}
        # Pods by the key of the PodGroup that they name, whether it exists or not, and by uid.
        self.members: dict[str, dict[str, PodEntry]] = {}
        # Groups by the key of the parent that they name.
        self.children: dict[str, dict[GroupKey, None]] = {}
        self.generation = 0
        # Groups that are only disrupted as a whole; `disruption_units_generation` grows when the
        # set changes, or when a pod has changed its group.
        self.disruption_units: dict[GroupKey, None] = {}
        self.disruption_units_generation = 0
        # Whether groups can have a parent (feature gate CompositePodGroup); where not, parents are
        # ignored.
        self.has_composite_groups = True

    def get(self, group: GroupKey) -> GroupObject | None:
        """Returns the group's object, None where it is not known."""
        return (self.composite_groups if group.is_composite else self.pod_groups).get(group.key)

    def put(self, obj: GroupObject) -> None:
        """Adds or replaces a group object."""
        self._log_undo(obj)
        self.generation += 1
        group = group_key(obj)
        old, new = self.parent_of(self.get(group)), self.parent_of(obj)
        if isinstance(obj, PodGroup):
            self.pod_groups[group.key] = obj
        else:
            self.composite_groups[group.key] = obj
        self._set_disruption_unit(group, is_whole(obj.spec.disruption_mode))
        if old != new:
            self._unlink(group, old)
            if new:
                self.children.setdefault(new, {})[group] = None

    def drop(self, obj: GroupObject) -> None:
        """Removes a group object."""
        self._log_undo(obj)
        self.generation += 1
        group = group_key(obj)
        self._unlink(group, self.parent_of(self.get(group)))
        self._set_disruption_unit(group, False)
        if group.is_composite:
            self.composite_groups.pop(group.key, None)
        else:
            self.pod_groups.pop(group.key, None)

    def _set_disruption_unit(self, group: GroupKey, is_unit: bool) -> None:
        if is_unit and group not in self.disruption_units:
            self.disruption_units[group] = None
            self.disruption_units_generation += 1
        elif not is_unit and group in self.disruption_units:
            del self.disruption_units[group]
            self.disruption_units_generation += 1

    def _unlink(self, group: GroupKey, parent: str) -> None:
        siblings = self.children.get(parent, {})
        siblings.pop(group, None)
        if parent and not siblings:
            self.children.pop(parent, None)

    def _log_undo(self, obj: GroupObject) -> None:
        if self._journal.is_recording:
            old = self.api_object(obj)
            self._journal.log(self.put if old is not None else self.drop, old or obj)

    def api_object(self, obj: GroupObject) -> GroupObject | None:
        """Returns the known version of an object, None where there is none."""
        return self.get(group_key(obj))

    def api_objects(self) -> list[GroupObject]:
        """Returns all group objects."""
        return [*self.pod_groups.values(), *self.composite_groups.values()]

    # Members

    def add_pod(self, entry: "PodEntry") -> None:
        """Adds a pod that names a group."""
        self.members.setdefault(group_key_of_pod(entry), {})[entry.uid] = entry

    def remove_pod(self, entry: "PodEntry") -> None:
        """Removes a pod that names a group."""
        key = group_key_of_pod(entry)
        pods = self.members[key]
        del pods[entry.uid]
        if not pods:
            del self.members[key]

    # The tree

    def parent_of(self, obj: GroupObject | None) -> str:
        """Returns the key of the parent that a group names, "" for none. A label names the parent
        in the API version that has no field for it (v1alpha2)."""
        if obj is None or not self.has_composite_groups:
            return ""
        name = obj.spec.parent_composite_pod_group_name
        if not name and obj.metadata.labels:
            name = obj.metadata.labels.get(PARENT_GROUP, "")
        return f"{obj.metadata.namespace}/{name}" if name else ""

    def lineage(self, group: GroupKey) -> list[GroupKey]:
        """Returns the group and its ancestors, the group first, as far as they are known. The last
        group may be unknown. In a cycle, each group occurs once."""
        lineage = [group]
        while (parent := self.parent_of(self.get(lineage[-1]))) and len(lineage) < DEPTH_MAX:
            ancestor = GroupKey(True, parent)
            if ancestor in lineage:
                break
            lineage.append(ancestor)
        return lineage

    def root(self, group: GroupKey) -> GroupKey:
        """Returns the group at the top of the tree, known or not. In a cycle, returns one of its
        groups, the same for all of them."""
        lineage = self.lineage(group)
        top = lineage[-1]
        parent = self.parent_of(self.get(top))
        if not parent:
            return top
        ancestor = GroupKey(True, parent)
        return min(lineage[lineage.index(ancestor) :]) if ancestor in lineage else top


def group_key(obj: GroupObject) -> GroupKey:
    """Returns the key of a group object."""
    return GroupKey(isinstance(obj, CompositePodGroup), obj.metadata.key)


def group_key_of_pod(entry: "PodEntry") -> str:
    """Returns the key (namespace/name) of the PodGroup that a pod names."""
    return f"{entry.pod.metadata.namespace}/{entry.pod.group_name}"
