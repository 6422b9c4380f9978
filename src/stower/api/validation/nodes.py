"""Validates nodes.

Source: ValidateNode and ValidateNodeUpdate in pkg/apis/core/validation, Kubernetes 1.36.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError
from stower.api.go_json import decoding_error
from stower.api.validation import amounts, scheduling
from stower.api.validation.go_values import go_value
from stower.api.validation.rules import (
    POSITIVE,
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    named,
    required,
)
from stower.model import names

AVOID_PODS: Final = "scheduler.alpha.kubernetes.io/preferAvoidPods"
FEATURE: Final = re.compile(r"[A-Z][A-Za-z0-9]*(/[A-Za-z][A-Za-z0-9]*)*\Z")
FEATURE_BYTES_MAX: Final = 253
FEATURE_FORM: Final = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., "
    "MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)
CIDR_FIXED: Final = 'node updates may not change podCIDR except from "" to valid'


def node(item: Object) -> Faults:
    """A new node."""
    return list(_node(item))


def _node(item: Object) -> Iterator[FieldError]:
    yield from _avoided_pods(item)
    yield from scheduling.taints("metadata.taints", item["spec"].get("taints"))
    yield from _amounts(item)
    swap = ((item.get("status") or {}).get("nodeInfo") or {}).get("swap") or {}
    if (capacity := swap.get("capacity")) is not None and capacity <= 0:
        yield invalid("metadata.nodeSwapStatus.capacity", capacity, POSITIVE)
    yield from _features(item)
    yield from _networks("spec.podCIDRs", item["spec"].get("podCIDRs") or [])


def node_update(new: Object, old: Object) -> Faults:
    """A change of a node: what is new, and what changed."""
    return [*node(new), *node_status(new, old)]


def node_status(new: Object, old: Object) -> Faults:
    """A change of a node's status."""
    return list(_changes(new, old))


def _changes(new: Object, old: Object) -> Iterator[FieldError]:
    yield from _avoided_pods(new)
    yield from _amounts(new)
    yield from _features(new)
    now, before, status = new["spec"], old["spec"], new.get("status") or {}
    seen: list[Object] = []
    for i, address in enumerate(status.get("addresses") or ()):
        if address in seen:
            yield duplicate(f"status.addresses[{i}]", go_value("NodeAddress", address))
        seen.append(address)
    cidrs, given = before.get("podCIDRs") or [], now.get("podCIDRs") or []
    if cidrs and len(cidrs) != len(given):
        yield forbidden("spec.podCIDRs", CIDR_FIXED)
    elif cidrs:
        for one, other in zip(cidrs, given, strict=True):
            if one != other:
                yield forbidden("spec.podCIDRs", CIDR_FIXED)
    if before.get("providerID") and before["providerID"] != now.get("providerID", ""):
        text = 'node updates may not change providerID except from "" to valid'
        yield forbidden("spec.providerID", text)
    if "configSource" in now:
        yield from _source("spec.configSource", now["configSource"], of_status=False)
    for field in ("assigned", "active", "lastKnownGood"):
        if field in (status.get("config") or {}):
            yield from _source(f"status.config.{field}", status["config"][field], of_status=True)
    yield from scheduling.taints("metadata.taints", now.get("taints"))
    if before.get("externalID", "") != now.get("externalID", ""):
        yield forbidden("spec.externalID", "may not be updated")


def _avoided_pods(item: Object) -> Iterator[FieldError]:
    """An annotation of old about pods to keep away, which nothing reads any more."""
    path = "metadata.annotations"
    text = (item["metadata"].get("annotations") or {}).get(AVOID_PODS)
    if not text:
        return
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        yield invalid(f"{path}.AvoidPods", AVOID_PODS, decoding_error(text.encode()))
        return
    if found is not None and not isinstance(found, dict):
        word = {list: "array", str: "string", bool: "bool"}.get(type(found), "number")
        text = f"json: cannot unmarshal {word} into Go value of type v1.AvoidPods"
        yield invalid(f"{path}.AvoidPods", AVOID_PODS, text)
        return
    entries = (found or {}).get("preferAvoidPods")
    for i, entry in enumerate(entries if isinstance(entries, list) else ()):
        at = f"{path}.{AVOID_PODS}[{i}].PodSignature"
        signature = entry.get("podSignature") if isinstance(entry, dict) else None
        owner = signature.get("podController") if isinstance(signature, dict) else None
        if not isinstance(owner, dict):
            yield required(at)
        elif not owner.get("controller"):
            yield invalid(f"{at}.PodController.Controller", False, "must point to a controller")


def _amounts(item: Object) -> Iterator[FieldError]:
    for field in ("capacity", "allocatable"):
        for name, value in ((item.get("status") or {}).get(field) or {}).items():
            yield from amounts.amount(f"status.{field}.{name}", name, value)


def _features(item: Object) -> Iterator[FieldError]:
    path = "status.declaredFeatures"
    features = (item.get("status") or {}).get("declaredFeatures") or []
    for i, feature in enumerate(features):
        if len(feature) > FEATURE_BYTES_MAX:
            text = f"must be no more than {FEATURE_BYTES_MAX} characters"
            yield invalid(f"{path}[{i}]", feature, f'invalid feature name "{feature}": {text}')
        elif not FEATURE.match(feature):
            text = f'invalid feature name "{feature}": {FEATURE_FORM}'
            yield invalid(f"{path}[{i}]", feature, text)
        if i + 1 < len(features):
            after = features[i + 1]
            if feature == after:
                yield duplicate(f"{path}[{i + 1}]", after)
            elif feature > after:
                yield invalid(f"{path}[{i + 1}]", after, "list must be sorted alphabetically")


def _networks(path: str, cidrs: list[str]) -> Iterator[FieldError]:
    for i, cidr in enumerate(cidrs):
        yield from named(f"{path}[{i}]", cidr, names.cidr_faults)
    if len(cidrs) < 2:
        return
    broken = [i for i, cidr in enumerate(cidrs) if names.CIDR_TEXT in names.cidr_faults(cidr)]
    families = {names.ip_family(cidr.partition("/")[0]) for cidr in cidrs}
    if broken:
        text = (
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR"
            f"[{broken[0]}]: <nil> (invalid CIDR address: {cidrs[broken[0]]})"
        )
        yield FieldError("InternalError", path, cidrs, text)
    if broken or families != {4, 6} or len(cidrs) > 2:
        yield invalid(path, cidrs, "may specify no more than one CIDR for each IP family")


def _source(path: str, source: Object, *, of_status: bool) -> Iterator[FieldError]:
    """Where the kubelet has its configuration from; nothing reads it any more."""
    given = source.get("configMap")
    if given is None:
        yield invalid(path, source, "exactly one reference subfield must be non-nil")
        return
    at = f"{path}.configMap"
    for field in ("uid", "resourceVersion"):
        if of_status and not given.get(field):
            yield required(f"{at}.{field}")
        elif not of_status and given.get(field):
            yield forbidden(f"{at}.{field}", f"{field} must not be set in spec")
    rules = (
        ("namespace", names.label_faults), ("name", names.subdomain_faults),
        ("kubeletConfigKey", names.config_key_faults),
    )  # fmt: skip
    for field, rule in rules:
        if not given.get(field):
            yield required(f"{at}.{field}")
        else:
            yield from named(f"{at}.{field}", given[field], rule)
