"""Validates disruption budgets, priority classes, leases, configuration and other kinds."""

import re
from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import DUPLICATE, TOO_LONG, FieldError, unsupported
from stower.api.metadata import STANDARD_FINALIZERS
from stower.api.validation import amounts, volumes
from stower.api.validation.rules import (
    IMMUTABLE,
    Faults,
    Object,
    at_most_100_percent,
    count_or_percent,
    duplicate,
    forbidden,
    invalid,
    label_key,
    label_selector,
    named,
    not_negative,
    one_of,
    required,
)
from stower.model import names
from stower.model.quantity import Quantity
from stower.model.storage_class import BETA_CLASS

SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
USER_PRIORITY_MAX: Final = 1_000_000_000
DATA_BYTES_MAX: Final = 1024 * 1024  # of a ConfigMap or Secret
EVICTION_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")


# Disruption budgets


def budget(item: Object) -> Faults:
    """The spec of a PodDisruptionBudget."""
    spec = item["spec"]
    faults: Faults = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        text = "minAvailable and maxUnavailable cannot be both set"
        names_of = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
        shown = {name[0].upper() + name[1:]: spec.get(name) for name in names_of}
        faults.append(invalid("spec", shown, text))
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            faults += count_or_percent(f"spec.{field}", spec[field])
            faults += at_most_100_percent(f"spec.{field}", spec[field])
    faults += label_selector("spec.selector", spec.get("selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in EVICTION_POLICIES:
        faults.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, EVICTION_POLICIES))
    return faults


def budget_update(new: Object, old: Object) -> Faults:
    """A change of a PodDisruptionBudget."""
    return budget(new)


def budget_status(new: Object, old: Object) -> Faults:
    """A change of a PodDisruptionBudget's status."""
    status = new["status"]
    faults = list(conditions("status.conditions", status.get("conditions") or ()))
    for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        faults += not_negative(f"status.{field}", status.get(field))
    return faults


_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z")


def conditions(path: str, given: Any) -> Iterator[FieldError]:
    """Conditions of the common form. Source: apimachinery ValidateConditions."""
    seen: set[str] = set()
    for i, condition in enumerate(given):
        at = f"{path}[{i}]"
        kind, reason = condition.get("type", ""), condition.get("reason", "")
        if kind in seen:
            yield FieldError(DUPLICATE, f"{at}.type", kind)
        seen.add(kind)
        yield from label_key(f"{at}.type", kind)
        words = ("False", "True", "Unknown")
        if condition.get("status") not in words:
            yield unsupported(f"{at}.status", condition.get("status", ""), words)
        if condition.get("observedGeneration", 0) < 0:
            text = "must be greater than or equal to zero"
            yield invalid(f"{at}.observedGeneration", condition["observedGeneration"], text)
        if not condition.get("lastTransitionTime"):
            yield required(f"{at}.lastTransitionTime")
        if not reason:
            yield required(f"{at}.reason")
        elif not _REASON.match(reason):
            text = (
                "a condition reason must start with alphabetic character, optionally followed by a "
                "string of alphanumeric characters or '_,:', and must end with an alphanumeric "
                "character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or "
                "'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
                "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
            )
            yield invalid(f"{at}.reason", reason, text)
        if len(reason) > 1024:
            yield FieldError(
                "FieldValueTooLong", f"{at}.reason", "", "may not be more than 1024 bytes"
            )
        if len(condition.get("message", "")) > 32768:
            text = "may not be more than 32768 bytes"
            yield FieldError("FieldValueTooLong", f"{at}.message", "", text)


# Priority classes and leases


def priority_class(item: Object) -> Faults:
    """A new PriorityClass."""
    name, value = item["metadata"].get("name", ""), item.get("value", 0)
    faults: Faults = []
    if name.startswith("system-"):
        wanted = SYSTEM_CLASSES.get(name)
        why = None
        if wanted is None:
            why = f"{name} is not a known system priority class"
        elif wanted != value:
            why = f"value of {name} PriorityClass must be {wanted}"
        elif item.get("globalDefault"):
            why = f"globalDefault of {name} PriorityClass must be false"
        if why is not None:
            text = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {why}"
            )
            faults.append(forbidden("metadata.name", text))
    elif value > USER_PRIORITY_MAX:
        text = f"maximum allowed value of a user defined priority is {USER_PRIORITY_MAX}"
        faults.append(forbidden("value", text))
    words = ("PreemptLowerPriority", "Never")
    return faults + one_of("preemptionPolicy", item.get("preemptionPolicy"), words)


def priority_class_update(new: Object, old: Object) -> Faults:
    """A change of a PriorityClass."""
    faults: Faults = []
    if new.get("value", 0) != old.get("value", 0):
        faults.append(forbidden("value", "may not be changed in an update."))
    if new.get("preemptionPolicy") != old.get("preemptionPolicy"):
        faults.append(invalid("preemptionPolicy", new.get("preemptionPolicy"), IMMUTABLE))
    return faults


def lease(item: Object) -> Faults:
    """A Lease."""
    spec = item["spec"]
    faults: Faults = []
    seconds = spec.get("leaseDurationSeconds")
    if seconds is not None and seconds <= 0:
        faults.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    faults += not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))
    strategy = spec.get("strategy")
    if strategy is not None:
        faults += (
            label_key("spec.strategy", strategy) if strategy != "OldestEmulationVersion" else []
        )
    holder = spec.get("preferredHolder")
    if holder and not strategy:
        text = "may only be specified if `strategy` is defined"
        faults.append(forbidden("spec.preferredHolder", text))
    return faults


def lease_update(new: Object, old: Object) -> Faults:
    """A change of a Lease."""
    return lease(new)


# Events, configuration, volumes


def event(item: Object) -> Faults:
    """A core event."""
    about, meta = item.get("involvedObject") or {}, item["metadata"]
    namespace = about.get("namespace", "")
    at = "involvedObject.namespace"
    if namespace and namespace != meta.get("namespace"):
        return [invalid(at, namespace, "does not match event.namespace")]
    if not namespace and meta.get("namespace") not in ("default", "kube-system"):
        return [invalid(at, namespace, "does not match event.namespace")]
    return []


def new_event(item: Object) -> Faults:
    """An events.k8s.io event, in its own fields."""
    faults = event(item)
    if not item.get("eventTime"):
        faults.append(required("eventTime"))
    if item.get("type") not in ("Normal", "Warning"):
        text = f"has invalid value: {item.get('type', '')}"
        faults.append(invalid("type", item.get("type", ""), text))
    if item.get("eventTime"):
        for field, shown in (("reportingComponent", "reportingController"),
                             ("reportingInstance", "reportingInstance"),
                             ("action", "action"), ("reason", "reason")):  # fmt: skip
            if not item.get(field):
                faults.append(required(shown))
    return faults


def _decoded_size(text: str) -> int:
    """Bytes that base64 stands for."""
    return len(text) * 3 // 4 - text[-2:].count("=")


def _too_big(field: str, size: int) -> Faults:
    if size <= DATA_BYTES_MAX:
        return []
    return [FieldError(TOO_LONG, field, "", f"may not be more than {DATA_BYTES_MAX} bytes")]


def config_map(item: Object) -> Faults:
    """A ConfigMap."""
    faults: Faults = []
    size = 0
    for field in ("data", "binaryData"):
        for key, value in (item.get(field) or {}).items():
            faults += named(f"{field}[{key}]", key, names.config_key_faults)
            size += len(value.encode()) if field == "data" else _decoded_size(value)
    for key in item.get("binaryData") or {}:
        if key in (item.get("data") or {}):
            faults.append(
                invalid(f"data[{key}]", key, f"duplicate of key present in binaryData: {key}")
            )
    return faults + _too_big("[]", size)


def config_map_update(new: Object, old: Object) -> Faults:
    """A change of a ConfigMap or Secret that may be immutable."""
    faults: Faults = []
    if old.get("immutable"):
        if not new.get("immutable"):
            faults.append(forbidden("immutable", "field is immutable when `immutable` is set"))
        for field in ("data", "binaryData", "stringData"):
            if new.get(field) != old.get(field):
                faults.append(forbidden(field, "field is immutable when `immutable` is set"))
    return faults + config_map(new)


def secret(item: Object) -> Faults:
    """A Secret."""
    faults: Faults = []
    for key in item.get("data") or {}:
        faults += named(f"data[{key}]", key, names.config_key_faults)
    return faults + _too_big("data", sum(map(_decoded_size, (item.get("data") or {}).values())))


def secret_update(new: Object, old: Object) -> Faults:
    """A change of a Secret."""
    faults = []
    if new.get("type") != old.get("type"):
        faults.append(invalid("type", new.get("type"), IMMUTABLE))
    if old.get("immutable") and new.get("data") != old.get("data"):
        faults.append(forbidden("data", "field is immutable when `immutable` is set"))
    return faults + secret(new)


def claim(item: Object) -> Faults:
    """A PersistentVolumeClaim."""
    return list(volumes.claim_spec("spec", item["spec"]))


CLAIM_IMMUTABLE: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for "
    "bound claims\n"
)


def _size(spec: Object) -> Quantity:
    requests = (spec.get("resources") or {}).get("requests") or {}
    return amounts.quantity(requests.get("storage", "0"))


def claim_update(new: Object, old: Object) -> Faults:
    """A change of a PersistentVolumeClaim: once bound, only its size grows."""
    faults = claim(new)
    now, before = dict(new["spec"]), dict(old["spec"])
    if not before.get("volumeName") and now.get("volumeName"):
        now.pop("volumeName")
    annotations = old["metadata"].get("annotations") or {}
    if before.get("storageClassName") is None and BETA_CLASS not in annotations:
        now.pop("storageClassName", None)  # it may be given later (KEP-3333)
    if before.get("volumeName") or now.get("volumeName"):
        for spec in (now, before):
            spec.pop("volumeAttributesClassName", None)
        if (old.get("status") or {}).get("phase") == "Bound":
            if _size(now).cmp(_size(before)) < 0:
                text = "field can not be less than status.capacity"
                faults.append(forbidden("spec.resources.requests.storage", text))
            now["resources"] = before.get("resources")
    if now != before:
        faults.append(forbidden("spec", CLAIM_IMMUTABLE))
    return faults


def limit_range(item: Object) -> Faults:
    """A LimitRange: least, most and defaults in order."""
    faults: Faults = []
    seen: set[str] = set()
    for i, limit in enumerate(item["spec"].get("limits") or ()):
        at = f"spec.limits[{i}]"
        kind = limit.get("type", "")
        if kind in seen:
            faults.append(duplicate(f"{at}.type", kind))
        seen.add(kind)
        for low, high in (("min", "max"), ("min", "default"), ("min", "defaultRequest"),
                          ("default", "max"), ("defaultRequest", "max"),
                          ("defaultRequest", "default")):  # fmt: skip
            for name, value in (limit.get(low) or {}).items():
                most = (limit.get(high) or {}).get(name)
                if most is not None and amounts.quantity(value).cmp(amounts.quantity(most)) > 0:
                    words = {"min": "min value", "default": "default value", "max": "max value",
                             "defaultRequest": "default request value"}  # fmt: skip
                    text = f"{words[low]} {value} is greater than {words[high]} {most}"
                    faults.append(invalid(f"{at}.{low}[{name}]", value, text))
    return faults


def _finalizer_names(path: str, finalizers: Any, numbered: bool) -> Iterator[FieldError]:
    for i, name in enumerate(finalizers or ()):
        at = f"{path}[{i}]" if numbered else path
        yield from named(at, name, names.qualified_name_faults)
        if "/" not in name and name not in STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(at, name, text)


def namespace(item: Object) -> Faults:
    """A new namespace."""
    return list(_finalizer_names("spec.finalizers", item["spec"].get("finalizers"), False))


def namespace_update(new: Object, old: Object) -> Faults:
    """A change of a namespace, its finalizers perhaps."""
    if new["spec"].get("finalizers") == old["spec"].get("finalizers"):
        return []
    return list(_finalizer_names("spec.finalizers", new["spec"].get("finalizers"), True))


def namespace_status(new: Object, old: Object) -> Faults:
    """A namespace that goes is Terminating, any other Active."""
    phase = (new.get("status") or {}).get("phase", "")
    if "deletionTimestamp" in new["metadata"]:
        if phase != "Terminating":
            text = "may only be 'Terminating' if `deletionTimestamp` is not empty"
            return [invalid("status.Phase", phase, text)]
    elif phase != "Active":
        text = "may only be 'Active' if `deletionTimestamp` is empty"
        return [invalid("status.Phase", phase, text)]
    return []


def runtime_class(item: Object) -> Faults:
    """A RuntimeClass."""
    handler = item.get("handler", "")
    return named("handler", handler, names.label_faults) if handler else [required("handler")]


def runtime_class_update(new: Object, old: Object) -> Faults:
    """A change of a RuntimeClass."""
    if new.get("handler") != old.get("handler"):
        return [invalid("handler", new.get("handler", ""), IMMUTABLE)]
    return []
