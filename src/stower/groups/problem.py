"""The placement problem of a tree of pod groups, in numbers: nodes, topology domains, groups with
minimums, kinds of interchangeable pods, and rules between these; and the placement that solves it.

Nodes are numbered 0, 1, ... among the nodes that matter, not by their rows in the state. All
amounts are integers, divided by their greatest common divisor, so that tolerances of a solver do
not matter. Must not know the cluster state.

Source: KEP-6012 (the tree, minimums), KEP-5732 (a group's pods share one value of its key).
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from stower.groups.pair_rules import PairRule
from stower.state.arrays import Ints, Rows

# As an upper bound where there is none.
NO_CAP: Final = 2**40


class Kind(msgspec.Struct, frozen=True, gc=False):
    """Interchangeable pods: the demand of one pod, and the most of them per node for reasons other
    than resources."""

    demand: Ints
    """int64[resource]"""
    cap: Ints
    """int64[node], 0 where some plugin refuses the node."""


class Part(msgspec.Struct, frozen=True, gc=False):
    """The pods of one kind in one group."""

    kind: int
    count: int


class Group(msgspec.Struct, frozen=True, gc=False):
    """A group of the tree. `minimum`: of pods for a PodGroup (`parts`), of children for a
    CompositePodGroup (`children`), without those already placed."""

    name: str
    parent: int
    """The index of its parent, -1 for the root. Parents come before their children."""
    scope: int
    """The index of the scope in which its pods share one domain."""
    minimum: int
    children: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()
    domains: frozenset[int] | None = None
    """The domains of the scope that it may use; None for all."""

    @property
    def count(self) -> int:
        """The number of its pods."""
        return sum([part.count for part in self.parts])


class Scope:
    """A way to divide the nodes into domains: by the values of one key, or of several in a row.

    codes: int64[node], the domain of each, -1 where it is in none; up: int64[domain], the domain of
    the scope around it (`parent`, its index; -1 for the scope that is everything).
    """

    __slots__ = ("_members", "_order", "_starts", "codes", "count", "parent", "up")

    def __init__(self, codes: Ints, count: int, parent: int, up: Ints) -> None:
        self.codes = codes
        self.count = count
        self.parent = parent
        self.up = up
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(count + 1))
        self._order = order[ends[0] :]
        self._starts = ends[:-1] - ends[0]
        self._members: list[Rows] | None = None

    def members(self, domain: int) -> Rows:
        """Returns the nodes of a domain, in order."""
        if self.parent < 0:
            return slice(0, len(self.codes))
        if self._members is None:
            self._members = list(np.split(self._order, self._starts[1:]))
        return self._members[domain]

    def sums(self, amounts: Ints) -> Ints:
        """Returns int64[domain]: the sums of the amounts, int64[node]."""
        if not self.count:
            return np.zeros(0, np.int64)
        if not len(self._order):
            return np.zeros(self.count, np.int64)  # everything, where there is no node
        return np.add.reduceat(amounts[self._order], self._starts)


def whole_scope(node_count: int) -> Scope:
    """Returns the scope with one domain, which has all nodes."""
    return Scope(np.zeros(node_count, np.int64), 1, -1, np.zeros(1, np.int64))


def divided(outer: Scope, index: int, codes: Ints) -> Scope:
    """Returns a scope that divides the domains of `outer`, the scope with this index, by one more
    key. `codes`: int64[node], the value codes of the key, 0 for nodes without it."""
    inside = (outer.codes >= 0) & (codes > 0)
    width = int(codes.max(initial=0)) + 1
    pairs = outer.codes[inside] * width + codes[inside]
    distinct, inverse = np.unique(pairs, return_inverse=True)
    own = np.full(len(codes), -1, np.int64)
    own[inside] = inverse
    return Scope(own, len(distinct), index, distinct // width)


class Problem(msgspec.Struct, frozen=True):
    """The placement problem of one tree."""

    resources: tuple[str, ...]
    free: Ints
    """int64[resource, node], never negative."""
    scopes: tuple[Scope, ...]
    """The first is everything; a scope comes after the one around it."""
    groups: tuple[Group, ...]
    """The root is the first."""
    kinds: tuple[Kind, ...]
    rules: tuple[PairRule, ...] = ()
    """Between pods, beside what Kind.cap says."""

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return int(self.free.shape[1])

    def slots(self, kind: int, free: Ints, nodes: Rows, cap: Ints | None = None) -> Ints:
        """Returns int64[nodes]: how many pods of the kind fit on each node that is otherwise
        unused. `free`: the free amounts of these nodes; `cap`: replaces the kind's cap."""
        wanted = self.kinds[kind]
        room = (wanted.cap if cap is None else cap)[nodes]
        for r in np.flatnonzero(wanted.demand):
            room = np.minimum(room, free[r] // wanted.demand[r])
        return room

    def lineage(self, scope: int) -> list[int]:
        """Returns the scope and the scopes around it, innermost first."""
        found = [scope]
        while (scope := self.scopes[scope].parent) >= 0:
            found.append(scope)
        return found

    def outer_domains(self, inner: int, outer: int) -> Ints:
        """Returns int64[domain of `inner`]: the domain of `outer`, a scope around it at any
        distance, that each is in."""
        found = self.scopes[inner].up
        while (inner := self.scopes[inner].parent) != outer:
            found = self.scopes[inner].up[found]
        return found


class Piece(msgspec.Struct, frozen=True, gc=False):
    """The number of pods of one part of a group on one node."""

    group: int
    part: int
    node: int
    count: int


class Placement(msgspec.Struct, frozen=True):
    """The assignment of pods to nodes, with one piece per part and node."""

    pieces: tuple[Piece, ...]

    @property
    def count(self) -> int:
        """The number of pods."""
        return sum(piece.count for piece in self.pieces)


def collect_placement(pieces: Iterable[tuple[int, int, int, int]]) -> Placement:
    """Returns a placement from (group, part, node, count); counts of the same part and node are
    added."""
    sums: dict[tuple[int, int, int], int] = {}
    for group, part, node, count in pieces:
        key = (group, part, node)
        sums[key] = sums.get(key, 0) + count
    return Placement(tuple(Piece(*key, count) for key, count in sorted(sums.items()) if count))


def reduced(free: Ints, demands: Sequence[Ints]) -> tuple[Ints, list[Ints]]:
    """Divides amounts by the greatest common divisor of all demands; free amounts are rounded
    down."""
    units = np.gcd.reduce(np.stack(demands), axis=0) if demands else np.ones(len(free), np.int64)
    units = np.maximum(units, 1)
    return free // units[:, None], [demand // units for demand in demands]
