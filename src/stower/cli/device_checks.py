"""Objects of resource.k8s.io that come from files, checked as an API server would check them.

What an API server holds has passed these rules; of a file nobody knows, and a selector or a
quantity that cannot be read would be found out in the middle of a run.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from stower.api.errors import FieldError
from stower.api.optional import SERVE
from stower.api.schema import BadValue, Reading, Type
from stower.api.validation import device_classes, resource_claims, resource_slices
from stower.apiserver.tables import load_registry
from stower.model.kinds import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from stower.sim.made_claims import ClaimTemplate

RULES: Final[dict[type, Callable[[Any], list[FieldError]]]] = {
    DeviceClass: device_classes.device_class,
    DeviceTaintRule: device_classes.taint_rule,
    ResourceClaim: resource_claims.claim,
    ResourceSlice: resource_slices.resource_slice,
    ClaimTemplate: resource_claims.template,
}


def device_fault(api_version: str, kind: str, obj: object) -> str:
    """The first thing that is wrong with an object of whatever kind, its defaults given, or ""."""
    rule = RULES.get(type(obj))
    type_ = _types().get((api_version, kind)) if rule is not None else None
    if rule is None or type_ is None:
        return ""
    try:
        fields = type_.clean(msgspec.json.decode(msgspec.json.encode(obj)), Reading())
    except BadValue as error:
        field = ".".join(reversed(error.path))
        return f"{field}: {error.text or f'got {error.got}, want {error.want}'}"
    return next((f"{fault.field}: {fault.message}" for fault in rule(fields)), "")


@lru_cache
def _types() -> dict[tuple[str, str], Type | None]:
    return {(r.api_version, r.kind): r.type for r in load_registry(more=SERVE).resources()}
