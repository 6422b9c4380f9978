"""Candidates for preemption in columns, and which of them no other beats, kept up to date."""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from stower.framework.post_filter import Candidates, best
from stower.framework.reasons import Rejection
from stower.state.arrays import Bools, Ints
from stower.state.cluster import PodEntry
from stower.state.pod_table import start_second

# Makes every priority 0 or more, so that few pods of low priority beat many.
PRIORITY_SHIFT: Final = 1 << 31
# Up to so many changed rows are worked out one by one.
ROWS_ONE_BY_ONE_MAX: Final = 48


class Found(NamedTuple):
    """What one row came to: victims by importance, or who refused the pod all the same."""

    victims: tuple[PodEntry, ...] = ()
    violations: int = 0
    refusal: Rejection | None = None


class Columns:
    """Candidates over all rows; count is 0 where there is none."""

    __slots__ = ("count", "highest", "start", "total", "violations")

    def __init__(self, capacity: int) -> None:
        self.violations: Ints = np.zeros(capacity, np.int64)
        self.highest: Ints = np.zeros(capacity, np.int64)
        self.total: Ints = np.zeros(capacity, np.int64)
        self.count: Ints = np.zeros(capacity, np.int64)
        self.start: Ints = np.zeros(capacity, np.int64)

    def set(self, row: int, found: Found) -> None:
        """What was found for one row."""
        victims = found.victims
        self.count[row] = len(victims)
        if not victims:
            return
        self.violations[row] = found.violations
        highest = self.highest[row] = victims[0].pod.priority
        self.total[row] = sum(v.pod.priority + PRIORITY_SHIFT for v in victims)
        self.start[row] = min(start_second(v.pod) for v in victims if v.pod.priority == highest)

    def key(self, row: int) -> tuple[int, ...]:
        """By what rows with victims are compared, the better below the worse."""
        return (
            int(self.violations[row]), int(self.highest[row]), int(self.total[row]),
            int(self.count[row]), -int(self.start[row]),
        )  # fmt: skip

    def candidates(self, possible: Bools) -> Candidates:
        """Those among the possible rows."""
        rows = np.flatnonzero((self.count[: len(possible)] > 0) & possible)
        return Candidates(
            rows, self.violations[rows], self.highest[rows], self.total[rows], self.count[rows],
            self.start[rows],
        )  # fmt: skip


class Front:
    """The rows of some columns that no other beats, among those that are possible."""

    __slots__ = ("_columns", "_key", "_possible", "_tied")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._possible: Bools | None = None
        self._tied: Bools = np.zeros(0, np.bool_)
        self._key: tuple[int, ...] = ()

    def tied(self, possible: Bools, changed: Iterable[int] | None) -> Bools:
        """bool[row_limit]: them. Read only. `changed`: all rows that were set since it was last
        asked; None for no telling."""
        last, self._possible = self._possible, possible
        if changed is None or last is None or len(last) != len(possible):
            return self._all_anew()
        rows = sorted({*changed, *np.flatnonzero(possible != last).tolist()})
        if len(rows) > ROWS_ONE_BY_ONE_MAX or not self._tied.any():
            return self._all_anew()
        for row in rows:
            if not possible[row] or not self._columns.count[row]:
                self._tied[row] = False
                continue
            key = self._columns.key(row)
            if key < self._key:
                self._key = key
                self._tied[:] = False
            self._tied[row] = key == self._key
        return self._tied if self._tied.any() else self._all_anew()

    def _all_anew(self) -> Bools:
        assert self._possible is not None
        rows = best(self._columns.candidates(self._possible))
        self._tied = np.zeros(len(self._possible), np.bool_)
        self._tied[rows] = True
        self._key = self._columns.key(int(rows[0])) if len(rows) else ()
        return self._tied
