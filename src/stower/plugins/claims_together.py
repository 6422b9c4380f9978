"""Where pods of a tree go that share a claim which is not allocated yet: rows (indices of nodes in
the state's arrays) that one allocation of it reaches, such as one node, or the nodes of one fabric.

Must not know how devices are chosen.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np

from stower.devices.fit_cache import FITS
from stower.framework.tree_rules import TogetherRule
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import AllocationResult, ResourceClaimStatus
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape

# Allocations that are tried; more only where each of these has reached one row.
REACHES_MAX: Final = 64


class Allocator(Protocol):
    """What decides on allocations."""

    def claims(self, pod: Pod, state: ClusterState) -> list[ResourceClaim] | str:
        """Returns the pod's claims, or why they are unusable."""

    def unallocated_codes(self, claims: list[ResourceClaim], state: ClusterState) -> Ints:
        """Returns int64[capacity]: FITS where the claims could be allocated."""

    def allocate(
        self, claims: Sequence[ResourceClaim], shape: Shape, state: ClusterState, row: int
    ) -> list[AllocationResult]:
        """Returns an allocation on the row for each claim."""

    def available_rows(self, claim: ResourceClaim, state: ClusterState) -> Bools:
        """Returns bool[row_limit]: where an allocated claim can be used."""


class ClaimsTogether:
    """The rules for one state."""

    def __init__(self, allocator: Allocator, state: ClusterState) -> None:
        self._allocator = allocator
        self._state = state

    def rules(self, pods: Sequence[PodEntry]) -> Iterator[TogetherRule]:
        """Yields a rule for each claim that several of these pods use."""
        users: dict[str, tuple[ResourceClaim, list[PodEntry]]] = {}
        for entry in pods:
            claims = self._allocator.claims(entry.pod, self._state)
            for claim in claims if not isinstance(claims, str) else ():
                if claim.status.allocation is None:
                    users.setdefault(claim.metadata.key, (claim, []))[1].append(entry)
        for claim, entries in users.values():
            if len(entries) > 1:
                codes = self._reached_together(claim, entries[0].shape)
                if codes is not None:
                    yield TogetherRule(
                        codes,
                        frozenset(entry.uid for entry in entries),
                        f"claim {claim.metadata.name}",
                    )

    def _reached_together(self, claim: ResourceClaim, shape: Shape) -> Ints | None:
        """Returns int64[row_limit]: equal codes for rows that one allocation reaches, 0 for rows
        without any; None where allocations reach each other's rows."""
        limit = self._state.row_limit
        codes = np.zeros(limit, np.int64)
        fits = self._allocator.unallocated_codes([claim], self._state)[:limit] == FITS
        rows = np.flatnonzero(fits & self._state.present[:limit])
        most = 0
        for code in range(1, REACHES_MAX + 1):
            left = rows[codes[rows] == 0]
            if not len(left):
                return codes
            reached = self._reach(claim, shape, int(left[0]))[:limit]
            if (codes[reached] > 0).any():
                return None
            most = max(most, int(np.count_nonzero(reached)))
            codes[reached] = code
        if most > 1:
            return None
        left = rows[codes[rows] == 0]  # devices of single nodes, as far as that is known
        codes[left] = np.arange(REACHES_MAX + 1, REACHES_MAX + 1 + len(left))
        return codes

    def _reach(self, claim: ResourceClaim, shape: Shape, row: int) -> Bools:
        (allocation,) = self._allocator.allocate([claim], shape, self._state, row)
        status = ResourceClaimStatus(allocation)
        decided = msgspec.structs.replace(claim, status=status)
        return self._allocator.available_rows(decided, self._state)
