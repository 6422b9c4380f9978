"""Disruption budgets: whose eviction they forbid.

Source: policy/v1; kube-scheduler defaultpreemption filterPodsWithPDBViolation.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from stower.model.kinds.pod_disruption_budget import PodDisruptionBudget
from stower.model.selectors import LabelSelector
from stower.state.arrays import Bools
from stower.state.tallies import Condition, Tally

if TYPE_CHECKING:
    from stower.state.cluster import PodEntry

_NO_LABELS: Final[dict[str, str]] = {}


class Budgets:
    """All of them by namespace and name; `generation` grows with every change."""

    __slots__ = ("_budgets", "_tally", "generation")

    def __init__(self, tally: Callable[[Condition], Tally]) -> None:
        """`tally`: the kept count of the pods that meet a condition."""
        self._budgets: dict[tuple[str, str], PodDisruptionBudget] = {}
        self._tally = tally
        self.generation = 0

    def put(self, budget: PodDisruptionBudget) -> None:
        """A budget as it is now."""
        key = (budget.metadata.namespace, budget.metadata.name)
        old = self._budgets.get(key)
        self._budgets[key] = budget
        if old is None or (old.spec, old.status) != (budget.spec, budget.status):
            self.generation += 1

    def drop(self, budget: PodDisruptionBudget) -> None:
        """It is gone."""
        if self._budgets.pop((budget.metadata.namespace, budget.metadata.name), None) is not None:
            self.generation += 1

    def clear(self) -> None:
        """Nothing is known: a list tells all."""
        self._budgets.clear()
        self.generation += 1

    def split(self, entries: Iterable["PodEntry"]) -> tuple[list["PodEntry"], list["PodEntry"]]:
        """Those whose eviction would break a budget, were all before them evicted; and the others.

        The order is kept.
        """
        if not self._budgets:
            return [], list(entries)
        left = {key: budget.status.disruptions_allowed for key, budget in self._budgets.items()}
        violating: list[PodEntry] = []
        others: list[PodEntry] = []
        for entry in entries:
            meta = entry.pod.metadata
            violates = False
            for key, budget in self._budgets.items():
                if key[0] != meta.namespace or not _protects(budget, meta.labels):
                    continue
                if meta.name in (budget.status.disrupted_pods or ()):
                    continue
                left[key] -= 1
                violates |= left[key] < 0
            (violating if violates else others).append(entry)
        return violating, others

    def rows_concerned(self, limit: int) -> Bools:
        """bool[limit]: rows with more pods of a budget than may be evicted now."""
        concerned = np.zeros(limit, np.bool_)
        for (namespace, _), budget in self._budgets.items():
            selector = budget.spec.selector
            if selector is not None and not _is_empty(selector):
                tally = self._tally((frozenset((namespace,)), selector))
                concerned |= tally.counts[:limit] > budget.status.disruptions_allowed
        return concerned


def _is_empty(selector: LabelSelector) -> bool:
    return not selector.match_labels and not selector.match_expressions


def _protects(budget: PodDisruptionBudget, labels: dict[str, str] | None) -> bool:
    selector = budget.spec.selector
    if not labels or selector is None or _is_empty(selector):
        return False
    return selector.matches(labels or _NO_LABELS)
