"""PostFilter: what may be done for a pod that fits nowhere."""

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
    """Rows on which the pod would fit once some pods of lower priority were gone: int64[rows] each.

    violations: evictions that a disruption budget does not allow; highest: the highest priority of
    a victim; total: sum of their priorities, each made 0 or more; count: how many; start: when the
    earliest of those of the highest priority started, in Unix seconds.
    """

    rows: Ints
    pdb_violations: Ints
    highest_priority: Ints
    priority_sum: Ints
    victim_count: Ints
    earliest_start: Ints


class PreemptionEvaluator(Protocol):
    """A pod that no node would take, and what can be found out about it."""

    pod: Pod
    shape: Shape
    state: ClusterState
    nominated_node_name: str  # the node that it was promised, "" for none

    def is_unresolvable(self, node_name: str) -> bool:
        """Whether nothing that leaves the node would let the pod in."""

    def candidates(self) -> Candidates:
        """All rows that evictions would make fit."""

    def victims(self, row: int) -> tuple[PodEntry, ...]:
        """Who would be evicted on a candidate row, most important first."""

    def no_candidate_reason(self) -> str:
        """Why there is no candidate: as the text of a refusal, node by node."""

    def select_candidate(self) -> int:
        """The candidate where evictions hurt least; -1 where there is none."""


class PostFilterResult(msgspec.Struct, frozen=True):
    """What a PostFilter plugin came to.

    nominate: the node that is promised to the pod; "" takes a promise back, None leaves it.
    victims: who is evicted for it. message: why nothing could be done, or "". patches: what is
    written in any case, without ids.
    """

    message: str = ""
    nominated_node_name: str | None = None
    victims: tuple[PodEntry, ...] = ()
    patches: tuple[PatchObject | DeleteObject, ...] = ()


def best_candidates(candidates: Candidates) -> Ints:
    """The rows that no other beats: int64[rows]. Criteria as in pickOneNodeForPreemption."""
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
        hit = among == (among.min() if sign > 0 else among.max())
        if not hit.all():
            rows = np.flatnonzero(hit) if rows is None else rows[hit]
            if len(rows) == 1:
                break
    return candidates.rows if rows is None else candidates.rows[rows]


def rank_candidates(candidates: Candidates) -> Ints:
    """Indices of the candidates, the best first, by the same criteria."""
    return np.lexsort(
        (
            -candidates.earliest_start,
            candidates.victim_count,
            candidates.priority_sum,
            candidates.highest_priority,
            candidates.pdb_violations,
        )
    )
