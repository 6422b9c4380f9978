"""Matches claims with existing volumes, node by node: a claim gets the smallest suitable volume.

Volumes of equal node affinity form a group, and nodes that the same groups reach share one answer.
Thousands of volumes of single nodes, or of all nodes, thus cost each node only its own.

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
    """A volume in kube-scheduler's order: the smallest first, equal sizes by name."""

    size: Fraction
    name: str
    volume: PersistentVolume

    @property
    def sort_key(self) -> tuple[Fraction, str]:
        """The size and the name."""
        return self.size, self.name


class VolumeMatcher:
    """Matches one pod's claims with volumes. Valid until the state changes."""

    def __init__(self, claims: Iterable[PersistentVolumeClaim], state: ClusterState) -> None:
        """`claims`: matched in the order of their size, the smallest first."""
        self._state = state
        self._group_of: dict[NodeSelector | None, AffinityGroup] = {None: ANY_NODE_GROUP}
        self._group_rows: list[Bools] = [np.ones(state.row_limit, np.bool_)]
        self._available_volumes: dict[str, dict[AffinityGroup, list[_RankedVolume]]] = {}
        self._candidates = [
            self._claim_candidates(claim) for claim in sorted(claims, key=requested_bytes)
        ]

    def unmatched_by_rows(self) -> Iterator[tuple[Ints, list[PersistentVolumeClaim]]]:
        """Yields rows, and the claims without a volume on them. Each row is yielded once."""
        groups: dict[int, list[AffinityGroup]] = {}
        for group, is_reached in enumerate(self._group_rows):
            if group != ANY_NODE_GROUP:
                for row in np.flatnonzero(is_reached).tolist():
                    groups.setdefault(row, []).append(group)
        rows_of: dict[tuple[AffinityGroup, ...], list[int]] = {}
        for row, row_groups in groups.items():
            rows_of.setdefault(tuple(row_groups), []).append(row)
        is_other = np.ones(self._state.row_limit, np.bool_)
        for shared_groups, rows in rows_of.items():
            is_other[rows] = False
            yield np.array(rows), self._match((ANY_NODE_GROUP, *shared_groups))[1]
        yield np.flatnonzero(is_other), self._match((ANY_NODE_GROUP,))[1]

    def match_row(self, row: int) -> tuple[StaticBindings, list[PersistentVolumeClaim]]:
        """Returns the claims with their volumes on the row, and the claims without."""
        return self._match([g for g, is_reached in enumerate(self._group_rows) if is_reached[row]])

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
        spec = claim.spec
        criteria = _encode(
            (claim.class_name, spec.volume_mode, spec.volume_attributes_class_name,
             spec.access_modes, spec.selector)
        )  # fmt: skip
        return _ClaimCandidates(
            claim,
            requested_bytes(claim),
            criteria,
            tuple(prebound),
            self._list_available_volumes(claim.class_name),
        )

    def _list_available_volumes(self, class_name: str) -> dict[AffinityGroup, list[_RankedVolume]]:
        """Returns the available volumes of a class by group, each group in order."""
        available = self._available_volumes.get(class_name)
        if available is None:
            available = self._available_volumes[class_name] = {}
            for volume in self._state.volumes.available_volumes(class_name):
                ranked = _RankedVolume(
                    storage_bytes(volume.spec.capacity), volume.metadata.name, volume
                )
                available.setdefault(self._group(volume), []).append(ranked)
            for ranked_volumes in available.values():
                ranked_volumes.sort(key=lambda ranked: ranked.sort_key)
        return available

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
        """Returns the claims with volumes of these groups, and the claims without."""
        bindings: StaticBindings = []
        unmatched = []
        chosen_names: set[str] = set()
        failed_criteria: set[bytes] = set()
        groups = tuple(groups)
        for candidates in self._candidates:
            prebound = next(
                (volume for volume in candidates.prebound if volume.name not in chosen_names), None
            )
            ranked = prebound
            if prebound is not None:
                # The claim gets this volume only, even where the volume is out of reach.
                ranked = prebound if self._group(prebound.volume) in groups else None
            elif candidates.criteria in failed_criteria:
                # A claim that requests the same or less found none.
                ranked = None
            else:
                ranked = candidates.find_smallest(groups, chosen_names)
                if ranked is None:
                    failed_criteria.add(candidates.criteria)
            if ranked is None:
                unmatched.append(candidates.claim)
            else:
                chosen_names.add(ranked.name)
                bindings.append((candidates.claim, ranked.volume))
        return bindings, unmatched


class _ClaimCandidates(NamedTuple):
    """The volumes that one claim may get. `criteria`: its requirements except for size, encoded;
    `prebound`: volumes reserved for the claim by a claimRef, in order."""

    claim: PersistentVolumeClaim
    size: Fraction
    criteria: bytes
    prebound: tuple[_RankedVolume, ...]
    available_volumes: dict[AffinityGroup, list[_RankedVolume]]

    def find_smallest(
        self, groups: tuple[AffinityGroup, ...], chosen_names: set[str]
    ) -> _RankedVolume | None:
        """Returns the smallest suitable volume of these groups that is not chosen yet."""
        lists = [
            self._filter_by_size(self.available_volumes[group])
            for group in groups
            if group in self.available_volumes
        ]
        ranked = lists[0] if len(lists) == 1 else merge(*lists, key=lambda entry: entry.sort_key)
        for entry in ranked:
            if entry.name not in chosen_names and _is_fit(entry.volume, self.claim, False):
                return entry
        return None

    def _filter_by_size(self, ranked_volumes: list[_RankedVolume]) -> Iterator[_RankedVolume]:
        start = bisect_left(ranked_volumes, self.size, key=lambda volume: volume.size)
        return (ranked_volumes[i] for i in range(start, len(ranked_volumes)))


def _is_prebound_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Returns whether the volume's claimRef names the claim."""
    reference, meta = volume.spec.claim_ref, claim.metadata
    return (
        reference is not None
        and (reference.name, reference.namespace) == (meta.name, meta.namespace)
        and reference.uid in ("", meta.uid)
    )


def _is_fit(volume: PersistentVolume, claim: PersistentVolumeClaim, is_prebound: bool) -> bool:
    """Returns whether the volume meets the claim's requirements except for size. Phase, labels and
    access modes of a prebound volume are not checked."""
    spec, request = volume.spec, claim.spec
    if (spec.volume_mode or FILESYSTEM) != (request.volume_mode or FILESYSTEM):
        return False
    if (spec.volume_attributes_class_name or "") != (request.volume_attributes_class_name or ""):
        return False
    if volume.metadata.deletion_timestamp is not None:
        return False
    if is_prebound:
        return True
    if volume.status.phase != AVAILABLE:
        return False
    if request.selector is not None and not request.selector.matches(volume.metadata.labels or {}):
        return False
    return set(request.access_modes or ()) <= set(spec.access_modes or ())


def required_node_selector(volume: PersistentVolume) -> NodeSelector | None:
    """Returns the nodes that reach the volume, as a selector; None for all nodes."""
    affinity = volume.spec.node_affinity
    return affinity.required if affinity is not None else None


def rows_matching_node_affinity(volume: PersistentVolume, state: ClusterState) -> Bools:
    """Returns bool[row_limit]: nodes that reach the volume."""
    selector = required_node_selector(volume)
    if selector is None:
        return np.ones(state.row_limit, np.bool_)
    result = np.zeros(state.row_limit, np.bool_)
    for term in selector.node_selector_terms or ():
        if not term.is_empty and term_is_parsable(term):
            result |= match_term(_drop_match_fields(term), state, state.all_rows, state.row_limit)
    return result


def _drop_match_fields(term: NodeSelectorTerm) -> NodeSelectorTerm:
    """Returns the term without matchFields: kube-scheduler compares labels only
    (CheckNodeAffinity)."""
    return NodeSelectorTerm(term.match_expressions)
