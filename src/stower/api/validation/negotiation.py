"""Validates the kinds of negotiated devices: ResourceClass, PodScheduling, annotations of claims.

Source: pkg/apis/resource/validation/validation.go, Kubernetes 1.30, before KEP-3063 was withdrawn;
for our own parts (round, attempt, annotations), docs/behaviours.md.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.definition_parts import INT32_MAX, INT64_MAX
from stower.api.definitions import CLAIMS_MAX, UID_BYTES_MAX
from stower.api.errors import FieldError, unsupported
from stower.api.validation import devices_common as common
from stower.api.validation.rules import (
    IMMUTABLE,
    Faults,
    Object,
    byte_count,
    forbidden,
    invalid,
    named,
    not_negative,
    required,
    too_long,
    too_many,
)
from stower.api.validation.scheduling import node_selector
from stower.model import names
from stower.model.kinds.pod_scheduling import NODES_MAX
from stower.model.kinds.resource_claim import (
    ALLOCATION_MODE,
    ALLOCATION_MODES,
    DEALLOCATION_REQUESTED,
    IMMEDIATE,
    POD_CLAIM_NAME,
)

REASON_BYTES_MAX: Final = 256
ONLY_UP: Final = "must not be decremented"
LOWER: Final = "must be lower case: the driver's finalizer on claims begins with this name"
OWNERS: Final = "metadata.ownerReferences"
EPHEMERAL: Final = "claims that are created for a pod must use the mode WaitForFirstConsumer"


# ResourceClass


def resource_class(item: Object) -> Iterator[FieldError]:
    """A class: who allocates, where, and with what."""
    name = item.get("driverName", "")
    yield from common.driver("driverName", name)
    if name != name.lower():
        yield invalid("driverName", name, LOWER)
    if "parameters" in item:
        limit = common.PARAMETERS_BYTES_MAX
        yield from common.raw("parameters", item["parameters"], limit)
    if "suitableNodes" in item:
        yield from node_selector("suitableNodes", item["suitableNodes"])


def resource_class_update(new: Object, old: Object) -> Iterator[FieldError]:
    """The same of a changed one, whose driver stays."""
    yield from resource_class(new)
    name = new.get("driverName", "")
    if name != old.get("driverName", ""):
        yield invalid("driverName", name, IMMUTABLE)


# PodScheduling


def pod_scheduling(item: Object) -> Iterator[FieldError]:
    """A new one: it belongs to the pod whose name it has."""
    yield from _check_owner(item["metadata"])
    yield from _spec(item.get("spec") or {})


def pod_scheduling_update(new: Object, old: Object) -> Iterator[FieldError]:
    """A changed one: it is still the same pod's, and its numbers only grow."""
    owners = new["metadata"].get("ownerReferences") or []
    if owners != (old["metadata"].get("ownerReferences") or []):
        yield invalid(OWNERS, owners, IMMUTABLE)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    yield from _spec(spec)
    for field in ("round", "attempt"):
        if spec.get(field, 0) < before.get(field, 0):
            yield invalid(f"spec.{field}", spec.get(field, 0), ONLY_UP)


def pod_scheduling_status(new: Object, old: Object) -> Iterator[FieldError]:
    """What the drivers answer."""
    given = (new.get("status") or {}).get("resourceClaims")
    yield from common.check_each_unique(
        "status.resourceClaims", given, CLAIMS_MAX, _claim, common.name_of
    )


def _check_owner(meta: Object) -> Iterator[FieldError]:
    owners = meta.get("ownerReferences") or []
    if not owners:
        yield required(OWNERS, "must name the pod of the same name as the only owner")
    elif len(owners) > 1:
        yield too_many(OWNERS, len(owners), 1)
    else:
        for field, wanted in (("apiVersion", "v1"), ("kind", "Pod")):
            if (found := owners[0].get(field, "")) != wanted:
                yield unsupported(f"{OWNERS}[0].{field}", found, (wanted,))
        if (name := owners[0].get("name", "")) != meta.get("name", ""):
            yield invalid(f"{OWNERS}[0].name", name, "must be the same as metadata.name")


def _spec(spec: Object) -> Iterator[FieldError]:
    if spec.get("selectedNode"):
        yield from _node_name("spec.selectedNode", spec["selectedNode"])
    yield from _nodes("spec.potentialNodes", spec.get("potentialNodes"))
    yield from _number("spec.round", spec.get("round"), INT64_MAX)
    yield from _number("spec.attempt", spec.get("attempt"), INT32_MAX)


def _claim(path: str, given: Object) -> Iterator[FieldError]:
    if not (name := given.get("name", "")):
        yield required(f"{path}.name")
    else:
        yield from common.dns_label(f"{path}.name", name)
    if byte_count(given.get("claimUID", "")) > UID_BYTES_MAX:
        yield too_long(f"{path}.claimUID", UID_BYTES_MAX)
    yield from _nodes(f"{path}.unsuitableNodes", given.get("unsuitableNodes"))
    yield from _number(f"{path}.observedRound", given.get("observedRound"), INT64_MAX)


def _nodes(path: str, given: Any) -> Iterator[FieldError]:
    return common.check_each_unique(path, given, NODES_MAX, _node_name, common.identity)


def _node_name(path: str, name: str) -> Faults:
    return named(path, name, names.subdomain_faults)


def _number(path: str, value: int | None, limit: int) -> Faults:
    if value is not None and value > limit:
        return [invalid(path, value, f"must be less than or equal to {limit}")]
    return not_negative(path, value)


# Annotations of claims


def claim_annotations(meta: Object) -> Iterator[FieldError]:
    """What a new claim says of how it is to be allocated."""
    yield from _annotations("metadata.annotations", _get_annotations(meta))
    yield from _ephemeral(meta)


def claim_annotations_update(meta: Object, old: Object) -> Iterator[FieldError]:
    """The same of a changed claim; what it said before is not looked at again."""
    given, before = _get_annotations(meta), _get_annotations(old)
    if given.get(ALLOCATION_MODE) != before.get(ALLOCATION_MODE):
        path = f"metadata.annotations[{ALLOCATION_MODE}]"
        yield invalid(path, given.get(ALLOCATION_MODE), IMMUTABLE)
    elif POD_CLAIM_NAME not in before:
        yield from _ephemeral(meta)
    if given.get(DEALLOCATION_REQUESTED) != before.get(DEALLOCATION_REQUESTED):
        yield from _reason("metadata.annotations", given)


def template_annotations(meta: Object) -> Iterator[FieldError]:
    """What a template gives to its claims."""
    path, given = "spec.metadata.annotations", _get_annotations(meta)
    yield from _annotations(path, given)
    if given.get(ALLOCATION_MODE) == IMMEDIATE:
        yield forbidden(f"{path}[{ALLOCATION_MODE}]", EPHEMERAL)


def _get_annotations(meta: Object) -> dict[str, str]:
    found: dict[str, str] = meta.get("annotations") or {}
    return found


def _annotations(path: str, given: dict[str, str]) -> Iterator[FieldError]:
    mode = given.get(ALLOCATION_MODE)
    if mode is not None and mode not in ALLOCATION_MODES:
        yield unsupported(f"{path}[{ALLOCATION_MODE}]", mode, ALLOCATION_MODES)
    yield from _reason(path, given)


def _reason(path: str, given: dict[str, str]) -> Iterator[FieldError]:
    if byte_count(given.get(DEALLOCATION_REQUESTED, "")) > REASON_BYTES_MAX:
        yield too_long(f"{path}[{DEALLOCATION_REQUESTED}]", REASON_BYTES_MAX)


def _ephemeral(meta: Object) -> Iterator[FieldError]:
    given = _get_annotations(meta)
    if POD_CLAIM_NAME in given and given.get(ALLOCATION_MODE) == IMMEDIATE:
        yield forbidden(f"metadata.annotations[{ALLOCATION_MODE}]", EPHEMERAL)
