"""Creates claims for pods and releases them, for simulations without a resource claim controller.

A pod's own claim is named after the pod and its entry, without the random letters that an API
server adds, so that runs are equal.
"""

from collections.abc import Container, Mapping
from typing import Final

import msgspec

from stower.model.defaults import with_claim_defaults
from stower.model.kinds import Kind, PersistentVolumeClaim, Pod, ResourceClaim
from stower.model.kinds.pod import PodResourceClaimStatus
from stower.model.kinds.resource_claim import ResourceClaimSpec, ResourceClaimStatus
from stower.model.kinds.storage import ClaimSpec
from stower.model.meta import ObjectMeta, OwnerReference
from stower.state.devices import extended_claim_owner
from stower.state.volumes import is_made_for


class ClaimTemplateSpec(msgspec.Struct, frozen=True):
    """What claims made from the template have; its labels and annotations play no part here."""

    spec: ResourceClaimSpec = ResourceClaimSpec()


class ClaimTemplate(msgspec.Struct, frozen=True):
    """A ResourceClaimTemplate."""

    metadata: ObjectMeta
    spec: ClaimTemplateSpec = ClaimTemplateSpec()


# No scheduler reads it: it is for those alone who make claims.
TEMPLATE: Final = Kind(
    "resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", True, ClaimTemplate
)


def make_claim(
    pod: Pod, entry: str, spec: ResourceClaimSpec, taken: Container[str] = ()
) -> ResourceClaim:
    """The pod's own claim for one of its entries. `taken`: keys of other claims."""
    owner = OwnerReference("Pod", pod.metadata.name, pod.metadata.uid, "v1", True)
    uid = f"claim-of-{pod.metadata.uid}-{entry}"
    name, number = f"{pod.metadata.name}-{entry}", 1
    while f"{pod.metadata.namespace}/{name}" in taken:
        name, number = f"{pod.metadata.name}-{entry}-{number}", number + 1
    meta = ObjectMeta(name, pod.metadata.namespace, uid, "1", owner_references=(owner,))
    return with_claim_defaults(ResourceClaim(meta, spec), uid)


def with_claims(pod: Pod, names: Mapping[str, str]) -> Pod:
    """The pod whose status has the names of its own claims, by entry."""
    known = {s.name: s for s in pod.status.resource_claim_statuses or ()}
    known |= {entry: PodResourceClaimStatus(entry, name) for entry, name in names.items()}
    status = msgspec.structs.replace(
        pod.status, resource_claim_statuses=tuple(known.values()) or None
    )
    return msgspec.structs.replace(pod, status=status)


def make_claims(
    pod: Pod, templates: Mapping[str, ClaimTemplate], taken: Container[str] = ()
) -> tuple[Pod, tuple[ResourceClaim, ...]]:
    """The pod, with claims from the templates (by namespace/name) that it names and that there are,
    as far as it has none yet. `taken`: keys of other claims."""
    known = {status.name for status in pod.status.resource_claim_statuses or ()}
    made: dict[str, ResourceClaim] = {}
    for entry in pod.spec.resource_claims or ():
        name = entry.resource_claim_template_name
        template = templates.get(f"{pod.metadata.namespace}/{name}") if name else None
        if template is not None and entry.name not in known:
            made[entry.name] = make_claim(pod, entry.name, template.spec.spec, taken)
    names = {entry: claim.metadata.name for entry, claim in made.items()}
    return (with_claims(pod, names) if names else pod), tuple(made.values())


def recreate_with_claims(
    pod: Pod, again: Pod, claims: Mapping[str, ResourceClaim]
) -> tuple[Pod, tuple[ResourceClaim, ...]]:
    """The pod that comes in the place of another, with claims like those that were made for it;
    `claims`: all there are, by namespace/name."""
    made: dict[str, ResourceClaim] = {}
    for status in pod.status.resource_claim_statuses or ():
        name = status.resource_claim_name
        claim = claims.get(f"{pod.metadata.namespace}/{name}") if name else None
        if claim is not None and claim.metadata.controller_uid == pod.metadata.uid:
            made[status.name] = make_claim(again, status.name, claim.spec)
    names = {entry: claim.metadata.name for entry, claim in made.items()}
    return (with_claims(again, names) if names else again), tuple(made.values())


def make_volume_claim(
    pod: Pod,
    volume: str,
    spec: ClaimSpec,
    labels: dict[str, str] | None,
    annotations: dict[str, str] | None = None,
) -> PersistentVolumeClaim:
    """The pod's own claim for an ephemeral volume (KEP-1698)."""
    owner = pod.metadata
    meta = ObjectMeta(
        f"{owner.name}-{volume}", owner.namespace, f"volume-claim-of-{owner.uid}-{volume}", "1",
        labels=labels, annotations=annotations,
        owner_references=(OwnerReference("Pod", owner.name, owner.uid, "v1", True),),
    )  # fmt: skip
    return PersistentVolumeClaim(meta, spec)


def copy_volume_claims(
    pod: Pod, again: Pod, claims: Mapping[str, PersistentVolumeClaim]
) -> tuple[PersistentVolumeClaim, ...]:
    """The claims of ephemeral volumes for a pod that is like another one; `claims`: all there are,
    by namespace/name."""
    made = []
    for volume in pod.spec.volumes or ():
        claim = claims.get(f"{pod.metadata.namespace}/{pod.metadata.name}-{volume.name}")
        if volume.ephemeral is None or claim is None or not is_made_for(claim, pod):
            continue
        spec = msgspec.structs.replace(claim.spec, volume_name="")
        made.append(make_volume_claim(again, volume.name, spec, claim.metadata.labels))
    return tuple(made)


def release_claim(claim: ResourceClaim, leaving: Container[str]) -> ResourceClaim | None:
    """The claim once pods of these uids have gone from their nodes, to be placed anew: its devices
    are free when nobody is left. None for one that is made with its pod's node."""
    if extended_claim_owner(claim) in leaving:
        return None
    return without_users(claim, leaving)


def without_users(
    claim: ResourceClaim, leaving: Container[str], keeps: bool = False
) -> ResourceClaim:
    """The claim without its reservations for pods of these uids; its allocation goes with the last
    one unless it is kept."""
    reserved = claim.status.reserved_for or ()
    left = tuple(consumer for consumer in reserved if consumer.uid not in leaving)
    if len(left) == len(reserved):
        return claim
    status = ResourceClaimStatus()
    if left or keeps:
        status = msgspec.structs.replace(claim.status, reserved_for=left or None)
    return msgspec.structs.replace(claim, status=status)
