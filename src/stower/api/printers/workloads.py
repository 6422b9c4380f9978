"""Computes the printed columns of workloads, autoscalers and PodDisruptionBudgets."""

from typing import Any

from stower.api.printers.parts import (
    NONE,
    UNKNOWN,
    UNSET,
    Object,
    conditions_of,
    container_cells,
    format_age,
    is_true,
    labels_text,
    selector_text,
)
from stower.model.times import age, short_duration, time_ns


def job(item: Object, now_ns: int) -> list[Any]:
    """The cells of a Job."""
    spec, status = item["spec"], item.get("status") or {}
    succeeded = status.get("succeeded", 0)
    if "completions" in spec:
        completions = f"{succeeded}/{spec['completions']}"
    else:
        parallel = spec.get("parallelism", 0)
        completions = f"{succeeded}/1" + (f" of {parallel}" if parallel > 1 else "")
    started, ended = time_ns(status.get("startTime")), time_ns(status.get("completionTime"))
    duration = ""
    if started is not None:
        duration = short_duration(((ended if ended is not None else now_ns) - started) // 10**9)
    conditions = conditions_of(item)
    state = "Running"
    for kind in ("SuccessCriteriaMet", "FailureTarget", "Suspended"):
        if is_true(conditions, kind):
            state = kind
    if item["metadata"].get("deletionTimestamp"):
        state = "Terminating"
    for kind, shown in (("Failed", "Failed"), ("Complete", "Complete")):
        if is_true(conditions, kind):
            state = shown
    return [
        item["metadata"]["name"],
        state,
        completions,
        duration,
        format_age(item, now_ns),
        *container_cells(spec["template"].get("spec")),
        selector_text(spec.get("selector")),
    ]


def cron_job(item: Object, now_ns: int) -> list[Any]:
    """The cells of a CronJob."""
    spec, status = item["spec"], item.get("status") or {}
    last = status.get("lastScheduleTime")
    template = spec["jobTemplate"].get("spec") or {}
    return [
        item["metadata"]["name"],
        spec.get("schedule", ""),
        spec.get("timeZone", NONE),
        str(spec["suspend"]) if "suspend" in spec else UNSET,
        len(status.get("active") or ()),
        age(now_ns, last) if last else NONE,
        format_age(item, now_ns),
        *container_cells((template.get("template") or {}).get("spec")),
        selector_text(template.get("selector")),
    ]


def replicas(item: Object, now_ns: int) -> list[Any]:
    """The cells of a ReplicaSet or ReplicationController."""
    spec, status = item["spec"], item.get("status") or {}
    selector = spec.get("selector")
    is_old = selector is not None and not ({"matchLabels", "matchExpressions"} & selector.keys())
    return [
        item["metadata"]["name"],
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        format_age(item, now_ns),
        *container_cells((spec.get("template") or {}).get("spec")),
        labels_text(selector) if is_old else selector_text(selector),
    ]


def deployment(item: Object, now_ns: int) -> list[Any]:
    """The cells of a Deployment."""
    spec, status = item["spec"], item.get("status") or {}
    return [
        item["metadata"]["name"],
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        format_age(item, now_ns),
        *container_cells(spec["template"].get("spec")),
        selector_text(spec.get("selector"), ""),
    ]


def stateful_set(item: Object, now_ns: int) -> list[Any]:
    """The cells of a StatefulSet."""
    spec, status = item["spec"], item.get("status") or {}
    return [
        item["metadata"]["name"],
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        format_age(item, now_ns),
        *container_cells(spec["template"].get("spec")),
    ]


def daemon_set(item: Object, now_ns: int) -> list[Any]:
    """The cells of a DaemonSet."""
    spec, status = item["spec"], item.get("status") or {}
    counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady",
              "updatedNumberScheduled", "numberAvailable")  # fmt: skip
    template = spec["template"].get("spec") or {}
    return [
        item["metadata"]["name"],
        *(status.get(count, 0) for count in counts),
        labels_text(template.get("nodeSelector")),
        format_age(item, now_ns),
        *container_cells(template),
        selector_text(spec.get("selector")),
    ]


def autoscaler(item: Object, now_ns: int) -> list[Any]:
    """The cells of a HorizontalPodAutoscaler."""
    spec, status = item["spec"], item.get("status") or {}
    target = spec["scaleTargetRef"]
    return [
        item["metadata"]["name"],
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(spec, status),
        str(spec.get("minReplicas", UNSET)),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        format_age(item, now_ns),
    ]


def _metrics(spec: Object, status: Object) -> str:
    shown = []
    current = status.get("currentMetrics") or []
    for i, metric in enumerate(spec.get("metrics") or ()):
        source = next((v for v in metric.values() if isinstance(v, dict)), {})
        target = source.get("target") or {}
        found: Object = {}
        if i < len(current):
            values = (v for v in current[i].values() if isinstance(v, dict))
            found = next(values, {}).get("current") or {}
        name = f"{source.get('name', '')}: " if metric.get("type") == "Resource" else ""
        if "averageUtilization" in target:
            now = found.get("averageUtilization")
            at = f"{now}%" if now is not None else UNKNOWN
            shown.append(f"{name}{at}/{target['averageUtilization']}%")
        else:
            wanted = target.get("averageValue") or target.get("value", "")
            at = found.get("averageValue") or found.get("value") or UNKNOWN
            shown.append(f"{name}{at}/{wanted}")
    text = ", ".join(shown[:2]) or NONE
    return f"{text} + {len(shown) - 2} more..." if len(shown) > 2 else text


def revision(item: Object, now_ns: int) -> list[Any]:
    """The cells of a ControllerRevision."""
    owners = item["metadata"].get("ownerReferences") or ()
    owner = next((o for o in owners if o.get("controller")), None)
    shown = NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        shown = f"{owner['kind']}.{group}".rstrip(".").lower() + f"/{owner['name']}"
    return [item["metadata"]["name"], shown, item.get("revision", 0), format_age(item, now_ns)]


def template(item: Object, now_ns: int) -> list[Any]:
    """The cells of a PodTemplate."""
    template = item["template"]
    labels = (template.get("metadata") or {}).get("labels")
    return [item["metadata"]["name"], *container_cells(template.get("spec")), labels_text(labels)]


def budget(item: Object, now_ns: int) -> list[Any]:
    """The cells of a PodDisruptionBudget."""
    spec = item["spec"]
    return [
        item["metadata"]["name"],
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        (item.get("status") or {}).get("disruptionsAllowed", 0),
        format_age(item, now_ns),
    ]
