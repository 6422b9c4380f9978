"""Explains why a tree of pod groups has its place or none, and the smallest changes by which it
would have one.

Each change is verified on the state, in a trial that is undone. Must not change anything.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec

from stower.engine.groups.eviction_pauses import ONGOING
from stower.engine.groups.tree_attempts import TreeAttempts
from stower.engine.groups.tree_plan import TreeResult
from stower.engine.groups.tree_preemption import AWAITS_VICTIMS
from stower.engine.queue.entities import QueuedTree
from stower.framework.explanation import ChangeStep, changed_fields
from stower.groups.problem_builder import admitted_groups, placed_pods
from stower.groups.reasons import IMPOSSIBLE, NOT_FOUND
from stower.groups.tree import Tree, TreeGroup, tree_of
from stower.model.kinds import KIND_BY_VIEW, CompositePodGroup, GroupObject, Node, PodGroup
from stower.model.resources import node_room
from stower.state.cluster import ClusterState
from stower.state.groups import GroupKey, group_key

SHOWN: Final = 5
NODES_ADDED_MAX: Final = 64
# Requirements of which changes are tried: each takes a few searches.
TRIED_MAX: Final = 24
MODELS_MAX: Final = 6
HOSTNAME: Final = "kubernetes.io/hostname"

Apply = Callable[[], object]


class GroupChange(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A verified change that lets the tree be placed. `what`: in words; `cost`: the smaller, the
    sooner it is proposed; `steps`: fields of groups that change; `nodes_added`: so many nodes like
    `node_like`; `placed`: so many of its pods would be placed."""

    what: str
    cost: float
    steps: tuple[ChangeStep, ...] = ()
    nodes_added: int = 0
    node_like: str = ""
    placed: int = 0


class GroupExplanation(msgspec.Struct, frozen=True, rename="camel"):
    """The explanation of a group and of the tree that it is in. `answer`: placed; fits (it waits
    only to be tried); evicting (it fits once others have left); waiting (something is missing);
    invalid; impossible; not found yet. `pods`: how many of the tree have no node; `nodes`: where
    they would go, by pod, if it fits."""

    group: str
    root: str
    answer: str
    message: str = ""
    pods: int = 0
    placed: int = 0
    nodes: dict[str, str] = {}
    changes: tuple[GroupChange, ...] = ()


def explain_group(
    state: ClusterState, attempts: TreeAttempts, which: GroupKey
) -> GroupExplanation | None:
    """Returns the explanation of a group, None where nothing is known of it."""
    if state.groups.get(which) is None and which.key not in state.groups.members:
        return None
    root = state.groups.root(which)
    tree = tree_of(state.groups, root)
    begin = partial(GroupExplanation, _name(which), _name(root))
    placed = sum(len(placed_pods(state, tree, g)) for g in tree.leaves())
    queued = attempts.trees.get(root)
    if queued is None:
        is_there = bool(tree.groups) and admitted_groups(state, tree)[0]
        message = "" if is_there else tree.invalid or tree.missing or "it has no pods"
        return begin("placed" if is_there else "waiting", message, 0, placed)
    pods = len(queued.members)
    if fault := attempts.trees.fault_of(queued):
        return begin("invalid", fault, pods, placed)
    if queued.waits_for:
        return begin("waiting", queued.waits_for, pods, placed)
    with state.trial():  # so that plugins that learn from attempts do not learn from this one
        found = attempts.dry_run(queued)
        if found.plan:
            nodes = {q.pod.key: state.node_names[row] for q, row in found.plan}
            return begin("fits", "", pods, placed, nodes)
        victims = attempts.dry_run_victims(queued, found)
        if victims is not None and victims.why_not == ONGOING:
            return begin("evicting", f"{AWAITS_VICTIMS} ({ONGOING})", pods, placed)
        if victims is not None and victims.plan:
            nodes = {q.pod.key: state.node_names[row] for q, row in victims.plan}
            return begin("evicting", victims.text(), pods, placed, nodes)
        changes = _Changes(state, attempts, queued, tree).find()
    return begin(_answer(found), found.message, pods, placed, {}, tuple(changes))


def _answer(found: TreeResult) -> str:
    start = found.message.partition(" (")[0]
    return start if found.message.startswith((IMPOSSIBLE, NOT_FOUND)) else "waiting"


def _name(which: GroupKey) -> str:
    return f"{'CompositePodGroup' if which.is_composite else 'PodGroup'} {which.key}"


class _Changes:
    """Tries changes for one tree, within a trial."""

    def __init__(
        self, state: ClusterState, attempts: TreeAttempts, queued: QueuedTree, tree: Tree
    ) -> None:
        self._state = state
        self._attempts = attempts
        self._queued = queued
        self._tree = tree

    def find(self) -> list[GroupChange]:
        """Returns the smallest changes, the best first."""
        found = [*self._minimums(), *self._topologies()]
        if (nodes := self._nodes()) is not None:
            found.append(nodes)
        return sorted(found, key=lambda change: change.cost)[:SHOWN]

    def _fits_with(self, apply: Apply) -> int:
        """Returns how many of the tree's pods would be placed."""
        with self._state.trial():
            apply()
            return len(self._attempts.dry_run(self._queued).plan)

    def _minimums(self) -> Iterator[GroupChange]:
        """Yields lower minimums, each the largest that helps."""
        for group in self._tree.groups[:TRIED_MAX]:
            few, many = 1, group.obj.minimum  # `few` is little enough; `many` is not
            is_lower = group.obj.is_gang and many > few
            placed = self._fits_with(self._with_minimum(group, few)) if is_lower else 0
            if not placed:
                continue
            while many - few > 1:
                half = (few + many) // 2
                if so_many := self._fits_with(self._with_minimum(group, half)):
                    few, placed = half, so_many
                else:
                    many = half
            field = "minGroupCount" if group.which.is_composite else "minCount"
            text = f"{field} of {_name(group.which)}: {group.obj.minimum} -> {few}"
            cost = 1.0 + 10 * (group.obj.minimum - few) / group.obj.minimum
            steps = _steps(group.obj, _lowered(group.obj, few))
            yield GroupChange(text, cost, steps, placed=placed)

    def _with_minimum(self, group: TreeGroup, minimum: int) -> Apply:
        return partial(self._state.groups.put, _lowered(group.obj, minimum))

    def _topologies(self) -> Iterator[GroupChange]:
        """Yields that a group need not share one domain."""
        for group in [g for g in self._tree.groups if g.topology][:TRIED_MAX]:
            spec = msgspec.structs.replace(group.obj.spec, scheduling_constraints=None)
            obj = msgspec.structs.replace(group.obj, spec=spec)
            if placed := self._fits_with(partial(self._state.groups.put, obj)):
                text = f"{_name(group.which)} need not share one {group.topology}"
                yield GroupChange(text, 6.0, _steps(group.obj, obj), placed=placed)

    def _nodes(self) -> GroupChange | None:
        """Returns the fewest nodes that help, like one of those that some pod of the tree may
        use."""
        best: GroupChange | None = None
        for node in self._models():
            most = NODES_ADDED_MAX if best is None else best.nodes_added - 1
            count = self._fewest_nodes(node, most) if most else 0
            if count:
                name = node.metadata.name
                text = f"{count} more node{'s' if count > 1 else ''} like {name}"
                placed = self._fits_with(partial(self._add, node, count))
                best = GroupChange(text, 3.0 + count, (), count, name, placed)
        return best

    def _fewest_nodes(self, node: Node, most: int) -> int:
        """Returns the fewest copies of a node that help, at most so many; 0 where none do."""
        few, count = 0, 1  # `few` are too few; `count` are enough, once the loop ends
        while not self._fits_with(partial(self._add, node, count)):
            if count >= most:
                return 0
            few, count = count, min(count * 2, most)
        while count - few > 1:
            half = (few + count) // 2
            if self._fits_with(partial(self._add, node, half)):
                count = half
            else:
                few = half
        return count

    def _models(self) -> list[Node]:
        """Returns nodes that some pod of the tree might use if they were empty, the largest first:
        one of each kind."""
        keys = dict.fromkeys(group.topology for group in self._tree.groups if group.topology)
        usable = self._attempts.usable_rows(self._queued)
        found: dict[object, Node] = {}
        for row in self._state.present_rows():
            node = self._state.nodes[row]
            if node is None or node.spec.unschedulable or not usable[row]:
                continue
            labels = node.metadata.labels or {}
            room = node_room(node.status.allocatable)
            kind = (
                *(labels.get(key) for key in keys),
                tuple(sorted(room.items())),
                msgspec.json.encode(node.spec.taints),
                tuple(sorted((k, v) for k, v in labels.items() if k != HOSTNAME)),
            )
            found.setdefault(kind, node)
        # By the share of all that there is of a resource.
        total: dict[str, int] = {}
        for node in found.values():
            for name, amount in node_room(node.status.allocatable).items():
                total[name] = total.get(name, 0) + amount

        def size(node: Node) -> tuple[float, str]:
            room = node_room(node.status.allocatable)
            share = sum(room[name] / total[name] for name in room if total[name])
            return -share, node.metadata.name

        return sorted(found.values(), key=size)[:MODELS_MAX]

    def _add(self, node: Node, count: int) -> None:
        for i in range(count):
            name = f"{node.metadata.name}-copy-{i}"
            labels = {**(node.metadata.labels or {}), HOSTNAME: name}
            meta = msgspec.structs.replace(node.metadata, name=name, uid=name, labels=labels)
            self._state.set_node(msgspec.structs.replace(node, metadata=meta))


def _steps(old: GroupObject, new: GroupObject) -> tuple[ChangeStep, ...]:
    return tuple(changed_fields(KIND_BY_VIEW[type(old)].name, group_key(old).key, old, new))


def _lowered(obj: GroupObject, minimum: int) -> GroupObject:
    """Returns the group with another minimum."""
    policy: Any = obj.spec.scheduling_policy
    field = "min_count" if isinstance(obj, PodGroup) else "min_group_count"
    gang = msgspec.structs.replace(policy.gang, **{field: minimum})
    policy = msgspec.structs.replace(policy, gang=gang)
    spec: Any = msgspec.structs.replace(obj.spec, scheduling_policy=policy)
    changed: PodGroup | CompositePodGroup = msgspec.structs.replace(obj, spec=spec)
    return changed
