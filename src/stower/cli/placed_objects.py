"""The objects of a workload as a simulation leaves them, to be read again."""

from collections.abc import Iterator
from typing import Any

import msgspec

from stower.cli.inputs import LoadedWorkload
from stower.model.kinds import KIND_BY_VIEW, PersistentVolumeClaim, Pod, ResourceClaim
from stower.model.raw import decode, edit
from stower.sim.simulation import Placements


def placed_documents(loaded: LoadedWorkload, placements: Placements) -> Iterator[bytes]:
    """Yields the documents as they came, one line each: pods with the node that they were given,
    claims with their devices, then the claims that were made. What was deleted is left out."""
    claims = {claim.metadata.key: claim for claim in placements.claims}
    pods = {pod.key: pod for pod in placements.pods}
    for kind, key, data in loaded.documents:
        changes: dict[str, Any] = {}
        if kind == "Pod" and key in pods:
            changes = _changes_of_pod(pods[key], decode(data, Pod))
        elif kind == "Pod" and key in placements.evicted:
            continue
        elif kind == "ResourceClaim":
            if key not in claims:
                continue
            changes = _changes_of_claim(claims.pop(key), decode(data, ResourceClaim))
        if changes:
            data = edit(data, changes)
        # Numbers and strings keep their text; only blanks between them go.
        yield msgspec.json.format(data, indent=-1) if b"\n" in data or b"\r" in data else data
    known = {key for kind, key, _ in loaded.documents if kind == PersistentVolumeClaim.__name__}
    of_volumes = (o for o in loaded.workload.related if isinstance(o, PersistentVolumeClaim))
    for claim in (*claims.values(), *(one for one in of_volumes if one.key not in known)):
        kind_of_claim = KIND_BY_VIEW[type(claim)]
        made = {"apiVersion": kind_of_claim.api_version, "kind": kind_of_claim.name}
        yield msgspec.json.encode(made | msgspec.to_builtins(claim))


def _changes_of_pod(pod: Pod, before: Pod) -> dict[str, Any]:
    """Returns what the pod has been given: its node, and the names of its claims."""
    changes: dict[str, Any] = {}
    if pod.spec.node_name != before.spec.node_name:
        changes["spec"] = {"nodeName": pod.spec.node_name}
    status = {
        "resourceClaimStatuses": pod.status.resource_claim_statuses,
        "extendedResourceClaimStatus": pod.status.extended_resource_claim_status,
        "nodeAllocatableResourceClaimStatuses": (
            pod.status.node_allocatable_resource_claim_statuses
        ),
    }
    had = (
        before.status.resource_claim_statuses,
        before.status.extended_resource_claim_status,
        before.status.node_allocatable_resource_claim_statuses,
    )
    if tuple(status.values()) != had:
        changes["status"] = status
    return changes


def _changes_of_claim(claim: ResourceClaim, before: ResourceClaim) -> dict[str, Any]:
    """Returns what has become of the claim, and who holds it."""
    changes: dict[str, Any] = {}
    if claim.status != before.status:
        status = claim.status
        changes["status"] = {"allocation": status.allocation, "reservedFor": status.reserved_for}
        if status.devices is None:  # they are told about while they are allocated
            changes["status"]["devices"] = None
    if claim.metadata.finalizers != before.metadata.finalizers:
        changes["metadata"] = {"finalizers": claim.metadata.finalizers}
    return changes
