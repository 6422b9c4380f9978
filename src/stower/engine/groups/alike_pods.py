"""Which pods of a tree are refused for the same reasons, so that one diagnosis serves all.

Must not know why they are.
"""

from typing import Final

from stower.devices.negotiation.claims import driver_of, is_pending
from stower.engine.queue.entities import encode_pod_terms
from stower.framework.profile import Profile
from stower.model.kinds import Pod, ResourceClaim
from stower.model.kinds.resource_claim import ResourceClaimStatus
from stower.state.cluster import ClusterState
from stower.state.devices import claim_keys
from stower.state.pod_entry import PodEntry

UNUSED: Final = ResourceClaimStatus()


def key_of_alike(state: ClusterState, profile: Profile, entry: PodEntry) -> object | None:
    """Returns a key that is equal for pods that differ in nothing but the names of their own
    claims, which the scheduler is to allocate: they are refused for the same reasons. None
    where the names matter."""
    specs: list[object] = []
    pod = entry.pod
    for key in claim_keys(pod):
        claim = state.devices.claim(key)
        if claim is None or claim.status != UNUSED or state.devices.users(key):
            return None
        if driver_of(claim, state.negotiations.classes) and not _is_unanswered(claim, pod, state):
            return None
        specs.append(claim.spec.devices)
    volume_claims = state.volumes.own_claims(pod)
    if not (specs or volume_claims) or entry.shape.extended_requests:
        return None
    for plugin in profile.pod_pre_filters:
        if plugin.is_relevant(entry.shape) and plugin.pre_filter_pod(pod, entry.shape, state):
            return None
    terms = encode_pod_terms(pod, specs or None, volume_claims)
    return entry.shape.serial, terms, entry.nominated_node_name


def _is_unanswered(claim: ResourceClaim, pod: Pod, state: ClusterState) -> bool:
    """Returns whether a driver is still to say on which nodes it can allocate a claim: until then,
    refusals do not name the claim."""
    asked = state.negotiations.pod_scheduling(pod.key)
    answers = asked.status.resource_claims if asked is not None else None
    return is_pending(claim) and not answers
