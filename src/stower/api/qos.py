"""Computes the quality of service class of a pod from its spec.

Source: pkg/apis/core/helper/qos, Kubernetes 1.36.
"""

from functools import lru_cache
from typing import Any, Final

from stower.model.quantity import quantity_of

Object = dict[str, Any]
COUNTED: Final = ("cpu", "memory")


@lru_cache(4096)
def _is_zero(text: str) -> bool:
    return quantity_of(text).is_zero


def qos_class(spec: Object) -> str:
    """Returns Guaranteed, Burstable or BestEffort."""
    own = spec.get("resources")
    if own is not None and (own.get("requests") or own.get("limits")):
        parts = [own]
    else:
        containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        parts = [c.get("resources") or {} for c in containers]
    requested = limited = False
    guaranteed = True
    for part in parts:
        requests, limits = part.get("requests") or {}, part.get("limits") or {}
        asked = {n: v for n in COUNTED if (v := requests.get(n)) and not _is_zero(v)}
        bound = {n: v for n in COUNTED if (v := limits.get(n)) and not _is_zero(v)}
        requested |= bool(asked)
        limited |= bool(bound)
        if len(bound) < len(COUNTED):
            guaranteed = False
        for name, limit in bound.items():
            if name not in asked or (
                asked[name] != limit and quantity_of(asked[name]).cmp(quantity_of(limit)) != 0
            ):
                guaranteed = False
    if not requested and not limited:
        return "BestEffort"
    return "Guaranteed" if guaranteed and parts else "Burstable"
