"""Disruption budgets (PodDisruptionBudget): finds the evictions that would violate a budget.

Must not know why a pod is evicted.

Source: policy/v1; kube-scheduler defaultpreemption filterPodsWithPDBViolation.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from stower.model.kinds import Pod
from stower.model.kinds.pod_disruption_budget import PodDisruptionBudget
from stower.model.selectors import LabelSelector
from stower.state.arrays import Bools, Ints
from stower.state.matcher import Matcher
from stower.state.tallies import Condition, Tallies, Tally

if TYPE_CHECKING:
    from stower.state.pod_entry import PodEntry


NO_BUDGETS: Final[Ints] = np.zeros(0, np.int64)


class Budgets:
    """All disruption budgets by namespace and name. `generation` grows with every change."""

    __slots__ = ("_budgets", "_cache_key", "_namespaces", "_tallies", "_tally", "generation")

    def __init__(self, tally: Callable[[Condition], Tally], tallies: Tallies) -> None:
        """`tally`: returns the kept count of the pods that meet a condition."""
        self._budgets: dict[tuple[str, str], PodDisruptionBudget] = {}
        self._tally = tally
        self._tallies = tallies
        self.generation = 0
        self._namespaces: dict[str, _NamespaceBudgets] = {}
        self._cache_key = (-1, -1)  # generation and step for which _namespaces is valid

    def put(self, budget: PodDisruptionBudget) -> None:
        """Adds or replaces a budget."""
        key = (budget.metadata.namespace, budget.metadata.name)
        old = self._budgets.get(key)
        self._budgets[key] = budget
        if old is None or (old.spec, old.status) != (budget.spec, budget.status):
            self.generation += 1

    def drop(self, budget: PodDisruptionBudget) -> None:
        """Removes a budget."""
        if self._budgets.pop((budget.metadata.namespace, budget.metadata.name), None) is not None:
            self.generation += 1

    def api_objects(self) -> list[PodDisruptionBudget]:
        """Returns all budgets."""
        return [*self._budgets.values()]

    def clear(self) -> None:
        """Removes all budgets, before a list adds those that exist."""
        self._budgets.clear()
        self.generation += 1

    def split_by_violation(
        self, entries: Iterable["PodEntry"]
    ) -> tuple[list["PodEntry"], list["PodEntry"]]:
        """Returns the pods whose eviction would violate a budget once all pods before them were
        evicted, and the other pods. Both lists keep the order."""
        if not self._budgets:
            return [], list(entries)
        allowed: dict[str, Ints] = {}  # what is left of each budget, by namespace
        violating: list[PodEntry] = []
        others: list[PodEntry] = []
        for entry in entries:
            name = entry.pod.metadata.namespace
            namespace = self._namespace_budgets(name)
            numbers = namespace.budget_numbers(entry.pod)
            violates = False
            if len(numbers):
                if name not in allowed:
                    allowed[name] = namespace.allowed.copy()
                allowed[name][numbers] -= 1
                violates = bool(allowed[name][numbers].min() < 0)
            (violating if violates else others).append(entry)
        return violating, others

    def _namespace_budgets(self, namespace: str) -> "_NamespaceBudgets":
        cache_key = self.generation, self._tallies.step  # tallies may be dropped between steps
        if self._cache_key != cache_key:
            self._cache_key = cache_key
            self._namespaces.clear()
        found = self._namespaces.get(namespace)
        if found is None:
            pairs = [
                pair for pair in self._budget_tallies() if pair[0].metadata.namespace == namespace
            ]
            found = self._namespaces[namespace] = _NamespaceBudgets(pairs, self._tallies)
        return found

    def _budget_tallies(self) -> Iterator[tuple[PodDisruptionBudget, Tally]]:
        """Yields the budgets that can select pods, each with the count of the selected pods."""
        for (namespace, _), budget in self._budgets.items():
            selector = budget.spec.selector
            if selector is not None and not _is_empty(selector):
                yield budget, self._tally((frozenset((namespace,)), selector))

    def rows_over_budget(self, limit: int) -> Bools:
        """Returns bool[limit]: the rows with more pods of one budget than that budget allows to
        evict now."""
        is_over = np.zeros(limit, np.bool_)
        for budget, tally in self._budget_tallies():
            is_over |= tally.counts[:limit] > budget.status.disruptions_allowed
        return is_over


class _NamespaceBudgets:
    """The budgets of one namespace by number, and the pods that each of them selects."""

    def __init__(self, budgets: list[tuple[PodDisruptionBudget, Tally]], tallies: Tallies) -> None:
        allowed = [budget.status.disruptions_allowed for budget, _ in budgets]
        self.allowed: Ints = np.array(allowed, np.int64)
        self._matcher = Matcher([tally for _, tally in budgets], tallies)
        self._arrays: dict[tuple[int, ...], Ints] = {}
        # By pod name, the budgets that count the pod's eviction already (disruptedPods).
        self._disrupted: dict[str, set[int]] = {}
        for number, (budget, _) in enumerate(budgets):
            for name in budget.status.disrupted_pods or ():
                self._disrupted.setdefault(name, set()).add(number)

    def budget_numbers(self, pod: Pod) -> Ints:
        """Returns the numbers of the budgets that an eviction of the pod counts for. Raises
        TooManyVisits."""
        if not pod.metadata.labels:
            return NO_BUDGETS
        numbers = self._matcher.matching_conditions(pod)
        if (counted := self._disrupted.get(pod.metadata.name)) is not None:
            numbers = tuple(number for number in numbers if number not in counted)
        found = self._arrays.get(numbers)
        if found is None:
            found = self._arrays[numbers] = np.array(numbers, np.int64)
        return found


def _is_empty(selector: LabelSelector) -> bool:
    return not selector.match_labels and not selector.match_expressions
