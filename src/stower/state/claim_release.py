"""Finds devices that are being released: the pods of their claims are deleted or have ended, and
the claims are still allocated.

Must not know who releases claims (the resource claim controller, or the garbage collector for
claims that a pod owns).
"""

from stower.model.kinds import ResourceClaim
from stower.model.kinds.resource_claim import AllocationResult
from stower.state.cluster import ClusterState


def is_releasing_devices(state: ClusterState, node_name: str) -> bool:
    """Returns whether devices that a node can use are being released. Costs a pass over all claims.

    Negotiated claims do not count: no eviction is known to free their devices.
    """
    return any(
        is_available_on(claim.status.allocation, node_name)
        for claim in state.devices.api_claims()
        if claim.status.allocation is not None
        and _is_left(state, claim)
        and not _is_negotiated(state, claim)
    )


def is_available_on(allocation: AllocationResult, node_name: str) -> bool:
    """Returns whether the node is one that the allocation names, or it names none."""
    selector = allocation.node_selector
    if selector is None:
        return True
    fields = [f for term in selector.node_selector_terms or () for f in term.match_fields or ()]
    return not fields or any(node_name in (field.values or ()) for field in fields)


def _is_left(state: ClusterState, claim: ResourceClaim) -> bool:
    """Returns whether all pods that a claim is reserved for are gone; of a claim without
    reservations, whether the pod that owns it is."""
    users = [user.uid for user in claim.status.reserved_for or ()]
    if not users:
        owner = claim.metadata.controller
        users = [owner.uid] if owner is not None and owner.kind == "Pod" else []
    return bool(users) and not any(uid in state.pods for uid in users)


def _is_negotiated(state: ClusterState, claim: ResourceClaim) -> bool:
    requests = [request.exactly for request in claim.spec.devices.requests or ()]
    classes = state.negotiations.classes
    return any(r is not None and r.device_class_name in classes for r in requests)
