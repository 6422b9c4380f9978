"""Dry runs: what a filter would say of one row, were some pods gone from it or others there.

Source: scheduler framework PreFilterExtensions (AddPod, RemovePod).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape


class DryRun(Protocol):
    """One filter, one pod, one row. What it is told of happens nowhere else."""

    def add(self, entry: PodEntry) -> None:
        """Suppose that this pod were on the row as well."""

    def remove(self, entry: PodEntry) -> None:
        """Suppose that this pod of the row were gone."""

    def code(self) -> int:
        """As the filter's: 0 where the pod may go there."""


class CapacityConstraint(NamedTuple):
    """A filter as an amount: the pod needs so much of what rows have free, and other pods hold so
    much of it each. `code` is the filter's where that is too much; `name`: what it is, equal for
    pods that compete for it; `is_choice`: single things, of which others may want the same ones."""

    name: str
    free: Callable[[slice], Ints]
    need: int
    usage: Callable[[Shape], int]
    code: int
    is_discrete: bool = False


class TrialRun:
    """The adapter: what was told is done to the state, the filter asked, and all of it undone."""

    def __init__(self, state: ClusterState, row: int, filter_row: Callable[[int], int]) -> None:
        self._state = state
        self._row = row
        self._filter_row = filter_row
        self._added: list[PodEntry] = []
        self._removed: list[PodEntry] = []

    def add(self, entry: PodEntry) -> None:
        """Suppose that this pod were on the row as well."""
        if entry in self._removed:
            self._removed.remove(entry)
        else:
            self._added.append(entry)

    def remove(self, entry: PodEntry) -> None:
        """Suppose that this pod of the row were gone."""
        if entry in self._added:
            self._added.remove(entry)
        else:
            self._removed.append(entry)

    def code(self) -> int:
        """As the filter's."""
        state = self._state
        with state.trial():
            for entry in self._removed:
                state.displace(entry)
            for entry in self._added:
                state.assume(entry, self._row)
            return self._filter_row(self._row)
