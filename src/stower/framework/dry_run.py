"""Dry runs: evaluates a filter on one row as if pods had been added to the row or removed from it.

Preemption uses dry runs to find victims, and the scheduling cycle to respect nominated pods.

Source: scheduler framework PreFilterExtensions (AddPod, RemovePod).
"""

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from stower.model.kinds import Pod
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape


class DryRun(Protocol):
    """The evaluation of one filter for one pod on one row, under supposed changes of the row. The
    cluster state does not change."""

    def add(self, entry: PodEntry) -> None:
        """Supposes that this pod is on the row as well."""

    def remove(self, entry: PodEntry) -> None:
        """Supposes that this pod is removed from the row."""

    def code(self) -> int:
        """Returns the filter's code under the supposed changes: 0 where the pod may go to the
        row."""


class CapacityConstraint(NamedTuple):
    """A filter that compares one amount: what the pod needs with what a row has free.

    name: of the amount; pods that compete for the amount have constraints of the same name.
    free: returns int64[rows], the free amount of each row of a slice. need: the amount that the pod
    needs. usage: returns the amount that a placed pod of a shape holds. code: the filter's code
    where the need exceeds the free amount. is_discrete: whether the amount counts single items,
    such as devices, of which other pods may want the same ones. label: what messages call the
    amount, where that is not its name. empty: as `free`, if no pod were on the row; None where that
    is not known.
    """

    name: str
    free: Callable[[slice], Ints]
    need: int
    usage: Callable[[Shape], int]
    code: int
    is_discrete: bool = False
    label: str = ""
    empty: Callable[[slice], Ints] | None = None


def no_usage(shape: Shape) -> int:
    """The usage of an amount of which no placed pod's part is known by its shape."""
    return 0


def one_per_row(rows: slice) -> Ints:
    """int64[rows]: an amount of 1."""
    return np.ones(rows.stop - (rows.start or 0), np.int64)


class TreePods(NamedTuple):
    """The pods of a pod group tree that are placed together. shared: keys of claims that several of
    them use."""

    pods: Sequence[Pod]
    shared: Container[str]


class TrialRun:
    """A DryRun for any filter: makes the supposed changes in a trial of the state, calls the
    filter, and rolls the trial back."""

    def __init__(
        self,
        state: ClusterState,
        row: int,
        filter_row: Callable[[int], int],
        concerns: Callable[[PodEntry], bool] | None = None,
        reserve: Callable[[PodEntry, ClusterState, int], None] | None = None,
        codes: Ints | None = None,
    ) -> None:
        """`concerns`: whether the filter's answer may depend on a pod on the row; None: on all.
        `reserve`: supposes that a pod which is on the row as well has what it reserves there.
        `codes`: int64[row_limit], the filter's codes without any supposed change, if known."""
        self._state = state
        self._row = row
        self._filter_row = filter_row
        self._concerns = concerns
        self._reserve = reserve
        self._unchanged = codes
        self._added: list[PodEntry] = []
        self._removed: list[PodEntry] = []
        self._codes: dict[tuple[frozenset[str], frozenset[str]], int] = {}

    def add(self, entry: PodEntry) -> None:
        """Supposes that this pod is on the row as well."""
        if self._concerns is not None and not self._concerns(entry):
            return
        if entry in self._removed:
            self._removed.remove(entry)
        else:
            self._added.append(entry)

    def remove(self, entry: PodEntry) -> None:
        """Supposes that this pod is removed from the row."""
        if self._concerns is not None and not self._concerns(entry):
            return
        if entry in self._added:
            self._added.remove(entry)
        else:
            self._removed.append(entry)

    def code(self) -> int:
        """Implements DryRun.code."""
        key = frozenset(e.uid for e in self._removed), frozenset(e.uid for e in self._added)
        known = self._codes.get(key)
        if known is None:
            known = self._codes[key] = self._find_code()
        return known

    def _find_code(self) -> int:
        state = self._state
        if not self._removed and not self._added:
            known = self._unchanged
            return self._filter_row(self._row) if known is None else int(known[self._row])
        with state.trial():
            for entry in self._removed:
                state.displace(entry)
            for entry in self._added:
                if self._reserve is not None:
                    self._reserve(entry, state, self._row)
                state.assume(entry, self._row)
            return self._filter_row(self._row)
