"""Preemption candidates in columns, and the rows that no other candidate beats, kept up to date.

Must not know how victims are found.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from stower.framework.post_filter import Candidates, best_candidates
from stower.framework.reasons import Rejection
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.pod_table import importance, start_second

# Makes every priority 0 or more, so that few victims beat many.
PRIORITY_SHIFT: Final = 1 << 31
# Above this number of changed rows, all rows are compared again.
ROWS_ONE_BY_ONE_MAX: Final = 48


class RowVictims(NamedTuple):
    """The victims of one row by importance, or the rejection that evictions do not lift."""

    victims: tuple[PodEntry, ...] = ()
    violations: int = 0
    refusal: Rejection | None = None


class Columns:
    """Candidates over all rows, int64[capacity] each; count is 0 where a row is none."""

    __slots__ = ("count", "highest", "start", "total", "violations")

    def __init__(self, capacity: int) -> None:
        self.violations: Ints = np.zeros(capacity, np.int64)
        self.highest: Ints = np.zeros(capacity, np.int64)
        self.total: Ints = np.zeros(capacity, np.int64)
        self.count: Ints = np.zeros(capacity, np.int64)
        self.start: Ints = np.zeros(capacity, np.int64)

    def set(self, row: int, found: RowVictims) -> None:
        """Writes the victims of one row."""
        victims = found.victims
        self.count[row] = len(victims)
        if not victims:
            return
        self.violations[row] = found.violations
        highest = self.highest[row] = victims[0].pod.priority
        self.total[row] = sum(v.pod.priority + PRIORITY_SHIFT for v in victims)
        self.start[row] = min(start_second(v.pod) for v in victims if v.pod.priority == highest)

    def key(self, row: int) -> tuple[int, ...]:
        """Returns the key by which rows with victims are compared; the lower is the better."""
        return (
            int(self.violations[row]), int(self.highest[row]), int(self.total[row]),
            int(self.count[row]), -int(self.start[row]),
        )  # fmt: skip

    def candidates(self, possible: Bools) -> Candidates:
        """Returns the candidates among the possible rows."""
        rows = np.flatnonzero((self.count[: len(possible)] > 0) & possible)
        return Candidates(
            rows, self.violations[rows], self.highest[rows], self.total[rows], self.count[rows],
            self.start[rows],
        )  # fmt: skip


class BestRows:
    """The possible rows of some columns that no other row beats."""

    __slots__ = ("_columns", "_key", "_possible", "_tied")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._possible: Bools | None = None
        self._tied: Bools = np.zeros(0, np.bool_)
        self._key: tuple[int, ...] = ()

    def tied_rows(self, possible: Bools, changed: Iterable[int] | None) -> Bools:
        """Returns bool[row_limit]: the best rows. Read only. `changed`: the rows that were set
        since the last call, None for unknown."""
        last, self._possible = self._possible, possible
        if changed is None or last is None or len(last) != len(possible):
            return self._rebuild()
        rows = sorted({*changed, *np.flatnonzero(possible != last).tolist()})
        if len(rows) > ROWS_ONE_BY_ONE_MAX or not self._tied.any():
            return self._rebuild()
        for row in rows:
            if not possible[row] or not self._columns.count[row]:
                self._tied[row] = False
                continue
            key = self._columns.key(row)
            if key < self._key:
                self._key = key
                self._tied[:] = False
            self._tied[row] = key == self._key
        return self._tied if self._tied.any() else self._rebuild()

    def _rebuild(self) -> Bools:
        assert self._possible is not None
        rows = best_candidates(self._columns.candidates(self._possible))
        self._tied = np.zeros(len(self._possible), np.bool_)
        self._tied[rows] = True
        self._key = self._columns.key(int(rows[0])) if len(rows) else ()
        return self._tied


def leaving_victims(state: ClusterState, uids: Iterable[str]) -> list[PodEntry]:
    """Returns the evicted pods that are still on a node that exists."""
    found = (state.pods.get(uid) for uid in sorted(uids))
    return [e for e in found if e is not None and e.row >= 0 and state.present[e.row]]


def candidates_of(
    state: ClusterState, victims: Mapping[str, tuple[list[PodEntry], int]]
) -> Candidates:
    """Returns candidates from victims and the number of violated budgets, by node."""
    columns = Columns(state.capacity)
    for name, (entries, violations) in victims.items():
        ordered = tuple(sorted(entries, key=importance))
        columns.set(state.row_of(name), RowVictims(ordered, violations))
    return columns.candidates(np.ones(state.row_limit, np.bool_))
