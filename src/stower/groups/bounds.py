"""What counting alone decides: the domains in which each group could be, and how many pods.

From the leaves up, each group in each domain of its scope as if it were alone; then from the root
down, since a group can only be inside its parent. Necessary, not sufficient: a domain that is left
out can never do, one that is left in may not do.
"""

from typing import NamedTuple

import numpy as np

from stower.groups.problem import Group, Problem
from stower.state.arrays import Bools, Ints


class Bounds(NamedTuple):
    """By group: `alive` is bool[domain of its scope], where it could be; `most` int64[domain], at
    most so many of its pods; `least` int64[resource], what its minimum takes at least. `lacking`:
    the lowest group that can be nowhere, -1 where each can be somewhere."""

    alive: list[Bools]
    most: list[Ints]
    least: list[Ints]
    lacking: int
    met: list[bool]
    """Groups that have their minimum without any of these pods: they may be nowhere."""
    alone: list[Bools]
    """As `alive`, without regard to the groups around them."""

    @property
    def pods_max(self) -> int:
        """No placement has more pods."""
        return int(self.most[0].max(initial=0)) if self.lacking < 0 else 0


class Counting:
    """The bounds of one problem, as they are worked out."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.met = met_of(problem)
        self._room = [scope_sums(problem, i) for i in range(len(problem.scopes))]
        self._slots: dict[tuple[int, int], Ints] = {}
        self.alive: list[Bools] = [np.zeros(0, np.bool_)] * len(problem.groups)
        self.most: list[Ints] = [np.zeros(0, np.int64)] * len(problem.groups)
        self.least: list[Ints] = [np.zeros(0, np.int64)] * len(problem.groups)

    def slots(self, scope: int, kind: int) -> Ints:
        """int64[domain]: pods of the kind that each domain could have, were they alone."""
        known = self._slots.get((scope, kind))
        if known is None:
            problem = self.problem
            rows = slice(0, problem.node_count)
            known = problem.scopes[scope].sums(problem.slots(kind, problem.free, rows))
            self._slots[scope, kind] = known
        return known

    def group(self, g: int) -> None:
        """Take in a group, after its children."""
        group = self.problem.groups[g]
        self.least[g] = least = self._least(group)
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

    def _least(self, group: Group) -> Ints:
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
            total[r] = cheapest(demands[:, r], counts, group.minimum)
        return total

    def _of_pods(self, group: Group) -> tuple[Bools, Ints]:
        scope = self.problem.scopes[group.scope]
        most = np.zeros(scope.count, np.int64)
        for part in group.parts:
            most += np.minimum(self.slots(group.scope, part.kind), part.count)
        if len(group.parts) > 1:
            demands = np.stack([self.problem.kinds[part.kind].demand for part in group.parts])
            counts = np.array([part.count for part in group.parts])
            for r, room in enumerate(self._room[group.scope]):
                most = np.minimum(most, afforded(demands[:, r], counts, room))
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
            up = self.problem.scopes[child.scope].up
            is_able = np.zeros(scope.count, np.bool_)
            is_able[up[self.alive[c]]] = True
            best = np.zeros(scope.count, np.int64)
            np.maximum.at(best, up, self.most[c])
            able += is_able | self.met[c]
            most += best
        return able >= group.minimum, most


def scope_sums(problem: Problem, scope: int) -> Ints:
    """int64[resource, domain]: what is free in each domain of the scope."""
    inside = problem.scopes[scope]
    sums = np.zeros((len(problem.free), inside.count), np.int64)
    for r, amounts in enumerate(problem.free):
        sums[r] = inside.sums(amounts)
    return sums


def cheapest(demands: Ints, counts: Ints, wanted: int) -> int:
    """The least that `wanted` pods take, of `counts` pods with these demands."""
    order = np.argsort(demands, kind="stable")
    taken = np.diff(np.minimum(np.cumsum(counts[order]), wanted), prepend=0)
    return int((taken * demands[order]).sum())


def afforded(demands: Ints, counts: Ints, room: Ints) -> Ints:
    """int64[room]: how many of `counts` pods with these demands each room pays for, the cheapest
    first."""
    total = np.zeros(len(room), np.int64)
    left = room
    for i in np.argsort(demands, kind="stable"):
        demand, count = int(demands[i]), int(counts[i])
        taken = np.minimum(left // demand, count) if demand else np.full(len(room), count)
        total = total + taken
        left = left - taken * demand
    return total


def bounds_of(problem: Problem) -> Bounds:
    """The bounds of all groups."""
    counting = Counting(problem)
    lacking = -1
    for g in range(len(problem.groups) - 1, -1, -1):
        counting.group(g)
    alive = list(counting.alive)
    if not alive[0].any() and not counting.met[0]:
        lacking = _lowest(problem, alive, counting.met)
    for g, group in enumerate(problem.groups[1:], 1):
        parent = problem.groups[group.parent]
        if group.scope == parent.scope:
            alive[g] = alive[g] & alive[group.parent]
        else:
            alive[g] = alive[g] & alive[group.parent][problem.scopes[group.scope].up]
    return Bounds(alive, counting.most, counting.least, lacking, counting.met, counting.alive)


def met_of(problem: Problem) -> list[bool]:
    """Which groups have their minimum already."""
    met = [False] * len(problem.groups)
    for g in range(len(problem.groups) - 1, -1, -1):
        group = problem.groups[g]
        met[g] = sum(met[c] for c in group.children) >= group.minimum
    return met


def _lowest(problem: Problem, alive: list[Bools], met: list[bool]) -> int:
    """From the root down, the group that can be nowhere although enough of its children can be
    somewhere, or that has none."""
    g = 0
    while True:
        children = problem.groups[g].children
        without = [c for c in children if not alive[c].any() and not met[c]]
        group = problem.groups[g]
        if len(group.children) - len(without) >= group.minimum or not without:
            return g
        g = without[0]
