"""PostFilter: what may be done for a pod that fits nowhere."""

from typing import Protocol

import msgspec
import numpy as np

from stower.framework.writes import DeleteObject, PatchObject
from stower.model.kinds import Pod
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState, PodEntry
from stower.state.shapes import Shape


class Candidates(msgspec.Struct, frozen=True):
    """Rows on which the pod would fit once some pods of lower priority were gone: int64[rows] each.

    violations: evictions that a disruption budget does not allow; highest: the highest priority of
    a victim; total: sum of their priorities, each made 0 or more; count: how many; start: when the
    earliest of those of the highest priority started, in Unix seconds.
    """

    rows: Ints
    violations: Ints
    highest: Ints
    total: Ints
    count: Ints
    start: Ints


class Failure(Protocol):
    """A pod that no node would take, and what can be found out about it."""

    pod: Pod
    shape: Shape
    state: ClusterState
    nominated_to: str  # the node that it was promised, "" for none

    def is_unresolvable(self, node_name: str) -> bool:
        """Whether nothing that leaves the node would let the pod in."""

    def candidates(self) -> Candidates:
        """All rows that evictions would make fit."""

    def victims(self, row: int) -> tuple[PodEntry, ...]:
        """Who would be evicted on a candidate row, most important first."""

    def no_candidate(self) -> str:
        """Why there is no candidate: as the text of a refusal, node by node."""

    def best(self) -> int:
        """The candidate where evictions hurt least; -1 where there is none."""


class Remedy(msgspec.Struct, frozen=True):
    """What a PostFilter plugin came to.

    nominate: the node that is promised to the pod; "" takes a promise back, None leaves it.
    victims: who is evicted for it. message: why nothing could be done, or "". patches: what is
    written in any case, without ids.
    """

    message: str = ""
    nominate: str | None = None
    victims: tuple[PodEntry, ...] = ()
    patches: tuple[PatchObject | DeleteObject, ...] = ()


def best(found: Candidates) -> Ints:
    """The rows that no other beats: int64[rows]. Criteria as in pickOneNodeForPreemption."""
    rows: Ints | None = None
    if not len(found.rows):
        return found.rows
    for column, sign in (
        (found.violations, 1),
        (found.highest, 1),
        (found.total, 1),
        (found.count, 1),
        (found.start, -1),
    ):
        among = column if rows is None else column[rows]
        hit = among == (among.min() if sign > 0 else among.max())
        if not hit.all():
            rows = np.flatnonzero(hit) if rows is None else rows[hit]
            if len(rows) == 1:
                break
    return found.rows if rows is None else found.rows[rows]


def ranked(found: Candidates) -> Ints:
    """Indices of the candidates, the best first, by the same criteria."""
    return np.lexsort((-found.start, found.count, found.total, found.highest, found.violations))
