"""Explains which devices claims lack on a node, and which evictions would free devices.

For `details` and `fixes` of DynamicResources, which users request.
"""

from collections.abc import Iterable, Iterator, Sequence

from stower.devices.fit_cache import FitCache, Rules
from stower.devices.overview import Holder
from stower.devices.requests import AllocationError
from stower.devices.shortages import Shortage, find_shortages
from stower.framework.fixes import NODE_FIELD, Fix, format_pods
from stower.model.kinds import ResourceClaim
from stower.state.cluster import ClusterState
from stower.state.devices import extended_claim_owner
from stower.state.pod_entry import PodEntry


def request_shortages(
    claims: Sequence[ResourceClaim], state: ClusterState, row: int, rules: Rules
) -> Iterator[tuple[str, Shortage]]:
    """Yields the devices for each request of the claims, with the key of the request's claim.
    Yields nothing if one of the claims is invalid: the rejection already says so."""
    fits = state.devices.extension(FitCache)
    try:
        plans = fits.plans(claims, rules)
    except AllocationError:
        return
    views, node = fits.views(state, row, rules), state.node_at(row)
    for shortage in find_shortages(plans, views, node, state.devices, rules.gates):
        yield claims[shortage.claim].metadata.key, shortage


def eviction_fixes(shortages: Iterable[tuple[str, Shortage]], state: ClusterState) -> Iterator[Fix]:
    """Suggests for each device in use to evict the pods that use it."""
    for _, shortage in shortages:
        for device in shortage.devices:
            users = _users(device.holders, state)
            if users:
                text = f"{device.record.key} of {NODE_FIELD} is allocated to {format_pods(users)}"
                yield Fix(text, 1.0 + len(users), removed_pods=users)


def _users(holders: Iterable[Holder], state: ClusterState) -> tuple[PodEntry, ...]:
    """Returns the placed pods that use the holders' claims."""
    users: dict[str, PodEntry] = {}
    for holder in holders:
        users |= state.devices.users(holder.claim)
        claim = state.devices.claim(holder.claim)
        owner = state.pods.get(extended_claim_owner(claim)) if claim is not None else None
        if owner is not None and owner.row >= 0:
            users[owner.uid] = owner
    return tuple(users.values())
