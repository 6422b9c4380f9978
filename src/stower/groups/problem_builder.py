"""Builds the placement problem (problem.py) of a tree of pod groups from the cluster state: the
pods to place, the nodes that are feasible for at least one of them, their free resources and their
topology domains.

Filters come in as masks over rows (indices of nodes in the state's arrays), amounts as capacity
constraints. Pods of one group that are interchangeable form one part. Also answers which domain a
group is bound to by its placed pods. Must not know how the problem is solved.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from stower.framework.dry_run import CapacityConstraint
from stower.framework.tree_rules import TreeRule
from stower.groups.pair_rules import never_first, pair_rule
from stower.groups.problem import (
    NO_CAP,
    Group,
    Kind,
    Part,
    Problem,
    Scope,
    divided,
    reduced,
    whole_scope,
)
from stower.groups.tree import Tree, TreeGroup, completed_groups
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

# Of a resource on all nodes together. Some nodes have unlimited amounts: sums must not overflow.
AMOUNTS_MAX: Final = 1 << 60

# Of a pod: what tells it from others of its group, and bool[row_limit], where it may go.
Sorted = Callable[[PodEntry], tuple[object, Bools]]


class IndexedProblem(NamedTuple):
    """A problem and the meaning of its indices. `rows`: the row of each node of the problem;
    `pods`: the pods by group and part; `keys`: by group, the topology keys whose values tell its
    domains apart."""

    problem: Problem
    rows: Ints
    pods: list[list[list[PodEntry]]]
    keys: list[tuple[str, ...]]


class DomainConflictError(Exception):
    """Raised if placed pods of a group are in several domains, or on nodes without a domain."""


class Builder:
    """Builds one problem."""

    def __init__(
        self,
        state: ClusterState,
        tree: Tree,
        sort: Sorted,
        amounts: Callable[[PodEntry], list[CapacityConstraint]],
        prefers: bool,
        common_keys: Sequence[Sequence[str]],
        rules: Sequence[TreeRule] = (),
    ) -> None:
        """`sort`: see Sorted; `amounts`: returns the capacity constraints of a pod; `prefers`:
        whether preferred topology is treated as required; `common_keys`: by group, more topology
        keys of which its pods must share one domain; `rules`: between its pods."""
        self._rules = rules
        self._common_keys = common_keys
        self._prefers = prefers
        self._state = state
        self._tree = tree
        self._done = completed_groups(tree, state.groups)
        self._sort = sort
        self._amounts = amounts
        self._kinds: dict[object, int] = {}
        self._masks: list[Bools] = []
        self._samples: list[PodEntry] = []

    def build(self, pending: Sequence[Sequence[PodEntry]], priority: int) -> IndexedProblem:
        """Returns the problem. `pending`: the pods to place by group, in order; `priority`: their
        priority; the room of nominated pods with at least this priority is not free. Raises
        DomainConflictError."""
        state = self._state
        parts: list[list[Part]] = []
        pods: list[list[list[PodEntry]]] = []
        for members in pending:
            own: dict[int, list[PodEntry]] = {}
            for entry in members:
                own.setdefault(self._kind(entry), []).append(entry)
            parts.append([Part(kind, len(entries)) for kind, entries in own.items()])
            pods.append(list(own.values()))
        wanted = np.zeros(state.row_limit, np.bool_)
        for mask in self._masks:
            wanted |= mask
        rows = np.flatnonzero(wanted)
        rooms, demands = self._demands()
        free = np.zeros((len(rooms), len(rows)), np.int64)
        everywhere = slice(0, state.row_limit)
        for r, room in enumerate(rooms):
            free[r] = room.free(everywhere)[rows]
        self._keep(rooms, free, rows, {e.uid for es in pending for e in es}, priority)
        free, demands = reduced(np.maximum(free, 0), demands)
        free = np.minimum(free, AMOUNTS_MAX // max(len(rows), 1))
        names = [room.label or room.name for room in rooms]
        scopes, groups, keys = self._groups(rows, parts)
        samples = [entry.uid for entry in self._samples]
        made = (pair_rule(rule, samples, rows) for rule in self._rules)
        rules = tuple(rule for rule in made if rule is not None)
        nowhere = never_first(rules, len(samples))
        kinds = tuple(
            Kind(demand, np.where(mask[rows] & (k not in nowhere), NO_CAP, 0))
            for k, (demand, mask) in enumerate(zip(demands, self._masks, strict=True))
        )
        return IndexedProblem(
            Problem(tuple(names), free, tuple(scopes), tuple(groups), kinds, rules),
            rows,
            pods,
            keys,
        )

    def _kind(self, entry: PodEntry) -> int:
        key, mask = self._sort(entry)
        known = self._kinds.get(key)
        if known is None:
            known = self._kinds[key] = len(self._masks)
            self._masks.append(mask)
            self._samples.append(entry)
        return known

    def _demands(self) -> tuple[list[CapacityConstraint], list[Ints]]:
        """Returns the capacity constraints that concern at least one pod, and the demands of each
        kind of pods."""
        names: dict[str, int] = {}
        rooms: list[CapacityConstraint] = []
        asked: list[list[CapacityConstraint]] = [self._amounts(entry) for entry in self._samples]
        for room in (room for own in asked for room in own):
            if room.name not in names:
                names[room.name] = len(rooms)
                rooms.append(room)
        demands = []
        for own in asked:
            demand = np.zeros(len(rooms), np.int64)
            for room in own:
                demand[names[room.name]] = room.need
            demands.append(demand)
        return rooms, demands

    def _keep(
        self, rooms: list[CapacityConstraint], free: Ints, rows: Ints, own: set[str], priority: int
    ) -> None:
        """Subtracts the requests of nominated pods from the free amounts."""
        for name, promised in self._state.nominated_pods.items():
            row = self._state.row_of(name)
            node = int(np.searchsorted(rows, row))
            if row < 0 or node >= len(rows) or rows[node] != row:
                continue
            for uid, entry in promised.items():
                if uid not in own and entry.row < 0 and entry.pod.priority >= priority:
                    for r, room in enumerate(rooms):
                        free[r, node] -= room.usage(entry.shape)

    def _groups(
        self, rows: Ints, parts: list[list[Part]]
    ) -> tuple[list[Scope], list[Group], list[tuple[str, ...]]]:
        state, tree = self._state, self._tree
        scopes = [whole_scope(len(rows))]
        made: dict[tuple[int, str], int] = {}
        scope_of: list[int] = []
        keys_of: list[tuple[str, ...]] = []
        groups: list[Group] = []
        for g, group in enumerate(tree.groups):
            scope = scope_of[group.parent] if group.parent >= 0 else 0
            keys = keys_of[group.parent] if group.parent >= 0 else ()
            bound = np.ones(len(rows), np.bool_)
            is_bound = False
            for key in self._keys(g, group):
                codes = state.labels.codes(key, state.all_rows)[rows]
                known = made.get((scope, key))
                if known is None:
                    known = made[scope, key] = len(scopes)
                    scopes.append(divided(scopes[scope], scope, codes))
                scope, keys = known, (*keys, key)
                code = self._bound_domain(g, group, key)
                if code:
                    bound &= codes == code
                    is_bound = True
            own = scopes[scope].codes[bound]
            domains = frozenset(own[own >= 0].tolist()) if is_bound else None
            scope_of.append(scope)
            keys_of.append(keys)
            groups.append(
                Group(
                    str(group.which.key),
                    group.parent,
                    scope,
                    self._minimum(g),
                    group.children,
                    tuple(parts[g]),
                    domains,
                )
            )
        return scopes, groups, keys_of

    def _keys(self, g: int, group: TreeGroup) -> list[str]:
        """Returns the topology keys of a group, the coarser first."""
        keys = [group.topology, *self._common_keys[g], group.preferred if self._prefers else ""]
        return [key for key in dict.fromkeys(keys) if key]

    def _bound_domain(self, g: int, group: TreeGroup, key: str) -> int:
        """Does the same as `bound_domain`; placed pods that violate a preferred topology are
        ignored, and keys that only the pods to place have in common bind to nothing."""
        if key not in (group.topology, group.preferred):
            return 0
        try:
            return bound_domain(self._state, self._tree, g, key)
        except DomainConflictError:
            if key == group.topology:
                raise
            return 0

    def _minimum(self, g: int) -> int:
        """Returns the number of pods or child groups that the group's minimum still lacks."""
        group = self._tree.groups[g]
        if group.which.is_composite:
            return min(group.obj.minimum, len(group.children) + 1)
        if g in self._done:
            return 0
        return max(group.obj.minimum - len(placed_pods(self._state, self._tree, g)), 0)


def bound_domain(state: ClusterState, tree: Tree, g: int, key: str) -> int:
    """Returns the value code of the domain of the group's placed pods under the key; 0 if none is
    placed. Raises DomainConflictError."""
    held = [entry for leaf in leaves_below(tree, g) for entry in placed_pods(state, tree, leaf)]
    if not held:
        return 0
    column = state.labels.codes(key, state.all_rows)
    for entry in held:
        if not state.present[entry.row]:
            name = state.node_names[entry.row]
            raise DomainConflictError(
                f'getting node for pod {entry.pod.key}: nodeinfo not found for node name "{name}"'
            )
        if not column[entry.row]:
            raise DomainConflictError(f"no topology domain found for pod {entry.pod.key}")
    codes = {int(column[entry.row]) for entry in held}
    if len(codes) > 1:
        values = state.labels.column(key).values
        first, second = sorted(str(values[code]) for code in codes)[:2]
        raise DomainConflictError(f"more than 1 domain found for pod group: {first}, {second}")
    return codes.pop()


def domains_of(state: ClusterState, tree: Tree, g: int, rows: Ints) -> dict[str, Ints]:
    """Returns the rows, of those given, that the group may use, by domain: the values of the
    group's topology key, or "" for all rows if it has no key. Raises DomainConflictError."""
    key = tree.groups[g].topology
    if not key:
        return {"": rows}
    column = state.labels.column(key)
    codes = column.codes[rows]
    bound = bound_domain(state, tree, g, key)
    return {
        str(column.values[code]): rows[codes == code]
        for code in sorted(set(codes.tolist()) - {0})
        if bound in (0, code)
    }


def placed_pods(state: ClusterState, tree: Tree, leaf: int) -> list[PodEntry]:
    """Returns the pods of a PodGroup that have a node."""
    members = state.groups.members.get(tree.groups[leaf].which.key, {})
    return [entry for entry in members.values() if entry.row >= 0]


def admitted_groups(state: ClusterState, tree: Tree) -> list[bool]:
    """Returns for each group whether it has its minimum, or had it and its pods have ended."""
    found = [False] * len(tree.groups)
    ended = completed_groups(tree, state.groups)
    for g in range(len(tree.groups) - 1, -1, -1):
        group = tree.groups[g]
        have = sum(found[c] for c in group.children)
        if not group.which.is_composite:
            have = len(placed_pods(state, tree, g))
        found[g] = have >= group.obj.minimum or g in ended
    return found


def leaves_below(tree: Tree, g: int) -> list[int]:
    """Returns the PodGroups in a subtree."""
    found, leaves = [g], []
    for group in found:
        found.extend(tree.groups[group].children)
        if not tree.groups[group].which.is_composite:
            leaves.append(group)
    return sorted(leaves)
