"""Decides who owns a StatefulSet's claims, so that they go with their pod, with the set or not.

By persistentVolumeClaimRetentionPolicy: with whenDeleted Delete the set owns the claim, with
whenScaled Delete the pod that is to go owns it. Then garbage collection deletes the claim.

Source: pkg/controller/statefulset/stateful_set_utils.go.
"""

from typing import Final

from stower.controllers.objects import RESOURCES, Object, name_of, uid_of
from stower.controllers.pods import reference_to

DELETE: Final = "Delete"


def policy_of(owner: Object) -> tuple[bool, bool]:
    """Whether claims go when the set is deleted, and when their pod is scaled away."""
    policy = owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return policy.get("whenDeleted") == DELETE, policy.get("whenScaled") == DELETE


def wanted_references(
    claim: Object, owner: Object, pod: Object, is_surplus: bool
) -> list[Object] | None:
    """The owner references that a claim should have; None where it should stay as it is.

    `is_surplus`: the pod's number is outside of the set's. Claims of an earlier set or pod of the
    name stay as they are, and so do those of another controller that do not name set or pod.
    """
    known = list(claim["metadata"].get("ownerReferences") or ())
    for obj, kind in ((owner, "statefulsets"), (pod, "pods")):
        if is_stale(claim, obj, kind):
            return None
    others = [
        r
        for r in known
        if not _names(r, owner, "statefulsets") and not _names(r, pod, "pods")
    ]  # fmt: skip
    if has_other_controller(claim, owner, pod):
        return others if len(others) < len(known) else None
    deleted, scaled = policy_of(owner)
    wanted = []
    if scaled and is_surplus:
        wanted.append(reference_to(pod, "pods"))
    elif deleted:
        wanted.append(reference_to(owner, "statefulsets"))
    own = {r["uid"] for r in known if r not in others}
    controllers = all(r.get("controller") for r in known if r not in others)
    if own == {r["uid"] for r in wanted} and controllers:
        return None
    return [*others, *wanted]


def is_stale(claim: Object, obj: Object, kind: str) -> bool:
    """A reference of the claim names the object but means an earlier one of that name."""
    uid = obj["metadata"].get("uid")
    return any(
        _names(r, obj, kind) and r.get("uid") != uid
        for r in claim["metadata"].get("ownerReferences") or ()
    )


def has_other_controller(claim: Object, owner: Object, pod: Object) -> bool:
    """Somebody else controls a claim that a policy would delete."""
    if not any(policy_of(owner)):
        return False
    ours = (uid_of(owner), pod["metadata"].get("uid"))
    return any(
        r.get("controller") and r.get("uid") not in ours
        for r in claim["metadata"].get("ownerReferences") or ()
    )


def _names(reference: Object, obj: Object, kind: str) -> bool:
    resource = RESOURCES[kind]
    return (reference.get("apiVersion"), reference.get("kind"), reference.get("name")) == (
        resource.api_version, resource.kind, name_of(obj))  # fmt: skip
