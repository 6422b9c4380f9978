"""Typed views of API objects, one API kind per file; scheduling uses the kinds in KINDS only."""

from typing import Final, get_args

import msgspec

from stower.model.kinds.composite_pod_group import CompositePodGroup
from stower.model.kinds.controllers import ReplicaSet, ReplicationController, StatefulSet
from stower.model.kinds.device_class import DeviceClass
from stower.model.kinds.device_taint_rule import DeviceTaintRule
from stower.model.kinds.namespace import Namespace
from stower.model.kinds.node import Node
from stower.model.kinds.pod import Pod
from stower.model.kinds.pod_disruption_budget import PodDisruptionBudget
from stower.model.kinds.pod_group import PodGroup
from stower.model.kinds.pod_scheduling import PodScheduling
from stower.model.kinds.priority_class import PriorityClass
from stower.model.kinds.resource_claim import ResourceClaim
from stower.model.kinds.resource_class import ResourceClass
from stower.model.kinds.resource_slice import ResourceSlice
from stower.model.kinds.service import Service
from stower.model.kinds.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from stower.model.kinds.virtual_machine import VirtualMachine, VirtualMachineMigration
from stower.model.kinds.warm_pool import WarmPool


class Kind(msgspec.Struct, frozen=True):
    """One API kind: its group, version and name, whether it is namespaced, its typed view; in which
    other versions the same view reads it."""

    api_version: str
    name: str
    plural: str
    namespaced: bool
    view: type
    also: tuple[str, ...] = ()


KINDS: Final = (
    Kind("v1", "Node", "nodes", False, Node),
    Kind("v1", "Pod", "pods", True, Pod),
    Kind("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", False, PriorityClass),
    Kind("v1", "Namespace", "namespaces", False, Namespace),
    Kind("v1", "Service", "services", True, Service),
    Kind("v1", "ReplicationController", "replicationcontrollers", True, ReplicationController),
    Kind("apps/v1", "ReplicaSet", "replicasets", True, ReplicaSet),
    Kind("apps/v1", "StatefulSet", "statefulsets", True, StatefulSet),
    Kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, PersistentVolumeClaim),
    Kind("v1", "PersistentVolume", "persistentvolumes", False, PersistentVolume),
    Kind("storage.k8s.io/v1", "StorageClass", "storageclasses", False, StorageClass),
    Kind("storage.k8s.io/v1", "CSINode", "csinodes", False, CSINode),
    Kind("storage.k8s.io/v1", "CSIDriver", "csidrivers", False, CSIDriver),
    Kind(
        "storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities", True, CSIStorageCapacity
    ),
    Kind("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", False, VolumeAttachment),
    Kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices", False, ResourceSlice),
    Kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", True, ResourceClaim),
    Kind("resource.k8s.io/v1", "DeviceClass", "deviceclasses", False, DeviceClass),
    Kind("resource.k8s.io/v1beta2", "DeviceTaintRule", "devicetaintrules", False, DeviceTaintRule),
    Kind(
        "scheduling.k8s.io/v1beta1",
        "PodGroup",
        "podgroups",
        True,
        PodGroup,
        ("scheduling.k8s.io/v1alpha3", "scheduling.k8s.io/v1alpha2", "stower.dev/v1"),
    ),
    Kind(
        "scheduling.k8s.io/v1alpha3",
        "CompositePodGroup",
        "compositepodgroups",
        True,
        CompositePodGroup,
        ("stower.dev/v1",),
    ),
    Kind("stower.dev/v1", "ResourceClass", "resourceclasses", False, ResourceClass),
    Kind("stower.dev/v1", "PodScheduling", "podschedulings", True, PodScheduling),
    Kind("stower.dev/v1", "WarmPool", "warmpools", True, WarmPool),
    Kind("vm.neon.tech/v1", "VirtualMachine", "virtualmachines", True, VirtualMachine),
    Kind(
        "vm.neon.tech/v1",
        "VirtualMachineMigration",
        "virtualmachinemigrations",
        True,
        VirtualMachineMigration,
    ),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", True, PodDisruptionBudget),
)

KIND_BY_VIEW: Final = {kind.view: kind for kind in KINDS}
KIND_BY_NAME: Final = {
    (version, kind.name): kind for kind in KINDS for version in (kind.api_version, *kind.also)
}

# Whom a controller or a service selects, and what a namespace is called.
Selecting = Namespace | Service | ReplicationController | ReplicaSet | StatefulSet
SELECTING: Final = get_args(Selecting)
# Of which volumes are made.
Storage = (
    PersistentVolumeClaim | PersistentVolume | StorageClass | CSINode | CSIDriver
    | CSIStorageCapacity | VolumeAttachment
)  # fmt: skip
STORAGE: Final = get_args(Storage)
# What devices there are, and who has them.
DeviceObject = ResourceSlice | ResourceClaim | DeviceClass | DeviceTaintRule
DEVICES: Final = get_args(DeviceObject)
# Which pods are placed together.
GroupObject = PodGroup | CompositePodGroup
GROUPS: Final = get_args(GroupObject)
# What is said about devices that nobody lists.
Negotiating = ResourceClass | PodScheduling
NEGOTIATING: Final = get_args(Negotiating)
# All that the scheduler listens to beside nodes and pods.
Background = (
    Selecting | PodDisruptionBudget | Storage | DeviceObject | GroupObject | Negotiating
    | VirtualMachine | VirtualMachineMigration | WarmPool
)  # fmt: skip
BACKGROUND: Final = get_args(Background)
ApiObject = Node | Pod | PriorityClass | Background

__all__ = [
    "BACKGROUND",
    "DEVICES",
    "GROUPS",
    "KINDS",
    "KIND_BY_NAME",
    "KIND_BY_VIEW",
    "NEGOTIATING",
    "SELECTING",
    "STORAGE",
    "ApiObject",
    "Background",
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "CompositePodGroup",
    "DeviceClass",
    "DeviceObject",
    "DeviceTaintRule",
    "GroupObject",
    "Kind",
    "Namespace",
    "Negotiating",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "PodGroup",
    "PodScheduling",
    "PriorityClass",
    "ReplicaSet",
    "ReplicationController",
    "ResourceClaim",
    "ResourceClass",
    "ResourceSlice",
    "Selecting",
    "Service",
    "StatefulSet",
    "Storage",
    "StorageClass",
    "VirtualMachine",
    "VirtualMachineMigration",
    "VolumeAttachment",
    "WarmPool",
]  # fmt: skip
