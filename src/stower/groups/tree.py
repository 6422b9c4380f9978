"""Builds the tree of pod groups below a root from the API objects, and reports what makes the tree
invalid or what it still waits for.

Must not know nodes or placements.

Source: KEP-6012 "Group hierarchy" (invalid runtime hierarchies), "GangScheduling Plugin Changes"
(admissibility); KEP-5710 (one priority); texts of kube-scheduler plugins/gangscheduling.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from stower.model.kinds import GroupObject, Pod
from stower.model.kinds.pod import DISRUPTION_TARGET
from stower.model.kinds.pod_group import PREFERRED, GroupCondition
from stower.state.groups import GroupKey, Groups
from stower.state.pod_entry import PodEntry

DEPTH_MAX: Final = 4
WAITS_FOR_PODS: Final = "waiting for minCount pods from a gang to appear in scheduling queue"


class TreeGroup(msgspec.Struct, frozen=True, gc=False):
    """One group of a tree. `parent` and `children` are indices in Tree.groups."""

    which: GroupKey
    obj: GroupObject
    parent: int
    children: tuple[int, ...]

    @property
    def topology(self) -> str:
        """The node label whose value all its pods must share, "" for none."""
        constraints = self.obj.spec.scheduling_constraints
        return constraints.key if constraints is not None else ""

    @property
    def preferred(self) -> str:
        """The node label whose value its pods should share if possible, "" for none."""
        return (self.obj.metadata.annotations or {}).get(PREFERRED, "")


class Tree(msgspec.Struct, frozen=True, gc=False):
    """All known groups below a root, parents before children. `missing`: the object that must exist
    before the tree is complete; `invalid`: why the tree can never be placed as it is."""

    root: GroupKey
    groups: tuple[TreeGroup, ...] = ()
    missing: str = ""
    invalid: str = ""

    def leaves(self) -> list[int]:
        """The indices of the PodGroups."""
        return [g for g, group in enumerate(self.groups) if not group.which.is_composite]

    def topology_keys(self, g: int) -> tuple[str, ...]:
        """Returns the node labels whose values the pods of a group share, or preferably share,
        because of it or of a group above it."""
        keys: list[str] = []
        while g >= 0:
            keys += (self.groups[g].topology, self.groups[g].preferred)
            g = self.groups[g].parent
        return tuple(dict.fromkeys(key for key in keys if key))


def tree_of(groups: Groups, root: GroupKey) -> Tree:
    """Returns the current tree of a root group."""
    top = groups.get(root)
    name = root.key.partition("/")[2]
    if top is None:
        if root.is_composite:
            return Tree(root, missing=f'waiting for composite pod group "{name}" to appear')
        missing = f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
        return Tree(root, missing=missing)
    found: list[tuple[GroupKey, GroupObject, int]] = [(root, top, -1)]
    below: list[list[int]] = [[]]
    known = {root}
    depth = [1]
    invalid = ""
    for g, (which, _, _) in enumerate(found):
        for child in _order_children(groups, which):
            if child in known:
                invalid = f"cycle detected in composite pod group hierarchy: {child.key}"
                continue
            obj = groups.get(child)
            assert obj is not None
            known.add(child)
            below[g].append(len(found))
            found.append((child, obj, g))
            below.append([])
            depth.append(depth[g] + 1)
    if not invalid and max(depth) > DEPTH_MAX:
        levels = max(depth)
        invalid = f"hierarchy depth of {levels} exceeds maximum allowed depth of {DEPTH_MAX}"
    made = tuple(
        TreeGroup(which, obj, parent, tuple(below[g]))
        for g, (which, obj, parent) in enumerate(found)
    )
    return Tree(root, made, invalid=invalid or _disagreement(made))


def _order_children(groups: Groups, which: GroupKey) -> list[GroupKey]:
    """Returns the children, sorted by creation time, then name, then PodGroups first."""
    if not which.is_composite:
        return []

    def rank(child: GroupKey) -> tuple[str, str, bool]:
        obj = groups.get(child)
        return (obj.metadata.creation_timestamp or "" if obj else "", child.key, child.is_composite)

    return sorted(groups.children.get(which.key, ()), key=rank)


def _disagreement(groups: tuple[TreeGroup, ...]) -> str:
    """Returns an error message if the groups refer to different Workloads or priorities, else
    ""."""
    workloads = sorted({g.obj.workload_name for g in groups if g.obj.workload_name})
    if len(workloads) > 1:
        return f"The groups refer to more than one Workload: {' and '.join(workloads)}"
    priorities = {g.obj.spec.priority or 0: g.which.key for g in groups}
    if len(priorities) > 1:
        (low, one), (high, other), *_ = sorted(priorities.items())
        return (
            "all groups of a hierarchy should have the same priority, got: "
            f"{low} ({one}) and {high} ({other})"
        )
    return ""


def _first_pods(pods: list[PodEntry], field: Callable[[Pod], str]) -> dict[str, str]:
    """Returns the values of a field with the first pod that has each."""
    found: dict[str, str] = {}
    for entry in pods:
        found.setdefault(field(entry.pod), entry.key)
    return found


def find_disagreement(tree: Tree, pods: list[PodEntry]) -> str:
    """Returns an error message if the pods have different schedulers, priorities or preemption
    policies, else ""."""
    names = _first_pods(pods, lambda pod: pod.spec.scheduler_name)
    if len(names) > 1:
        first, other, *_ = names
        return (
            "all pods in a single pod group should have the same .spec.schedulerName set, "
            f'got: "{first}" and "{other}" (pod {names[other]})'
        )
    own = tree.groups[0].obj.spec.priority
    wanted = own if own is not None else (pods[0].pod.priority if pods else 0)
    unlike = next((entry for entry in pods if entry.pod.priority != wanted), None)
    if unlike is not None:
        return (
            "all pods in a single pod group should match the priority of the pod group, "
            f"got: {unlike.pod.priority} and {wanted} (pod {unlike.key})"
        )
    policies = _first_pods(pods, lambda pod: pod.spec.preemption_policy or "")
    if len(policies) > 1:
        first, other, *_ = policies
        return (
            "all pods in a single pod group should have the same preemption policy, "
            f'got: "{first}" and "{other}" (pod {policies[other]})'
        )
    return ""


def find_fault(tree: Tree, pods: list[PodEntry], others: Iterable[Pod]) -> str:
    """Returns why a tree cannot be placed before somebody changes an object, which is named, or "".
    `others`: pods of other schedulers."""
    if tree.invalid:
        return tree.invalid
    if not tree.groups:
        return tree.missing if tree.root.is_composite else ""
    leaves = {tree.groups[g].which.key for g in tree.leaves()}
    for pod in others:
        if pod.group_name and f"{pod.metadata.namespace}/{pod.group_name}" in leaves:
            return (
                f'pod {pod.key} of the group has the schedulerName "{pod.spec.scheduler_name}", '
                "which this scheduler does not serve"
            )
    return find_disagreement(tree, pods) if pods else ""


def completed_groups(tree: Tree, groups: Groups) -> frozenset[int]:
    """Returns the PodGroups that were placed once and whose pods have all ended, while other pods
    of the tree are still placed: the tree needs no more of them. Without placed pods, the tree
    starts anew."""
    leaves = [(g, tree.groups[g]) for g in tree.leaves()]
    empty = [(g, group.obj) for g, group in leaves if not groups.members.get(group.which.key)]
    found = frozenset(g for g, obj in empty if is_placed(obj) and not _is_disrupted(obj))
    if not found:
        return found
    members = [groups.members.get(group.which.key, {}).values() for _, group in leaves]
    remains = any(
        entry.row >= 0 and entry.pod.metadata.deletion_timestamp is None
        for own in members
        for entry in own
    )
    return found if remains else frozenset()


def scheduled_condition(obj: GroupObject) -> GroupCondition | None:
    """Returns the group's condition about its placement, whose name depends on the API version."""
    return next((c for c in obj.status.conditions or () if c.type.endswith("Scheduled")), None)


def is_placed(obj: GroupObject) -> bool:
    """Returns whether the group was placed as a whole before, according to its status."""
    found = scheduled_condition(obj)
    return found is not None and found.status == "True"


def _is_disrupted(obj: GroupObject) -> bool:
    conditions = obj.status.conditions or ()
    return any(c.type == DISRUPTION_TARGET and c.status == "True" for c in conditions)


def waiting_reason(tree: Tree, counts: list[int], groups: Groups) -> str:
    """Returns why the tree is not tried yet (too few pods or groups exist), "" if it may be.
    `counts`: int[group], for PodGroups the number of existing pods, with or without a node."""
    if tree.missing or tree.invalid:
        return tree.missing  # what is faulty is told so, however much of it is there
    ready = [False] * len(tree.groups)
    ended = completed_groups(tree, groups) if tree.root.is_composite else frozenset()
    for g in range(len(tree.groups) - 1, -1, -1):
        group = tree.groups[g]
        have = sum(ready[c] for c in group.children) if group.which.is_composite else counts[g]
        ready[g] = have >= group.obj.minimum or g in ended
    if ready[0]:
        return ""
    if not tree.root.is_composite:
        return WAITS_FOR_PODS
    name = tree.root.key.partition("/")[2]
    return f'waiting for composite pod group "{name}" tree to meet quorum'
