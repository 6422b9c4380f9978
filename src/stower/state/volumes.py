"""Volumes: claims, volumes and classes as the API has them, and which placed pods use what where.

What was decided and is not in the API yet is kept beside it (an assumption), until the object
changes there or the decision is taken back.

Source: kube-scheduler util/assumecache, plugins/nodevolumelimits (which names count).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stower.model.kinds import Pod, Storage
from stower.model.kinds.pod import Volume
from stower.model.kinds.storage import (
    SELECTED_NODE,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from stower.state.arrays import Ints, grow_array
from stower.state.journal import Journal

if TYPE_CHECKING:
    from stower.state.pod_entry import PodEntry

# A volume as its driver knows it: driver, and a name that no two of its volumes share.
VolumeHandle = tuple[str, str]
# A disk that pods of one node cannot share, and whether it is only read.
Disk = tuple[tuple[str, ...], bool]

EBS: Final = "ebs.csi.aws.com"
GCE: Final = "pd.csi.storage.gke.io"
AZURE: Final = "disk.csi.azure.com"
CINDER: Final = "cinder.csi.openstack.org"
PORTWORX: Final = "pxd.portworx.com"
# CSI drivers of those that used to be part of Kubernetes, by the old provisioner's name.
MIGRATED_DRIVERS: Final = {
    "kubernetes.io/aws-ebs": EBS,
    "kubernetes.io/gce-pd": GCE,
    "kubernetes.io/azure-disk": AZURE,
    "kubernetes.io/cinder": CINDER,
    "kubernetes.io/portworx-volume": PORTWORX,
}
# The same, but their migration cannot be seen on a node: not counted.
UNCOUNTED_PROVISIONERS: Final = ("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume")
ZONES: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


def claims_of(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Names of the claims that a pod uses, and whether each was made for it."""
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", True


def is_made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Whether the pod is the claim's controller."""
    mine, theirs = claim.metadata, pod.metadata
    return (mine.namespace, mine.controller_uid) == (theirs.namespace, theirs.uid)


def disks_of(volume: Volume) -> Iterator[Disk]:
    """Under which names pods of one node may not share the volume's disk."""
    if volume.gce_persistent_disk is not None:
        yield ("gce", volume.gce_persistent_disk.pd_name), volume.gce_persistent_disk.read_only
    if volume.aws_elastic_block_store is not None:
        yield ("ebs", volume.aws_elastic_block_store.volume_id), False
    if volume.iscsi is not None:
        yield ("iscsi", volume.iscsi.iqn), volume.iscsi.read_only
    if volume.rbd is not None:
        rbd = volume.rbd
        for monitor in rbd.monitors:
            yield ("rbd", monitor, rbd.pool, rbd.image), rbd.read_only


def pod_disks(pod: Pod) -> list[Disk]:
    """All disks of a pod."""
    return [disk for volume in pod.spec.volumes or () for disk in disks_of(volume)]


class Volumes:
    """All of them. `generation` grows with every change of an object or an assumption."""

    def __init__(self, journal: Journal, capacity: int) -> None:
        self._journal = journal
        self._capacity = capacity
        self._claims: dict[str, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self.capacities: dict[tuple[str, str], CSIStorageCapacity] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        self._assumed_claims: dict[str, PersistentVolumeClaim] = {}
        self._assumed_volumes: dict[str, PersistentVolume] = {}
        # Names of volumes, as decided: free ones by class, the others by the claim they are for.
        self._available: dict[str, dict[str, None]] = {}
        self._prebound: dict[str, dict[str, None]] = {}
        self._indexed: dict[str, tuple[dict[str, dict[str, None]], str]] = {}
        self._claims_by_volume: dict[
            str, dict[str, None]
        ] = {}  # claims bound to a volume, by its name
        self.generation = 0
        # Placed pods: who uses a claim, which disks are on a row, which volumes are attached there.
        self._users: dict[str, dict[str, PodEntry]] = {}
        self._disks: dict[tuple[str, ...], dict[int, list[int]]] = {}
        self._attached_by_pod: dict[str, tuple[int, tuple[VolumeHandle, ...]]] = {}
        self._rows: dict[VolumeHandle, dict[int, int]] = {}
        self._counts: dict[str, Ints] = {}

    # Objects

    def put(self, obj: Storage) -> None:
        """An object as it is now."""
        if self._journal.is_recording:
            self._log_undo(obj)
        self.generation += 1
        if isinstance(obj, PersistentVolumeClaim):
            assumed = self._assumed_claims.get(obj.key)
            self._drop_claim(obj.key)
            if assumed is not None and not _is_newer(obj, assumed):
                self._assumed_claims[obj.key] = assumed
            self._claims[obj.key] = obj
            if obj.spec.volume_name:
                self._claims_by_volume.setdefault(obj.spec.volume_name, {})[obj.key] = None
            self._recount(obj.key)
        elif isinstance(obj, PersistentVolume):
            held = self._assumed_volumes.get(obj.metadata.name)
            self._drop_volume(obj.metadata.name)
            if held is not None and not _is_newer(obj, held):
                self._assumed_volumes[obj.metadata.name] = held
            self._volumes[obj.metadata.name] = obj
            self._index(obj.metadata.name)
            self._recount_on(obj.metadata.name)
        elif isinstance(obj, StorageClass):
            self.classes[obj.metadata.name] = obj
            self._recount_all()
        elif isinstance(obj, CSINode):
            self.csi_nodes[obj.metadata.name] = obj
        elif isinstance(obj, CSIDriver):
            self.drivers[obj.metadata.name] = obj
        elif isinstance(obj, CSIStorageCapacity):
            self.capacities[obj.metadata.namespace, obj.metadata.name] = obj
        else:
            self.attachments[obj.metadata.name] = obj

    def drop(self, obj: Storage) -> None:
        """It is gone."""
        if self._journal.is_recording:
            self._log_undo(obj)
        self.generation += 1
        name = obj.metadata.name
        if isinstance(obj, PersistentVolumeClaim):
            self._drop_claim(obj.key)
            self._recount(obj.key)
        elif isinstance(obj, PersistentVolume):
            self._drop_volume(name)
            self._recount_on(name)
        elif isinstance(obj, StorageClass):
            self.classes.pop(name, None)
            self._recount_all()
        elif isinstance(obj, CSINode):
            self.csi_nodes.pop(name, None)
        elif isinstance(obj, CSIDriver):
            self.drivers.pop(name, None)
        elif isinstance(obj, CSIStorageCapacity):
            self.capacities.pop((obj.metadata.namespace, name), None)
        else:
            self.attachments.pop(name, None)

    def _log_undo(self, obj: Storage) -> None:
        """Remember the object as it was, and what was assumed of it."""
        if isinstance(obj, PersistentVolumeClaim):
            assumed_claim = self._assumed_claims.get(obj.key)
            self._journal.log(self._assume_claim, obj.key, assumed_claim)
        elif isinstance(obj, PersistentVolume):
            name = obj.metadata.name
            self._journal.log(self._assume_volume, name, self._assumed_volumes.get(name))
        old = self.api_object(obj)
        if old is None:
            self._journal.log(self.drop, obj)
        else:
            self._journal.log(self.put, old)

    def api_object(self, obj: Storage) -> Storage | None:
        """What is known of the object, as the API has it."""
        name = obj.metadata.name
        if isinstance(obj, PersistentVolumeClaim):
            return self._claims.get(obj.key)
        if isinstance(obj, PersistentVolume):
            return self._volumes.get(name)
        if isinstance(obj, StorageClass):
            return self.classes.get(name)
        if isinstance(obj, CSINode):
            return self.csi_nodes.get(name)
        if isinstance(obj, CSIDriver):
            return self.drivers.get(name)
        if isinstance(obj, CSIStorageCapacity):
            return self.capacities.get((obj.metadata.namespace, name))
        return self.attachments.get(name)

    def api_objects(self) -> Iterator[Storage]:
        """Everything, as the API has it."""
        for objects in (
            self._claims, self._volumes, self.classes, self.csi_nodes, self.drivers,
            self.capacities, self.attachments,
        ):  # fmt: skip
            yield from objects.values()

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """The claim of that namespace/name, as decided."""
        return self._assumed_claims.get(key) or self._claims.get(key)

    def volume(self, name: str) -> PersistentVolume | None:
        """The volume, as decided."""
        return self._assumed_volumes.get(name) or self._volumes.get(name)

    def api_claim(self, key: str) -> PersistentVolumeClaim | None:
        """The claim as the API has it."""
        return self._claims.get(key)

    def api_volume(self, name: str) -> PersistentVolume | None:
        """The volume as the API has it."""
        return self._volumes.get(name)

    def available_volumes(self, class_name: str) -> Iterator[PersistentVolume]:
        """The volumes of a class that are for nobody yet."""
        for name in self._available.get(class_name, ()):
            if (volume := self.volume(name)) is not None:
                yield volume

    def prebound_volumes(self, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
        """The volumes of a claim's class that somebody has said are for one of its name."""
        for name in self._prebound.get(claim.key, ()):
            volume = self.volume(name)
            if volume is not None and volume.class_name == claim.class_name:
                yield volume

    # Assumptions

    def assume_bound(self, name: str, claim: PersistentVolumeClaim) -> None:
        """The volume is for this claim."""
        volume = self.volume(name)
        if volume is None:
            return
        meta = claim.metadata
        reference = ObjectReference(meta.namespace, meta.name, meta.uid)
        spec = msgspec.structs.replace(volume.spec, claim_ref=reference)
        self._assume_volume(name, msgspec.structs.replace(volume, spec=spec))

    def assume_selected(self, key: str, node_name: str) -> None:
        """A volume for the claim is to be made for this node."""
        claim = self.claim(key)
        if claim is None:
            return
        annotations = {**(claim.metadata.annotations or {}), SELECTED_NODE: node_name}
        meta = msgspec.structs.replace(claim.metadata, annotations=annotations)
        self._assume_claim(key, msgspec.structs.replace(claim, metadata=meta))

    def forget_volume(self, name: str) -> None:
        """Take the assumption back."""
        self._assume_volume(name, None)

    def forget_claim(self, key: str) -> None:
        """Take the assumption back."""
        self._assume_claim(key, None)

    def _assume_volume(self, name: str, volume: PersistentVolume | None) -> None:
        self.generation += 1
        old = self._assumed_volumes.pop(name, None)
        if volume is not None:
            self._assumed_volumes[name] = volume
        self._index(name)
        if self._journal.is_recording:
            self._journal.log(self._assume_volume, name, old)

    def _assume_claim(self, key: str, claim: PersistentVolumeClaim | None) -> None:
        self.generation += 1
        old = self._assumed_claims.pop(key, None)
        if claim is not None:
            self._assumed_claims[key] = claim
        if self._journal.is_recording:
            self._journal.log(self._assume_claim, key, old)

    def _drop_claim(self, key: str) -> None:
        self._assumed_claims.pop(key, None)
        old = self._claims.pop(key, None)
        if old is not None and old.spec.volume_name:
            claims = self._claims_by_volume[old.spec.volume_name]
            del claims[key]
            if not claims:
                del self._claims_by_volume[old.spec.volume_name]

    def _drop_volume(self, name: str) -> None:
        self._assumed_volumes.pop(name, None)
        self._volumes.pop(name, None)
        self._index(name)

    def _index(self, name: str) -> None:
        """Have the volume where it belongs now."""
        table, key = self._indexed.pop(name, (self._available, ""))
        known = table.get(key)
        if known is not None:
            known.pop(name, None)
            if not known:
                del table[key]
        volume = self.volume(name)
        if volume is None:
            return
        reference = volume.spec.claim_ref
        table, key = self._available, volume.class_name
        if reference is not None:
            table, key = self._prebound, f"{reference.namespace}/{reference.name}"
        table.setdefault(key, {})[name] = None
        self._indexed[name] = (table, key)

    # Placed pods

    def add_pod(self, entry: "PodEntry", row: int) -> None:
        """A pod with storage is on the row now."""
        pod = entry.pod
        for name, _ in claims_of(pod):
            self._users.setdefault(f"{pod.metadata.namespace}/{name}", {})[entry.uid] = entry
        for disk, read_only in pod_disks(pod):
            users = self._disks.setdefault(disk, {}).setdefault(row, [0, 0])
            users[read_only] += 1
        self._count(entry, row)

    def remove_pod(self, entry: "PodEntry", row: int) -> None:
        """It is no longer there."""
        pod = entry.pod
        for name, _ in claims_of(pod):
            key = f"{pod.metadata.namespace}/{name}"
            users = self._users.get(key, {})
            users.pop(entry.uid, None)
            if not users:
                self._users.pop(key, None)
        for disk, read_only in pod_disks(pod):
            rows = self._disks[disk]
            rows[row][read_only] -= 1
            if not any(rows[row]):
                del rows[row]
                if not rows:
                    del self._disks[disk]
        self._uncount(entry.uid)

    def rows_with_claim(self, key: str) -> list[int]:
        """Rows of the placed pods that name the claim themselves."""
        name = key.partition("/")[2]
        return [
            entry.row
            for entry in self._users.get(key, {}).values()
            for v in entry.pod.spec.volumes or ()
            if v.persistent_volume_claim is not None
            and v.persistent_volume_claim.claim_name == name
        ]

    def rows_with_disk_conflict(self, disk: Disk) -> list[int]:
        """Rows with pods that keep another from the disk."""
        name, read_only = disk
        rows = self._disks.get(name, {})
        return [row for row, (writing, reading) in rows.items() if writing or not read_only]

    def grow(self, capacity: int) -> None:
        """Extend to more rows."""
        self._capacity = capacity
        for driver, counts in self._counts.items():
            self._counts[driver] = grow_array(counts, capacity)

    # What is attached

    def attachable_volumes(self, pod: Pod) -> tuple[VolumeHandle, ...]:
        """The volumes of a pod that count against the limits of drivers, each once."""
        found: dict[VolumeHandle, None] = {}
        for name, _ in claims_of(pod):
            claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
            names = None if claim is None else self._claim_handle(claim)
            if names is not None:
                found[names] = None
        for volume in pod.spec.volumes or ():
            own = inline_volume_handle(volume)
            if own is not None:
                found[own] = None
        return tuple(found)

    def counts(self, driver: str) -> Ints:
        """int64[capacity]: volumes of the driver that the pods of each row use. Read only."""
        found = self._counts.get(driver)
        if found is None:
            found = self._counts[driver] = np.zeros(self._capacity, np.int64)
        return found

    def rows_using(self, name: VolumeHandle) -> list[int]:
        """Rows whose pods use the volume."""
        return list(self._rows.get(name, ()))

    def is_attached(self, name: VolumeHandle, row: int) -> bool:
        """Whether a pod of the row uses the volume."""
        return row in self._rows.get(name, ())

    def volume_attachments(self, driver: str) -> Iterator[tuple[str, VolumeHandle]]:
        """Volumes that are attached, with the name of the node, whoever uses them."""
        for attachment in self.attachments.values():
            spec = attachment.spec
            volume = self._volumes.get(spec.source.persistent_volume_name or "")
            if spec.attacher == driver and volume is not None and volume.spec.csi is not None:
                yield spec.node_name, (driver, volume.spec.csi.volume_handle)

    def _claim_handle(self, claim: PersistentVolumeClaim) -> VolumeHandle | None:
        volume = self._volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is None:
            storage_class = self.classes.get(claim.class_name)
            if storage_class is None or storage_class.provisioner in UNCOUNTED_PROVISIONERS:
                return None
            provisioner = storage_class.provisioner
            driver = MIGRATED_DRIVERS.get(provisioner, provisioner)
            return (driver, f"claim/{claim.key}") if driver else None
        if volume.spec.csi is not None:
            csi = volume.spec.csi
            return (csi.driver, csi.volume_handle) if csi.driver and csi.volume_handle else None
        return _migrated_handle(volume)

    def _count(self, entry: "PodEntry", row: int) -> None:
        names = self.attachable_volumes(entry.pod)
        self._attached_by_pod[entry.uid] = (row, names)
        for name in names:
            rows = self._rows.setdefault(name, {})
            rows[row] = rows.get(row, 0) + 1
            if rows[row] == 1:
                self.counts(name[0])[row] += 1

    def _uncount(self, uid: str) -> None:
        row, names = self._attached_by_pod.pop(uid)
        for name in names:
            rows = self._rows[name]
            rows[row] -= 1
            if not rows[row]:
                self.counts(name[0])[row] -= 1
                del rows[row]
                if not rows:
                    del self._rows[name]

    def _recount(self, key: str) -> None:
        for entry in self._users.get(key, {}).values():
            self._uncount(entry.uid)
            self._count(entry, entry.row)

    def _recount_on(self, volume_name: str) -> None:
        for key in self._claims_by_volume.get(volume_name, ()):
            self._recount(key)

    def _recount_all(self) -> None:
        for key in self._users:
            self._recount(key)


def _is_newer(obj: Storage, other: Storage) -> bool:
    """Whether an object has changed since something was assumed of it."""
    try:
        return int(obj.metadata.resource_version) > int(other.metadata.resource_version)
    except ValueError:
        return obj.metadata.resource_version != other.metadata.resource_version


def inline_volume_handle(volume: Volume) -> VolumeHandle | None:
    """As what a disk of the pod itself counts.

    Source: csi-translation-lib TranslateInTreeInlineVolumeToCSI."""
    if volume.aws_elastic_block_store is not None:
        return _ebs(volume.aws_elastic_block_store.volume_id)
    if volume.gce_persistent_disk is not None:
        return GCE, _gce("zones/UNSPECIFIED", volume.gce_persistent_disk.pd_name)
    if volume.azure_disk is not None:
        return _azure(volume.azure_disk.disk_uri, volume.azure_disk.kind)
    if volume.cinder is not None:
        return CINDER, volume.cinder.volume_id
    if volume.portworx_volume is not None:
        return PORTWORX, volume.portworx_volume.volume_id
    return None


def _migrated_handle(volume: PersistentVolume) -> VolumeHandle | None:
    """Source: csi-translation-lib TranslateInTreePVToCSI."""
    spec, labels = volume.spec, volume.metadata.labels or {}
    if spec.aws_elastic_block_store is not None:
        return _ebs(spec.aws_elastic_block_store.volume_id)
    if spec.gce_persistent_disk is not None:
        zones = (labels.get(ZONES[0]) or labels.get(ZONES[1]) or "UNSPECIFIED").split("__")
        where = f"zones/{zones[0]}"
        if len(zones) > 1:
            regions = {zone.rpartition("-")[0] for zone in zones}
            if len(regions) > 1 or any(zone.count("-") != 2 for zone in zones):
                return None
            where = f"regions/{regions.pop()}"
        return GCE, _gce(where, spec.gce_persistent_disk.pd_name)
    if spec.azure_disk is not None:
        return _azure(spec.azure_disk.disk_uri, spec.azure_disk.kind)
    if spec.cinder is not None:
        return CINDER, spec.cinder.volume_id
    if spec.portworx_volume is not None:
        return PORTWORX, spec.portworx_volume.volume_id
    return None


def _ebs(volume_id: str) -> VolumeHandle | None:
    """aws://zone/vol-1 and vol-1 are the same."""
    if not volume_id.startswith("aws://"):
        return EBS, volume_id
    name = volume_id.removeprefix("aws://").partition("/")[2].strip("/")
    return (EBS, name) if name.startswith("vol-") and "/" not in name else None


def _azure(uri: str, kind: str) -> VolumeHandle | None:
    """Only managed disks have a driver."""
    return (AZURE, uri) if kind in ("", "Managed") else None


def _gce(where: str, disk: str) -> str:
    return f"projects/UNSPECIFIED/{where}/disks/{disk}"
