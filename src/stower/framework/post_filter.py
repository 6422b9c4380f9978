"""PostFilter: what a plugin can find out about a pod that fits on no node, and what it can answer.

Compares preemption candidates by upstream's criteria. Must not know how candidates are found.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np

from stower.framework.writes import DeleteObject, PatchObject
from stower.model.kinds import Pod
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape


class Candidates(msgspec.Struct, frozen=True):
    """Rows on which the pod would fit if some pods of lower priority were evicted, in columns of
    int64[candidates].

    pdb_violations: the number of evictions that a disruption budget does not allow;
    highest_priority: the highest priority of a victim; priority_sum: the sum of the victims'
    priorities, each shifted to be 0 or more; victim_count: the number of victims; earliest_start:
    the earliest start of a victim of the highest priority, in Unix seconds.
    """

    rows: Ints
    pdb_violations: Ints
    highest_priority: Ints
    priority_sum: Ints
    victim_count: Ints
    earliest_start: Ints


class PreemptionEvaluator(Protocol):
    """A pod that fits on no node, and its preemption candidates."""

    pod: Pod
    shape: Shape
    state: ClusterState
    nominated_node_name: str  # the node that the pod is nominated to, "" for none

    def is_unresolvable(self, node_name: str) -> bool:
        """Returns whether no eviction from the node would make the pod fit there."""

    def leaving_victims(self) -> Sequence[PodEntry]:
        """Returns the pods that were evicted for this one and are still on their nodes."""

    def candidates(self) -> Candidates:
        """Returns all rows on which evictions would make the pod fit."""

    def victims(self, row: int) -> tuple[PodEntry, ...]:
        """Returns the pods to evict on a candidate row, the most important first."""

    def no_candidate_reason(self) -> str:
        """Returns why there is no candidate, as a text that counts nodes by reason."""

    def select_candidate(self) -> int:
        """Returns the best candidate row by the criteria of `best_candidates`; -1 where there is
        no candidate."""


class PostFilterResult(msgspec.Struct, frozen=True):
    """The answer of a PostFilter plugin.

    message: why preemption does not help, or ""; nominated_node_name: the node to nominate the pod
    to, "" to withdraw a nomination, None to leave it; victims: the pods to evict; patches: writes
    that are sent in any case, without ids; retry_at_ns: when the pod is tried again though nothing
    has changed.
    """

    message: str = ""
    nominated_node_name: str | None = None
    victims: tuple[PodEntry, ...] = ()
    patches: tuple[PatchObject | DeleteObject, ...] = ()
    retry_at_ns: int | None = None


def earliest(results: Sequence[PostFilterResult]) -> int | None:
    """Returns the earliest time at which one of these results has the pod tried again."""
    return min((r.retry_at_ns for r in results if r.retry_at_ns is not None), default=None)


def best_candidates(candidates: Candidates) -> Ints:
    """Returns the rows of the best candidates, int64[candidates]: several if the criteria do not
    distinguish them. Criteria as in pickOneNodeForPreemption."""
    rows: Ints | None = None
    if not len(candidates.rows):
        return candidates.rows
    for column, sign in (
        (candidates.pdb_violations, 1),
        (candidates.highest_priority, 1),
        (candidates.priority_sum, 1),
        (candidates.victim_count, 1),
        (candidates.earliest_start, -1),
    ):
        among = column if rows is None else column[rows]
        is_best = among == (among.min() if sign > 0 else among.max())
        if not is_best.all():
            rows = np.flatnonzero(is_best) if rows is None else rows[is_best]
            if len(rows) == 1:
                break
    return candidates.rows if rows is None else candidates.rows[rows]


def rank_candidates(candidates: Candidates) -> Ints:
    """Returns the indices of all candidates, the best first, by the same criteria."""
    return np.lexsort(
        (
            -candidates.earliest_start,
            candidates.victim_count,
            candidates.priority_sum,
            candidates.highest_priority,
            candidates.pdb_violations,
        )
    )
