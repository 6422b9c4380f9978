"""The room that a pod has left on a row, and whether a waiting pod fits there because of it.

Where a waiting pod has not fitted on a row for lack of room, another pod's end there helps it only
if the pod fits now and did not before: as the row is, or with all pods of lower priority evicted.

Must not know which pods wait. All amounts are those of the time when the room was freed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from stower.model.resources import PODS
from stower.state.arrays import ResourceColumn
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

Requests = Sequence[tuple[ResourceColumn, int]]
NOTHING: Final[dict[ResourceColumn, int]] = {}


class FreedRoom:
    """The amounts of one row after a pod has left it."""

    __slots__ = ("_free", "_freed", "_levels", "_slots", "entry", "row")

    def __init__(self, state: ClusterState, row: int, entry: PodEntry) -> None:
        """`entry`: the pod that was on the row."""
        self.row = row
        self.entry = entry
        self._slots = state.columns[PODS]
        columns = state.columns.values()
        self._free = {c: c.allocatable_cells[row] - c.requested_cells[row] for c in columns}
        self._freed = dict(entry.shape.usage)
        self._levels = [NOTHING, *_evictable(state.pods_by_row[row].values(), entry.pod.priority)]

    def lets_in(self, requests: Requests) -> bool:
        """Returns whether a pod with these requests fits now, and did not before."""
        wanted = [(self._slots, 1), *requests]
        for evicted in self._levels:
            is_short = False
            for column, amount in wanted:
                spare = self._free.get(column, 0) + evicted.get(column, 0) - amount
                if spare < 0:
                    break
                is_short |= spare < self._freed.get(column, 0)
            else:
                if is_short:
                    return True
        return False


def _evictable(others: Iterable[PodEntry], priority: int) -> Iterator[dict[ResourceColumn, int]]:
    """Yields what is freed where all pods below a priority are evicted, for each priority that
    makes a difference, up to this one."""
    found: dict[ResourceColumn, int] = {}
    lower = sorted((entry for entry in others if entry.pod.priority < priority), key=_priority_of)
    for _, entries in groupby(lower, key=_priority_of):
        for entry in entries:
            for column, amount in entry.shape.usage:
                found[column] = found.get(column, 0) + amount
        yield dict(found)


def _priority_of(entry: PodEntry) -> int:
    return entry.pod.priority
