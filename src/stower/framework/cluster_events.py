"""Cluster events: changes of API objects, as input for the queueing hints of plugins.

Compares two versions of an object, and says which properties that scheduling reads have changed.
Must not know which plugins or pods an event concerns.

Source: scheduler framework/events.go.
"""

from collections.abc import Mapping
from enum import Flag, auto
from typing import Final

import msgspec

from stower.framework.freed_room import FreedRoom
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
    """Kinds of change. One event may have several flags. OWN_ flags are changes of the waiting pod
    itself."""

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


# Changes that only an update of the waiting pod itself has.
PENDING_POD_CHANGES: Final = (
    Change.OWN_TOLERATIONS | Change.OWN_LABELS | Change.OWN_ANNOTATIONS | Change.OWN_SCALED_DOWN
    | Change.OWN_GATES_REMOVED | Change.OWN_CLAIMS_MADE
)  # fmt: skip


# Changes of a ResourceClaim.
RESOURCE_CLAIM_CHANGES: Final = (
    Change.RESOURCE_CLAIM_ADDED | Change.RESOURCE_CLAIM_UPDATED | Change.RESOURCE_CLAIM_DELETED
)


class ClusterEvent(msgspec.Struct, frozen=True, gc=False):
    """One change, with the object before and after it. Where the change is one of
    PENDING_POD_CHANGES, `old_pod` and `pod` are the waiting pod itself."""

    change: Change
    old_node: Node | None = None
    node: Node | None = None
    old_pod: Pod | None = None
    pod: Pod | None = None
    # Objects of kinds other than Node and Pod.
    old_object: ApiObject | None = None
    object: ApiObject | None = None
    # The node's allocatable amounts before and after, parsed once for all plugins.
    old_allocatable: dict[str, int] | None = None
    allocatable: dict[str, int] | None = None
    # Device class names by the extended resource that they stand for, where a node has changed.
    class_by_resource: Mapping[str, str] = {}
    # The only row on which more may be free than before, -1 where it may be several.
    row: int = -1
    # The room that a deleted pod has left, where it is known that it left nothing else that
    # NodeResourcesFit looks at.
    freed: FreedRoom | None = None
    # Only pods of at most this priority may be helped: the room was nominated, not taken, and pods
    # of higher priority do not respect nominations.
    priority_max: int | None = None

    @property
    def label(self) -> str:
        """The event's name in metrics. Of several changes, the name of the first flag."""
        first = self.change.value & -self.change.value
        return EVENT_LABELS.get(first, "")


def _event_labels() -> dict[int, str]:
    """Returns the metric label of each flag, as upstream names events: NODE_ADDED is NodeAdd,
    PLACED_POD_DELETED is AssignedPodDelete."""
    verbs = {"Added": "Add", "Deleted": "Delete", "Updated": "Update", "Changed": "Update"}
    found = {}
    for change in Change:
        words = [word.capitalize() for word in (change.name or "").split("_")]
        words[-1] = verbs.get(words[-1], words[-1])
        found[change.value] = "".join(words).replace("PlacedPod", "AssignedPod")
    return found


EVENT_LABELS: Final = _event_labels()


def node_change(old: Node | None, new: Node) -> Change:
    """Returns which properties of a node that scheduling reads have changed. `old` is None for a
    new node."""
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


# Changes of each kind for an added, an updated and a deleted object.
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
    # A deleted slice may have kept its pool from being used; a deleted rule taints no devices.
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
    """Returns the event of a changed node, with its allocatable amounts parsed."""
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
    """Returns which properties of a waiting pod have changed in a way that could make it fit."""
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
    """Returns whether some resource request became smaller or was removed."""
    if old.spec == new.spec and old.status == new.status:
        return False
    before = pod_requests(old, use_status=True)
    after = pod_requests(new, use_status=True)
    return any(name not in after or after[name].cmp(q) < 0 for name, q in before.items())
