"""Consumers of a pod's claims: a claim is reserved for the pod, or for its pod group (KEP-5729).

Source: dynamic-resource-allocation resourceclaim (BindTo, IsReservedForPod, IsForPod).
"""

from stower.model.kinds import Pod, PodGroup, ResourceClaim
from stower.model.kinds.pod import PodResourceClaim
from stower.model.kinds.pod_group import API_GROUP, RESOURCE
from stower.model.kinds.resource_claim import ConsumerReference


def pod_consumer(pod: Pod) -> ConsumerReference:
    """Returns the reference to the pod."""
    return ConsumerReference("", "pods", pod.metadata.name, pod.metadata.uid)


def claim_consumer(pod: Pod, entry: PodResourceClaim, group: PodGroup | None) -> ConsumerReference:
    """Returns the consumer of the entry's claim: the group if it has the entry, else the pod."""
    if group is None or entry not in (group.spec.resource_claims or ()):
        return pod_consumer(pod)
    meta = group.metadata
    return ConsumerReference(API_GROUP, RESOURCE, meta.name, meta.uid)


def is_pod_group(consumer: ConsumerReference) -> bool:
    """Returns whether the consumer is a pod group."""
    return (consumer.api_group, consumer.resource) == (API_GROUP, RESOURCE)


def is_reserved_for_pod(claim: ResourceClaim, pod: Pod, has_group_claims: bool) -> bool:
    """Returns whether the claim is reserved for the pod or for its pod group."""
    for consumer in claim.status.reserved_for or ():
        if consumer.uid == pod.metadata.uid:
            return True
        if has_group_claims and pod.group_name and is_pod_group(consumer):
            if consumer.name == pod.group_name:
                return True
    return False


def owner_fault(claim: ResourceClaim, pod: Pod, has_group_claims: bool) -> str:
    """Returns why a claim with a name generated for the pod was not created for it, or ""."""
    if _is_controlled_by(claim, pod.metadata.namespace, "", pod.metadata.uid):
        return ""
    name = pod.group_name if has_group_claims else ""
    if name and _is_controlled_by(claim, pod.metadata.namespace, name, ""):
        return ""
    owner_text = f"neither Pod nor PodGroup {name} is the owner" if name else "Pod is not owner"
    return f"ResourceClaim {claim.metadata.key} was not created for Pod {pod.key} ({owner_text})"


def is_controlled_by_group(claim: ResourceClaim, group: PodGroup) -> bool:
    """Returns whether the group is the claim's controller."""
    return _is_controlled_by(claim, group.metadata.namespace, "", group.metadata.uid)


def _is_controlled_by(claim: ResourceClaim, namespace: str, group_name: str, uid: str) -> bool:
    """Returns whether the owner of that uid, or the pod group of that name, is the claim's
    controller. A pod does not contain its group's uid, so its group is compared by name."""
    owner = claim.metadata.controller
    if owner is None or claim.metadata.namespace != namespace:
        return False
    is_group = owner.kind == "PodGroup" and owner.api_version.startswith(f"{API_GROUP}/")
    return bool(
        (uid and owner.uid == uid) or (group_name and is_group and owner.name == group_name)
    )
