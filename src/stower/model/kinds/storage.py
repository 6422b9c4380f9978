"""Volumes, claims, storage classes and CSI objects: the fields that scheduling reads.

PersistentVolume, PersistentVolumeClaim (core/v1); StorageClass, CSINode, CSIDriver,
CSIStorageCapacity, VolumeAttachment (storage.k8s.io/v1).
"""

from typing import Final

import msgspec

from stower.model.kinds.pod import ResourceList, ResourceRequirements
from stower.model.meta import ObjectMeta
from stower.model.numbers import Int32, Int64
from stower.model.selectors import LabelSelector, NodeSelector
from stower.model.storage_class import BETA_CLASS

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"


class ClaimSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What is claimed."""

    access_modes: tuple[str, ...] | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class ClaimStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What has become of it."""

    phase: str = ""


class PersistentVolumeClaim(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A claim for a volume."""

    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def class_name(self) -> str:
        """The name of its StorageClass, "" where it has none (GetPersistentVolumeClaimClass)."""
        return _class_name(self.metadata, self.spec.storage_class_name)

    @property
    def is_bound(self) -> bool:
        """Whether binding is complete."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in (self.metadata.annotations or ())

    @property
    def selected_node(self) -> str | None:
        """The node for which it is being provisioned."""
        return (self.metadata.annotations or {}).get(SELECTED_NODE)


class ObjectReference(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The claim that a volume is for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CSISource(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class VolumeID(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A volume of a driver that used to be part of Kubernetes: AWS EBS, Cinder, Portworx."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = msgspec.field(default=False, name="readOnly")


class GCEDisk(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A GCE persistent disk."""

    pd_name: str = ""
    read_only: bool = False


class AzureDisk(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An Azure data disk."""

    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str = ""


class VolumeNodeAffinity(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The nodes that reach the volume."""

    required: NodeSelector | None = None


class VolumeSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What the volume is."""

    capacity: ResourceList | None = None
    access_modes: tuple[str, ...] | None = None
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSISource | None = None
    aws_elastic_block_store: VolumeID | None = None
    gce_persistent_disk: GCEDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: VolumeID | None = None
    portworx_volume: VolumeID | None = None


class VolumeStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What has become of it."""

    phase: str = ""


class PersistentVolume(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A volume."""

    metadata: ObjectMeta
    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()

    @property
    def class_name(self) -> str:
        """The name of its StorageClass, "" where it has none (GetPersistentVolumeClass)."""
        return _class_name(self.metadata, self.spec.storage_class_name)


class TopologyRequirement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A label and the values that will do."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """All of its labels must match."""

    match_label_expressions: tuple[TopologyRequirement, ...] | None = None


class StorageClass(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """How volumes are made."""

    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class VolumeResources(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How many volumes of a driver a node can have."""

    count: Int32 | None = None


class CSINodeDriver(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A driver on a node."""

    name: str = ""
    allocatable: VolumeResources | None = None


class CSINodeSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What CSI drivers say of the node of the same name."""

    metadata: ObjectMeta
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What the driver can do."""

    storage_capacity: bool | None = None


class CSIDriver(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A driver."""

    metadata: ObjectMeta
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """How much of a class there is for some nodes."""

    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | Int64 | float | None = None
    maximum_volume_size: str | Int64 | float | None = None


class AttachmentSource(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What is attached."""

    persistent_volume_name: str | None = None


class AttachmentSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Where, and by whom."""

    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource = AttachmentSource()


class VolumeAttachment(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A volume on its node."""

    metadata: ObjectMeta
    spec: AttachmentSpec = AttachmentSpec()


def _class_name(meta: ObjectMeta, name: str | None) -> str:
    beta = (meta.annotations or {}).get(BETA_CLASS)
    return name or "" if beta is None else beta
