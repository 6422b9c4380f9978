"""Suggests volumes for claims that keep a pod from being scheduled, for all volume plugins.

Each of these claims becomes bound to a volume that every node reaches.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from stower.framework.fixes import Fix
from stower.model.kinds import PersistentVolume, PersistentVolumeClaim, Pod, Storage
from stower.model.kinds.pod import ResourceRequirements
from stower.model.kinds.storage import (
    BIND_COMPLETED,
    ClaimSpec,
    ClaimStatus,
    ObjectReference,
    VolumeSpec,
    VolumeStatus,
)
from stower.model.meta import ObjectMeta, OwnerReference
from stower.state.cluster import ClusterState
from stower.state.volumes import claims_of

DEFAULT_SIZE: Final = "1Gi"  # of a claim that does not exist yet


def fix_claims(pod: Pod, state: ClusterState, texts: dict[str, str]) -> Iterable[Fix]:
    """Yields a fix with a volume for each of these claims. `texts`: faults by claim name."""
    objects: list[Storage] = []
    for name, is_ephemeral in claims_of(pod):
        if name in texts:
            objects += bound_claim(pod, name, is_ephemeral, state)
    if objects:
        yield Fix("; ".join(texts.values()), 2.0 * len(texts), objects=tuple(objects))


def bound_claim(
    pod: Pod, name: str, is_ephemeral: bool, state: ClusterState
) -> tuple[PersistentVolume, PersistentVolumeClaim]:
    """Returns a volume that every node reaches, and the claim bound to it."""
    namespace = pod.metadata.namespace
    claim = state.volumes.claim(f"{namespace}/{name}")
    if claim is None:
        spec = ClaimSpec(
            ("ReadWriteOnce",), resources=ResourceRequirements({"storage": DEFAULT_SIZE})
        )
        claim = PersistentVolumeClaim(ObjectMeta(name, namespace, f"claim-{name}"), spec)
    meta, spec = claim.metadata, claim.spec
    volume_name = f"volume-of-{namespace}-{name}"
    owners = meta.owner_references
    if is_ephemeral:
        owners = (OwnerReference("Pod", pod.metadata.name, pod.metadata.uid, "v1", True),)
    meta = msgspec.structs.replace(
        meta,
        deletion_timestamp=None,
        owner_references=owners,
        annotations={**(meta.annotations or {}), BIND_COMPLETED: "yes"},
    )
    requests = (spec.resources.requests or {}) if spec.resources is not None else {}
    volume = PersistentVolume(
        ObjectMeta(volume_name, uid=volume_name),
        VolumeSpec(
            capacity={"storage": requests.get("storage", DEFAULT_SIZE)},
            access_modes=spec.access_modes,
            claim_ref=ObjectReference(namespace, name),  # whatever uid it gets
            storage_class_name=claim.class_name,
            volume_mode=spec.volume_mode,
        ),
        VolumeStatus("Bound"),
    )
    spec = msgspec.structs.replace(spec, volume_name=volume_name)
    return volume, PersistentVolumeClaim(meta, spec, ClaimStatus("Bound"))
