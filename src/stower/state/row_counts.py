"""Counts per node row with their sums per topology domain; and SelectorIndex, which finds label
selectors by the labels that they may match.

A counter of pods keeps a RowCounts up to date, so that no scheduling cycle has to sum. Must not
know what is counted.
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
    """Counts per row, int64[capacity], and for each label key that was asked for, their sums per
    domain, int64[value codes]. Both are kept up to date."""

    __slots__ = ("_labels", "counts", "sums")

    def __init__(self, labels: "LabelColumns", capacity: int) -> None:
        self._labels = labels
        self.counts: Ints = np.zeros(capacity, np.int64)
        # By label key: the sum per value code. Nodes without the key (code 0) are in no domain.
        self.sums: dict[str, Ints] = {}

    def domain_counts(self, key: str) -> Ints:
        """Returns int64[value codes of the key]: the sums per domain, 0 for code 0. Read only."""
        size = self._labels.code_count(key)
        sums = self.sums.get(key)
        if sums is None:
            if key not in self._labels.columns:
                return np.zeros(1, np.int64)  # a pod can name any key: nothing is kept for it
            sums = np.zeros(size, np.int64)
            np.add.at(sums, self._labels.codes(key, slice(None)), self.counts)
            sums[0] = 0
            self.sums[key] = sums
        elif len(sums) < size:
            sums = self.sums[key] = grow_array(sums, size)
        # The key may have fewer values than before, where all nodes had lost it in between.
        return sums[:size]

    def add(self, row: int, delta: int) -> None:
        """Adds to the count of a row; `delta` may be negative."""
        self.counts[row] += delta
        for key in self.sums:
            column = self._labels.columns.get(key)
            if column is not None and (code := column.codes[row]):
                self.domain_counts(key)[code] += delta

    def move(self, key: str, row: int, old: int, new: int) -> None:
        """Moves the row's count to another domain, after the value code of its node has changed."""
        if key in self.sums:
            sums = self.domain_counts(key)
            if old:
                sums[old] -= self.counts[row]
            if new:
                sums[new] += self.counts[row]

    def grow(self, capacity: int) -> None:
        """Extends the counts to more rows."""
        self.counts = grow_array(self.counts, capacity)


class SelectorIndex(Generic[T]):
    """Items in the order in which they were added, found by the labels that their selectors may
    match.

    An item whose selector requires one value of a key is visited only for labels that have the
    value: with 2,000 groups, each with a label of its own, a pod costs one visit.
    """

    __slots__ = ("_by_pair", "_unindexed", "count")

    def __init__(self) -> None:
        self.count = 0
        self._unindexed: list[tuple[int, T]] = []
        self._by_pair: dict[tuple[str, str], list[tuple[int, T]]] = {}

    def add(self, selector: LabelSelector | None, item: T) -> None:
        """Adds an item with its selector."""
        pair = required_label(selector)
        found = self._unindexed if pair is None else self._by_pair.setdefault(pair, [])
        found.append((self.count, item))
        self.count += 1

    def candidates(self, labels: Mapping[str, str], start: int = 0) -> Iterator[T]:
        """Yields the items whose selectors may match the labels, without the first `start` items
        that were added."""
        buckets = [self._unindexed]
        buckets += [b for pair in labels.items() if (b := self._by_pair.get(pair)) is not None]
        for bucket in buckets:
            for _, item in bucket[bisect_left(bucket, start, key=_serial) :]:
                yield item


def _serial(entry: tuple[int, object]) -> int:
    return entry[0]


def required_label(selector: LabelSelector | None) -> tuple[str, str] | None:
    """Returns a label (key, value) without which the selector matches nothing; None where there is
    none."""
    if selector is None:
        return None
    for pair in (selector.match_labels or {}).items():
        return pair
    for requirement in selector.match_expressions or ():
        values = requirement.values or ()
        if requirement.operator == IN and len(values) == 1:
            return requirement.key, values[0]
    return None
