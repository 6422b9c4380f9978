"""Types of an explanation that programs read: its class, codes of reasons and of changes, amounts.

The spelling of classes and codes is stable. docs/explanation.md lists them. Must not know which
plugins exist.
"""

import re
from enum import StrEnum
from typing import Any, Final

import msgspec

from stower.model.kinds import KIND_BY_VIEW


class ExplanationClass(StrEnum):
    """What it takes until the pod runs; docs/explanation.md has the table that decides."""

    NEVER = "never"
    BLOCKED = "blocked"
    WAITING = "waiting"
    READY = "ready"


class ReasonCode(StrEnum):
    """Why a pod, a node or a group is refused. REASON_TEXTS has the text of each."""

    INSUFFICIENT_RESOURCE = "InsufficientResource"
    TOO_MANY_PODS = "TooManyPods"
    INVALID_POD_LEVEL_REQUEST = "InvalidPodLevelRequest"
    CLAIM_NOT_REFERENCED = "ClaimNotReferenced"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    UNTOLERATED_TAINT = "UntoleratedTaint"
    NODE_NAME_MISMATCH = "NodeNameMismatch"
    NODE_AFFINITY_MISMATCH = "NodeAffinityMismatch"
    ENFORCED_NODE_AFFINITY_MISMATCH = "EnforcedNodeAffinityMismatch"
    NODE_AFFINITY_CONFLICT = "NodeAffinityConflict"
    NODE_PORT_CONFLICT = "NodePortConflict"
    TOPOLOGY_SPREAD_MISMATCH = "TopologySpreadMismatch"
    TOPOLOGY_LABEL_MISSING = "TopologyLabelMissing"
    POD_AFFINITY_MISMATCH = "PodAffinityMismatch"
    POD_ANTI_AFFINITY_MISMATCH = "PodAntiAffinityMismatch"
    EXISTING_POD_ANTI_AFFINITY = "ExistingPodAntiAffinity"
    NODE_FEATURES_MISSING = "NodeFeaturesMissing"
    DISK_CONFLICT = "DiskConflict"
    READ_WRITE_ONCE_POD_CONFLICT = "ReadWriteOncePodConflict"
    TOO_MANY_VOLUMES = "TooManyVolumes"
    VOLUME_ZONE_MISMATCH = "VolumeZoneMismatch"
    VOLUME_NODE_AFFINITY_MISMATCH = "VolumeNodeAffinityMismatch"
    VOLUME_NOT_AVAILABLE = "VolumeNotAvailable"
    VOLUME_MISSING = "VolumeMissing"
    STORAGE_EXHAUSTED = "StorageExhausted"
    VOLUME_UNBOUND = "VolumeUnbound"
    OBJECT_NOT_FOUND = "ObjectNotFound"
    SCHEDULING_GATED = "SchedulingGated"
    CLAIM_NOT_CREATED = "ClaimNotCreated"
    DEVICES_NOT_AVAILABLE = "DevicesNotAvailable"
    CLAIM_NOT_AVAILABLE_ON_NODE = "ClaimNotAvailableOnNode"
    INVALID_RESOURCE_POOL = "InvalidResourcePool"
    DEVICE_SEARCH_EXHAUSTED = "DeviceSearchExhausted"
    EXTENDED_RESOURCE_MISMATCH = "ExtendedResourceMismatch"
    EXTENDED_CLAIM_IN_USE = "ExtendedClaimInUse"
    DEVICE_SHARES_DROPPED = "DeviceSharesDropped"
    DEVICE_NOT_READY = "DeviceNotReady"
    DRIVER_INFORMATION_PENDING = "DriverInformationPending"
    DRIVER_ALLOCATION_PENDING = "DriverAllocationPending"
    DRIVER_DEALLOCATION_PENDING = "DriverDeallocationPending"
    DRIVERS_NOT_SIMULATED = "DriversNotSimulated"
    FORMER_NEGOTIATION_PENDING = "FormerNegotiationPending"
    NEGOTIATION_TURN_PENDING = "NegotiationTurnPending"
    RESOURCE_CLASS_EXCLUDES_NODE = "ResourceClassExcludesNode"
    NEGOTIATED_DEVICES_NOT_AVAILABLE = "NegotiatedDevicesNotAvailable"
    NODE_NOT_SELECTED = "NodeNotSelected"
    GROUP_SELECTION_PENDING = "GroupSelectionPending"
    GROUP_DEVICES_NOT_AVAILABLE = "GroupDevicesNotAvailable"
    OUTSIDE_WARM_POOL = "OutsideWarmPool"
    IMAGES_MISSING = "ImagesMissing"
    VM_ROOM_INSUFFICIENT = "VMRoomInsufficient"
    GROUP_NOT_FOUND = "GroupNotFound"
    GROUP_NOT_MADE = "GroupNotMade"
    GROUP_MEMBERS_MISSING = "GroupMembersMissing"
    GROUP_GATED = "GroupGated"
    GROUP_ROOM_INSUFFICIENT = "GroupRoomInsufficient"
    GROUP_DOMAIN_UNKNOWN = "GroupDomainUnknown"
    GROUP_INVALID = "GroupInvalid"
    COMBINED_CONSTRAINTS = "CombinedConstraints"
    PREEMPTION_PENDING = "PreemptionPending"
    PREEMPTION_NOT_HELPFUL = "PreemptionNotHelpful"
    POD_EVICTED = "PodEvicted"
    NO_BINDER = "NoBinder"
    NO_NODES = "NoNodes"
    OTHER = "Other"


# Parts of the reasons' texts, and the code that each stands for; the first that is found counts.
REASON_TEXTS: Final = (
    ("(missing required label)", ReasonCode.TOPOLOGY_LABEL_MISSING),
    ("waiting for its pod group to be made", ReasonCode.GROUP_NOT_MADE),
    ("tree to meet quorum", ReasonCode.GROUP_MEMBERS_MISSING),
    ('pod group "', ReasonCode.GROUP_NOT_FOUND),
    ("waiting for minCount pods", ReasonCode.GROUP_MEMBERS_MISSING),
    ("All pods of the group are gated", ReasonCode.GROUP_GATED),
    ("group has its minimum; there is no room", ReasonCode.GROUP_ROOM_INSUFFICIENT),
    ("group has its minimum; its other pods are", ReasonCode.GROUP_ROOM_INSUFFICIENT),
    ("no node is feasible for one of its pods", ReasonCode.GROUP_ROOM_INSUFFICIENT),
    ("cannot determine domain", ReasonCode.GROUP_DOMAIN_UNKNOWN),
    ("all pods in a single pod group should", ReasonCode.GROUP_INVALID),
    ("didn't satisfy plugin", ReasonCode.COMBINED_CONSTRAINTS),
    ("ongoing preemption", ReasonCode.PREEMPTION_PENDING),
    ("spares other pods for a while", ReasonCode.PREEMPTION_PENDING),
    ("No preemption victims found", ReasonCode.PREEMPTION_NOT_HELPFUL),
    ("no new claims to deallocate", ReasonCode.PREEMPTION_NOT_HELPFUL),
    ("Preemption is not helpful", ReasonCode.PREEMPTION_NOT_HELPFUL),
    ("the pod is being evicted", ReasonCode.POD_EVICTED),
    ("no Bind plugin binds the pod", ReasonCode.NO_BINDER),
    ("no nodes available to schedule pods", ReasonCode.NO_NODES),
    ("Not enough resources for Pod", ReasonCode.VM_ROOM_INSUFFICIENT),
    ("without room beside the pods", ReasonCode.VM_ROOM_INSUFFICIENT),
    ("Insufficient", ReasonCode.INSUFFICIENT_RESOURCE),
    ("Too many pods", ReasonCode.TOO_MANY_PODS),
    ("pod level request for", ReasonCode.INVALID_POD_LEVEL_REQUEST),
    ("not referenced by any container", ReasonCode.CLAIM_NOT_REFERENCED),
    ("were unschedulable", ReasonCode.NODE_UNSCHEDULABLE),
    ("untolerated taint", ReasonCode.UNTOLERATED_TAINT),
    ("didn't match the requested node name", ReasonCode.NODE_NAME_MISMATCH),
    ("Pod's node affinity/selector", ReasonCode.NODE_AFFINITY_MISMATCH),
    ("scheduler-enforced node affinity", ReasonCode.ENFORCED_NODE_AFFINITY_MISMATCH),
    ("pod affinity terms conflict", ReasonCode.NODE_AFFINITY_CONFLICT),
    ("free ports", ReasonCode.NODE_PORT_CONFLICT),
    ("topology spread constraints", ReasonCode.TOPOLOGY_SPREAD_MISMATCH),
    ("existing pods anti-affinity", ReasonCode.EXISTING_POD_ANTI_AFFINITY),
    ("pod anti-affinity rules", ReasonCode.POD_ANTI_AFFINITY_MISMATCH),
    ("pod affinity rules", ReasonCode.POD_AFFINITY_MISMATCH),
    ("Pod's required features", ReasonCode.NODE_FEATURES_MISSING),
    ("no available disk", ReasonCode.DISK_CONFLICT),
    ("ReadWriteOncePod", ReasonCode.READ_WRITE_ONCE_POD_CONFLICT),
    ("max volume count", ReasonCode.TOO_MANY_VOLUMES),
    ("no available volume zone", ReasonCode.VOLUME_ZONE_MISMATCH),
    ("PersistentVolume's node affinity", ReasonCode.VOLUME_NODE_AFFINITY_MISMATCH),
    ("available persistent volumes to bind", ReasonCode.VOLUME_NOT_AVAILABLE),
    ("bound to non-existent pv", ReasonCode.VOLUME_MISSING),
    ("enough free storage", ReasonCode.STORAGE_EXHAUSTED),
    ("unbound immediate", ReasonCode.VOLUME_UNBOUND),
    ("scheduling gates", ReasonCode.SCHEDULING_GATED),
    ("ResourceClaim not created yet", ReasonCode.CLAIM_NOT_CREATED),
    ("waiting for ephemeral volume controller", ReasonCode.CLAIM_NOT_CREATED),
    ("(pod is not owner)", ReasonCode.VOLUME_NOT_AVAILABLE),
    ("cannot allocate all claims", ReasonCode.DEVICES_NOT_AVAILABLE),
    ("resourceclaim not available on the node", ReasonCode.CLAIM_NOT_AVAILABLE_ON_NODE),
    ("invalid resource pools", ReasonCode.INVALID_RESOURCE_POOL),
    ("search budget exhausted", ReasonCode.DEVICE_SEARCH_EXHAUSTED),
    ("cannot fit resource", ReasonCode.EXTENDED_RESOURCE_MISMATCH),
    ("cannot schedule extended resource claim", ReasonCode.EXTENDED_CLAIM_IN_USE),
    ("dropped the device shares", ReasonCode.DEVICE_SHARES_DROPPED),
    ("waiting for binding conditions for device", ReasonCode.DEVICE_NOT_READY),
    ("driver to provide information", ReasonCode.DRIVER_INFORMATION_PENDING),
    ("driver to allocate resource", ReasonCode.DRIVER_ALLOCATION_PENDING),
    ("driver refused all nodes that were selected", ReasonCode.DRIVER_ALLOCATION_PENDING),
    ("selected node withdrawn", ReasonCode.DRIVER_ALLOCATION_PENDING),
    ("driver to deallocate resource", ReasonCode.DRIVER_DEALLOCATION_PENDING),
    ("requested deallocation of", ReasonCode.DRIVER_DEALLOCATION_PENDING),
    ("releasing the reservation of", ReasonCode.DRIVER_DEALLOCATION_PENDING),
    ("drivers are not simulated", ReasonCode.DRIVERS_NOT_SIMULATED),
    ("waiting for podscheduling", ReasonCode.FORMER_NEGOTIATION_PENDING),
    ("is tried first", ReasonCode.NEGOTIATION_TURN_PENDING),
    ("excluded by resource class", ReasonCode.RESOURCE_CLASS_EXCLUDES_NODE),
    ("node(s) on which", ReasonCode.NEGOTIATED_DEVICES_NOT_AVAILABLE),
    ("no suitable node for", ReasonCode.NEGOTIATED_DEVICES_NOT_AVAILABLE),
    ("other than the selected one", ReasonCode.NODE_NOT_SELECTED),
    ("selected for all pods of the group", ReasonCode.GROUP_SELECTION_PENDING),
    ("no suitable nodes for all pods of the group", ReasonCode.GROUP_DEVICES_NOT_AVAILABLE),
    ("outside the user's warm pool", ReasonCode.OUTSIDE_WARM_POOL),
    ("without the warm pool's images", ReasonCode.IMAGES_MISSING),
    ("not found", ReasonCode.OBJECT_NOT_FOUND),
    ("were refused for other reasons", ReasonCode.OTHER),
)

# Refusals that depend on the pod and on the kind of a node, and not on other pods.
NODE_KIND_CODES: Final = frozenset(
    {
        ReasonCode.INSUFFICIENT_RESOURCE,  # with all pods gone
        ReasonCode.TOO_MANY_PODS,
        ReasonCode.UNTOLERATED_TAINT,  # but of a node's condition: STATE_TAINT
        ReasonCode.NODE_NAME_MISMATCH,
        ReasonCode.NODE_AFFINITY_MISMATCH,
        ReasonCode.ENFORCED_NODE_AFFINITY_MISMATCH,
        ReasonCode.NODE_AFFINITY_CONFLICT,
        ReasonCode.NODE_FEATURES_MISSING,
        ReasonCode.TOPOLOGY_LABEL_MISSING,
        ReasonCode.VOLUME_ZONE_MISMATCH,
        ReasonCode.VOLUME_NODE_AFFINITY_MISMATCH,
        ReasonCode.DEVICES_NOT_AVAILABLE,  # with all devices free
    }
)
STATE_TAINT: Final = "node.kubernetes.io/"  # the prefix of taints that tell a node's condition

# Refusals that end without anybody's doing: a controller, a driver or a kubelet is at work.
WAITING_CODES: Final = frozenset(
    {
        ReasonCode.CLAIM_NOT_CREATED,
        ReasonCode.DEVICE_NOT_READY,
        ReasonCode.DRIVER_INFORMATION_PENDING,
        ReasonCode.DRIVER_ALLOCATION_PENDING,
        ReasonCode.DRIVER_DEALLOCATION_PENDING,
        ReasonCode.FORMER_NEGOTIATION_PENDING,
        ReasonCode.NEGOTIATION_TURN_PENDING,
        ReasonCode.GROUP_MEMBERS_MISSING,
        ReasonCode.GROUP_SELECTION_PENDING,
        ReasonCode.IMAGES_MISSING,
        ReasonCode.NODE_NOT_SELECTED,
        ReasonCode.POD_EVICTED,
        ReasonCode.PREEMPTION_PENDING,
        ReasonCode.VOLUME_UNBOUND,
    }
)


def code_of(reason: str) -> ReasonCode:
    """Returns the code of a reason's text, OTHER for a text of a plugin of a user's own."""
    return next((code for text, code in REASON_TEXTS if text in reason), ReasonCode.OTHER)


class Shortage(msgspec.Struct, frozen=True):
    """An amount that a node lacks for the pod, in the scheduler's unit: milli for cpu, bytes for
    memory and storage, else one."""

    resource: str
    requested: int
    free: int


class Awaited(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An object that a pod waits for. `object`: namespace/name, or the name alone; `since`,
    `until`: RFC 3339, from when on, and when the wait ends at the latest, where that is known;
    `missing`: of a group, the number of pods that it lacks."""

    kind: str
    object: str
    since: str = ""
    until: str = ""
    missing: int = 0


class ChangeCode(StrEnum):
    """What one step of a change does."""

    REMOVE_SCHEDULING_GATE = "RemoveSchedulingGate"
    CHANGE_REQUEST = "ChangeRequest"
    CHANGE_TOLERATIONS = "ChangeTolerations"
    CHANGE_NODE_SELECTION = "ChangeNodeSelection"
    CHANGE_AFFINITY = "ChangeAffinity"
    CHANGE_TOPOLOGY_SPREAD = "ChangeTopologySpread"
    CHANGE_HOST_PORT = "ChangeHostPort"
    CHANGE_POD = "ChangePod"
    REMOVE_POD = "RemovePod"
    CHANGE_ALLOCATABLE = "ChangeAllocatable"
    CHANGE_NODE_LABELS = "ChangeNodeLabels"
    CHANGE_TAINTS = "ChangeTaints"
    UNCORDON_NODE = "UncordonNode"
    CHANGE_NODE = "ChangeNode"
    CREATE_OBJECT = "CreateObject"
    CHANGE_OBJECT = "ChangeObject"


class ChangeStep(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One field of one object that changes. `object`: namespace/name, or the name alone; `field`:
    the path as in the API, with keys that are no names in brackets, as `metadata.labels[a.b/c]`; ""
    where the whole object is created (`to` is the object) or removed; `from`, `to`: the values,
    absent where there is none."""

    code: ChangeCode
    kind: str
    object: str
    field: str = ""
    before: Any = msgspec.field(default=None, name="from")
    after: Any = msgspec.field(default=None, name="to")


# The beginning of a field's path, by kind, and the code of a change there; the first counts.
FIELD_CODES: Final = (
    ("Pod", "spec.schedulingGates", ChangeCode.REMOVE_SCHEDULING_GATE),
    ("Pod", "spec.tolerations", ChangeCode.CHANGE_TOLERATIONS),
    ("Pod", "spec.nodeSelector", ChangeCode.CHANGE_NODE_SELECTION),
    ("Pod", "spec.nodeName", ChangeCode.CHANGE_NODE_SELECTION),
    ("Pod", "spec.affinity.nodeAffinity", ChangeCode.CHANGE_NODE_SELECTION),
    ("Pod", "spec.affinity", ChangeCode.CHANGE_AFFINITY),
    ("Pod", "spec.topologySpreadConstraints", ChangeCode.CHANGE_TOPOLOGY_SPREAD),
    ("Pod", "", ChangeCode.CHANGE_POD),
    ("Node", "status.allocatable", ChangeCode.CHANGE_ALLOCATABLE),
    ("Node", "metadata.labels", ChangeCode.CHANGE_NODE_LABELS),
    ("Node", "spec.taints", ChangeCode.CHANGE_TAINTS),
    ("Node", "spec.unschedulable", ChangeCode.UNCORDON_NODE),
    ("Node", "", ChangeCode.CHANGE_NODE),
    ("", "", ChangeCode.CHANGE_OBJECT),
)


_NAME: Final = re.compile(r"\w+\Z", re.ASCII)  # of a field: other keys are in brackets


def change_code(kind: str, field: str) -> ChangeCode:
    """Returns the code of a change of a field."""
    if kind == "Pod" and ".resources." in f"{field}.":
        return ChangeCode.CHANGE_REQUEST
    if kind == "Pod" and ".ports" in field:
        return ChangeCode.CHANGE_HOST_PORT
    return next(
        code for of, start, code in FIELD_CODES if of in ("", kind) and field.startswith(start)
    )


def changed_fields(kind: str, name: str, old: Any, new: Any) -> list[ChangeStep]:
    """Returns the fields in which two versions of an object differ, in the order of paths. Lists
    differ item by item where they have the same length, else as a whole. `old`: None for an object
    that is created."""
    if old is None:
        version = KIND_BY_VIEW[type(new)].api_version
        made = {"apiVersion": version, "kind": kind, **msgspec.to_builtins(new)}
        return [ChangeStep(ChangeCode.CREATE_OBJECT, kind, name, "", None, made)]
    found: list[ChangeStep] = []

    def walk(field: str, before: Any, after: Any) -> None:
        if before == after:
            return
        if isinstance(before, dict) and isinstance(after, dict):
            for key in sorted({*before, *after}):
                inner = f".{key}" if _NAME.match(key) else f"[{key}]"
                walk(f"{field}{inner}" if field else key, before.get(key), after.get(key))
        elif (
            isinstance(before, list | tuple)
            and isinstance(after, list | tuple)
            and len(before) == len(after)
        ):
            for i, (one, other) in enumerate(zip(before, after, strict=True)):
                walk(f"{field}[{i}]", one, other)
        else:
            found.append(ChangeStep(change_code(kind, field), kind, name, field, before, after))

    walk("", msgspec.to_builtins(old), msgspec.to_builtins(new))
    return found
