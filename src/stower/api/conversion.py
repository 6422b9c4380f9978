"""Converts objects between a served version and the stored version of their kind.

events.k8s.io Events are stored as core Events, HorizontalPodAutoscalers of version 1 as version 2;
custom resources as custom_resources.py says.
Source: pkg/apis/events/v1/conversion.go, pkg/apis/autoscaling/v1/conversion.go, Kubernetes 1.36.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from stower.api.registry import Resource

Object = dict[str, Any]
_RENAMED: Final = (
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


def _renamed(item: Object, names: dict[str, str]) -> Object:
    return {names.get(name, name): value for name, value in item.items()}


def event_from_new(item: Object) -> Object:
    """A core event of an events.k8s.io one."""
    made = _renamed(item, dict(_RENAMED))
    made.setdefault("involvedObject", {})
    made.setdefault("source", {})
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        made.setdefault(name, None)
    made.setdefault("reportingComponent", "")
    made.setdefault("reportingInstance", "")
    return made


def event_to_new(item: Object) -> Object:
    """An events.k8s.io event of a core one."""
    made = _renamed(item, {old: new for new, old in _RENAMED})
    for name in ("reportingController", "reportingInstance"):
        if made.get(name) == "":
            del made[name]
    made.setdefault("eventTime", None)
    for name in ("deprecatedFirstTimestamp", "deprecatedLastTimestamp"):
        made.setdefault(name, None)
    return made


# What version 1 of an autoscaler has no field for is in annotations. Upstream spells metrics there
# in a form of its own; here they are as version 2 has them.
_IN_ANNOTATIONS: Final = (
    ("spec", "metrics", "autoscaling.alpha.kubernetes.io/metrics"),
    ("spec", "behavior", "autoscaling.alpha.kubernetes.io/behavior"),
    ("status", "currentMetrics", "autoscaling.alpha.kubernetes.io/current-metrics"),
    ("status", "conditions", "autoscaling.alpha.kubernetes.io/conditions"),
)
CPU_PERCENT: Final = 80  # where an autoscaler names no metric at all


def _cpu(percent: Any) -> Object:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _is_cpu(metric: Any, part: str) -> bool:
    source = metric.get("resource") if isinstance(metric, dict) else None
    if not isinstance(source, dict) or source.get("name") != "cpu":
        return False
    return "averageUtilization" in (source.get(part) or {})


def autoscaler_from_v1(item: Object) -> Object:
    """A version 2 autoscaler of a version 1 one."""
    made = {**item, "metadata": dict(item.get("metadata") or {})}
    annotations = dict(made["metadata"].get("annotations") or {})
    for part, field, name in _IN_ANNOTATIONS:
        if name in annotations:
            try:
                value = msgspec.json.decode(annotations[name])
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            made[part] = {**(made.get(part) or {}), field: value}
            del annotations[name]
    if annotations or "annotations" in made["metadata"]:
        made["metadata"]["annotations"] = annotations
        if not annotations:
            del made["metadata"]["annotations"]
    spec = made["spec"] = dict(made.get("spec") or {})
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    if percent is not None:
        spec["metrics"] = [_cpu(percent), *(spec.get("metrics") or [])]
    elif not spec.get("metrics"):
        spec["metrics"] = [_cpu(CPU_PERCENT)]
    status = made["status"] = dict(made.get("status") or {})
    percent = status.pop("currentCPUUtilizationPercentage", None)
    if percent is not None:
        current = {"name": "cpu", "current": {"averageUtilization": percent}}
        shown = {"type": "Resource", "resource": current}
        status["currentMetrics"] = [shown, *(status.get("currentMetrics") or [])]
    status.setdefault("desiredReplicas", 0)
    status.setdefault("currentMetrics", None)
    return made


def autoscaler_to_v1(item: Object) -> Object:
    """A version 1 autoscaler of a version 2 one."""
    made = {
        **item,
        "metadata": dict(item["metadata"]),
        "spec": dict(item.get("spec") or {}),
        "status": dict(item.get("status") or {}),
    }
    for part, field, name, target in (
        ("spec", "metrics", "targetCPUUtilizationPercentage", "target"),
        ("status", "currentMetrics", "currentCPUUtilizationPercentage", "current"),
    ):
        values = made[part].get(field) or []
        first = next((v for v in values if _is_cpu(v, target)), None)
        if first is not None:
            made[part][name] = first["resource"][target]["averageUtilization"]
            made[part][field] = [v for v in values if v is not first]
    annotations = dict(made["metadata"].get("annotations") or {})
    for part, field, name in _IN_ANNOTATIONS:
        value = made[part].pop(field, None)
        if value:
            annotations[name] = msgspec.json.encode(value).decode()
    if annotations:
        made["metadata"]["annotations"] = annotations
    made["status"].setdefault("currentReplicas", 0)
    made["status"].setdefault("desiredReplicas", 0)
    return made


Conversion = Callable[[Object], Object]


_CONVERTED: Final[dict[tuple[str, str, str], tuple[Conversion, Conversion]]] = {
    ("events.k8s.io", "v1", "events"): (event_from_new, event_to_new),
    ("autoscaling", "v1", "horizontalpodautoscalers"): (autoscaler_from_v1, autoscaler_to_v1),
}


def out_of_store(resource: Resource) -> Conversion | None:
    """How a stored object becomes one of this version; None: it is one."""
    if (custom := resource.custom) is not None:
        return custom.show if custom.converts else None
    found = _CONVERTED.get((resource.group, resource.version, resource.plural))
    return found[1] if found is not None else None


def into_store(resource: Resource) -> Conversion | None:
    """How an object of this version becomes a stored one; None: it is one."""
    found = _CONVERTED.get((resource.group, resource.version, resource.plural))
    return found[0] if found is not None else None
