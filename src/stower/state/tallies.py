"""Tallies: the number of pods per node that meet given conditions, kept up to date.

A plugin registers the tallies that it needs, so that no cycle walks over all pods. Pods with equal
namespace and labels form a class: a tally counts all pods of a class or none. Must not know
plugins.
"""

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

from stower.model.kinds import Pod
from stower.model.selectors import LabelSelector
from stower.state.row_counts import RowCounts, SelectorIndex, required_label

if TYPE_CHECKING:
    from stower.state.labels import LabelColumns
    from stower.state.pod_entry import PodEntry

# A pod is in one of the namespaces (None: any), and the selector matches it (None: never).
Condition = tuple[frozenset[str] | None, LabelSelector | None]
ClassKey = tuple[str, frozenset[tuple[str, str]], bool]

TEXTS_MAX: Final = 65_536
TALLIES_MAX: Final = 4_096  # beyond it, the least recently used are dropped
TALLIES_KEPT: Final = TALLIES_MAX // 2
# Of the texts of their conditions, of which a tally takes some ten times as much.
BYTES_MAX: Final = 2 * 1024 * 1024
BYTES_KEPT: Final = BYTES_MAX // 2
# Pods that new tallies may count in one attempt: about a second.
VISITS_MAX: Final = 5_000_000
COMPARISONS_MAX: Final = 1_000  # the most selectors that one pod is charged for
VISITS_PER_MATCH: Final = 20  # the cost of comparing a pod with one selector, in visits


class TooManyVisits(Exception):
    """The attempt took too much counting. What was counted is kept: the next attempt continues."""


_encode = msgspec.msgpack.Encoder().encode
_NO_LABELS: Final[Mapping[str, str]] = {}


class Tally(RowCounts):
    """The number of pods per row that meet all conditions; `live` leaves out pods in deletion."""

    __slots__ = ("conditions", "last_used_step", "live", "size")

    def __init__(
        self, conditions: tuple[Condition, ...], live: bool, labels: "LabelColumns", capacity: int,
        size: int,
    ) -> None:  # fmt: skip
        """`size`: of the text of its conditions, in bytes."""
        super().__init__(labels, capacity)
        self.size = size
        self.conditions = conditions
        self.live = live
        self.last_used_step = 0  # the step of its last use

    def matches(self, pod: Pod) -> bool:
        """Returns whether the tally counts the pod."""
        return not (self.live and pod.metadata.deletion_timestamp is not None) and meets(
            pod, self.conditions
        )


def meets(pod: Pod, conditions: Iterable[Condition]) -> bool:
    """Returns whether the pod meets all conditions."""
    namespace, labels = pod.metadata.namespace, pod.metadata.labels or _NO_LABELS
    return all(
        (namespaces is None or namespace in namespaces)
        and selector is not None
        and selector.matches(labels)
        for namespaces, selector in conditions
    )


def is_same_class(one: Pod, other: Pod) -> bool:
    """Returns whether every tally counts both pods or neither."""
    a, b = one.metadata, other.metadata
    return (
        a.labels == b.labels
        and a.namespace == b.namespace
        and (a.deletion_timestamp is None) == (b.deletion_timestamp is None)
    )


class _PodClass:
    """Placed pods of one class, and the tallies that count them, up to `compared_count`."""

    __slots__ = ("compared_count", "members", "tallies")

    def __init__(self) -> None:
        self.members: dict[str, PodEntry] = {}
        self.tallies: list[Tally] = []
        self.compared_count = 0


class Tallies:
    """All registered tallies, and for each class of pods those that count it."""

    __slots__ = (
        "_by_pair", "_by_text", "_bytes", "_capacity", "_classes", "_index", "_labels",
        "by_conditions", "step", "visits",
    )  # fmt: skip

    def __init__(self, labels: "LabelColumns", capacity: int) -> None:
        self._labels = labels
        self._capacity = capacity
        self.by_conditions: dict[tuple[object, ...], Tally] = {}
        self._index: SelectorIndex[Tally] = SelectorIndex()
        self._classes: dict[ClassKey, _PodClass] = {}
        self._by_pair: dict[tuple[str, str], dict[ClassKey, _PodClass]] = {}
        self._by_text: dict[bytes, Tally] = {}
        self._bytes = 0  # of texts
        self.step = 0  # number of events handled
        self.visits = 0  # pods that were counted, since it was set to 0

    def register(
        self,
        conditions: tuple[Condition, ...],
        live: bool,
        placed: Iterable["PodEntry"],
    ) -> Tally:
        """Returns the tally of these conditions; a new one counts the placed pods."""
        # By the text first, which takes 1 µs, then by what it means.
        text = _encode((live, [(sorted(n) if n is not None else n, s) for n, s in conditions]))
        tally = self._by_text.get(text)
        if tally is not None:
            tally.last_used_step = self.step
            return tally
        key = (live, *((namespaces, _canonical(s)) for namespaces, s in conditions))
        tally = self.by_conditions.get(key)
        if tally is None:
            self._check()
            if not self.by_conditions:
                self._labels.listeners.append(self._move)
                for entry in placed:
                    self._class_of(entry.pod).members[entry.uid] = entry
            tally = Tally(conditions, live, self._labels, self._capacity, len(text))
            self.by_conditions[key] = tally
            self._index.add(conditions[0][1] if conditions else None, tally)
            pair = required_label(conditions[0][1]) if conditions else None
            classes = self._classes if pair is None else self._by_pair.get(pair, {})
            for found in classes.values():
                one = next(iter(found.members.values()))
                self.visits += VISITS_PER_MATCH
                if tally.matches(one.pod):
                    self.visits += len(found.members)
                    for entry in found.members.values():
                        tally.counts[entry.row] += 1
        tally.last_used_step = self.step
        if len(self._by_text) >= TEXTS_MAX:
            self._by_text.clear()
            self._bytes = sum(known.size for known in self.by_conditions.values())
        self._by_text[text] = tally
        self._bytes += len(text)
        return tally

    def tallies_of(self, pod: Pod) -> set[Tally] | None:
        """Returns the tallies that count the pod; None where each tally has to be asked: the pod is
        not placed, or in deletion. Raises TooManyVisits; comparisons made until then are kept."""
        found = self._classes.get(class_key(pod))
        if found is None or pod.metadata.deletion_timestamp is not None:
            return None
        behind = self._index.count - found.compared_count
        if behind:
            self._catch_up(found, pod)
            self.charge_matches(min(behind, COMPARISONS_MAX))
        return set(found.tallies)

    def charge_matches(self, count: int) -> None:
        """Charges the comparison of a pod with selectors. Raises TooManyVisits."""
        self.visits += VISITS_PER_MATCH * count
        self._check()

    def _check(self) -> None:
        if self.visits > VISITS_MAX:
            raise TooManyVisits(
                "comparing pods with selectors exceeds the budget of one attempt; the next attempt "
                "continues"
            )

    def begin_step(self) -> None:
        """Starts a step, in which no tally is held yet: drops the least recently used ones."""
        self.step += 1
        self.visits = 0
        if len(self.by_conditions) <= TALLIES_MAX and self._bytes <= BYTES_MAX:
            return
        by_age = sorted(self.by_conditions.items(), key=lambda item: -item[1].last_used_step)
        sizes = accumulate(tally.size for _, tally in by_age[:TALLIES_KEPT])
        kept = sum(size <= BYTES_KEPT for size in sizes)
        self.by_conditions = dict(reversed(by_age[:kept]))
        self._bytes = sum(tally.size for _, tally in by_age[:kept])
        self._by_text.clear()
        self._index = SelectorIndex()
        for tally in self.by_conditions.values():
            self._index.add(tally.conditions[0][1] if tally.conditions else None, tally)
        for found in self._classes.values():
            found.tallies, found.compared_count = [], 0

    def add_pod(self, entry: "PodEntry", pod: Pod, row: int) -> None:
        """Counts a pod, with this object, on the row."""
        found = self._class_of(pod)
        found.members[entry.uid] = entry
        self._count(found, pod, row, 1)

    def remove_pod(self, entry: "PodEntry", pod: Pod, row: int) -> None:
        """Uncounts a pod, with this object, from the row."""
        found = self._class_of(pod)
        self._count(found, pod, row, -1)
        found.members.pop(entry.uid, None)
        if not found.members:
            key = class_key(pod)
            del self._classes[key]
            for pair in key[1]:
                of_pair = self._by_pair[pair]
                del of_pair[key]
                if not of_pair:
                    del self._by_pair[pair]

    def grow(self, capacity: int) -> None:
        """Extends the counts to more rows."""
        self._capacity = capacity
        for tally in self.by_conditions.values():
            tally.grow(capacity)

    def _count(self, found: _PodClass, pod: Pod, row: int, delta: int) -> None:
        self._catch_up(found, pod)
        for tally in found.tallies:
            tally.add(row, delta)

    def _catch_up(self, found: _PodClass, pod: Pod) -> None:
        """Compares the class with the tallies that are new to it."""
        if found.compared_count < self._index.count:
            labels = pod.metadata.labels or _NO_LABELS
            new = self._index.candidates(labels, found.compared_count)
            found.tallies += [tally for tally in new if tally.matches(pod)]
            found.compared_count = self._index.count

    def _class_of(self, pod: Pod) -> _PodClass:
        key = class_key(pod)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = _PodClass()
            for pair in key[1]:
                self._by_pair.setdefault(pair, {})[key] = found
        return found

    def _move(self, key: str, row: int, old: int, new: int) -> None:
        for tally in self.by_conditions.values():
            tally.move(key, row, old, new)


def class_key(pod: Pod) -> ClassKey:
    """Returns a key that is equal for pods of one class."""
    meta = pod.metadata
    labels = frozenset(meta.labels.items()) if meta.labels else frozenset()
    return meta.namespace, labels, meta.deletion_timestamp is not None


def _canonical(selector: LabelSelector | None) -> object:
    if selector is None:
        return None
    labels = sorted((selector.match_labels or {}).items())
    terms = sorted(
        (r.key, r.operator, sorted(r.values or ())) for r in selector.match_expressions or ()
    )
    return repr((labels, terms))
