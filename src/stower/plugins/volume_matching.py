"""Which of the volumes that are there a claim may have on a node: the smallest that will do.

Volumes of equal node affinity form a group, and nodes that are reached by the same groups get the
same answer, so that thousands of volumes of single nodes, or of all, cost each node only its own.
Source: component-helpers storage/volume (FindMatchingVolume), Kubernetes 1.36.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from fractions import Fraction
from heapq import merge
from typing import Final, NamedTuple

import msgspec
import numpy as np

from stower.model.kinds.storage import PersistentVolume, PersistentVolumeClaim
from stower.model.selectors import NodeSelector, NodeSelectorTerm, term_is_parsable
from stower.plugins.node_affinity import match_term
from stower.plugins.provisioning import amount_of, size_of
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState

FILESYSTEM: Final = "Filesystem"
AVAILABLE: Final = "Available"
EVERYWHERE: Final = 0  # the group of volumes without a node affinity

_encode = msgspec.msgpack.Encoder().encode

Group = int
Found = list[tuple[PersistentVolumeClaim, PersistentVolume]]


class _Ranked(NamedTuple):
    """Upstream's order: the smallest, and of equal ones the first by name."""

    size: Fraction
    name: str
    volume: PersistentVolume

    @property
    def place(self) -> tuple[Fraction, str]:
        return self.size, self.name


class Matching:
    """Claims of one pod, and what is there for them. Good until the state changes."""

    def __init__(self, claims: Iterable[PersistentVolumeClaim], state: ClusterState) -> None:
        """`claims`: wanted in this order by size, the smallest first."""
        self._state = state
        self._group_of: dict[NodeSelector | None, Group] = {None: EVERYWHERE}
        self._reach: list[Bools] = [np.ones(state.row_limit, np.bool_)]
        self._stocks: dict[str, dict[Group, list[_Ranked]]] = {}
        self._offers = [self._offer(claim) for claim in sorted(claims, key=size_of)]

    def by_rows(self) -> Iterator[tuple[Ints, list[PersistentVolumeClaim]]]:
        """Rows, and which claims find nothing on any of them; all rows are told of, once each."""
        groups: dict[int, list[Group]] = {}
        for group, reach in enumerate(self._reach):
            if group != EVERYWHERE:
                for row in np.flatnonzero(reach).tolist():
                    groups.setdefault(row, []).append(group)
        rows_of: dict[tuple[Group, ...], list[int]] = {}
        for row, reached in groups.items():
            rows_of.setdefault(tuple(reached), []).append(row)
        rest = np.ones(self._state.row_limit, np.bool_)
        for reached_by_all, rows in rows_of.items():
            rest[rows] = False
            yield np.array(rows), self._matched((EVERYWHERE, *reached_by_all))[1]
        yield np.flatnonzero(rest), self._matched((EVERYWHERE,))[1]

    def on(self, row: int) -> tuple[Found, list[PersistentVolumeClaim]]:
        """Claims with their volumes on the row, and claims without."""
        return self._matched([g for g, reach in enumerate(self._reach) if reach[row]])

    def _offer(self, claim: PersistentVolumeClaim) -> "_Offer":
        meant = []
        for volume in self._state.volumes.meant(claim):
            size = amount_of(volume.spec.capacity)
            if _is_for(volume, claim) and size >= size_of(claim) and _is_fit(volume, claim, True):
                meant.append(_Ranked(size, volume.metadata.name, volume))
        meant.sort(key=lambda ranked: ranked.place)
        for ranked in meant:
            self._group(ranked.volume)
        wanted = claim.spec
        terms = _encode(
            (claim.class_name, wanted.volume_mode, wanted.volume_attributes_class_name,
             wanted.access_modes, wanted.selector)
        )  # fmt: skip
        return _Offer(claim, size_of(claim), terms, tuple(meant), self._stock(claim.class_name))

    def _stock(self, class_name: str) -> dict[Group, list[_Ranked]]:
        """The free volumes of a class, by group, each in order."""
        known = self._stocks.get(class_name)
        if known is None:
            known = self._stocks[class_name] = {}
            for volume in self._state.volumes.free(class_name):
                ranked = _Ranked(amount_of(volume.spec.capacity), volume.metadata.name, volume)
                known.setdefault(self._group(volume), []).append(ranked)
            for some in known.values():
                some.sort(key=lambda ranked: ranked.place)
        return known

    def _group(self, volume: PersistentVolume) -> Group:
        selector = selector_of(volume)
        group = self._group_of.get(selector)
        if group is None:
            group = self._group_of[selector] = len(self._reach)
            self._reach.append(reaching(volume, self._state))
        return group

    def _matched(self, groups: Iterable[Group]) -> tuple[Found, list[PersistentVolumeClaim]]:
        """For rows that these groups reach."""
        found: Found = []
        left = []
        taken: set[str] = set()
        in_vain: set[bytes] = set()
        groups = tuple(groups)
        for offer in self._offers:
            meant = next((one for one in offer.meant if one.name not in taken), None)
            ranked = meant
            if meant is not None:  # it is kept for the claim, within reach or not
                ranked = meant if self._group(meant.volume) in groups else None
            elif offer.terms in in_vain:  # by a claim that wants no more than this one
                ranked = None
            else:
                ranked = offer.first(groups, taken)
                if ranked is None:
                    in_vain.add(offer.terms)
            if ranked is None:
                left.append(offer.claim)
            else:
                taken.add(ranked.name)
                found.append((offer.claim, ranked.volume))
        return found, left


class _Offer(NamedTuple):
    """What one claim may have. `terms`: all that it wants but the size; `meant`: volumes that
    somebody has said are for it, in order."""

    claim: PersistentVolumeClaim
    size: Fraction
    terms: bytes
    meant: tuple[_Ranked, ...]
    stock: dict[Group, list[_Ranked]]

    def first(self, groups: tuple[Group, ...], taken: set[str]) -> _Ranked | None:
        """The smallest of these groups that will do and is not taken."""
        lists = [self._from(self.stock[group]) for group in groups if group in self.stock]
        ranked = lists[0] if len(lists) == 1 else merge(*lists, key=lambda one: one.place)
        for one in ranked:
            if one.name not in taken and _is_fit(one.volume, self.claim, False):
                return one
        return None

    def _from(self, some: list[_Ranked]) -> Iterator[_Ranked]:
        start = bisect_left(some, self.size, key=lambda one: one.size)
        return (some[at] for at in range(start, len(some)))


def _is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether somebody has said that the volume is for the claim."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    return (
        reference is not None
        and (reference.name, reference.namespace) == (meta.name, meta.namespace)
        and reference.uid in ("", meta.uid)
    )


def _is_fit(volume: PersistentVolume, claim: PersistentVolumeClaim, meant: bool) -> bool:
    own, wanted = volume.spec, claim.spec
    if (own.volume_mode or FILESYSTEM) != (wanted.volume_mode or FILESYSTEM):
        return False
    if (own.volume_attributes_class_name or "") != (wanted.volume_attributes_class_name or ""):
        return False
    if volume.metadata.deletion_timestamp is not None:
        return False
    if meant:
        return True
    if volume.status.phase != AVAILABLE:
        return False
    if wanted.selector is not None and not wanted.selector.matches(volume.metadata.labels or {}):
        return False
    return set(wanted.access_modes or ()) <= set(own.access_modes or ())


def selector_of(volume: PersistentVolume) -> NodeSelector | None:
    """What a node must be to reach the volume; None: any."""
    affinity = volume.spec.node_affinity
    return affinity.required if affinity is not None else None


def reaching(volume: PersistentVolume, state: ClusterState) -> Bools:
    """bool[row_limit]: nodes that reach the volume."""
    selector = selector_of(volume)
    if selector is None:
        return np.ones(state.row_limit, np.bool_)
    result = np.zeros(state.row_limit, np.bool_)
    for term in selector.node_selector_terms or ():
        if not term.is_empty and term_is_parsable(term):
            result |= match_term(_by_labels(term), state, state.all_rows, state.row_limit)
    return result


def _by_labels(term: NodeSelectorTerm) -> NodeSelectorTerm:
    """Without conditions on fields: upstream compares with labels alone (CheckNodeAffinity)."""
    return NodeSelectorTerm(term.match_expressions)
