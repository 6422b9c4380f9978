"""Dry runs of PodTopologySpread: the filter's code of one row after pods are added or removed.

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
    """Counts of one constraint over all rows, from which each dry run starts."""

    def __init__(
        self,
        state: ClusterState,
        constraint: SpreadConstraint,
        counts: Ints,
        domains: Bools,
        eligible: Bools,
    ) -> None:
        self.constraint = constraint
        self.counts = counts
        self.eligible = eligible
        self.values = state.labels.codes(constraint.key, state.all_rows)
        ordered = np.sort(counts[domains])
        self.has_too_few_domains = len(ordered) < max(1, constraint.min_domains)
        self.min_count = int(ordered[0]) if len(ordered) else 0
        self.second_min_count: int | None = int(ordered[1]) if len(ordered) > 1 else None
        self.domains = domains

    def min_count_excluding(self, value: int) -> int | None:
        """Returns the lowest count of all other domains; None if there are none."""
        if self.domains[value] and int(self.counts[value]) == self.min_count:
            return self.second_min_count
        return self.min_count if self.domains.any() else None


class SpreadDryRun:
    """Counts of matching pods in one row's domains, while a dry run adds and removes pods.

    As in kube-scheduler a removed pod reduces the count even if it was not counted, because it was
    being deleted.
    """

    def __init__(
        self, pod: Pod, constraint_counts: list[ConstraintCounts], matcher: Matcher, row: int
    ) -> None:
        """`matcher`: has the constraints' selectors as conditions."""
        self._pod = pod
        self._constraint_counts = constraint_counts
        self._matcher = matcher
        self._values = [int(c.values[row]) for c in constraint_counts]
        # Whether the node is eligible, by its keys and the constraint's policies.
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
        for i, counts in enumerate(self._constraint_counts):
            value, count, constraint = self._values[i], self._match_counts[i], counts.constraint
            if not value:
                return NO_LABEL
            min_count = 0
            if not counts.has_too_few_domains:
                min_of_others = counts.min_count_excluding(value)
                min_count = count if min_of_others is None else min_of_others
                if self._is_eligible[i]:
                    min_count = min(min_count, count)
            if count + int(constraint.matches(self._pod)) - min_count > constraint.max_skew:
                return MAX_SKEW_EXCEEDED
        return 0
