"""Prepares pods on a write: the fields that the server sets, and the subresources of pods alone.

Source: pkg/registry/core/pod/strategy.go and storage, Kubernetes 1.36.
"""

from typing import Any

from stower.api.app_armor import copy_profiles
from stower.api.calls import Call
from stower.api.disabled_fields import drop_from_spec, drop_from_status
from stower.api.label_keys import merge_label_keys
from stower.api.qos import qos_class

Object = dict[str, Any]


def prepare_create(call: Call, item: Object) -> None:
    """The status of a new pod."""
    item["status"] = {"phase": "Pending", "qosClass": qos_class(item["spec"])}
    drop_from_spec(item["spec"])
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
    merge_label_keys(item)
    if item["metadata"].get("annotations"):
        copy_profiles(item)


def prepare_update(call: Call, new: Object, old: Object) -> None:
    """Nothing of the status changes."""
    if call.subresource in ("resize", "ephemeralcontainers"):
        prepare_part(call, new, old)
    else:
        new["status"] = dict(old["status"])
    drop_from_spec(new["spec"], old["spec"])


def prepare_status(call: Call, new: Object, old: Object) -> None:
    """Metadata that a status update cannot change; the QoS class stays."""
    meta = new["metadata"]
    for name in ("ownerReferences",):
        meta.pop(name, None)
        if name in old["metadata"]:
            meta[name] = old["metadata"][name]
    status, before = new["status"], old.get("status") or {}
    drop_from_status(status, before)
    if "qosClass" not in status and "qosClass" in before:
        status["qosClass"] = before["qosClass"]
    _keep_observed_generations(status, before)


def _keep_observed_generations(status: Object, before: Object) -> None:
    """A writer that does not know observedGeneration leaves it as it was."""
    if not status.get("observedGeneration") and before.get("observedGeneration"):
        status["observedGeneration"] = before["observedGeneration"]
    known: dict[str, list[int]] = {}
    for condition in before.get("conditions") or ():
        found = condition.get("observedGeneration", 0)
        known.setdefault(condition.get("type", ""), []).append(found)
    for condition in status.get("conditions") or ():
        given = known.get(condition.get("type", ""))
        generation = given.pop(0) if given else 0
        if generation and not condition.get("observedGeneration"):
            condition["observedGeneration"] = generation


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
    """Of a resize only resources change, of ephemeral containers only those.

    A resize that adds or removes containers is left as it is, for its rules to refuse.
    """
    spec = dict(old["spec"])
    wanted = new["spec"]
    if call.subresource == "ephemeralcontainers":
        spec["ephemeralContainers"] = wanted.get("ephemeralContainers") or []
        if not spec["ephemeralContainers"]:
            del spec["ephemeralContainers"]
    else:
        fields = ("containers", "initContainers")
        if any(len(wanted.get(f) or ()) != len(spec.get(f) or ()) for f in fields):
            return
        spec.pop("resources", None)
        if "resources" in wanted:
            spec["resources"] = wanted["resources"]
        for field in fields:
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
    made = []
    for old, new in zip(containers, wanted, strict=True):
        if old.get("name") != new.get("name"):
            return wanted
        changed = {**old, "resources": new["resources"]}
        changed.pop("resizePolicy", None)
        if "resizePolicy" in new:
            changed["resizePolicy"] = new["resizePolicy"]
        made.append(changed)
    return made
