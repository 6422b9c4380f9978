"""Affinity and anti-affinity terms of placed pods, counted per row (index of a node in the state's
arrays), for the symmetric half of pod affinity: the terms of placed pods also apply to a pod that
is being scheduled.

Source: kube-scheduler plugins/interpodaffinity; KEP-2249 (namespaceSelector).
"""

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from stower.model.kinds import Pod
from stower.model.kinds.pod import Affinity, PodAffinityTerm
from stower.model.selectors import LabelSelector
from stower.state.row_counts import RowCounts, SelectorIndex

if TYPE_CHECKING:
    from stower.state.labels import LabelColumns

CACHE_ENTRIES_MAX: Final = 65_536  # affinities and classes of pods kept
# Terms that no pod carries any more are dropped when there are more of them than of carried ones.
UNUSED_TERMS_MAX: Final = 1_024
# The same of the bytes of their keys: a term takes some ten times as much.
UNUSED_BYTES_MAX: Final = 2 * 1024 * 1024
# Of affinities, of labels of classes of pods, and of the terms that each class matches.
KEYS_BYTES_MAX: Final = 8 * 1024 * 1024
LABEL_BYTES: Final = 100
# What it takes to match a selector, in visits.
VISITS_PER_MATCH: Final = 5
POINTER_BYTES: Final = 9  # of a list, some spare ones included
# Of one pod that another scheduler placed; plugins.bounds refuses to place a pod with more.
TERMS_MAX: Final = 100
_encode = msgspec.msgpack.Encoder().encode
_NO_LABELS: Final[Mapping[str, str]] = {}
_EMPTY: Final[SelectorIndex["CarriedTerm"]] = SelectorIndex()


class TermKind(Enum):
    """The kind of an affinity term."""

    REQUIRED_ANTI_AFFINITY = auto()  # required anti-affinity
    REQUIRED_AFFINITY = auto()  # required affinity
    PREFERRED = auto()  # preferred affinity, or with a weight below 0 anti-affinity


class CarriedTerm(RowCounts):
    """One term, and the number of pods per row that carry it (PREFERRED: the sum of weights)."""

    __slots__ = (
        "kind", "namespace_selector", "namespaces", "owner", "selector", "size", "topology_key",
        "users",
    )  # fmt: skip

    def __init__(
        self, kind: TermKind, term: PodAffinityTerm, namespace: str, labels: "LabelColumns",
        capacity: int, size: int,
    ) -> None:  # fmt: skip
        """namespace: of the pods that carry it; `size`: of its key, in bytes."""
        super().__init__(labels, capacity)
        self.owner = namespace
        self.size = size
        self.kind = kind
        self.topology_key = term.topology_key
        self.namespaces = namespaces_of(term, namespace)
        self.namespace_selector = term.namespace_selector
        self.selector = term.label_selector
        self.users = 0

    def matches(self, pod: Pod, namespace_labels: Mapping[str, str]) -> bool:
        """Returns whether the term selects the pod."""
        wanted = self.namespace_selector
        if pod.metadata.namespace not in self.namespaces and not (
            wanted is not None and wanted.matches(namespace_labels)
        ):
            return False
        return self.selector is not None and self.selector.matches(
            pod.metadata.labels or _NO_LABELS
        )


def namespaces_of(term: PodAffinityTerm, namespace: str) -> frozenset[str]:
    """Returns the namespaces of a term of a pod in this namespace: its own where it names none."""
    if not term.namespaces and term.namespace_selector is None:
        return frozenset((namespace,))
    return frozenset(term.namespaces or ())


class _MatchedTerms:
    """The terms that select one class of pods, up to `compared_count`. own_count: those that pods
    of its own namespace carry."""

    __slots__ = ("compared_count", "labels", "own_count", "terms")

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.terms: list[CarriedTerm] = []
        self.own_count = 0
        self.compared_count = (0, 0)  # of the namespace's index, and of that of all namespaces
        self.labels = labels  # of the namespace


class CarriedTerms:
    """All terms that placed pods carry, or carried lately."""

    __slots__ = (
        "_capacity",
        "_idle",
        "_idle_bytes",
        "_indexes",
        "_is_subscribed",
        "_key_bytes",
        "_labels",
        "_term_bytes",
        "_terms_by_affinity",
        "_terms_by_pod_kind",
        "terms",
        "visits",
    )

    def __init__(self, labels: "LabelColumns", capacity: int) -> None:
        self.visits = 0  # terms that were looked at for pods of the namespace that carries them
        self._labels = labels
        self._capacity = capacity
        self.terms: dict[bytes, CarriedTerm] = {}
        # By the namespace that they are about; "" for those with a namespaceSelector.
        self._indexes: dict[str, SelectorIndex[CarriedTerm]] = {}
        self._terms_by_affinity: dict[bytes, tuple[tuple[CarriedTerm, int], ...]] = {}
        self._terms_by_pod_kind: dict[tuple[str, frozenset[tuple[str, str]]], _MatchedTerms] = {}
        self._idle = 0  # terms that no pod carries
        self._idle_bytes = 0  # of their keys
        self._term_bytes = 0  # of the keys of all terms
        self._key_bytes = 0  # of affinities and classes of pods
        self._is_subscribed = False  # whether changes of node labels are followed

    def terms_of(self, pod: Pod) -> Iterator[CarriedTerm]:
        """Yields the terms of a pod."""
        affinity = pod.spec.affinity
        if affinity is not None:
            yield from (term for term, _ in self._weighted_terms(pod, affinity))

    def _weighted_terms(self, pod: Pod, affinity: Affinity) -> tuple[tuple[CarriedTerm, int], ...]:
        """Returns the terms of a pod with their weights."""
        key = _encode((pod.metadata.namespace, affinity.pod_affinity, affinity.pod_anti_affinity))
        terms = self._terms_by_affinity.get(key)
        if terms is None:
            if len(self._terms_by_affinity) >= CACHE_ENTRIES_MAX:
                self._clear_caches()
            self._count_key(len(key))
            terms = self._terms_by_affinity[key] = tuple(islice(self._read_terms(pod), TERMS_MAX))
        return terms

    def count_pod(self, pod: Pod, row: int, delta: int) -> None:
        """Counts the terms of a pod that came to the row (1) or left it (-1)."""
        affinity = pod.spec.affinity
        if affinity is None or (
            affinity.pod_affinity is None and affinity.pod_anti_affinity is None
        ):
            return
        for term, weight in self._weighted_terms(pod, affinity):
            term.users += delta
            if term.users == 0:
                self._idle += 1
                self._idle_bytes += term.size
            elif term.users == delta == 1:
                self._idle -= 1
                self._idle_bytes -= term.size
            term.add(row, weight * delta)

    def begin_step(self) -> None:
        """Starts a step, in which no term is held yet: drops terms that no pod carries."""
        if self._idle <= max(UNUSED_TERMS_MAX, len(self.terms) // 2) and self._idle_bytes <= max(
            UNUSED_BYTES_MAX, self._term_bytes // 2
        ):
            return
        self.terms = {key: term for key, term in self.terms.items() if term.users}
        self._term_bytes -= self._idle_bytes
        self._idle = self._idle_bytes = 0
        self._clear_caches()
        self._indexes.clear()
        for term in self.terms.values():
            self._add_to_index(term)

    def terms_matching(self, pod: Pod, namespace_labels: Mapping[str, str]) -> list[CarriedTerm]:
        """Returns the terms that select the pod; some may not be carried any more."""
        meta = pod.metadata
        labels = meta.labels or _NO_LABELS
        key = (meta.namespace, frozenset(labels.items()))
        seen = self._terms_by_pod_kind.get(key)
        if seen is None or seen.labels != namespace_labels:
            if len(self._terms_by_pod_kind) >= CACHE_ENTRIES_MAX:
                self._clear_caches()
            self._count_key(len(labels) * LABEL_BYTES)
            seen = self._terms_by_pod_kind[key] = _MatchedTerms(namespace_labels)
        own, others = self._indexes.get(meta.namespace, _EMPTY), self._indexes.get("", _EMPTY)
        counts = own.count, others.count
        if seen.compared_count != counts:
            first, first_of_others = seen.compared_count
            candidates = [*own.candidates(labels, first)]
            candidates += others.candidates(labels, first_of_others)
            new = [term for term in candidates if term.matches(pod, namespace_labels)]
            compared = sum(term.owner == meta.namespace for term in candidates)
            self.visits += compared * VISITS_PER_MATCH
            self._count_key(len(new) * POINTER_BYTES)
            seen.terms += new
            seen.own_count += sum(term.owner == meta.namespace for term in new)
            seen.compared_count = counts
        self.visits += seen.own_count
        return seen.terms

    def _add_to_index(self, term: CarriedTerm) -> None:
        is_wide = term.namespace_selector is not None
        for namespace in ("",) if is_wide else term.namespaces:
            index = self._indexes.setdefault(namespace, SelectorIndex())
            index.add(term.selector or LabelSelector(), term)

    def _count_key(self, size: int) -> None:
        """Counts a new key of a cache; empties the caches where there are too many bytes."""
        self._key_bytes += size
        if self._key_bytes > KEYS_BYTES_MAX:
            self._clear_caches()
            self._key_bytes = size

    def _clear_caches(self) -> None:
        self._terms_by_affinity.clear()
        self._terms_by_pod_kind.clear()
        self._key_bytes = 0

    def grow(self, capacity: int) -> None:
        """Extends the counts to more rows."""
        self._capacity = capacity
        for term in self.terms.values():
            term.grow(capacity)

    def _read_terms(self, pod: Pod) -> Iterator[tuple[CarriedTerm, int]]:
        affinity = pod.spec.affinity
        assert affinity is not None
        near, away = affinity.pod_affinity, affinity.pod_anti_affinity
        for term in (near.required if near is not None else None) or ():
            yield self._intern(TermKind.REQUIRED_AFFINITY, term, pod), 1
        for term in (away.required if away is not None else None) or ():
            yield self._intern(TermKind.REQUIRED_ANTI_AFFINITY, term, pod), 1
        for weighted in (near.preferred if near is not None else None) or ():
            yield self._intern(TermKind.PREFERRED, weighted.pod_affinity_term, pod), weighted.weight
        for weighted in (away.preferred if away is not None else None) or ():
            yield (
                self._intern(TermKind.PREFERRED, weighted.pod_affinity_term, pod),
                -weighted.weight,
            )

    def _intern(self, kind: TermKind, term: PodAffinityTerm, pod: Pod) -> CarriedTerm:
        namespaces = sorted(namespaces_of(term, pod.metadata.namespace))
        key = _encode(
            (kind.name, term.topology_key, namespaces, term.namespace_selector,
             term.label_selector, pod.metadata.namespace)
        )  # fmt: skip
        found = self.terms.get(key)
        if found is None:
            if not self._is_subscribed:
                self._labels.listeners.append(self._move)
                self._is_subscribed = True
            self._idle += 1  # until it is carried
            self._idle_bytes += len(key)
            self._term_bytes += len(key)
            found = CarriedTerm(
                kind, term, pod.metadata.namespace, self._labels, self._capacity, len(key)
            )
            self.terms[key] = found
            self._add_to_index(found)
        return found

    def _move(self, key: str, row: int, old: int, new: int) -> None:
        for term in self.terms.values():
            term.move(key, row, old, new)
