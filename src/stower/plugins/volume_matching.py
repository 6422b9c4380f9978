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
from stower.plugins.provisioning import requested_bytes, storage_bytes
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState

FILESYSTEM: Final = "Filesystem"
AVAILABLE: Final = "Available"
ANY_NODE_GROUP: Final = 0  # the group of volumes without a node affinity

_encode = msgspec.msgpack.Encoder().encode

AffinityGroup = int
StaticBindings = list[tuple[PersistentVolumeClaim, PersistentVolume]]


class _RankedVolume(NamedTuple):
    """Upstream's order: the smallest, and of equal ones the first by name."""

    size: Fraction
    name: str
    volume: PersistentVolume

    @property
    def sort_key(self) -> tuple[Fraction, str]:
        return self.size, self.name


class VolumeMatcher:
    """Claims of one pod, and what is there for them. Good until the state changes."""

    def __init__(self, claims: Iterable[PersistentVolumeClaim], state: ClusterState) -> None:
        """`claims`: wanted in this order by size, the smallest first."""
        self._state = state
        self._group_of: dict[NodeSelector | None, AffinityGroup] = {None: ANY_NODE_GROUP}
        self._group_rows: list[Bools] = [np.ones(state.row_limit, np.bool_)]
        self._available_volumes: dict[str, dict[AffinityGroup, list[_RankedVolume]]] = {}
        self._candidates = [
            self._claim_candidates(claim) for claim in sorted(claims, key=requested_bytes)
        ]

    def unmatched_by_rows(self) -> Iterator[tuple[Ints, list[PersistentVolumeClaim]]]:
        """Rows, and which claims find nothing on any of them; all rows are told of, once each."""
        groups: dict[int, list[AffinityGroup]] = {}
        for group, reach in enumerate(self._group_rows):
            if group != ANY_NODE_GROUP:
                for row in np.flatnonzero(reach).tolist():
                    groups.setdefault(row, []).append(group)
        rows_of: dict[tuple[AffinityGroup, ...], list[int]] = {}
        for row, reached in groups.items():
            rows_of.setdefault(tuple(reached), []).append(row)
        rest = np.ones(self._state.row_limit, np.bool_)
        for reached_by_all, rows in rows_of.items():
            rest[rows] = False
            yield np.array(rows), self._match((ANY_NODE_GROUP, *reached_by_all))[1]
        yield np.flatnonzero(rest), self._match((ANY_NODE_GROUP,))[1]

    def match_row(self, row: int) -> tuple[StaticBindings, list[PersistentVolumeClaim]]:
        """Claims with their volumes on the row, and claims without."""
        return self._match([g for g, reach in enumerate(self._group_rows) if reach[row]])

    def _claim_candidates(self, claim: PersistentVolumeClaim) -> "_ClaimCandidates":
        prebound = []
        for volume in self._state.volumes.prebound_volumes(claim):
            size = storage_bytes(volume.spec.capacity)
            if (
                _is_prebound_to(volume, claim)
                and size >= requested_bytes(claim)
                and _is_fit(volume, claim, True)
            ):
                prebound.append(_RankedVolume(size, volume.metadata.name, volume))
        prebound.sort(key=lambda ranked: ranked.sort_key)
        for ranked in prebound:
            self._group(ranked.volume)
        wanted = claim.spec
        criteria = _encode(
            (claim.class_name, wanted.volume_mode, wanted.volume_attributes_class_name,
             wanted.access_modes, wanted.selector)
        )  # fmt: skip
        return _ClaimCandidates(
            claim,
            requested_bytes(claim),
            criteria,
            tuple(prebound),
            self._list_available_volumes(claim.class_name),
        )

    def _list_available_volumes(self, class_name: str) -> dict[AffinityGroup, list[_RankedVolume]]:
        """The free volumes of a class, by group, each in order."""
        known = self._available_volumes.get(class_name)
        if known is None:
            known = self._available_volumes[class_name] = {}
            for volume in self._state.volumes.available_volumes(class_name):
                ranked = _RankedVolume(
                    storage_bytes(volume.spec.capacity), volume.metadata.name, volume
                )
                known.setdefault(self._group(volume), []).append(ranked)
            for ranked_volumes in known.values():
                ranked_volumes.sort(key=lambda ranked: ranked.sort_key)
        return known

    def _group(self, volume: PersistentVolume) -> AffinityGroup:
        selector = required_node_selector(volume)
        group = self._group_of.get(selector)
        if group is None:
            group = self._group_of[selector] = len(self._group_rows)
            self._group_rows.append(rows_matching_node_affinity(volume, self._state))
        return group

    def _match(
        self, groups: Iterable[AffinityGroup]
    ) -> tuple[StaticBindings, list[PersistentVolumeClaim]]:
        """For rows that these groups reach."""
        found: StaticBindings = []
        left = []
        chosen_names: set[str] = set()
        in_vain: set[bytes] = set()
        groups = tuple(groups)
        for candidates in self._candidates:
            prebound = next(
                (one for one in candidates.prebound if one.name not in chosen_names), None
            )
            ranked = prebound
            if prebound is not None:  # it is kept for the claim, within reach or not
                ranked = prebound if self._group(prebound.volume) in groups else None
            elif candidates.criteria in in_vain:  # by a claim that wants no more than this one
                ranked = None
            else:
                ranked = candidates.find_smallest(groups, chosen_names)
                if ranked is None:
                    in_vain.add(candidates.criteria)
            if ranked is None:
                left.append(candidates.claim)
            else:
                chosen_names.add(ranked.name)
                found.append((candidates.claim, ranked.volume))
        return found, left


class _ClaimCandidates(NamedTuple):
    """What one claim may have. `terms`: all that it wants but the size; `meant`: volumes that
    somebody has said are for it, in order."""

    claim: PersistentVolumeClaim
    size: Fraction
    criteria: bytes
    prebound: tuple[_RankedVolume, ...]
    available_volumes: dict[AffinityGroup, list[_RankedVolume]]

    def find_smallest(
        self, groups: tuple[AffinityGroup, ...], chosen_names: set[str]
    ) -> _RankedVolume | None:
        """The smallest of these groups that will do and is not taken."""
        lists = [
            self._filter_by_size(self.available_volumes[group])
            for group in groups
            if group in self.available_volumes
        ]
        ranked = lists[0] if len(lists) == 1 else merge(*lists, key=lambda one: one.sort_key)
        for one in ranked:
            if one.name not in chosen_names and _is_fit(one.volume, self.claim, False):
                return one
        return None

    def _filter_by_size(self, ranked_volumes: list[_RankedVolume]) -> Iterator[_RankedVolume]:
        start = bisect_left(ranked_volumes, self.size, key=lambda one: one.size)
        return (ranked_volumes[at] for at in range(start, len(ranked_volumes)))


def _is_prebound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether somebody has said that the volume is for the claim."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    return (
        reference is not None
        and (reference.name, reference.namespace) == (meta.name, meta.namespace)
        and reference.uid in ("", meta.uid)
    )


def _is_fit(volume: PersistentVolume, claim: PersistentVolumeClaim, is_prebound: bool) -> bool:
    own, wanted = volume.spec, claim.spec
    if (own.volume_mode or FILESYSTEM) != (wanted.volume_mode or FILESYSTEM):
        return False
    if (own.volume_attributes_class_name or "") != (wanted.volume_attributes_class_name or ""):
        return False
    if volume.metadata.deletion_timestamp is not None:
        return False
    if is_prebound:
        return True
    if volume.status.phase != AVAILABLE:
        return False
    if wanted.selector is not None and not wanted.selector.matches(volume.metadata.labels or {}):
        return False
    return set(wanted.access_modes or ()) <= set(own.access_modes or ())


def required_node_selector(volume: PersistentVolume) -> NodeSelector | None:
    """What a node must be to reach the volume; None: any."""
    affinity = volume.spec.node_affinity
    return affinity.required if affinity is not None else None


def rows_matching_node_affinity(volume: PersistentVolume, state: ClusterState) -> Bools:
    """bool[row_limit]: nodes that reach the volume."""
    selector = required_node_selector(volume)
    if selector is None:
        return np.ones(state.row_limit, np.bool_)
    result = np.zeros(state.row_limit, np.bool_)
    for term in selector.node_selector_terms or ():
        if not term.is_empty and term_is_parsable(term):
            result |= match_term(_drop_match_fields(term), state, state.all_rows, state.row_limit)
    return result


def _drop_match_fields(term: NodeSelectorTerm) -> NodeSelectorTerm:
    """Without conditions on fields: upstream compares with labels alone (CheckNodeAffinity)."""
    return NodeSelectorTerm(term.match_expressions)
