"""Rules between pods (pair_rules.py) as rows of the exact model, over its variables: how many pods
of a part are on a node.

Must not know the solver.
"""

from collections.abc import Iterable

import numpy as np

from stower.groups.matrix import INFINITE, Matrix
from stower.groups.pair_rules import Apart, Near, PairRule, Spread
from stower.state.arrays import Ints

# Of one part of a group: its kind, its nodes and the variables of its pods there.
PartColumns = tuple[int, Ints, Ints]


class RuleRows:
    """Adds the rows of rules to a matrix."""

    def __init__(self, matrix: Matrix, parts: Iterable[PartColumns]) -> None:
        self._matrix = matrix
        parts = list(parts)
        empty = [np.zeros(0, np.int64)]
        self._kinds = np.concatenate(empty + [np.full(len(n), k, np.int64) for k, n, _ in parts])
        self._nodes = np.concatenate(empty + [nodes for _, nodes, _ in parts])
        self._columns = np.concatenate(empty + [columns for _, _, columns in parts])

    def add(self, rule: PairRule) -> None:
        """Adds the rows of one rule."""
        here = np.flatnonzero(np.isin(self._kinds, sorted(rule.concerned)))
        codes = rule.codes[self._nodes[here]]
        order = np.argsort(codes, kind="stable")
        edges = np.flatnonzero(np.diff(codes[order], prepend=-1))
        found = [
            _Domain(int(codes[part[0]]), self._kinds[here[part]], self._columns[here[part]])
            for part in np.split(order, edges[1:])
            if len(part)
        ]
        if isinstance(rule, Apart):
            self._apart(rule, found)
        elif isinstance(rule, Near):
            self._near(rule, found)
        elif isinstance(rule, Spread):
            self._spread(rule, found)
        else:
            self._together(found)

    def _apart(self, rule: Apart, found: "list[_Domain]") -> None:
        lone = rule.carriers & rule.matched
        for domain in found:
            if not domain.code:
                continue
            of_kinds = (lone, rule.carriers - lone, rule.matched - lone)
            alone, carrying, matching = (domain.columns_of(kinds) for kinds in of_kinds)
            if not len(carrying) and not len(matching):
                self._matrix.row(-INFINITE, 1, (alone, 1))
            elif (len(alone) or len(carrying)) and (len(alone) or len(matching)):
                # One of the three sorts is there, of the first sort one pod.
                sorts = [(alone, 1), (carrying, self._most(carrying))]
                sorts.append((matching, self._most(matching)))
                some = [self._is_any(columns, most) for columns, most in sorts if len(columns)]
                self._matrix.row(-INFINITE, 1, (np.concatenate(some), 1))

    def _near(self, rule: Near, found: "list[_Domain]") -> None:
        firsts = []
        for domain in found:
            following = domain.columns_of(rule.followers)
            if not len(following) or (domain.code and rule.is_open[domain.code]):
                continue
            if not domain.code:
                self._matrix.row(-INFINITE, 0, (following, 1))
                continue
            some = self._is_any(following, self._most(following))
            terms = [(domain.columns_of(rule.leaders), 1), (some, -1)]
            beginning = domain.columns_of(rule.beginners)
            if len(beginning):
                first = self._matrix.variables(np.ones(1, np.int64))
                firsts.append(first)
                self._matrix.row(0, INFINITE, (beginning, 1), (first, -1))
                terms.append((first, 1))
            self._matrix.row(0, INFINITE, *terms)
        if firsts:
            self._matrix.row(-INFINITE, 1, (np.concatenate(firsts), 1))

    def _spread(self, rule: Spread, found: "list[_Domain]") -> None:
        of_code = {domain.code: domain for domain in found}
        most = int(rule.placed.max(initial=0)) + self._most(self._columns)
        least = self._matrix.variables(np.array([most if rule.has_least else 0]))
        for code in np.flatnonzero(rule.domains).tolist() if rule.has_least else ():
            terms = [(least, -1)]
            if code in of_code:
                terms.append((of_code[code].columns_of(rule.matched), 1))
            self._matrix.row(-int(rule.placed[code]), INFINITE, *terms)
        for domain in found:
            spreading = domain.columns_of(rule.spreading)
            if not len(spreading):
                continue
            if not domain.code:
                self._matrix.row(-INFINITE, 0, (spreading, 1))
                continue
            alike = domain.columns_of(rule.spreading & rule.matched)
            high = rule.skew - int(rule.placed[domain.code])
            if high >= 0:  # without any, it holds
                self._matrix.row(-INFINITE, high, (alike, 1), (least, -1))
            if high < 0 or len(alike) < len(spreading):
                # some = 1: placed + alike <= least + skew.
                some = self._is_any(spreading, self._most(spreading))
                free = self._most(alike) + max(-high, 0)
                self._matrix.row(-INFINITE, high + free, (alike, 1), (least, -1), (some, free))

    def _together(self, found: "list[_Domain]") -> None:
        chosen = []
        for domain in found:
            here = domain.columns
            if domain.code:
                chosen.append(self._is_any(here, self._most(here)))
            else:
                self._matrix.row(-INFINITE, 0, (here, 1))
        if chosen:
            self._matrix.row(-INFINITE, 1, (np.concatenate(chosen), 1))

    def _is_any(self, columns: Ints, most: int) -> Ints:
        """Returns a variable that is 1 where any of these, `most` in all, is not 0."""
        some = self._matrix.variables(np.ones(1, np.int64))
        self._matrix.row(-INFINITE, 0, (columns, 1), (some, -most))
        return some

    def _most(self, columns: Ints) -> int:
        return int(self._matrix.upper_bounds(columns).sum()) if len(columns) else 0


class _Domain:
    """The variables of one domain, with the kind of each."""

    def __init__(self, code: int, kinds: Ints, columns: Ints) -> None:
        self.code = code
        self._kinds = kinds
        self.columns = columns

    def columns_of(self, kinds: Iterable[int]) -> Ints:
        """Returns the variables of pods of these kinds."""
        found: Ints = self.columns[np.isin(self._kinds, sorted(kinds))]
        return found
