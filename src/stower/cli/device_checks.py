"""Validates objects of resource.k8s.io and stower.dev from files with the rules of an API server.

Objects of an API server have passed these rules, objects of a file have not: without this check, an
invalid selector or quantity would end a run in its middle.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from stower.api.errors import ApiError, FieldError
from stower.api.native_kinds import NativeVersion
from stower.api.optional_kinds import SERVE
from stower.api.registry import Resource
from stower.api.requests import WriteOptions
from stower.api.schema import BadValueError, Reading
from stower.api.validation import device_classes, resource_claims, resource_slices
from stower.apiserver.tables import load_registry
from stower.model.kinds import (
    NEGOTIATING,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from stower.sim.claim_lifecycle import ClaimTemplate

RULES: Final[dict[type, Callable[[Any], list[FieldError]]]] = {
    DeviceClass: device_classes.device_class,
    DeviceTaintRule: device_classes.taint_rule,
    ResourceClaim: resource_claims.claim,
    ResourceSlice: resource_slices.resource_slice,
    ClaimTemplate: resource_claims.template,
}


def device_fault(api_version: str, kind: str, obj: object, data: bytes) -> str:
    """The first thing that is wrong with an object of whatever kind, its defaults given, or "".

    `data`: the document that it came from.
    """
    rule = RULES.get(type(obj))
    if rule is None and type(obj) not in NEGOTIATING:
        return ""
    resource = _resources().get((api_version, kind))
    if resource is None:
        return ""
    try:
        if rule is None:
            faults = _native_faults(resource, data)
        else:
            assert resource.type is not None
            known = msgspec.json.decode(msgspec.json.encode(obj))
            if isinstance(obj, ClaimTemplate):  # whose view lacks what claims take over from it
                given = msgspec.json.decode(data).get("spec") or {}
                known["spec"]["metadata"] = given.get("metadata")
            faults = rule(resource.type.clean(known, Reading()))
    except BadValueError as error:
        field = ".".join(reversed(error.path))
        return f"{field}: {error.text or f'got {error.got}, want {error.want}'}"
    except ApiError as error:
        return error.message
    return next((f"{fault.field}: {fault.message}" for fault in faults), "")


def _native_faults(resource: Resource, data: bytes) -> list[FieldError]:
    """What is wrong with an object of stower.dev."""
    version = resource.custom
    assert isinstance(version, NativeVersion)
    item, _ = version.read(msgspec.json.decode(data), WriteOptions(validation="Ignore"), "")
    return version.all_faults(item)


@lru_cache
def _resources() -> dict[tuple[str, str], Resource]:
    return {(r.api_version, r.kind): r for r in load_registry(more=SERVE).resources()}
