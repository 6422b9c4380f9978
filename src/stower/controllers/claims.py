"""Reads ResourceClaims for controllers and kubelets: users, reservations, allocation.

Source: dynamic-resource-allocation/resourceclaim; pkg/kubelet/cm/dra/manager.go (PrepareResources).
"""

from typing import Final

import msgspec

from stower.controllers.objects import (
    Object,
    ObjectStore,
    key_of,
    name_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.model.kinds.resource_claim import (
    ALLOCATION_MODE,
    DEALLOCATION_REQUESTED,
    IMMEDIATE,
)
from stower.model.selectors import NodeSelector, node_selector_matches

POD_GROUPS: Final = ("scheduling.k8s.io", "podgroups")


def used_by(pod: Object) -> list[str]:
    """Keys of the claims that a pod uses, as far as they have names."""
    made = _generated_names(pod)
    entries = pod["spec"].get("resourceClaims") or ()
    names = [e.get("resourceClaimName") or made.get(e["name"]) for e in entries]
    return [f"{namespace_of(pod)}/{name}" for name in (*names, extended_of(pod)) if name]


def are_named(pod: Object) -> bool:
    """Whether all claims that are made for the pod have been made."""
    made = _generated_names(pod)
    entries = pod["spec"].get("resourceClaims") or ()
    return all(entry.get("resourceClaimName") or entry["name"] in made for entry in entries)


def extended_of(pod: Object) -> str:
    """The claim that stands for the pod's extended resources, or empty."""
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return str(status.get("resourceClaimName") or "")


def users_of(seen: ObjectStore, claim: Object) -> list[Object]:
    """The pods that use a claim. A claim that no pod owns is looked for in all of its namespace."""
    namespace, key = namespace_of(claim), key_of(claim)
    owner = owner_of(claim)
    if owner is not None and owner.get("kind") == "Pod":
        pod = seen.get("pods", f"{namespace}/{owner['name']}")
        return [pod] if pod is not None and uid_of(pod) == owner["uid"] else []
    return [pod for pod in seen.list_namespace("pods", namespace) if key in used_by(pod)]


def is_allocated(claim: Object) -> bool:
    """It has been given what it asks for, be it nothing."""
    return (claim.get("status") or {}).get("allocation") is not None


def consumers_of(claim: Object) -> list[Object]:
    """For whom it is reserved."""
    return (claim.get("status") or {}).get("reservedFor") or []


def is_reserved(claim: Object, pod: Object) -> bool:
    """For the pod, or for the group that it belongs to."""
    group = group_of(pod)
    for consumer in consumers_of(claim):
        if consumer.get("uid") == uid_of(pod):
            return True
        if group and is_group(consumer) and consumer.get("name") == group:
            return True
    return False


def group_of(pod: Object) -> str:
    """The PodGroup that a pod belongs to, or empty."""
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def is_group(consumer: Object) -> bool:
    """Whether a consumer is a group of pods."""
    return (consumer.get("apiGroup"), consumer.get("resource")) == POD_GROUPS


def is_usable_on(claim: Object, node: Object | None) -> bool:
    """Whether the node can use what was allocated; one that is not known only what all can."""
    selector = claim["status"]["allocation"].get("nodeSelector")
    if selector is None:
        return True
    if node is None:
        return False
    labels = node["metadata"].get("labels") or {}
    return node_selector_matches(msgspec.convert(selector, NodeSelector), labels, name_of(node))


# Negotiated claims


def is_negotiated(seen: ObjectStore, claim: Object) -> bool:
    """Whether a driver allocates it: there is a ResourceClass for one of its device classes."""
    for request in ((claim["spec"].get("devices") or {}).get("requests")) or ():
        for asked in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if asked and seen.get("resourceclasses", asked.get("deviceClassName") or ""):
                return True
    return False


def is_delayed(claim: Object) -> bool:
    """Its driver waits for a node to be chosen."""
    return (claim["metadata"].get("annotations") or {}).get(ALLOCATION_MODE) != IMMEDIATE


def is_flagged(claim: Object) -> bool:
    """Its driver is to deallocate it: it is for nobody any more until that is done."""
    return DEALLOCATION_REQUESTED in (claim["metadata"].get("annotations") or {})


# What a kubelet asks


def hindrance(seen: ObjectStore, pod: Object) -> str:
    """Why a kubelet cannot prepare what the pod claims, in its words; empty where it can."""
    made = _generated_names(pod)
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry.get("resourceClaimName")
        if not name and entry["name"] not in made:
            return f'pod "{key_of(pod)}": ResourceClaim not created yet'
        why = _find_unprepared(seen, pod, name or made[entry["name"]], is_own=not name)
        if why:
            return why
    return _find_unprepared(seen, pod, extended_of(pod), is_own=True)


def _find_unprepared(seen: ObjectStore, pod: Object, name: str | None, is_own: bool) -> str:
    if not name:
        return ""  # it was found that no claim is needed
    claim = seen.get("resourceclaims", f"{namespace_of(pod)}/{name}")
    if claim is None:
        return f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found'
    if is_own and not _is_for(claim, pod):
        return (
            f"ResourceClaim {key_of(claim)} was not created for Pod {key_of(pod)} "
            "(Pod is not owner)"
        )
    if not is_reserved(claim, pod):
        return (
            f"pod {name_of(pod)} ({uid_of(pod)}) is not allowed to use "
            f"ResourceClaim {name} ({uid_of(claim)})"
        )
    return "" if is_allocated(claim) else f"ResourceClaim {name}: not allocated"


def _is_for(claim: Object, pod: Object) -> bool:
    """It was made for the pod, or for its group, whose uid pods do not know."""
    owner = owner_of(claim) or {}
    if owner.get("kind") == "PodGroup":
        return bool(group_of(pod)) and owner.get("name") == group_of(pod)
    return owner.get("uid") == uid_of(pod)


def _generated_names(pod: Object) -> dict[str, str | None]:
    """The names of claims that were made for entries of the pod."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {status["name"]: status.get("resourceClaimName") for status in statuses}
