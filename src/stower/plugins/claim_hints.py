"""Queueing hint of DynamicResources: whether a change may help a pod with unmet claims.

Source: kube-scheduler plugins/dynamicresources (isSchedulableAfterClaimChange,
isSchedulableAfterPodChange).
"""

import msgspec

from stower.framework.cluster_events import Change, ClusterEvent
from stower.model.kinds import ApiObject, Pod, PodGroup, ResourceClaim
from stower.state.devices import claim_refs, extended_claim_owner


def is_schedulable_after_change(
    pod: Pod, event: ClusterEvent, has_node_mappings: bool = False
) -> bool:
    """Returns whether the event concerns the pod's claims or group, or adds or frees devices.
    `has_node_mappings`: devices may take of their node's own resources."""
    if event.change & Change.PLACED_POD_DELETED and not has_node_mappings:
        return event.priority_max is not None  # nothing is kept for a nominated pod any more
    old, new = event.old_object, event.object
    if event.change & Change.OWN_CLAIMS_MADE:
        return all(ref.name is not None for ref in claim_refs(pod))
    if event.change & Change.POD_GROUP_CHANGED:
        return _is_group_schedulable(pod, old, new)
    if isinstance(old, ResourceClaim) and extended_claim_owner(old) and new is None:
        return True  # its devices are free, or its pod may get another claim
    if isinstance(old, ResourceClaim) and old.status.allocation is not None:
        if not isinstance(new, ResourceClaim) or new.status.allocation is None:
            return True  # its devices are free
    if isinstance(new, ResourceClaim):
        if new.metadata.namespace != pod.metadata.namespace:
            return False
        if all(ref.name != new.metadata.name for ref in claim_refs(pod)):
            return False
        return old is None or msgspec.structs.astuple(old)[2] != new.status
    return not isinstance(old, ResourceClaim)


def _is_group_schedulable(pod: Pod, old: ApiObject | None, new: ApiObject | None) -> bool:
    """Returns whether a group is the pod's, and more has changed than what the scheduler reports:
    its spec, or the names of its claims."""
    if not isinstance(new, PodGroup):
        return False
    if (new.metadata.namespace, new.metadata.name) != (pod.metadata.namespace, pod.group_name):
        return False
    return not isinstance(old, PodGroup) or (
        (old.spec, old.status.resource_claim_statuses)
        != (new.spec, new.status.resource_claim_statuses)
    )
