"""Upper bounds for the placement of a tree of pod groups, by counting: the domains in which each
group can still be, the most pods each domain can hold, and the least resources each minimum takes.

Computed from the leaves up, each group in each domain as if it were alone; then from the root down,
since a group must be inside its parent's domain. The conditions are necessary, not sufficient: an
excluded domain is impossible, another domain may still be. Must not know how a placement is
searched.
"""

from typing import Final, NamedTuple

import numpy as np

from stower.groups.problem import Group, Problem, Scope
from stower.state.arrays import Bools, Ints


class Bounds(NamedTuple):
    """Bounds by group. `alive`: bool[domain of its scope], whether the group can be there; `most`:
    int64[domain], an upper bound of its pods there; `least`: int64[resource], a lower bound of what
    its minimum takes. `lacking`: the lowest group that can be in no domain, -1 if there is none."""

    alive: list[Bools]
    most: list[Ints]
    least: list[Ints]
    lacking: int
    met: list[bool]
    """Whether the group has its minimum already, so that it needs no domain."""
    alone: list[Bools]
    """As `alive`, without the conditions of the parents."""

    @property
    def pods_max(self) -> int:
        """An upper bound of the pods in any placement."""
        return int(self.most[0].max(initial=0)) if self.lacking < 0 else 0


class BoundsCounter:
    """Computes the bounds of one problem, group by group."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.met = met_minimums(problem)
        self._room = [scope_sums(problem.free, scope) for scope in problem.scopes]
        self._slots: dict[tuple[int, int], Ints] = {}
        self.alive: list[Bools] = [np.zeros(0, np.bool_)] * len(problem.groups)
        self.most: list[Ints] = [np.zeros(0, np.int64)] * len(problem.groups)
        self.least: list[Ints] = [np.zeros(0, np.int64)] * len(problem.groups)

    def slots(self, scope: int, kind: int) -> Ints:
        """Returns int64[domain]: how many pods of the kind fit in each domain that is otherwise
        unused."""
        known = self._slots.get((scope, kind))
        if known is None:
            problem = self.problem
            rows = slice(0, problem.node_count)
            known = problem.scopes[scope].sums(problem.slots(kind, problem.free, rows))
            self._slots[scope, kind] = known
        return known

    def group(self, g: int) -> None:
        """Computes the bounds of a group, after its children."""
        group = self.problem.groups[g]
        self.least[g] = least = self._least_demand(group)
        if group.children:
            alive, most = self._of_groups(group)
        else:
            alive, most = self._of_pods(group)
        room = self._room[group.scope]
        alive &= (least[:, None] <= room).all(axis=0)
        if group.domains is not None:
            chosen = np.zeros(len(alive), np.bool_)
            chosen[sorted(group.domains)] = True
            alive &= chosen
        self.alive[g], self.most[g] = alive, np.where(alive, most, 0)

    def _least_demand(self, group: Group) -> Ints:
        if group.children:
            parts = np.stack([self.least[c] for c in group.children])
            least: Ints = np.sort(parts, axis=0)[: group.minimum].sum(axis=0)
            return least
        total = np.zeros(len(self.problem.resources), np.int64)
        if not group.parts or group.minimum <= 0:
            return total
        demands = np.stack([self.problem.kinds[part.kind].demand for part in group.parts])
        counts = np.array([part.count for part in group.parts])
        for r in range(len(total)):
            total[r] = least_amount(demands[:, r], counts, group.minimum)
        return total

    def places(self, group: Group) -> Ints:
        """Returns int64[domain]: how many pods of the group fit in each domain, each kind as if it
        were alone."""
        most = np.zeros(self.problem.scopes[group.scope].count, np.int64)
        for part in group.parts:
            most += np.minimum(self.slots(group.scope, part.kind), part.count)
        return most

    def has_children(self, group: Group) -> Bools:
        """Returns bool[domain]: whether enough children of the group can be in each domain."""
        return self._of_groups(group)[0]

    def _of_pods(self, group: Group) -> tuple[Bools, Ints]:
        most = self.places(group)
        if len(group.parts) > 1:
            most = np.minimum(most, count_together(self.problem, group, self._room[group.scope]))
        return most >= group.minimum, most

    def _of_groups(self, group: Group) -> tuple[Bools, Ints]:
        scope = self.problem.scopes[group.scope]
        able = np.zeros(scope.count, np.int64)
        most = np.zeros(scope.count, np.int64)
        for c in group.children:
            child = self.problem.groups[c]
            if child.scope == group.scope:
                able += self.alive[c] | self.met[c]
                most += self.most[c]
                continue
            up = self.problem.outer_domains(child.scope, group.scope)
            is_able = np.zeros(scope.count, np.bool_)
            is_able[up[self.alive[c]]] = True
            best = np.zeros(scope.count, np.int64)
            np.maximum.at(best, up, self.most[c])
            able += is_able | self.met[c]
            most += best
        return able >= group.minimum, most


def scope_sums(free: Ints, scope: Scope) -> Ints:
    """Returns int64[resource, domain]: the free amounts, int64[resource, node], in each domain of
    the scope."""
    sums = np.zeros((len(free), scope.count), np.int64)
    for r, amounts in enumerate(free):
        sums[r] = scope.sums(amounts)
    return sums


def least_amount(demands: Ints, counts: Ints, wanted: int) -> int:
    """Returns the least amount that `wanted` pods take, of `counts` pods with these demands."""
    order = np.argsort(demands, kind="stable")
    taken = np.diff(np.minimum(np.cumsum(counts[order]), wanted), prepend=0)
    return int((taken * demands[order]).sum())


def count_together(problem: Problem, group: Group, rooms: Ints) -> Ints:
    """Returns int64[domain]: the most pods of a group that fit into the amounts of each domain,
    int64[resource, domain], whatever the nodes."""
    demands = np.stack([problem.kinds[part.kind].demand for part in group.parts])
    counts = np.array([part.count for part in group.parts])
    most = np.full(rooms.shape[1], int(counts.sum()))
    for r, room in enumerate(rooms):
        most = np.minimum(most, count_fitting(demands[:, r], counts, room))
    return most


def count_fitting(demands: Ints, counts: Ints, room: Ints) -> Ints:
    """Returns int64[room]: how many of `counts` pods with these demands fit in each room, the
    smallest demands first."""
    total = np.zeros(len(room), np.int64)
    left = room
    for i in np.argsort(demands, kind="stable"):
        demand, count = int(demands[i]), int(counts[i])
        taken = np.minimum(left // demand, count) if demand else np.full(len(room), count)
        total = total + taken
        left = left - taken * demand
    return total


def bounds_of(problem: Problem) -> Bounds:
    """Returns the bounds of all groups of a problem."""
    counting = BoundsCounter(problem)
    lacking = -1
    for g in range(len(problem.groups) - 1, -1, -1):
        counting.group(g)
    alive = list(counting.alive)
    if not alive[0].any() and not counting.met[0]:
        lacking = _find_lowest(problem, alive, counting.met)
    for g, group in enumerate(problem.groups[1:], 1):
        parent = problem.groups[group.parent]
        if group.scope == parent.scope:
            alive[g] = alive[g] & alive[group.parent]
        else:
            up = problem.outer_domains(group.scope, parent.scope)
            alive[g] = alive[g] & alive[group.parent][up]
    return Bounds(alive, counting.most, counting.least, lacking, counting.met, counting.alive)


ALIVE: Final = -1


def missing_places(problem: Problem) -> list[Ints | None] | None:
    """Returns for each PodGroup int64[domain of its scope]: how many more places for its pods the
    domain needs before the group may be there, 0 where any change may be enough, ALIVE where none
    is needed. As long as no domain has these, the problem has no placement. None for other groups,
    and for those that need no place.

    None for all where that cannot be said: there may be a placement, or some composite group lacks
    amounts and not children."""
    counting = BoundsCounter(problem)
    for g in range(len(problem.groups) - 1, -1, -1):
        counting.group(g)
    has_minimum = counting.met[0]  # then one more pod of any group is a placement
    alive = [most > 0 for most in counting.most] if has_minimum else counting.alive
    if alive[0].any():
        return None
    found: list[Ints | None] = []
    for g, group in enumerate(problem.groups):
        may_be = np.ones(len(alive[g]), np.bool_)
        if group.domains is not None:
            may_be[:] = False
            may_be[sorted(group.domains)] = True
        if group.children:
            if (may_be & ~counting.alive[g] & counting.has_children(group)).any():
                return None
            found.append(None)
        elif not group.parts or (counting.met[g] and not has_minimum):
            found.append(None)
        else:
            lacking = np.maximum(max(group.minimum, 1) - counting.places(group), 0)
            found.append(np.where(may_be & ~alive[g], lacking, ALIVE))
    return found


def met_minimums(problem: Problem) -> list[bool]:
    """Returns for each group whether it has its minimum already."""
    met = [False] * len(problem.groups)
    for g in range(len(problem.groups) - 1, -1, -1):
        group = problem.groups[g]
        met[g] = sum(met[c] for c in group.children) >= group.minimum
    return met


def _find_lowest(problem: Problem, alive: list[Bools], met: list[bool]) -> int:
    """Returns the lowest group that can be in no domain although enough of its children can, or
    that has no children."""
    g = 0
    while True:
        children = problem.groups[g].children
        without = [c for c in children if not alive[c].any() and not met[c]]
        group = problem.groups[g]
        if len(group.children) - len(without) >= group.minimum or not without:
            return g
        g = without[0]
