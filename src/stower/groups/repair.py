"""A search for placements in which subtrees that the heuristic cannot place are solved by the exact
model.

When no heuristic order places a subtree in a domain, the subtree and what is free in the domain
become a problem of their own. A solution is kept. The absence of a solution proves nothing about
the whole tree, because other groups occupy room in the domain. Must not know time: limits count
calls and solver steps.
"""

from typing import Final

import numpy as np

from stower.groups.bounds import bounds_of
from stower.groups.exact_model import Model
from stower.groups.placement_check import faults_of
from stower.groups.problem import Group, Kind, Placement, Problem, Scope, whole_scope
from stower.groups.search import Board, Search
from stower.state.arrays import Ints

NODES_MAX: Final = 400
VARIABLES_MAX: Final = 8_000
CALLS_MAX: Final = 12
ROUNDS: Final = 3


class Subproblem:
    """The subtree of a group in one domain, as a separate problem."""

    def __init__(self, problem: Problem, g: int, domain: int, board: Board) -> None:
        """`board`: what is free in the whole problem."""
        top = problem.groups[g]
        members = problem.scopes[top.scope].members(domain)
        self.nodes: Ints = np.arange(problem.node_count)[members]
        self.groups = _subtree(problem, g)
        place = {group: i for i, group in enumerate(self.groups)}
        scopes: dict[int, int] = {top.scope: 0}
        made: list[Scope] = [whole_scope(len(self.nodes))]
        self._domains: list[Ints] = [np.array([domain])]  # of each scope made, what they were
        for s, scope in enumerate(problem.scopes):
            if scope.parent in scopes and s != top.scope:
                codes = scope.codes[self.nodes]
                known, inverse = np.unique(codes, return_inverse=True)
                shift = int(len(known) and known[0] < 0)
                known, inverse = known[shift:], inverse - shift
                outer = scopes[scope.parent]
                up = np.searchsorted(self._domains[outer], scope.up[known])
                scopes[s] = len(made)
                made.append(Scope(inverse, len(known), outer, up))
                self._domains.append(known)
        groups = []
        for old in self.groups:
            group = problem.groups[old]
            domains = group.domains
            if domains is not None:
                kept = self._domains[scopes[group.scope]]
                domains = frozenset(i for i, d in enumerate(kept.tolist()) if d in domains)
            groups.append(
                Group(
                    group.name,
                    place.get(group.parent, -1),
                    scopes[group.scope],
                    group.minimum,
                    tuple(place[c] for c in group.children),
                    group.parts,
                    domains,
                )
            )
        self._scope_of = [group.scope for group in groups]
        self.problem = Problem(
            problem.resources,
            board.free[:, self.nodes],
            tuple(made),
            tuple(groups),
            tuple(
                Kind(kind.demand, board.caps.get(k, kind.cap)[self.nodes])
                for k, kind in enumerate(problem.kinds)
            ),
        )

    def domain(self, i: int, node: int) -> int:
        """Returns the domain, in the whole problem, of the i-th group of the subtree when it is on
        this node."""
        scope = self._scope_of[i]
        code = int(self.problem.scopes[scope].codes[node])
        return int(self._domains[scope][code])


class RepairSearch(Search):
    """A Search that solves subtrees exactly where the heuristic fails."""

    calls = 0
    _failed: set[tuple[int, int, bytes]]

    def repair(self, steps: int) -> Placement | None:
        """Returns the best placement of ROUNDS rounds, or None. `steps`: the limit of solver steps
        per subtree."""
        self._steps = steps
        self._failed = set()
        return self.run(ROUNDS)

    def place_in(self, g: int, domain: int) -> bool:
        """Does the same as Search.place_in, and calls the exact model where that fails."""
        if super().place_in(g, domain):
            return True
        group = self.problem.groups[g]
        if not group.children or group.parent < 0 or self.calls >= CALLS_MAX * self.effort:
            return False
        if group.scope == self.problem.groups[group.parent].scope:
            return False
        inside = Subproblem(self.problem, g, domain, self.board)
        if len(inside.nodes) > NODES_MAX:
            return False
        key = (g, domain, inside.problem.free.tobytes())
        if key in self._failed:
            return False
        placement = self._solve_subproblem(inside)
        if placement is None:
            self._failed.add(key)
            return False
        for piece in placement.pieces:
            self.board.put(
                inside.groups[piece.group], piece.part,
                inside.nodes[[piece.node]], np.array([piece.count]),
            )  # fmt: skip
        self._note(inside, placement, g, domain)
        return True

    def _solve_subproblem(self, inside: Subproblem) -> Placement | None:
        bounds = bounds_of(inside.problem)
        if bounds.lacking >= 0:
            return None
        model = Model(inside.problem, bounds)
        if model.size > VARIABLES_MAX:
            return None
        self.calls += 1
        placement = model.solve(self._steps, without_gain=True)[1]
        # The solver's tolerances are none of ours.
        is_one = placement is not None and not faults_of(inside.problem, placement)
        return placement if is_one else None

    def _note(self, inside: Subproblem, placement: Placement, g: int, domain: int) -> None:
        """Records the domains of all groups of the subtree."""
        self.domain_of[g] = domain
        parents = [group.parent for group in inside.problem.groups]
        for piece in placement.pieces:
            i = piece.group
            while i > 0 and inside.groups[i] not in self.domain_of:
                self.domain_of[inside.groups[i]] = inside.domain(i, piece.node)
                i = parents[i]


def _subtree(problem: Problem, g: int) -> list[int]:
    """Returns the group and all groups below it, parents before children."""
    found = [g]
    for group in found:
        found.extend(problem.groups[group].children)
    return sorted(found)
