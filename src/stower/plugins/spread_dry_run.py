"""Dry runs of PodTopologySpread: what it would say of one row if pods came or went.

Source: kube-scheduler plugins/podtopologyspread/filtering.go AddPod, RemovePod.
"""

from typing import Final

import numpy as np

from stower.model.kinds import Pod
from stower.plugins.spread_constraints import SpreadConstraint
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.matcher import Matcher
from stower.state.pod_entry import PodEntry

# Codes of PodTopologySpread.
NO_LABEL: Final = 1
MAX_SKEW_EXCEEDED: Final = 2


class ConstraintCounts:
    """One constraint over all rows, as a dry run starts from it."""

    def __init__(
        self,
        state: ClusterState,
        spread_constraint: SpreadConstraint,
        counts: Ints,
        domains: Bools,
        eligible: Bools,
    ) -> None:
        self.spread_constraint = spread_constraint
        self.counts = counts
        self.eligible = eligible
        self.values = state.labels.codes(spread_constraint.key, state.all_rows)
        among = np.sort(counts[domains])
        self.has_too_few_domains = len(among) < max(1, spread_constraint.min_domains)
        self.min_count = int(among[0]) if len(among) else 0
        self.second_min_count: int | None = int(among[1]) if len(among) > 1 else None
        self.domains = domains

    def min_count_excluding(self, value: int) -> int | None:
        """The fewest in any domain but this one; None where there is no other."""
        if self.domains[value] and int(self.counts[value]) == self.min_count:
            return self.second_min_count
        return self.min_count if self.domains.any() else None


class SpreadDryRun:
    """One row's domains while pods come and go in thought.

    As upstream a pod that leaves is taken off the count even where it was not in it, because it was
    being deleted.
    """

    def __init__(
        self, pod: Pod, constraint_counts: list[ConstraintCounts], matcher: Matcher, row: int
    ) -> None:
        """`matcher`: of the constraints' selectors."""
        self._pod = pod
        self._constraints = constraint_counts
        self._matcher = matcher
        self._values = [int(c.values[row]) for c in constraint_counts]
        # Whether the node counts at all, by its keys and the constraint's policies.
        self._has_all_keys = all(self._values)
        self._is_eligible = [
            self._has_all_keys and bool(c.eligible[row]) for c in constraint_counts
        ]
        self._match_counts = [
            int(c.counts[v]) for c, v in zip(constraint_counts, self._values, strict=True)
        ]

    def add(self, entry: PodEntry) -> None:
        self._count(entry.pod, 1)

    def remove(self, entry: PodEntry) -> None:
        self._count(entry.pod, -1)

    def _count(self, other: Pod, delta: int) -> None:
        if other.metadata.namespace != self._pod.metadata.namespace:
            return
        for i in self._matcher.matching_conditions(other):
            if self._is_eligible[i]:
                self._match_counts[i] += delta

    def code(self) -> int:
        for i, constraint in enumerate(self._constraints):
            value, count, spread_constraint = (
                self._values[i],
                self._match_counts[i],
                constraint.spread_constraint,
            )
            if not value:
                return NO_LABEL
            min_count = 0
            if not constraint.has_too_few_domains:
                beside = constraint.min_count_excluding(value)
                min_count = count if beside is None else beside
                if self._is_eligible[i]:
                    min_count = min(min_count, count)
            if (
                count + int(spread_constraint.matches(self._pod)) - min_count
                > spread_constraint.max_skew
            ):
                return MAX_SKEW_EXCEEDED
        return 0
