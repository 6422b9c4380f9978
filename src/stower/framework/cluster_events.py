"""What happened to the cluster, as plugins see it when they say whether it might help a pod.

Source: scheduler framework/events.go.
"""

from collections.abc import Mapping
from enum import Flag, auto
from typing import Final

import msgspec

from stower.model.kinds import (
    ApiObject,
    CompositePodGroup,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    DeviceClass,
    DeviceTaintRule,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodGroup,
    PodScheduling,
    ResourceClaim,
    ResourceClass,
    ResourceSlice,
    StorageClass,
    VolumeAttachment,
)
from stower.model.resources import node_room, pod_requests


class Change(Flag):
    """Kinds of change; one event may be several."""

    NONE = 0
    NODE_ADDED = auto()
    NODE_ALLOCATABLE = auto()
    NODE_LABELS = auto()
    NODE_TAINTS = auto()
    NODE_DELETED = auto()
    PLACED_POD_ADDED = auto()
    PLACED_POD_LABELS = auto()
    PLACED_POD_DELETED = auto()
    PLACED_POD_SCALED_DOWN = auto()
    NODE_FEATURES = auto()
    CLAIM_ADDED = auto()
    CLAIM_UPDATED = auto()
    VOLUME_ADDED = auto()
    VOLUME_UPDATED = auto()
    CLASS_ADDED = auto()
    CLASS_UPDATED = auto()
    CSI_NODE_ADDED = auto()
    CSI_NODE_UPDATED = auto()
    CSI_DRIVER_UPDATED = auto()
    CAPACITY_ADDED = auto()
    CAPACITY_UPDATED = auto()
    ATTACHMENT_DELETED = auto()
    RESOURCE_CLAIM_ADDED = auto()
    RESOURCE_CLAIM_UPDATED = auto()
    RESOURCE_CLAIM_DELETED = auto()
    DEVICE_CLASS_CHANGED = auto()
    DEVICES_CHANGED = auto()
    POD_GROUP_CHANGED = auto()
    NEGOTIATION_CHANGED = auto()
    RESOURCE_CLASS_CHANGED = auto()
    WARMTH_CHANGED = auto()
    OWN_TOLERATIONS = auto()
    OWN_LABELS = auto()
    OWN_ANNOTATIONS = auto()
    OWN_SCALED_DOWN = auto()
    OWN_GATES_REMOVED = auto()
    OWN_CLAIMS_MADE = auto()


# What only the waiting pod's own update can be.
PENDING_POD_CHANGES: Final = (
    Change.OWN_TOLERATIONS | Change.OWN_LABELS | Change.OWN_ANNOTATIONS | Change.OWN_SCALED_DOWN
    | Change.OWN_GATES_REMOVED | Change.OWN_CLAIMS_MADE
)  # fmt: skip


# About one ResourceClaim.
RESOURCE_CLAIM_CHANGES: Final = (
    Change.RESOURCE_CLAIM_ADDED | Change.RESOURCE_CLAIM_UPDATED | Change.RESOURCE_CLAIM_DELETED
)


class ClusterEvent(msgspec.Struct, frozen=True, gc=False):
    """One change with the objects before and after; `own` ones concern the waiting pod."""

    change: Change
    old_node: Node | None = None
    node: Node | None = None
    old_pod: Pod | None = None
    pod: Pod | None = None
    # Of any other kind.
    old_object: ApiObject | None = None
    object: ApiObject | None = None
    # What the node has to give, before and after: read once for all who ask.
    old_allocatable: dict[str, int] | None = None
    allocatable: dict[str, int] | None = None
    # Device classes by the extended resources that they stand for, where a node has changed.
    class_by_resource: Mapping[str, str] = {}
    # Only pods of at most this priority may be helped: the room was promised, not taken.
    priority_max: int | None = None

    @property
    def label(self) -> str:
        """The event's name in metrics; of several changes the first."""
        first = self.change.value & -self.change.value
        return EVENT_LABELS.get(first, "")


def _labels() -> dict[int, str]:
    """NODE_ADDED is NodeAdd, PLACED_POD_DELETED is AssignedPodDelete, as upstream names them."""
    verbs = {"Added": "Add", "Deleted": "Delete", "Updated": "Update", "Changed": "Update"}
    found = {}
    for change in Change:
        words = [word.capitalize() for word in (change.name or "").split("_")]
        words[-1] = verbs.get(words[-1], words[-1])
        found[change.value] = "".join(words).replace("PlacedPod", "AssignedPod")
    return found


EVENT_LABELS: Final = _labels()


def node_change(old: Node | None, new: Node) -> Change:
    """Which properties of a node that scheduling reads have changed."""
    if old is None:
        return Change.NODE_ADDED
    change = Change.NONE
    if old.status.allocatable != new.status.allocatable:
        change |= Change.NODE_ALLOCATABLE
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        change |= Change.NODE_LABELS
    if (old.status.declared_features or ()) != (new.status.declared_features or ()):
        change |= Change.NODE_FEATURES
    uncordoned = old.spec.unschedulable and not new.spec.unschedulable
    if uncordoned or (old.spec.taints or ()) != (new.spec.taints or ()):
        change |= Change.NODE_TAINTS
    return change


# Added, updated, deleted.
CHANGES_BY_KIND: Final[Mapping[type, tuple[Change, Change, Change]]] = {
    PersistentVolumeClaim: (Change.CLAIM_ADDED, Change.CLAIM_UPDATED, Change.NONE),
    PersistentVolume: (Change.VOLUME_ADDED, Change.VOLUME_UPDATED, Change.NONE),
    StorageClass: (Change.CLASS_ADDED, Change.CLASS_UPDATED, Change.NONE),
    CSINode: (Change.CSI_NODE_ADDED, Change.CSI_NODE_UPDATED, Change.NONE),
    CSIDriver: (Change.NONE, Change.CSI_DRIVER_UPDATED, Change.NONE),
    CSIStorageCapacity: (Change.CAPACITY_ADDED, Change.CAPACITY_UPDATED, Change.NONE),
    VolumeAttachment: (Change.NONE, Change.NONE, Change.ATTACHMENT_DELETED),
    ResourceClaim: (
        Change.RESOURCE_CLAIM_ADDED,
        Change.RESOURCE_CLAIM_UPDATED,
        Change.RESOURCE_CLAIM_DELETED,
    ),
    DeviceClass: (Change.DEVICE_CLASS_CHANGED, Change.DEVICE_CLASS_CHANGED, Change.NONE),
    # A slice that is gone may have held others up; a rule that is gone has tainted devices.
    ResourceSlice: (Change.DEVICES_CHANGED, Change.DEVICES_CHANGED, Change.DEVICES_CHANGED),
    DeviceTaintRule: (Change.NONE, Change.DEVICES_CHANGED, Change.DEVICES_CHANGED),
    ResourceClass: (Change.RESOURCE_CLASS_CHANGED,) * 3,
    PodScheduling: (Change.NEGOTIATION_CHANGED,) * 3,
    PodGroup: (Change.POD_GROUP_CHANGED, Change.POD_GROUP_CHANGED, Change.NONE),
    CompositePodGroup: (Change.POD_GROUP_CHANGED, Change.POD_GROUP_CHANGED, Change.NONE),
}


def node_event(
    change: Change, old: Node | None, new: Node, class_by_resource: Mapping[str, str]
) -> ClusterEvent:
    """A change of a node, with its room read."""
    old_allocatable = node_room(old.status.allocatable) if old is not None else None
    return ClusterEvent(
        change,
        old_node=old,
        node=new,
        old_allocatable=old_allocatable,
        allocatable=node_room(new.status.allocatable),
        class_by_resource=class_by_resource,
    )


def pending_pod_change(old: Pod, new: Pod) -> Change:
    """Which properties of a waiting pod have changed in a way that could make it fit."""
    change = Change.NONE
    if len(old.spec.tolerations or ()) != len(new.spec.tolerations or ()):
        change |= Change.OWN_TOLERATIONS
    if (old.metadata.labels or {}) != (new.metadata.labels or {}):
        change |= Change.OWN_LABELS
    if (old.metadata.annotations or {}) != (new.metadata.annotations or {}):
        change |= Change.OWN_ANNOTATIONS
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        change |= Change.OWN_GATES_REMOVED
    if is_scaled_down(old, new):
        change |= Change.OWN_SCALED_DOWN
    if old.status.resource_claim_statuses != new.status.resource_claim_statuses:
        change |= Change.OWN_CLAIMS_MADE
    return change


def is_scaled_down(old: Pod, new: Pod) -> bool:
    """Whether some request became smaller or went away."""
    if old.spec == new.spec and old.status == new.status:
        return False
    before = pod_requests(old, use_status=True)
    after = pod_requests(new, use_status=True)
    return any(name not in after or after[name].cmp(q) < 0 for name, q in before.items())
