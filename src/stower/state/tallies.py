"""Tallies: how many pods per node match a (namespaces, selector) pair, kept up to date.

Registered by whoever needs one; no one ever walks over all pods in a cycle. Each tally can also
keep its sums per topology domain.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from stower.model.kinds import Pod
from stower.model.selectors import LabelSelector
from stower.state.arrays import Ints, grown

if TYPE_CHECKING:
    from stower.state.cluster import PodEntry
    from stower.state.labels import LabelColumns

# Distinct (namespace, labels) remembered; pods with a label value each would grow it for ever.
CLASSES_MAX: Final = 65_536

_NO_LABELS: Mapping[str, str] = {}


class Tally:
    """Pods per row that lie in one of the namespaces (None: in any) and match the selector."""

    __slots__ = ("counts", "namespaces", "selector", "sums")

    def __init__(
        self, namespaces: frozenset[str] | None, selector: LabelSelector, capacity: int
    ) -> None:
        self.namespaces = namespaces
        self.selector = selector
        self.counts: Ints = np.zeros(capacity, np.int64)
        # Label key -> count per value code of that key; code 0 is for nodes without it.
        self.sums: dict[str, Ints] = {}

    def matches(self, pod: Pod) -> bool:
        """Whether the pod counts."""
        if self.namespaces is not None and pod.metadata.namespace not in self.namespaces:
            return False
        return self.selector.matches(pod.metadata.labels or _NO_LABELS)


class Tallies:
    """All registered tallies, and which of them each kind of pod counts in."""

    __slots__ = ("_by_class", "_capacity", "_labels", "_tallies")

    def __init__(self, labels: "LabelColumns", capacity: int) -> None:
        self._labels = labels
        self._capacity = capacity
        self._tallies: dict[tuple[frozenset[str] | None, str], Tally] = {}
        self._by_class: dict[tuple[str, frozenset[tuple[str, str]]], tuple[Tally, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._tallies)

    def register(
        self,
        namespaces: frozenset[str] | None,
        selector: LabelSelector,
        placed: Iterable["PodEntry"],
    ) -> Tally:
        """The tally of this pair; a new one counts the pods that are placed already."""
        key = (namespaces, _canonical(selector))
        tally = self._tallies.get(key)
        if tally is None:
            tally = Tally(namespaces, selector, self._capacity)
            self._tallies[key] = tally
            self._by_class.clear()
            self._labels.on_change = self._move
            for entry in placed:
                if tally.matches(entry.pod):
                    tally.counts[entry.row] += 1
        return tally

    def domain_counts(self, tally: Tally, key: str) -> Ints:
        """int64[value codes of the key]: the tally per domain, kept up to date. Read only."""
        column = self._labels.column(key)
        sums = tally.sums.get(key)
        if sums is None:
            sums = np.zeros(column.code_count, np.int64)
            np.add.at(sums, column.codes, tally.counts)
            tally.sums[key] = sums
        elif len(sums) < column.code_count:
            sums = tally.sums[key] = grown(sums, column.code_count)
        return sums

    def bump(self, pod: Pod, row: int, by: int) -> None:
        """A pod came to the row (1) or left it (-1)."""
        labels = pod.metadata.labels
        key = (pod.metadata.namespace, frozenset(labels.items()) if labels else frozenset())
        hits = self._by_class.get(key)
        if hits is None:
            if len(self._by_class) >= CLASSES_MAX:
                self._by_class.clear()
            hits = tuple(t for t in self._tallies.values() if t.matches(pod))
            self._by_class[key] = hits
        for tally in hits:
            tally.counts[row] += by
            for label in tally.sums:
                code = self._labels.column(label).codes[row]
                self.domain_counts(tally, label)[code] += by

    def grow(self, capacity: int) -> None:
        """Extend the counts to more rows."""
        self._capacity = capacity
        for tally in self._tallies.values():
            tally.counts = grown(tally.counts, capacity)

    def _move(self, key: str, row: int, old: int, new: int) -> None:
        """The row's node changed its value of the key: its pods change domain."""
        for tally in self._tallies.values():
            if key in tally.sums:
                sums = self.domain_counts(tally, key)
                sums[old] -= tally.counts[row]
                sums[new] += tally.counts[row]


def _canonical(selector: LabelSelector) -> str:
    labels = sorted((selector.match_labels or {}).items())
    terms = sorted(
        (r.key, r.operator, sorted(r.values or ())) for r in selector.match_expressions or ()
    )
    return repr((labels, terms))
