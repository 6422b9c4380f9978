"""Storage objects as the API has them (claims, volumes, classes, CSI objects), and the claims,
disks and volumes that placed pods use on each row.

A decision that the API does not show yet is kept as an assumption, until the object changes in the
API or the decision is withdrawn. Must not know how volumes are chosen.

Source: kube-scheduler util/assumecache, plugins/nodevolumelimits (which names count).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from stower.model.kinds import Pod, Storage
from stower.model.kinds.pod import Volume
from stower.model.kinds.storage import (
    READ_WRITE_ONCE_POD,
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

# A volume as its driver identifies it: the driver, and a name that is unique for the driver.
VolumeHandle = tuple[str, str]
# A disk that pods on one node cannot share (type and names), and whether it is mounted read-only.
Disk = tuple[tuple[str, ...], bool]

EBS: Final = "ebs.csi.aws.com"
GCE: Final = "pd.csi.storage.gke.io"
AZURE: Final = "disk.csi.azure.com"
CINDER: Final = "cinder.csi.openstack.org"
PORTWORX: Final = "pxd.portworx.com"
# CSI drivers of the volume types that used to be part of Kubernetes, by their old provisioner.
MIGRATED_DRIVERS: Final = {
    "kubernetes.io/aws-ebs": EBS,
    "kubernetes.io/gce-pd": GCE,
    "kubernetes.io/azure-disk": AZURE,
    "kubernetes.io/cinder": CINDER,
    "kubernetes.io/portworx-volume": PORTWORX,
}
# Old provisioners whose volumes are not counted: a node does not show their migration.
UNCOUNTED_PROVISIONERS: Final = ("kubernetes.io/azure-file", "kubernetes.io/vsphere-volume")
ZONES: Final = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")


def claims_of(pod: Pod) -> Iterator[tuple[str, bool]]:
    """Yields the names of the claims that a pod uses, and whether each is created for the pod (an
    ephemeral volume)."""
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            yield volume.persistent_volume_claim.claim_name, False
        elif volume.ephemeral is not None:
            yield f"{pod.metadata.name}-{volume.name}", True


def has_ephemeral_volumes(pod: Pod) -> bool:
    """Returns whether claims are created for the pod."""
    return any(volume.ephemeral is not None for volume in pod.spec.volumes or ())


def is_made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Returns whether the pod is the claim's controller."""
    claim_meta, pod_meta = claim.metadata, pod.metadata
    return (claim_meta.namespace, claim_meta.controller_uid) == (pod_meta.namespace, pod_meta.uid)


def disks_of(volume: Volume) -> Iterator[Disk]:
    """Yields the disks of a volume that pods on one node cannot share."""
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
    """Returns all disks of a pod that pods on one node cannot share."""
    return [disk for volume in pod.spec.volumes or () for disk in disks_of(volume)]


class Volumes:
    """All storage objects, the assumptions about them, and their use by placed pods. `generation`
    grows with every change of an object or an assumption."""

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
        # Names of volumes, as assumed: volumes without a claim by class, others by their claim.
        self._available: dict[str, dict[str, None]] = {}
        self._prebound: dict[str, dict[str, None]] = {}
        # By volume: the index of these two that has it, and under which key.
        self._index_entries: dict[str, tuple[dict[str, dict[str, None]], str]] = {}
        # Keys of the claims that are bound to a volume, by the volume's name.
        self._claims_by_volume: dict[str, dict[str, None]] = {}
        self.generation = 0
        # Use by placed pods:
        self._users: dict[str, dict[str, PodEntry]] = {}  # by claim key and uid
        # By disk and row: the number of pods that write to the disk, and of those that only read.
        self._disks: dict[tuple[str, ...], dict[int, list[int]]] = {}
        # By uid: the row and the volumes that count there for the pod.
        self._attached_by_pod: dict[str, tuple[int, tuple[VolumeHandle, ...]]] = {}
        self._rows: dict[VolumeHandle, dict[int, int]] = {}  # number of pods by volume and row
        self._counts: dict[str, Ints] = {}  # number of volumes per row, by driver

    # Objects

    def put(self, obj: Storage) -> None:
        """Adds or replaces an object."""
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
            self._recount_claim(obj.key)
        elif isinstance(obj, PersistentVolume):
            assumed_volume = self._assumed_volumes.get(obj.metadata.name)
            self._drop_volume(obj.metadata.name)
            if assumed_volume is not None and not _is_newer(obj, assumed_volume):
                self._assumed_volumes[obj.metadata.name] = assumed_volume
            self._volumes[obj.metadata.name] = obj
            self._update_index(obj.metadata.name)
            self._recount_volume(obj.metadata.name)
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
        """Removes an object."""
        if self._journal.is_recording:
            self._log_undo(obj)
        self.generation += 1
        name = obj.metadata.name
        if isinstance(obj, PersistentVolumeClaim):
            self._drop_claim(obj.key)
            self._recount_claim(obj.key)
        elif isinstance(obj, PersistentVolume):
            self._drop_volume(name)
            self._recount_volume(name)
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
        """Logs how to restore the object and the assumption about it."""
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
        """Returns the object as the API has it, None where it has none."""
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
        """Yields all objects as the API has them."""
        for objects in (
            self._claims, self._volumes, self.classes, self.csi_nodes, self.drivers,
            self.capacities, self.attachments,
        ):  # fmt: skip
            yield from objects.values()

    def claim(self, key: str) -> PersistentVolumeClaim | None:
        """Returns the claim of that namespace/name: as assumed, else as the API has it."""
        return self._assumed_claims.get(key) or self._claims.get(key)

    def volume(self, name: str) -> PersistentVolume | None:
        """Returns the volume of that name: as assumed, else as the API has it."""
        return self._assumed_volumes.get(name) or self._volumes.get(name)

    def all_volumes(self) -> Iterator[PersistentVolume]:
        """Yields all volumes: as assumed, else as the API has them."""
        for name, volume in self._volumes.items():
            yield self._assumed_volumes.get(name) or volume

    def api_claim(self, key: str) -> PersistentVolumeClaim | None:
        """Returns the claim as the API has it."""
        return self._claims.get(key)

    def api_volume(self, name: str) -> PersistentVolume | None:
        """Returns the volume as the API has it."""
        return self._volumes.get(name)

    def available_volumes(self, class_name: str) -> Iterator[PersistentVolume]:
        """Yields the volumes of a class that no claim has."""
        for name in self._available.get(class_name, ()):
            if (volume := self.volume(name)) is not None:
                yield volume

    def prebound_volumes(self, claim: PersistentVolumeClaim) -> Iterator[PersistentVolume]:
        """Yields the volumes of the claim's class whose claimRef names the claim."""
        for name in self._prebound.get(claim.key, ()):
            volume = self.volume(name)
            if volume is not None and volume.class_name == claim.class_name:
                yield volume

    def own_claims(self, pod: Pod) -> list[object] | None:
        """Returns what the claims of the pod's ephemeral volumes ask for, where the pod alone uses
        them and nothing is bound or selected for them: pods with equal specs are interchangeable.
        None where it has no such volumes or the claims' names matter."""
        found: list[object] = []
        for name, is_ephemeral in claims_of(pod):
            if not is_ephemeral:
                continue
            claim = self.claim(f"{pod.metadata.namespace}/{name}")
            if claim is None or not is_made_for(claim, pod):
                return None
            if claim.spec.volume_name or claim.selected_node is not None:
                return None
            if READ_WRITE_ONCE_POD in (claim.spec.access_modes or ()):
                return None
            if next(self.prebound_volumes(claim), None) is not None:
                return None
            found.append((claim.class_name, claim.spec))
        return found or None

    # Assumptions

    def adopt_assumptions(self, other: "Volumes") -> None:
        """Takes over the assumptions of another state's volumes, but those that the objects here
        have ended."""
        for key, claim in other._assumed_claims.items():
            seen = self._claims.get(key)
            if seen is not None and (seen == other._claims.get(key) or not _is_newer(seen, claim)):
                self._assume_claim(key, claim)
        for name, volume in other._assumed_volumes.items():
            known = self._volumes.get(name)
            if known is not None and (
                known == other._volumes.get(name) or not _is_newer(known, volume)
            ):
                self._assume_volume(name, volume)

    def assumptions_view(
        self,
    ) -> tuple[dict[str, PersistentVolumeClaim], dict[str, PersistentVolume]]:
        """Returns the assumed claims and volumes, for comparing states."""
        return dict(self._assumed_claims), dict(self._assumed_volumes)

    def assume_bound(self, name: str, claim: PersistentVolumeClaim) -> None:
        """Assumes that the volume is bound to this claim."""
        volume = self.volume(name)
        if volume is None:
            return
        meta = claim.metadata
        reference = ObjectReference(meta.namespace, meta.name, meta.uid)
        spec = msgspec.structs.replace(volume.spec, claim_ref=reference)
        self._assume_volume(name, msgspec.structs.replace(volume, spec=spec))

    def assume_selected(self, key: str, node_name: str) -> None:
        """Assumes that this node is selected for the claim, for which a volume will be
        provisioned."""
        claim = self.claim(key)
        if claim is None:
            return
        annotations = {**(claim.metadata.annotations or {}), SELECTED_NODE: node_name}
        meta = msgspec.structs.replace(claim.metadata, annotations=annotations)
        self._assume_claim(key, msgspec.structs.replace(claim, metadata=meta))

    def forget_volume(self, name: str) -> None:
        """Withdraws the assumption about a volume."""
        self._assume_volume(name, None)

    def forget_claim(self, key: str) -> None:
        """Withdraws the assumption about a claim."""
        self._assume_claim(key, None)

    def _assume_volume(self, name: str, volume: PersistentVolume | None) -> None:
        self.generation += 1
        old = self._assumed_volumes.pop(name, None)
        if volume is not None:
            self._assumed_volumes[name] = volume
        self._update_index(name)
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
        self._update_index(name)

    def _update_index(self, name: str) -> None:
        """Moves a volume to the index and key that it belongs to now."""
        table, key = self._index_entries.pop(name, (self._available, ""))
        names = table.get(key)
        if names is not None:
            names.pop(name, None)
            if not names:
                del table[key]
        volume = self.volume(name)
        if volume is None:
            return
        reference = volume.spec.claim_ref
        table, key = self._available, volume.class_name
        if reference is not None:
            table, key = self._prebound, f"{reference.namespace}/{reference.name}"
        table.setdefault(key, {})[name] = None
        self._index_entries[name] = (table, key)

    # Placed pods

    def add_pod(self, entry: "PodEntry", row: int) -> None:
        """Adds a pod with storage that was placed on the row."""
        pod = entry.pod
        for name, _ in claims_of(pod):
            self._users.setdefault(f"{pod.metadata.namespace}/{name}", {})[entry.uid] = entry
        for disk, read_only in pod_disks(pod):
            users = self._disks.setdefault(disk, {}).setdefault(row, [0, 0])
            users[read_only] += 1
        self._count(entry, row)

    def remove_pod(self, entry: "PodEntry", row: int) -> None:
        """Removes a pod with storage that has left the row."""
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
        """Returns the rows of the placed pods that name the claim in a persistentVolumeClaim
        volume, one for each such volume."""
        name = key.partition("/")[2]
        return [
            entry.row
            for entry in self._users.get(key, {}).values()
            for v in entry.pod.spec.volumes or ()
            if v.persistent_volume_claim is not None
            and v.persistent_volume_claim.claim_name == name
        ]

    def rows_with_disk_conflict(self, disk: Disk) -> list[int]:
        """Returns the rows with pods whose use of the disk excludes another pod's."""
        name, read_only = disk
        rows = self._disks.get(name, {})
        return [row for row, (writing, reading) in rows.items() if writing or not read_only]

    def grow(self, capacity: int) -> None:
        """Extends the arrays to more rows."""
        self._capacity = capacity
        for driver, counts in self._counts.items():
            self._counts[driver] = grow_array(counts, capacity)

    # Attached volumes

    def attachable_volumes(self, pod: Pod) -> tuple[VolumeHandle, ...]:
        """Returns the volumes of a pod that count against the limits of drivers, each once."""
        found: dict[VolumeHandle, None] = {}
        for name, _ in claims_of(pod):
            claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
            handle = None if claim is None else self._claim_handle(claim)
            if handle is not None:
                found[handle] = None
        for volume in pod.spec.volumes or ():
            inline_handle = inline_volume_handle(volume)
            if inline_handle is not None:
                found[inline_handle] = None
        return tuple(found)

    def counts(self, driver: str) -> Ints:
        """Returns int64[capacity]: the number of the driver's volumes that the pods of each row
        use. Read only."""
        found = self._counts.get(driver)
        if found is None:
            found = self._counts[driver] = np.zeros(self._capacity, np.int64)
        return found

    def rows_using(self, handle: VolumeHandle) -> list[int]:
        """Returns the rows whose pods use the volume."""
        return list(self._rows.get(handle, ()))

    def is_attached(self, handle: VolumeHandle, row: int) -> bool:
        """Returns whether a pod of the row uses the volume."""
        return row in self._rows.get(handle, ())

    def volume_attachments(self, driver: str) -> Iterator[tuple[str, VolumeHandle]]:
        """Yields the driver's volumes for which there is a VolumeAttachment, each after the name of
        its node, whether pods use them or not."""
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
        handles = self.attachable_volumes(entry.pod)
        self._attached_by_pod[entry.uid] = (row, handles)
        for handle in handles:
            rows = self._rows.setdefault(handle, {})
            rows[row] = rows.get(row, 0) + 1
            if rows[row] == 1:
                self.counts(handle[0])[row] += 1

    def _uncount(self, uid: str) -> None:
        row, handles = self._attached_by_pod.pop(uid)
        for handle in handles:
            rows = self._rows[handle]
            rows[row] -= 1
            if not rows[row]:
                self.counts(handle[0])[row] -= 1
                del rows[row]
                if not rows:
                    del self._rows[handle]

    def _recount_claim(self, key: str) -> None:
        for entry in self._users.get(key, {}).values():
            self._uncount(entry.uid)
            self._count(entry, entry.row)

    def _recount_volume(self, volume_name: str) -> None:
        for key in self._claims_by_volume.get(volume_name, ()):
            self._recount_claim(key)

    def _recount_all(self) -> None:
        for key in self._users:
            self._recount_claim(key)


def _is_newer(obj: Storage, other: Storage) -> bool:
    """Returns whether an object is newer than the version that an assumption is based on. Versions
    that are not numbers are compared for equality."""
    try:
        return int(obj.metadata.resource_version) > int(other.metadata.resource_version)
    except ValueError:
        return obj.metadata.resource_version != other.metadata.resource_version


def inline_volume_handle(volume: Volume) -> VolumeHandle | None:
    """Returns the handle that a volume without a claim counts as, None where it does not count.

    Source: csi-translation-lib TranslateInTreeInlineVolumeToCSI.
    """
    if volume.aws_elastic_block_store is not None:
        return _ebs_handle(volume.aws_elastic_block_store.volume_id)
    if volume.gce_persistent_disk is not None:
        return GCE, _gce_name("zones/UNSPECIFIED", volume.gce_persistent_disk.pd_name)
    if volume.azure_disk is not None:
        return _azure_handle(volume.azure_disk.disk_uri, volume.azure_disk.kind)
    if volume.cinder is not None:
        return CINDER, volume.cinder.volume_id
    if volume.portworx_volume is not None:
        return PORTWORX, volume.portworx_volume.volume_id
    return None


def _migrated_handle(volume: PersistentVolume) -> VolumeHandle | None:
    """Returns the handle that a volume of an old type has for its CSI driver, None for none.

    Source: csi-translation-lib TranslateInTreePVToCSI.
    """
    spec, labels = volume.spec, volume.metadata.labels or {}
    if spec.aws_elastic_block_store is not None:
        return _ebs_handle(spec.aws_elastic_block_store.volume_id)
    if spec.gce_persistent_disk is not None:
        zones = (labels.get(ZONES[0]) or labels.get(ZONES[1]) or "UNSPECIFIED").split("__")
        where = f"zones/{zones[0]}"
        if len(zones) > 1:
            regions = {zone.rpartition("-")[0] for zone in zones}
            if len(regions) > 1 or any(zone.count("-") != 2 for zone in zones):
                return None
            where = f"regions/{regions.pop()}"
        return GCE, _gce_name(where, spec.gce_persistent_disk.pd_name)
    if spec.azure_disk is not None:
        return _azure_handle(spec.azure_disk.disk_uri, spec.azure_disk.kind)
    if spec.cinder is not None:
        return CINDER, spec.cinder.volume_id
    if spec.portworx_volume is not None:
        return PORTWORX, spec.portworx_volume.volume_id
    return None


def _ebs_handle(volume_id: str) -> VolumeHandle | None:
    """Returns the handle of an EBS volume. aws://zone/vol-1 and vol-1 are the same volume."""
    if not volume_id.startswith("aws://"):
        return EBS, volume_id
    name = volume_id.removeprefix("aws://").partition("/")[2].strip("/")
    return (EBS, name) if name.startswith("vol-") and "/" not in name else None


def _azure_handle(uri: str, kind: str) -> VolumeHandle | None:
    """Returns the handle of an Azure disk. Only managed disks have a driver."""
    return (AZURE, uri) if kind in ("", "Managed") else None


def _gce_name(where: str, disk: str) -> str:
    return f"projects/UNSPECIFIED/{where}/disks/{disk}"
