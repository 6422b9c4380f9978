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
                break
            self._put(others.pop(min(range(len(others)), key=lambda j: self._company(others[j]))))
        return self._order + others + limited

    def _comes(self, i: int) -> bool:
        """Lets a pod come if it may."""
        kind, node = self._pods[i]
        for rule, there in zip(self._rules, self._there, strict=True):
            if kind in rule.limited:
                self._questions += 1
                if not rule.room(kind, there)[rule.codes[node]]:
                    return False
        self._put(i)
        return True

    def _put(self, i: int) -> None:
        kind, node = self._pods[i]
        self._order.append(i)
        for rule, there in zip(self._rules, self._there, strict=True):
            if kind in rule.concerned:
                there[kind, rule.codes[node]] += 1

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
