"""Validates workloads (Deployment, ReplicaSet, StatefulSet, DaemonSet, ReplicationController) with
their status and pod templates, and ControllerRevisions.

Source: pkg/apis/apps/validation, pkg/apis/core/validation, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from stower.api.equality import same
from stower.api.errors import FieldError, unsupported
from stower.api.metadata import annotation_errors
from stower.api.schema import Type
from stower.api.validation import pods, volumes
from stower.api.validation.go_values import go_value
from stower.api.validation.pod_annotations import annotations, check_fields
from stower.api.validation.rules import (
    IMMUTABLE,
    PERCENT,
    Allowed,
    Faults,
    Object,
    at_most_100_percent,
    count_or_percent,
    forbidden,
    invalid,
    label_selector,
    labels,
    named,
    not_negative,
    required,
)
from stower.model import names
from stower.model.integers import parse_signed
from stower.model.selectors import LabelSelector

OF_TEMPLATE: Final = Allowed(of_template=True)
ROLLING: Final = "RollingUpdate"
POD_MANAGEMENT: Final = ("OrderedReady", "Parallel")
RETENTION: Final = ("Retain", "Delete")
MISMATCH: Final = "`selector` does not match template `labels`"
ABOVE_REPLICAS: Final = "cannot be greater than status.replicas"
DECREMENTED: Final = "cannot be decremented"
CHANGEABLE: Final = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
                     "persistentVolumeClaimRetentionPolicy", "minReadySeconds")  # fmt: skip
UNCHANGEABLE_TEXT: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


# Templates of pods and their selectors


def template(path: str, given: Object | None) -> Iterator[FieldError]:
    """A pod template. Source: ValidatePodTemplateSpec."""
    if given is None:
        yield required(path)
        return
    yield from _template_metadata(path, given)
    yield from pods.pod_spec(f"{path}.spec", given, OF_TEMPLATE)
    own = (given.get("metadata") or {}).get("annotations") or {}
    yield from check_fields(f"{path}.spec", own, given.get("spec") or {})
    if (given.get("spec") or {}).get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        yield forbidden(f"{path}.spec.ephemeralContainers", text)


def _template_metadata(path: str, given: Object) -> Iterator[FieldError]:
    """A pod template's labels and annotations."""
    meta = given.get("metadata") or {}
    yield from labels(f"{path}.labels", meta.get("labels"))
    own, at = meta.get("annotations") or {}, f"{path}.annotations"
    yield from annotation_errors(own, at)
    yield from annotations(at, own, given.get("spec") or {}, OF_TEMPLATE)


def _lasting_pods(path: str, given: Object, kind: str) -> Iterator[FieldError]:
    """The pods of a template run until they are deleted. `kind`: as the message names it."""
    spec = given.get("spec") or {}
    policy = spec.get("restartPolicy", "Always")
    if policy != "Always":
        yield unsupported(f"{path}.spec.restartPolicy", policy, ("Always",))
    if spec.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        yield forbidden(f"{path}.spec.activeDeadlineSeconds", text)


def _labels_of(given: Object | None) -> dict[str, str]:
    found: dict[str, str] = ((given or {}).get("metadata") or {}).get("labels") or {}
    return found


def _mismatch(given: Object | None) -> FieldError:
    found = dict(sorted(_labels_of(given).items())) or None
    return invalid("spec.template.metadata.labels", found, MISMATCH)


def _matches(selector: Object | None, given: Object | None) -> bool:
    """Whether a valid selector selects the pods of the template; null selects none."""
    if selector is None:
        return False
    return msgspec.convert(selector, LabelSelector).matches(_labels_of(given))


def _shown_selector(selector: Object | None) -> Object | None:
    """A selector as messages quote it: without empty parts, in the order of its type."""
    if selector is None:
        return None
    shown: Object = {}
    if matched := selector.get("matchLabels"):
        shown["matchLabels"] = dict(sorted(matched.items()))
    if terms := selector.get("matchExpressions"):
        fields = ("key", "operator", "values")
        shown["matchExpressions"] = [{f: t[f] for f in fields if f in t} for t in terms]
    return shown


def _selector(selector: Object | None, kind: str) -> Iterator[FieldError]:
    """A selector that must be there and not be empty. `kind`: as the message names it."""
    if selector is None:
        yield required("spec.selector")
        return
    yield from label_selector("spec.selector", selector)
    yield from _empty_selector(selector, kind)


def _empty_selector(selector: Object, kind: str) -> Iterator[FieldError]:
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid("spec.selector", {}, f"empty selector is invalid for {kind}")


def _same_selector(new: Object, old: Object) -> Iterator[FieldError]:
    shown = _shown_selector(new["spec"].get("selector"))
    if shown != _shown_selector(old["spec"].get("selector")):
        yield invalid("spec.selector", shown, IMMUTABLE)


# Deployments and ReplicaSets


def deployment(item: Object) -> Iterator[FieldError]:
    """A Deployment."""
    spec = item["spec"]
    yield from not_negative("spec.replicas", spec.get("replicas"))
    yield from _selected_template(spec)
    yield from _deployment_strategy("spec.strategy", spec.get("strategy") or {})
    ready = spec.get("minReadySeconds", 0)
    yield from not_negative("spec.minReadySeconds", ready)
    yield from not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        yield from not_negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= ready:
            text = "must be greater than minReadySeconds"
            yield invalid("spec.progressDeadlineSeconds", deadline, text)


def deployment_update(new: Object, old: Object) -> Iterator[FieldError]:
    """A change of a Deployment."""
    yield from deployment(new)
    yield from _same_selector(new, old)


def replica_set(item: Object) -> Iterator[FieldError]:
    """A ReplicaSet."""
    spec = item["spec"]
    yield from not_negative("spec.replicas", spec.get("replicas"))
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from _selected_template(spec)


def replica_set_update(new: Object, old: Object) -> Iterator[FieldError]:
    """A change of a ReplicaSet."""
    yield from replica_set(new)
    yield from _same_selector(new, old)


def _selected_template(spec: Object) -> Iterator[FieldError]:
    """Selector and template of a Deployment or ReplicaSet, whose messages are the same."""
    selector, own = spec.get("selector"), spec.get("template") or {}
    yield from _selector(selector, "deployment")
    if any(label_selector("", selector)):
        yield invalid("spec.selector", _shown_selector(selector), "invalid label selector")
        return
    if not _matches(selector, own):
        yield _mismatch(own)
    yield from template("spec.template", own)
    yield from _lasting_pods("spec.template", own, "ReplicaSet")


def _deployment_strategy(path: str, strategy: Object) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    at = f"{path}.rollingUpdate"
    if kind == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden(at, text)
    elif kind == ROLLING:
        rolling = rolling or {}
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        yield from count_or_percent(f"{at}.maxUnavailable", unavailable)
        yield from count_or_percent(f"{at}.maxSurge", surge)
        if _is_zero(unavailable) and _is_zero(surge):
            text = "may not be 0 when `maxSurge` is 0"
            yield invalid(f"{at}.maxUnavailable", unavailable, text)
        yield from at_most_100_percent(f"{at}.maxUnavailable", unavailable)
    else:
        value = go_value("DeploymentStrategy", strategy)
        yield unsupported(path, value, ("Recreate", ROLLING))


def _is_zero(value: Any) -> bool:
    """Whether a count or percentage is zero; text that is neither is. Source:
    getIntOrPercentValue."""
    if isinstance(value, int):
        return value == 0
    return not value[:-1].strip("0") if PERCENT.match(value) else not parse_signed(value)


# StatefulSets


def stateful_set(item: Object) -> Iterator[FieldError]:
    """A StatefulSet."""
    return _stateful_spec(item["spec"])


def stateful_set_update(kind: Type, new: Object, old: Object) -> Faults:
    """A change of a StatefulSet. A template that comes with other faults stays without a check."""
    kept = not any(_stateful_spec(old["spec"], is_new=False))
    faults = list(_stateful_spec(new["spec"], is_new=False, has_checked_template=kept))
    spec = kind.fields["spec"].type
    now, before = (
        {name: value for name, value in item["spec"].items() if name not in CHANGEABLE}
        for item in (new, old)
    )
    if not same(spec, now, before):
        faults.append(forbidden("spec", UNCHANGEABLE_TEXT))
    return faults


def _stateful_spec(
    spec: Object, is_new: bool = True, has_checked_template: bool = True
) -> Iterator[FieldError]:
    policy = spec.get("podManagementPolicy")
    if not policy:
        yield required("spec.podManagementPolicy")
    elif policy not in POD_MANAGEMENT:
        text = "must be 'OrderedReady' or 'Parallel'"
        yield invalid("spec.podManagementPolicy", policy, text)
    yield from _stateful_strategy("spec.updateStrategy", spec.get("updateStrategy") or {})
    for field, value in (spec.get("persistentVolumeClaimRetentionPolicy") or {}).items():
        if value not in RETENTION:
            at = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
            yield unsupported(at, value, RETENTION)
    if is_new:
        for i, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            at = f"spec.volumeClaimTemplates[{i}].spec"
            yield from volumes.claim_spec(at, claim.get("spec") or {})
    yield from not_negative("spec.replicas", spec.get("replicas"))
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    start = (spec.get("ordinals") or {}).get("start")
    yield from not_negative("spec.ordinals.start", start)
    service = spec.get("serviceName")
    if is_new and service:
        yield from named("spec.serviceName", service, names.label_faults)
    selector, own = spec.get("selector"), spec.get("template") or {}
    yield from _selector(selector, "statefulset")
    if any(label_selector("", selector)):
        yield invalid("spec.selector", _shown_selector(selector), "")
    else:
        if not _matches(selector, own):
            yield _mismatch(own)
        if has_checked_template:
            yield from template("spec.template", _as_of_pods(spec, own))
        yield from _template_metadata("spec.template", own)
    yield from _lasting_pods("spec.template", own, "StatefulSet")


def _as_of_pods(spec: Object, own: Object) -> Object:
    """The template with the volumes of claims, without the names that each pod gets for itself."""
    claims = [(claim.get("metadata") or {}).get("name", "") for claim in
              spec.get("volumeClaimTemplates") or ()]  # fmt: skip
    inner = {k: v for k, v in (own.get("spec") or {}).items() if k not in ("subdomain", "hostname")}
    if claims:
        inner["volumes"] = [
            *({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in
              dict.fromkeys(claims)),
            *(volume for volume in inner.get("volumes") or () if volume.get("name") not in claims),
        ]  # fmt: skip
    return {**own, "spec": inner}


def _stateful_strategy(path: str, strategy: Object) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    at = f"{path}.rollingUpdate"
    if not kind:
        yield required(path)
    elif kind == "OnDelete":
        if rolling is not None:
            value = go_value("RollingUpdateStatefulSetStrategy", rolling)
            yield invalid(at, value, "only allowed for updateStrategy 'RollingUpdate'")
    elif kind == ROLLING:
        rolling = rolling or {}
        yield from not_negative(f"{at}.partition", rolling.get("partition"))
        unavailable = rolling.get("maxUnavailable")
        if unavailable is not None:
            yield from count_or_percent(f"{at}.maxUnavailable", unavailable)
            if _is_zero(unavailable):
                yield invalid(f"{at}.maxUnavailable", unavailable, "cannot be 0")
            yield from at_most_100_percent(f"{at}.maxUnavailable", unavailable)
    else:
        value = go_value("StatefulSetUpdateStrategy", strategy)
        yield invalid(path, value, "must be 'RollingUpdate' or 'OnDelete'")


# DaemonSets


def daemon_set(item: Object) -> Iterator[FieldError]:
    """A DaemonSet."""
    spec = item["spec"]
    selector, own = spec.get("selector"), spec.get("template") or {}
    wrong = list(label_selector("spec.selector", selector))
    yield from wrong
    if not wrong and not _matches(selector, own):
        yield _mismatch(own)
    if selector is not None:
        yield from _empty_selector(selector, "daemonset")
    yield from template("spec.template", own)
    yield from _lasting_pods("spec.template", own, "DaemonSet")
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from _daemon_strategy("spec.updateStrategy", spec.get("updateStrategy") or {})
    yield from not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def daemon_set_update(new: Object, old: Object) -> Iterator[FieldError]:
    """A change of a DaemonSet."""
    yield from _same_selector(new, old)
    yield from daemon_set(new)


def _daemon_strategy(path: str, strategy: Object) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    at = f"{path}.rollingUpdate"
    if kind not in (ROLLING, "OnDelete"):
        value = go_value("DaemonSetUpdateStrategy", strategy)
        yield unsupported(path, value, (ROLLING, "OnDelete"))
        return
    if kind == "OnDelete":
        return
    if rolling is None:
        yield required(at)
        return
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    yield from count_or_percent(f"{at}.maxUnavailable", unavailable)
    yield from count_or_percent(f"{at}.maxSurge", surge)
    yield from at_most_100_percent(f"{at}.maxUnavailable", unavailable)
    yield from at_most_100_percent(f"{at}.maxSurge", surge)
    if not _is_zero(unavailable) and not _is_zero(surge):
        yield invalid(f"{at}.maxSurge", surge, "may not be set when maxUnavailable is non-zero")
    elif _is_zero(unavailable) and _is_zero(surge):
        yield required(f"{at}.maxUnavailable", "cannot be 0 when maxSurge is 0")


# ReplicationControllers and ControllerRevisions


def controller(item: Object) -> Iterator[FieldError]:
    """A ReplicationController."""
    spec = item["spec"]
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    selector, own = spec.get("selector"), spec.get("template")
    if not selector:
        yield required("spec.selector")
    yield from not_negative("spec.replicas", spec.get("replicas"))
    if own is not None and selector and not selector.items() <= _labels_of(own).items():
        yield _mismatch(own)
    yield from template("spec.template", own)
    if own is not None:
        yield from _lasting_pods("spec.template", own, "ReplicationController")


def controller_update(new: Object, old: Object) -> Iterator[FieldError]:
    """A change of a ReplicationController."""
    return controller(new)


def revision(item: Object) -> Iterator[FieldError]:
    """A new ControllerRevision."""
    yield from not_negative("revision", item.get("revision"))
    data = item.get("data")
    if data is None:
        yield required("data", "data is mandatory")
    elif not isinstance(data, dict):
        yield required("data", "data must be a valid JSON object")


def revision_update(new: Object, old: Object) -> Iterator[FieldError]:
    """A change of a ControllerRevision, whose data stays."""
    yield from not_negative("revision", new.get("revision"))
    if new.get("data") != old.get("data"):
        yield invalid("data", new.get("data"), IMMUTABLE)


# Status


def deployment_status(new: Object, old: Object) -> Iterator[FieldError]:
    """A change of a Deployment's status."""
    status = new["status"]
    yield from _counts(status, "observedGeneration", "replicas", "updatedReplicas",
                       "readyReplicas", "availableReplicas", "unavailableReplicas",
                       "terminatingReplicas", "collisionCount")  # fmt: skip
    yield from _within_replicas(status, "updatedReplicas", "readyReplicas", "availableReplicas")
    yield from _available_are_ready(status, "readyReplicas")
    yield from _collisions(status, old.get("status") or {})


def replica_set_status(new: Object, old: Object) -> Iterator[FieldError]:
    """A change of the status of a ReplicaSet or ReplicationController."""
    status = new["status"]
    yield from _counts(status, "replicas", "fullyLabeledReplicas", "readyReplicas",
                       "availableReplicas", "observedGeneration",
                       "terminatingReplicas")  # fmt: skip
    yield from _within_replicas(status, "fullyLabeledReplicas", "readyReplicas",
                                "availableReplicas")  # fmt: skip
    yield from _available_are_ready(status, "readyReplicas")


def stateful_set_status(new: Object, old: Object) -> Iterator[FieldError]:
    """A change of a StatefulSet's status."""
    status = new["status"]
    yield from _counts(status, "replicas", "readyReplicas", "currentReplicas", "updatedReplicas",
                       "availableReplicas", "observedGeneration", "collisionCount")  # fmt: skip
    yield from _within_replicas(status, "readyReplicas", "currentReplicas", "updatedReplicas",
                                "availableReplicas")  # fmt: skip
    yield from _available_are_ready(status, "status.readyReplicas")
    yield from _collisions(status, old.get("status") or {})


def daemon_set_status(new: Object, old: Object) -> Iterator[FieldError]:
    """A change of a DaemonSet's status."""
    status = new["status"]
    yield from _counts(status, "currentNumberScheduled", "numberMisscheduled",
                       "desiredNumberScheduled", "numberReady", "observedGeneration",
                       "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
                       "collisionCount")  # fmt: skip
    yield from _collisions(status, old.get("status") or {})


def _counts(status: Object, *fields: str) -> Iterator[FieldError]:
    for field in fields:
        yield from not_negative(f"status.{field}", status.get(field))


def _within_replicas(status: Object, *fields: str) -> Iterator[FieldError]:
    replicas = status.get("replicas", 0)
    for field in fields:
        if (count := status.get(field, 0)) > replicas:
            yield invalid(f"status.{field}", count, ABOVE_REPLICAS)


def _available_are_ready(status: Object, shown: str) -> Iterator[FieldError]:
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        yield invalid("status.availableReplicas", available, f"cannot be greater than {shown}")


def _collisions(status: Object, old: Object) -> Iterator[FieldError]:
    count, before = status.get("collisionCount"), old.get("collisionCount")
    if before is not None and (count is None or count < before):
        yield invalid("status.collisionCount", count or 0, DECREMENTED)
