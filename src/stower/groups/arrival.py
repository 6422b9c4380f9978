"""In which order the pods of a placement may come, where rules between them (pair_rules.py) accept
a pod only before, or only after, others.

Must not know nodes or plugins.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from stower.groups.pair_rules import Near, PairRule, Spread
from stower.groups.problem import Problem
from stower.state.arrays import Ints

# Where the obvious order ends: so few pods are tried in other orders, and so many orders.
SEARCHED_MAX: Final = 100
ORDERS_MAX: Final = 3_000
# Questions whether a pod may come now; what is left then keeps its order.
QUESTIONS_MAX: Final = 20_000


def arrival_order(problem: Problem, pods: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the indices of the pods in an order in which the rules accept them, as far as one was
    found. pods: the kind of each, and its node.

    Pods that a rule may keep off come as soon as they may; of the others, the next is one where the
    fewest are: it keeps off the fewest, and raises the least that spreading goes by."""
    return _Arrival(problem, pods).run()


class _Arrival:
    def __init__(self, problem: Problem, pods: Sequence[tuple[int, int]]) -> None:
        self._rules = problem.rules
        self._pods = pods
        self._there = [
            np.zeros((len(problem.kinds), rule.domain_count), np.int64) for rule in problem.rules
        ]
        # Other rules hold in any order.
        ordering = [rule for rule in problem.rules if isinstance(rule, Near | Spread)]
        self._limited = {kind for rule in ordering for kind in rule.limited}
        self._order: list[int] = []
        self._questions = 0

    def run(self) -> list[int]:
        limited = [i for i, (kind, _) in enumerate(self._pods) if kind in self._limited]
        others = [i for i, (kind, _) in enumerate(self._pods) if kind not in self._limited]
        while limited:
            late = [i for i in limited if not self._comes(i)]
            is_stuck = len(late) == len(limited)
            limited = late
            if not is_stuck:
                continue
            if not others or self._questions > QUESTIONS_MAX:
                return self._search() or self._order + others + limited
            self._put(others.pop(min(range(len(others)), key=lambda j: self._company(others[j]))))
        return self._order + others

    def _search(self) -> list[int]:
        """Returns an order that was found by trying, where the obvious one ends; none where there
        are too many pods or orders."""
        classes: dict[tuple[int, int], list[int]] = {}
        for i, pod in enumerate(self._pods):
            classes.setdefault(pod, []).append(i)
        alike = list(classes.values())
        if len(self._pods) > SEARCHED_MAX:
            return []
        for there in self._there:
            there[:] = 0
        seen: set[tuple[int, ...]] = set()

        def go_on(left: tuple[int, ...], order: list[int]) -> list[int]:
            if not any(left):
                return order
            if left in seen or len(seen) > ORDERS_MAX:
                return []
            seen.add(left)
            for c, count in enumerate(left):
                if count and self._may_come(alike[c][0]):
                    i = alike[c][count - 1]
                    self._count(i, 1)
                    found = go_on((*left[:c], count - 1, *left[c + 1 :]), [*order, i])
                    self._count(i, -1)
                    if found:
                        return found
            return []

        return go_on(tuple(map(len, alike)), [])

    def _comes(self, i: int) -> bool:
        """Lets a pod come if it may."""
        if not self._may_come(i):
            return False
        self._put(i)
        return True

    def _may_come(self, i: int) -> bool:
        kind, node = self._pods[i]
        for rule, there in zip(self._rules, self._there, strict=True):
            if kind in rule.limited:
                self._questions += 1
                if not rule.room(kind, there)[rule.codes[node]]:
                    return False
        return True

    def _put(self, i: int) -> None:
        self._order.append(i)
        self._count(i, 1)

    def _count(self, i: int, delta: int) -> None:
        kind, node = self._pods[i]
        for rule, there in zip(self._rules, self._there, strict=True):
            if kind in rule.concerned:
                there[kind, rule.codes[node]] += delta

    def _company(self, i: int) -> int:
        """Returns how many are where a pod goes, of those that count with it."""
        kind, node = self._pods[i]
        return max(
            (
                _company_in(rule, there, int(rule.codes[node]))
                for rule, there in zip(self._rules, self._there, strict=True)
                if kind in rule.concerned
            ),
            default=0,
        )


def _company_in(rule: PairRule, there: Ints, code: int) -> int:
    placed = int(rule.placed[code]) if isinstance(rule, Spread) else 0
    return placed + int(there[:, code].sum())
