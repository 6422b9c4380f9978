"""The exact model of a placement problem: an integer linear program that finds a placement of the
tree, or proves that there is none.

Variables: y[group, domain], whether the group is in the domain; x[part, node], how many of its pods
are on the node. A group whose parent needs all of its children, in the parent's own domains, uses
the parent's y. The minimum and the count of each group are tied to its y for each domain, which
makes the relaxation tight. Must not know the solver (matrix.py).
"""

import numpy as np

from stower.groups.bounds import Bounds, scope_sums
from stower.groups.exact_rules import RuleRows
from stower.groups.matrix import INFINITE, Matrix, Outcome
from stower.groups.problem import NO_CAP, Group, Placement, Problem, collect_placement
from stower.state.arrays import Bools, Ints


class Model:
    """The integer linear program of one problem. `alive`: bool[domain] per group, as in Bounds."""

    def __init__(self, problem: Problem, bounds: Bounds, alive: list[Bools] | None = None) -> None:
        self._problem = problem
        self._bounds = bounds
        self._alive = bounds.alive if alive is None else alive
        self.matrix = Matrix()
        # Of each group, its domains and their variables.
        self._domains: list[Ints] = []
        self._y: list[Ints] = []
        self._x: list[tuple[int, int, Ints, Ints]] = []  # group, part, nodes, variables
        for g, group in enumerate(problem.groups):
            self._place(g, group)
        for g, group in enumerate(problem.groups):
            if group.children:
                self._children(g, group)
            else:
                self._pods(g, group)
        self._nodes()
        self._caps()
        self._domain_sums()
        if problem.rules:
            rows = RuleRows(
                self.matrix,
                ((problem.groups[g].parts[p].kind, n, c) for g, p, n, c in self._x),
            )
            for rule in problem.rules:
                rows.add(rule)

    @property
    def size(self) -> int:
        """The number of variables."""
        return self.matrix.width

    def solve(
        self, steps: int, gap: float = 0.0, *, without_gain: bool = False
    ) -> tuple[Outcome, Placement | None]:
        """Returns a placement with the most pods, or (`without_gain`) any placement; or a proof
        that there is none."""
        outcome, values = self.matrix.solve(steps, gap, without_gain)
        if not len(values):
            return outcome, None
        placement = collect_placement(
            (g, p, int(nodes[i]), int(values[columns[i]]))
            for g, p, nodes, columns in self._x
            for i in np.flatnonzero(values[columns])
        )
        return outcome, placement

    def _place(self, g: int, group: Group) -> None:
        domains = np.flatnonzero(self._alive[g])
        self._domains.append(domains)
        if g and self._is_bound(group):
            self._y.append(self._y[group.parent])
            return
        y = self.matrix.variables(np.ones(len(domains), np.int64))
        self._y.append(y)
        low = 0 if g or self._bounds.met[0] else 1
        self.matrix.row(low, 1, (y, 1))

    def _is_bound(self, group: Group) -> bool:
        """Returns whether the group is in the domain of its parent whenever the parent is
        placed."""
        parent = self._problem.groups[group.parent]
        needs_all = parent.minimum >= len(parent.children)
        g = len(self._domains) - 1
        if not needs_all or self._bounds.met[g] or group.scope != parent.scope:
            return False
        own = np.flatnonzero(self._alive[g])
        return np.array_equal(own, self._domains[group.parent])

    def _children(self, g: int, group: Group) -> None:
        met = self._bounds.met
        needs_all = group.minimum >= len(group.children)
        minimum = group.minimum - sum(met[c] for c in group.children)
        for domain, column in zip(self._domains[g], self._y[g], strict=True):
            terms: list[tuple[Ints, int]] = []
            for c in group.children:
                own = self._domains[c]
                child = self._problem.groups[c].scope
                if child != group.scope:
                    own = self._problem.outer_domains(child, group.scope)[own]
                inside = self._y[c][own == domain]
                if len(inside) == 1 and inside[0] == column:
                    continue  # it is bound to its parent
                if not met[c]:
                    terms.append((inside, 1))
                low = 0.0 if needs_all and not met[c] else -INFINITE
                self.matrix.row(low, 0, (inside, 1), (np.array([column]), -1))
            if minimum > 0 and not needs_all:
                self.matrix.row(0, INFINITE, *terms, (np.array([column]), -minimum))

    def _pods(self, g: int, group: Group) -> None:
        problem = self._problem
        codes = problem.scopes[group.scope].codes
        place = np.full(problem.scopes[group.scope].count + 1, -1, np.int64)
        place[self._domains[g]] = np.arange(len(self._domains[g]))
        at = place[
            codes
        ]  # the node's domain among the group's; code -1 finds the last, which is -1
        found: list[tuple[Ints, Ints]] = []
        rows = slice(0, problem.node_count)
        for p, part in enumerate(group.parts):
            most = np.minimum(problem.slots(part.kind, problem.free, rows), part.count)
            nodes = np.flatnonzero((most > 0) & (at >= 0))
            columns = self.matrix.variables(most[nodes], gain=1)
            self._x.append((g, p, nodes, columns))
            found.append((at[nodes], columns))
        for i, column in enumerate(self._y[g]):
            y = np.array([column])
            inside = [columns[places == i] for places, columns in found]
            terms = [(columns, 1) for columns in inside]
            if group.minimum > 0:
                self.matrix.row(0, INFINITE, *terms, (y, -group.minimum))
            self.matrix.row(-INFINITE, 0, *terms, (y, -group.count))
            if len(inside) > 1:
                for part, columns in zip(group.parts, inside, strict=True):
                    self.matrix.row(-INFINITE, 0, (columns, 1), (y, -part.count))

    def _nodes(self) -> None:
        """Adds the capacity rows of nodes whose resources may be exceeded."""
        if not self._x:
            return
        nodes = np.concatenate([n for _, _, n, _ in self._x])
        columns = np.concatenate([c for _, _, _, c in self._x])
        most = np.concatenate([self.matrix.upper_bounds(c) for _, _, _, c in self._x])
        for r, free in enumerate(self._problem.free):
            demand = np.concatenate(
                [np.full(len(n), self._demand(g, p)[r]) for g, p, n, _ in self._x]
            )
            asked = np.zeros(self._problem.node_count, np.int64)
            np.add.at(asked, nodes, most * demand)
            order = np.argsort(nodes, kind="stable")
            order = order[demand[order] > 0]
            edges = np.searchsorted(nodes[order], np.arange(self._problem.node_count + 1))
            for node in np.flatnonzero(asked > free):
                here = order[edges[node] : edges[node + 1]]
                self.matrix.row(-INFINITE, float(free[node]), (columns[here], demand[here]))

    def _caps(self) -> None:
        """Adds the rows that limit the pods of a kind on a node, for kinds with several parts."""
        by_kind: dict[int, list[tuple[Ints, Ints]]] = {}
        for g, p, nodes, columns in self._x:
            kind = self._problem.groups[g].parts[p].kind
            by_kind.setdefault(kind, []).append((nodes, columns))
        for kind, parts in by_kind.items():
            cap = self._problem.kinds[kind].cap
            nodes = np.concatenate([n for n, _ in parts])
            columns = np.concatenate([c for _, c in parts])
            for node in np.flatnonzero((cap > 0) & (cap < NO_CAP)) if len(parts) > 1 else ():
                self.matrix.row(-INFINITE, float(cap[node]), (columns[nodes == node], 1))

    def _domain_sums(self) -> None:
        """Adds redundant rows that speed up the solver: the minimums in a domain take no more than
        the domain has."""
        problem = self._problem
        lineages = [problem.lineage(i) for i in range(len(problem.scopes))]
        for s, scope in enumerate(problem.scopes):
            rooms = scope_sums(problem.free, problem.scopes[s])
            parts: list[tuple[Ints, Ints, Ints]] = []  # domain, variable, what is taken
            for g, group in enumerate(problem.groups):
                if group.children or group.minimum <= 0 or s not in lineages[group.scope]:
                    continue
                domains = self._domains[g]
                for inner in lineages[group.scope]:
                    if inner == s:
                        break
                    domains = problem.scopes[inner].up[domains]
                least = np.broadcast_to(self._bounds.least[g], (len(domains), len(rooms)))
                parts.append((domains, self._y[g], least))
            if not parts:
                continue
            where = np.concatenate([d for d, _, _ in parts])
            columns = np.concatenate([y for _, y, _ in parts])
            least = np.concatenate([amounts for _, _, amounts in parts])
            for domain in range(scope.count):
                here = where == domain
                for r in range(len(rooms)):
                    if (least[here, r]).sum() > rooms[r, domain]:
                        merged, position = np.unique(columns[here], return_inverse=True)
                        factors = np.bincount(position, least[here, r]).astype(np.int64)
                        self.matrix.row(-INFINITE, float(rooms[r, domain]), (merged, factors))

    def _demand(self, g: int, p: int) -> Ints:
        return self._problem.kinds[self._problem.groups[g].parts[p].kind].demand
