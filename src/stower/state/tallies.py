"""Tallies: how many pods per node meet some conditions, kept up to date.

Registered by whoever needs one; no one ever walks over all pods in a cycle. Pods with the same
namespace and labels are one class: what a tally thinks of one, it thinks of all.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from stower.model.kinds import Pod
from stower.model.selectors import LabelSelector
from stower.state.row_counts import RowCounts, SelectorIndex, required_label

if TYPE_CHECKING:
    from stower.state.labels import LabelColumns
    from stower.state.pod_entry import PodEntry

# In one of the namespaces (None: in any), and selected (None: never).
Condition = tuple[frozenset[str] | None, LabelSelector | None]
ClassKey = tuple[str, frozenset[tuple[str, str]], bool]

TEXTS_MAX: Final = 65_536
TALLIES_MAX: Final = 4_096  # of which as many are forgotten as were not asked for the longest
TALLIES_KEPT: Final = TALLIES_MAX // 2
# Pods that new tallies count in one attempt: a second of them.
VISITS_MAX: Final = 5_000_000
COMPARISONS_MAX: Final = 1_000  # selectors that one pod counts as compared with, at most
VISITS_PER_MATCH: Final = 20  # what comparing a pod with one selector costs beside that


class TooManyVisits(Exception):
    """What was counted is kept: the next attempt gets further."""


_encode = msgspec.msgpack.Encoder().encode
_NO_LABELS: Final[Mapping[str, str]] = {}


class Tally(RowCounts):
    """Pods per row that meet all conditions; `live`: those being deleted do not count."""

    __slots__ = ("conditions", "last_used_step", "live")

    def __init__(
        self, conditions: tuple[Condition, ...], live: bool, labels: "LabelColumns", capacity: int
    ) -> None:
        super().__init__(labels, capacity)
        self.conditions = conditions
        self.live = live
        self.last_used_step = 0  # when it was asked for last, in steps

    def matches(self, pod: Pod) -> bool:
        """Whether the pod counts."""
        return not (self.live and pod.metadata.deletion_timestamp is not None) and meets(
            pod, self.conditions
        )


def meets(pod: Pod, conditions: Iterable[Condition]) -> bool:
    """Whether the pod meets all of the conditions."""
    namespace, labels = pod.metadata.namespace, pod.metadata.labels or _NO_LABELS
    return all(
        (namespaces is None or namespace in namespaces)
        and selector is not None
        and selector.matches(labels)
        for namespaces, selector in conditions
    )


def is_same_class(one: Pod, other: Pod) -> bool:
    """Whether every tally thinks the same of both."""
    a, b = one.metadata, other.metadata
    return (
        a.labels == b.labels
        and a.namespace == b.namespace
        and (a.deletion_timestamp is None) == (b.deletion_timestamp is None)
    )


class _PodClass:
    """Placed pods that are alike, and the tallies that count them, as far as was looked."""

    __slots__ = ("compared_count", "members", "tallies")

    def __init__(self) -> None:
        self.members: dict[str, PodEntry] = {}
        self.tallies: list[Tally] = []
        self.compared_count = 0


class Tallies:
    """All registered tallies, and which of them each kind of pod counts in."""

    __slots__ = (
        "_by_pair", "_by_text", "_capacity", "_classes", "_index", "_labels", "_tallies",
        "step", "visits",
    )  # fmt: skip

    def __init__(self, labels: "LabelColumns", capacity: int) -> None:
        self._labels = labels
        self._capacity = capacity
        self._tallies: dict[tuple[object, ...], Tally] = {}
        self._index: SelectorIndex[Tally] = SelectorIndex()
        self._classes: dict[ClassKey, _PodClass] = {}
        self._by_pair: dict[tuple[str, str], dict[ClassKey, _PodClass]] = {}
        self._by_text: dict[bytes, Tally] = {}
        self.step = 0  # so many events were taken in
        self.visits = 0  # pods that were counted, since somebody set it to 0

    def __bool__(self) -> bool:
        return bool(self._tallies)

    def register(
        self,
        conditions: tuple[Condition, ...],
        live: bool,
        placed: Iterable["PodEntry"],
    ) -> Tally:
        """The tally of these; a new one counts the pods that are placed already."""
        # By the text first, which takes 1 µs, then by what it means.
        text = _encode((live, [(sorted(n) if n is not None else n, s) for n, s in conditions]))
        tally = self._by_text.get(text)
        if tally is not None:
            tally.last_used_step = self.step
            return tally
        key = (live, *((namespaces, _canonical(s)) for namespaces, s in conditions))
        tally = self._tallies.get(key)
        if tally is None:
            self._check()
            if not self._tallies:
                self._labels.listeners.append(self._move)
                for entry in placed:
                    self._class_of(entry.pod).members[entry.uid] = entry
            tally = Tally(conditions, live, self._labels, self._capacity)
            self._tallies[key] = tally
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
        self._by_text[text] = tally
        return tally

    def tallies_of(self, pod: Pod) -> set[Tally] | None:
        """The tallies that count the pod; None where that must be asked of each: it is not placed,
        or being deleted. Raises TooManyVisits; what was compared until then is kept."""
        found = self._classes.get(class_key(pod))
        if found is None or pod.metadata.deletion_timestamp is not None:
            return None
        behind = self._index.count - found.compared_count
        if behind:
            self._catch_up(found, pod)
            self.charge_matches(min(behind, COMPARISONS_MAX))
        return set(found.tallies)

    def charge_matches(self, count: int) -> None:
        """So many selectors are compared with a pod. Raises TooManyVisits."""
        self.visits += VISITS_PER_MATCH * count
        self._check()

    def _check(self) -> None:
        if self.visits > VISITS_MAX:
            raise TooManyVisits(
                "comparing pods with selectors takes longer than one attempt may: it goes on with "
                "the next"
            )

    def begin_step(self) -> None:
        """Nobody holds a tally now: those that nobody has asked for in a long time may go."""
        self.step += 1
        self.visits = 0
        if len(self._tallies) <= TALLIES_MAX:
            return
        by_age = sorted(self._tallies.items(), key=lambda item: item[1].last_used_step)
        self._tallies = dict(by_age[-TALLIES_KEPT:])
        self._by_text.clear()
        self._index = SelectorIndex()
        for tally in self._tallies.values():
            self._index.add(tally.conditions[0][1] if tally.conditions else None, tally)
        for found in self._classes.values():
            found.tallies, found.compared_count = [], 0

    def add_pod(self, entry: "PodEntry", pod: Pod, row: int) -> None:
        """A pod, seen so, is on the row now."""
        found = self._class_of(pod)
        found.members[entry.uid] = entry
        self._count(found, pod, row, 1)

    def remove_pod(self, entry: "PodEntry", pod: Pod, row: int) -> None:
        """It is no longer there, or no longer seen so."""
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
        """Extend the counts to more rows."""
        self._capacity = capacity
        for tally in self._tallies.values():
            tally.grow(capacity)

    def _count(self, found: _PodClass, pod: Pod, row: int, delta: int) -> None:
        self._catch_up(found, pod)
        for tally in found.tallies:
            tally.add(row, delta)

    def _catch_up(self, found: _PodClass, pod: Pod) -> None:
        """Have the class compared with all tallies."""
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
        for tally in self._tallies.values():
            tally.move(key, row, old, new)


def class_key(pod: Pod) -> ClassKey:
    """What tells apart pods that selectors may tell apart."""
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
