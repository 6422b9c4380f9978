"""Removes a pod group's claim reservations while none of its pods has a node (KEP-5729).

Source: kube-scheduler plugins/dynamicresources unreservePodGroupClaims.
"""

import msgspec

from stower.framework.writes import PatchObject, patch_of
from stower.model.kinds import Pod, PodGroup
from stower.plugins.claim_consumers import is_controlled_by_group, is_reserved_for_pod
from stower.state.cluster import ClusterState
from stower.state.devices import group_claim_refs


def unreserve_group_claim(pod: Pod, group: PodGroup, state: ClusterState) -> PatchObject | None:
    """Returns a patch, without an id, that removes the group from the first of its allocated
    claims; None if there is no such claim, or a pod of the group has a node."""
    meta = group.metadata
    for entry in state.pods.values():
        is_placed_member = entry.row >= 0 and entry.pod.group_name == meta.name
        if is_placed_member and entry.pod.metadata.namespace == meta.namespace:
            return None
    for ref in group_claim_refs(group):
        claim = state.devices.api_claim(f"{meta.namespace}/{ref.name}") if ref.name else None
        if claim is None or (ref.is_generated and not is_controlled_by_group(claim, group)):
            continue
        if claim.status.allocation is None or not is_reserved_for_pod(claim, pod, True):
            continue
        consumers = [c for c in claim.status.reserved_for or () if c.uid != meta.uid]
        patch = {"status": {"reservedFor": msgspec.to_builtins(consumers) or None}}
        return patch_of(claim, patch, "status")
    return None
