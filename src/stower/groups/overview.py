"""Summarizes the state of pod group trees for `stower groups` and the dashboard: per group the
placed and waiting pods, the topology domain, and why the group waits.

Takes API objects and returns one GroupState per group. Must not know the engine.
"""

from collections.abc import Iterable

import msgspec

from stower.groups.problem_builder import (
    DomainConflictError,
    admitted_groups,
    bound_domain,
    placed_pods,
)
from stower.groups.reasons import IMPOSSIBLE, NOT_FOUND
from stower.groups.tree import Tree, scheduled_condition, tree_of, waiting_reason
from stower.model.errors import InvalidObject
from stower.model.kinds import GroupObject, Node, Pod
from stower.state.cluster import ClusterState
from stower.state.groups import GroupKey


class GroupState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of one group. `have`, `count`: for a PodGroup its pods with a node and all its
    pods, for a CompositePodGroup its child groups with their minimum and all child groups;
    `waiting`: pods in its subtree without a node; `domain`: the topology domain of its pods as
    key=value; `state`: placed, partly placed, ended, waiting,
    impossible, not found yet, partially bound, invalid or missing; `message`: the reason."""

    kind: str
    name: str
    level: int
    policy: str
    minimum: int
    have: int
    count: int
    waiting: int
    state: str
    topology: str = ""
    domain: str = ""
    message: str = ""


def overview(
    nodes: Iterable[Node], pods: Iterable[Pod], groups: Iterable[GroupObject], which: str = ""
) -> list[GroupState] | None:
    """Returns the state of all groups, or of the trees that contain the group `which`
    (namespace/name or name), parents before children; None if there is no such group."""
    state = ClusterState()
    for node in nodes:
        try:
            state.set_node(node)
        except InvalidObject:
            continue  # nothing can be placed there
    for group in groups:
        state.groups.put(group)
    for pod in pods:
        if pod.group_name and not pod.is_terminal:
            try:
                _ = state.add_placed(pod) if pod.spec.node_name else state.add_pending(pod)
            except InvalidObject:
                continue
    known = [GroupKey(False, key) for key in state.groups.members]
    known += [GroupKey(False, key) for key in state.groups.pod_groups]
    known += [GroupKey(True, key) for key in state.groups.composite_groups]
    if which:
        known = [k for k in known if which in (k.key, k.key.partition("/")[2])]
        if not known:
            return None
    roots = sorted({state.groups.root(key) for key in known}, key=lambda root: root.key)
    return [row for root in roots for row in _rows(state, tree_of(state.groups, root))]


def _rows(state: ClusterState, tree: Tree) -> list[GroupState]:
    if not tree.groups:
        kind = "CompositePodGroup" if tree.root.is_composite else "PodGroup"
        pods = len(state.groups.members.get(tree.root.key, ()))
        why = tree.missing
        return [GroupState(kind, tree.root.key, 0, "", 0, 0, pods, pods, "missing", message=why)]
    members = [state.groups.members.get(group.which.key, {}) for group in tree.groups]
    counts = [
        0 if group.which.is_composite else len(own)
        for group, own in zip(tree.groups, members, strict=True)
    ]
    has_minimum = admitted_groups(state, tree)
    have, waiting, on_nodes = [0] * len(counts), [0] * len(counts), [0] * len(counts)
    for g in range(len(counts) - 1, -1, -1):
        group = tree.groups[g]
        if group.which.is_composite:
            have[g] = sum(has_minimum[c] for c in group.children)
            waiting[g] = sum(waiting[c] for c in group.children)
            on_nodes[g] = sum(on_nodes[c] for c in group.children)
        else:
            have[g] = on_nodes[g] = len(placed_pods(state, tree, g))
            waiting[g] = counts[g] - have[g]
    levels = [0] * len(counts)
    for g, group in enumerate(tree.groups[1:], 1):
        levels[g] = levels[group.parent] + 1
    missing = tree.invalid or waiting_reason(tree, counts, state.groups)
    rows = []
    for g in _display_order(tree):
        group = tree.groups[g]
        is_admitted = has_minimum[g]
        message = tree.invalid or (missing if not is_admitted else "")
        said = scheduled_condition(group.obj)
        if not message and not is_admitted and said is not None and said.status == "False":
            message = said.message
        word = "invalid" if tree.invalid else "placed" if is_admitted else "waiting"
        if is_admitted and not group.which.is_composite and have[g] < group.obj.minimum:
            word = "ended"
        elif is_admitted and waiting[g]:
            word = "partly placed"
        elif word == "waiting" and on_nodes[g]:
            word = "partially bound"
        elif word == "waiting" and message.startswith((IMPOSSIBLE, NOT_FOUND)):
            word = message.partition(" (")[0]
        rows.append(
            GroupState(
                "CompositePodGroup" if group.which.is_composite else "PodGroup",
                group.which.key,
                levels[g],
                "gang" if group.obj.is_gang else "basic",
                group.obj.minimum,
                have[g],
                len(group.children) if group.which.is_composite else counts[g],
                waiting[g],
                word,
                group.topology,
                _domain(state, tree, g),
                message,
            )
        )
    return rows


def _display_order(tree: Tree) -> list[int]:
    """Returns the groups in the order of display: each followed by the groups below it."""
    found: list[int] = []
    left = [0]
    while left:
        g = left.pop()
        found.append(g)
        left.extend(reversed(tree.groups[g].children))
    return found


def _domain(state: ClusterState, tree: Tree, g: int) -> str:
    key = tree.groups[g].topology
    if not key:
        return ""
    try:
        code = bound_domain(state, tree, g, key)
    except DomainConflictError as error:
        return str(error)
    return f"{key}={state.labels.column(key).values[code]}" if code else ""
