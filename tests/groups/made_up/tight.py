"""Large problems in numbers that just fit: a placement is made up, and every node has exactly what
it takes there, or now and then one more.
"""

import random
from typing import Final

import numpy as np

from stower.groups.problem import (
    NO_CAP,
    Group,
    Kind,
    Part,
    Problem,
    Scope,
    divided,
    whole_scope,
)
from stower.state.arrays import Ints

PER_RACK, RACKS, BLOCKS = 10, 10, 5
DEPTH: Final = 3


class TightProblem:
    """One problem in the making. slack: the share of nodes that have one more of a resource."""

    def __init__(self, seed: int, nodes: int, leaves: int, pods_max: int, slack: float) -> None:
        self._rng, draw = random.Random(seed), np.random.RandomState(seed)
        rack = np.arange(nodes) // PER_RACK
        self._levels = [rack // (RACKS * BLOCKS) + 1, rack // RACKS + 1, rack + 1]
        self._room = np.stack([draw.choice([8, 16, 32], nodes), draw.choice([0, 4, 8], nodes)])
        self._used = np.zeros_like(self._room)
        self._leaves, self._pods_max = leaves, pods_max
        self._groups: list[Group] = []
        self._kinds: list[Kind] = []
        self._scopes: list[Scope] = [whole_scope(nodes)]
        self._known: dict[tuple[int, int], int] = {}
        self._grow(-1, 0, 0, -1, np.arange(nodes))
        self._more = draw.binomial(1, slack, self._used.shape)

    def problem(self) -> Problem:
        """The problem."""
        free = (self._used + self._more).astype(np.int64)
        kinds, groups = tuple(self._kinds), tuple(self._groups)
        return Problem(("cpu", "gpu"), free, tuple(self._scopes), groups, kinds)

    def _grow(self, parent: int, depth: int, scope: int, level: int, inside: Ints) -> bool:
        """Makes a group inside these nodes, and those below it; whether any pod is placed."""
        rng, g = self._rng, len(self._groups)
        self._groups.append(Group("", parent, 0, 0))
        own = rng.randint(level, len(self._levels) - 1) if depth else level
        if own > level:
            codes = self._levels[own]
            scope = self._scope(scope, own)
            inside = inside[codes[inside] == rng.choice(sorted(set(codes[inside].tolist())))]
        if depth == DEPTH or (depth and rng.random() < 0.45):
            self._leaves -= 1
            parts = [self._part(inside) for _ in range(rng.choice((1, 1, 2)))]
            placed = [part for part in parts if part.count]
            minimum = sum(part.count for part in placed)
            self._groups[g] = Group(f"g{g}", parent, scope, minimum, (), tuple(placed))
            return minimum > 0
        children: list[int] = []
        placed_count = 0
        wanted = rng.randint(2, 5)
        while len(children) < wanted or (not depth and self._leaves > 0):
            children.append(len(self._groups))
            placed_count += self._grow(g, depth + 1, scope, own, inside)
        self._groups[g] = Group(f"g{g}", parent, scope, placed_count, tuple(children))
        return placed_count > 0

    def _scope(self, outer: int, level: int) -> int:
        key = (outer, level)
        if key not in self._known:
            self._known[key] = len(self._scopes)
            self._scopes.append(divided(self._scopes[outer], outer, self._levels[level]))
        return self._known[key]

    def _part(self, inside: Ints) -> Part:
        rng = self._rng
        demand = np.array([rng.randint(1, 6), rng.choice((0, 0, 1, 2))])
        wanted, count = rng.randint(1, self._pods_max), 0
        for n in rng.sample(inside.tolist(), len(inside)):
            while count < wanted and ((self._room[:, n] - self._used[:, n]) >= demand).all():
                self._used[:, n] += demand
                count += 1
        self._kinds.append(Kind(demand, np.full(self._used.shape[1], NO_CAP)))
        return Part(len(self._kinds) - 1, count)
