"""Computes the quality of service class of a pod from its spec.

Source: pkg/apis/core/helper/qos, Kubernetes 1.36.
"""

from functools import lru_cache
from typing import Any, Final

from stower.model.quantity import Quantity, quantity_of

Object = dict[str, Any]
COUNTED: Final = ("cpu", "memory")


@lru_cache(4096)
def _is_positive(text: str) -> bool:
    return quantity_of(text).sign > 0


def qos_class(spec: Object) -> str:
    """Returns Guaranteed, Burstable or BestEffort."""
    own = spec.get("resources")
    guaranteed = True
    if own is not None:
        parts = [own]
        guaranteed = not own.get("limits") or _counted(own["limits"]).keys() >= {*COUNTED}
    else:
        containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        parts = [c.get("resources") or {} for c in containers]
        limits = (_counted(part.get("limits") or {}).keys() for part in parts)
        guaranteed = all(names >= {*COUNTED} for names in limits)
    requested = _sums(parts, "requests")
    limited = _sums(parts, "limits")
    if not requested and not limited:
        return "BestEffort"
    same = guaranteed and requested.keys() == limited.keys()
    if same and all(requested[n].cmp(limited[n]) == 0 for n in requested):
        return "Guaranteed"
    return "Burstable"


def _counted(amounts: Object) -> Object:
    """The amounts of CPU and memory above zero."""
    return {n: v for n in COUNTED if (v := amounts.get(n)) and _is_positive(v)}


def _sums(parts: list[Object], field: str) -> dict[str, Quantity]:
    made: dict[str, Quantity] = {}
    for part in parts:
        for name, value in _counted(part.get(field) or {}).items():
            found = quantity_of(value)
            made[name] = found.add(made[name]) if name in made else found
    return made
