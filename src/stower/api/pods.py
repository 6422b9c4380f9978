"""Prepares pods on a write: the fields that the server sets, and the subresources of pods alone.

Source: pkg/registry/core/pod/strategy.go and storage, Kubernetes 1.36.
"""

from typing import Any, Final

from stower.api.calls import Call
from stower.api.qos import qos_class

Object = dict[str, Any]
CLAIMED: Final = "nodeAllocatableResourceClaimStatuses"


def prepare_create(call: Call, item: Object) -> None:
    """The status of a new pod."""
    item["status"] = {"phase": "Pending", "qosClass": qos_class(item["spec"])}
    if item["spec"].get("schedulingGates"):
        item["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": call.now,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def prepare_update(call: Call, new: Object, old: Object) -> None:
    """Nothing of the status changes."""
    if call.subresource in ("resize", "ephemeralcontainers"):
        prepare_part(call, new, old)
        return
    new["status"] = dict(old["status"])


def prepare_status(call: Call, new: Object, old: Object) -> None:
    """Metadata that a status update cannot change; the QoS class stays."""
    meta = new["metadata"]
    for name in ("ownerReferences",):
        meta.pop(name, None)
        if name in old["metadata"]:
            meta[name] = old["metadata"][name]
    status = new["status"]
    if not (old.get("status") or {}).get(CLAIMED):
        status.pop(CLAIMED, None)  # behind DRANodeAllocatableResources, which is off by default
    if "qosClass" not in status and "qosClass" in (old.get("status") or {}):
        status["qosClass"] = old["status"]["qosClass"]


def set_condition(status: Object, condition: Object, now: str) -> bool:
    """Set a condition of a pod; False where it was so already."""
    conditions = status.get("conditions") or []
    before = next((c for c in conditions if c.get("type") == condition["type"]), None)
    made: Object = {"lastProbeTime": None, **condition}
    if before is not None and before.get("status") == condition["status"]:
        made["lastTransitionTime"] = before.get("lastTransitionTime")
    else:
        made["lastTransitionTime"] = now
    if before is None:
        status["conditions"] = [*conditions, made]
        return True
    if made == before:
        return False
    status["conditions"] = [made if c is before else c for c in conditions]
    return True


def prepare_part(call: Call, new: Object, old: Object) -> None:
    """Of a resize only resources change, of ephemeral containers only those."""
    spec = dict(old["spec"])
    wanted = new["spec"]
    if call.subresource == "ephemeralcontainers":
        spec["ephemeralContainers"] = wanted.get("ephemeralContainers") or []
        if not spec["ephemeralContainers"]:
            del spec["ephemeralContainers"]
    else:
        if "resources" in wanted:
            spec["resources"] = wanted["resources"]
        for field in ("containers", "initContainers"):
            if field in spec:
                spec[field] = _resized(spec[field], wanted.get(field) or [])
    new["spec"] = spec
    new["status"] = dict(old["status"])
    meta = new["metadata"]
    kept = {k: v for k, v in old["metadata"].items() if k != "managedFields"}
    for name in [n for n in meta if n not in kept]:
        del meta[name]
    meta.update(kept)


def _resized(containers: list[Object], wanted: list[Object]) -> list[Object]:
    if [c.get("name") for c in containers] != [c.get("name") for c in wanted]:
        return wanted
    made = []
    for old, new in zip(containers, wanted, strict=True):
        changed = {**old, "resources": new["resources"]}
        if "resizePolicy" in new:
            changed["resizePolicy"] = new["resizePolicy"]
        made.append(changed)
    return made
