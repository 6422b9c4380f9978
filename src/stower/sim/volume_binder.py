"""The volume controller of a simulation without faults: binds or provisions volumes immediately.

Source: pkg/controller/volume/persistentvolume.
"""

from collections.abc import Iterable, Iterator

import msgspec

from stower.framework.writes import PatchObject
from stower.model.kinds import ApiObject, PersistentVolume, PersistentVolumeClaim, Pod
from stower.model.kinds.pod import ResourceRequirements
from stower.model.kinds.storage import (
    BIND_COMPLETED,
    SELECTED_NODE,
    CSISource,
    ObjectReference,
    VolumeSpec,
    VolumeStatus,
)
from stower.model.meta import ObjectMeta
from stower.sim.claim_lifecycle import copy_volume_claims


class Binder:
    """The claims and volumes of a world."""

    def __init__(self) -> None:
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._by_key: dict[str, PersistentVolumeClaim] = {}  # as they were made
        self._volumes: dict[str, PersistentVolume] = {}

    def start(self, objects: Iterable[ApiObject]) -> None:
        """All there are at the start."""
        for obj in objects:
            if isinstance(obj, PersistentVolumeClaim):
                self._claims[obj.metadata.uid] = self._by_key[obj.key] = obj
            elif isinstance(obj, PersistentVolume):
                self._volumes[obj.metadata.uid] = obj

    def recreate(self, pod: Pod, again: Pod) -> tuple[PersistentVolumeClaim, ...]:
        """The claims of ephemeral volumes that come with a pod like another one."""
        return copy_volume_claims(pod, again, self._by_key)

    def apply_patch(self, write: PatchObject) -> Iterator[ApiObject]:
        """A claim was given a node, or a volume a claim: all that changes with it."""
        if write.view is PersistentVolumeClaim:
            claim = self._claims.get(write.uid)
            if claim is not None:
                node_name = write.patch["metadata"]["annotations"][SELECTED_NODE]
                volume = _make_volume(claim)
                yield self._keep_volume(volume)
                yield self._bind(claim, volume, node_name)
            return
        found = self._volumes.get(write.uid)
        wanted = write.patch["spec"]["claimRef"]["uid"]
        claim = self._claims.get(wanted)
        if found is not None and claim is not None:
            yield self._keep_volume(_bind_volume(found, claim))
            yield self._bind(claim, found, "")

    def _bind(
        self, claim: PersistentVolumeClaim, volume: PersistentVolume, node_name: str
    ) -> PersistentVolumeClaim:
        annotations = {**(claim.metadata.annotations or {}), BIND_COMPLETED: "yes"}
        if node_name:
            annotations[SELECTED_NODE] = node_name
        meta = _increment_version(msgspec.structs.replace(claim.metadata, annotations=annotations))
        spec = msgspec.structs.replace(claim.spec, volume_name=volume.metadata.name)
        status = msgspec.structs.replace(claim.status, phase="Bound")
        bound = msgspec.structs.replace(claim, metadata=meta, spec=spec, status=status)
        self._claims[meta.uid] = bound
        return bound

    def _keep_volume(self, volume: PersistentVolume) -> PersistentVolume:
        self._volumes[volume.metadata.uid] = volume
        return volume


def _increment_version(meta: ObjectMeta) -> ObjectMeta:
    version = meta.resource_version
    number = int(version) + 1 if version.isdecimal() else 1
    return msgspec.structs.replace(meta, resource_version=str(number))


def _bind_volume(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    meta = claim.metadata
    reference = ObjectReference(meta.namespace, meta.name, meta.uid)
    spec = msgspec.structs.replace(volume.spec, claim_ref=reference)
    status = VolumeStatus("Bound")
    return msgspec.structs.replace(
        volume, metadata=_increment_version(volume.metadata), spec=spec, status=status
    )


def _make_volume(claim: PersistentVolumeClaim) -> PersistentVolume:
    name = f"pvc-{claim.metadata.uid}"
    asked = claim.spec.resources or ResourceRequirements()
    spec = VolumeSpec(
        capacity=asked.requests,
        access_modes=claim.spec.access_modes,
        storage_class_name=claim.class_name,
        volume_mode=claim.spec.volume_mode,
        csi=CSISource("stower.dev/volumes", name),
    )
    return _bind_volume(
        PersistentVolume(ObjectMeta(name=name, uid=name, resource_version="1"), spec), claim
    )
