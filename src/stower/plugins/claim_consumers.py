"""For whom a pod's claims are reserved: for the pod, or for its group (KEP-5729).

Source: dynamic-resource-allocation resourceclaim (BindTo, IsReservedForPod, IsForPod).
"""

from stower.model.kinds import Pod, PodGroup, ResourceClaim
from stower.model.kinds.pod import PodResourceClaim
from stower.model.kinds.pod_group import API_GROUP, RESOURCE
from stower.model.kinds.resource_claim import ConsumerReference


def pod_consumer(pod: Pod) -> ConsumerReference:
    """The pod itself."""
    return ConsumerReference("", "pods", pod.metadata.name, pod.metadata.uid)


def claim_consumer(pod: Pod, entry: PodResourceClaim, group: PodGroup | None) -> ConsumerReference:
    """Whoever the claim of this entry is for: the group, where that has the very same entry."""
    if group is None or entry not in (group.spec.resource_claims or ()):
        return pod_consumer(pod)
    meta = group.metadata
    return ConsumerReference(API_GROUP, RESOURCE, meta.name, meta.uid)


def is_pod_group(consumer: ConsumerReference) -> bool:
    """Whether a group of pods uses the claim."""
    return (consumer.api_group, consumer.resource) == (API_GROUP, RESOURCE)


def is_reserved_for_pod(claim: ResourceClaim, pod: Pod, has_group_claims: bool) -> bool:
    """Whether the pod may use the claim as it is, by itself or as one of its group."""
    for consumer in claim.status.reserved_for or ():
        if consumer.uid == pod.metadata.uid:
            return True
        if has_group_claims and pod.group_name and is_pod_group(consumer):
            if consumer.name == pod.group_name:
                return True
    return False


def owner_fault(claim: ResourceClaim, pod: Pod, has_group_claims: bool) -> str:
    """Why a claim that bears the name of one that was made for the pod is not, or ""."""
    if _is_controlled_by(claim, pod.metadata.namespace, "", pod.metadata.uid):
        return ""
    name = pod.group_name if has_group_claims else ""
    if name and _is_controlled_by(claim, pod.metadata.namespace, name, ""):
        return ""
    who = f"neither Pod nor PodGroup {name} is the owner" if name else "Pod is not owner"
    return f"ResourceClaim {claim.metadata.key} was not created for Pod {pod.key} ({who})"


def is_controlled_by_group(claim: ResourceClaim, group: PodGroup) -> bool:
    """Whether the group is the claim's controller."""
    return _is_controlled_by(claim, group.metadata.namespace, "", group.metadata.uid)


def _is_controlled_by(claim: ResourceClaim, namespace: str, group_name: str, uid: str) -> bool:
    """Pods do not know the uid of their group, so that goes by its name."""
    owner = claim.metadata.controller
    if owner is None or claim.metadata.namespace != namespace:
        return False
    is_group = owner.kind == "PodGroup" and owner.api_version.startswith(f"{API_GROUP}/")
    return bool(
        (uid and owner.uid == uid) or (group_name and is_group and owner.name == group_name)
    )
