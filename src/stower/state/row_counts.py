"""Numbers per node row with their sums per topology domain, and things found by what they select.

Whoever counts pods of some sort over rows keeps a RowCounts; nobody sums in a scheduling cycle.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from stower.model.selectors import IN, LabelSelector
from stower.state.arrays import Ints, grow_array

if TYPE_CHECKING:
    from stower.state.labels import LabelColumns

T = TypeVar("T")


class RowCounts:
    """int64[capacity], and where asked for int64[value codes] for a label key, kept in step."""

    __slots__ = ("_labels", "counts", "sums")

    def __init__(self, labels: "LabelColumns", capacity: int) -> None:
        self._labels = labels
        self.counts: Ints = np.zeros(capacity, np.int64)
        # Label key -> sum per value code of that key; nodes without it (code 0) are no domain.
        self.sums: dict[str, Ints] = {}

    def domain_counts(self, key: str) -> Ints:
        """int64[value codes of the key]: the sums per domain, 0 for code 0. Read only."""
        size = self._labels.code_count(key)
        sums = self.sums.get(key)
        if sums is None:
            sums = np.zeros(size, np.int64)
            np.add.at(sums, self._labels.codes(key, slice(None)), self.counts)
            sums[0] = 0
            self.sums[key] = sums
        elif len(sums) < size:
            sums = self.sums[key] = grow_array(sums, size)
        # All nodes may have lost the key and some have it again, with fewer values than before.
        return sums[:size]

    def add(self, row: int, delta: int) -> None:
        """Count more (or less) on a row."""
        self.counts[row] += delta
        for key in self.sums:
            column = self._labels.columns.get(key)
            if column is not None and (code := column.codes[row]):
                self.domain_counts(key)[code] += delta

    def move(self, key: str, row: int, old: int, new: int) -> None:
        """The row's node changed its value of the key: what it has changes domain."""
        if key in self.sums:
            sums = self.domain_counts(key)
            if old:
                sums[old] -= self.counts[row]
            if new:
                sums[new] += self.counts[row]

    def grow(self, capacity: int) -> None:
        """Extend to more rows."""
        self.counts = grow_array(self.counts, capacity)


class SelectorIndex(Generic[T]):
    """Things in the order in which they came, found by the labels that they may select.

    A selector that wants a certain value of a key is looked at only for labels that have it: two
    thousand groups, each with its own label, cost one look a pod.
    """

    __slots__ = ("_by_pair", "_unindexed", "count")

    def __init__(self) -> None:
        self.count = 0
        self._unindexed: list[tuple[int, T]] = []
        self._by_pair: dict[tuple[str, str], list[tuple[int, T]]] = {}

    def add(self, selector: LabelSelector | None, item: T) -> None:
        """One more."""
        pair = required_label(selector)
        found = self._unindexed if pair is None else self._by_pair.setdefault(pair, [])
        found.append((self.count, item))
        self.count += 1

    def candidates(self, labels: Mapping[str, str], start: int = 0) -> Iterator[T]:
        """Those from the so-manieth on that may select the labels."""
        buckets = [self._unindexed]
        buckets += [b for pair in labels.items() if (b := self._by_pair.get(pair)) is not None]
        for bucket in buckets:
            for _, thing in bucket[bisect_left(bucket, start, key=_serial) :]:
                yield thing


def _serial(entry: tuple[int, object]) -> int:
    return entry[0]


def required_label(selector: LabelSelector | None) -> tuple[str, str] | None:
    """A label that it selects nothing without."""
    if selector is None:
        return None
    for pair in (selector.match_labels or {}).items():
        return pair
    for requirement in selector.match_expressions or ():
        values = requirement.values or ()
        if requirement.operator == IN and len(values) == 1:
            return requirement.key, values[0]
    return None
