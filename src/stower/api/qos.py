"""Computes the quality of service class of a pod from its spec.

Source: pkg/apis/core/helper/qos, Kubernetes 1.36.
"""

from functools import lru_cache
from typing import Any, Final

from stower.api.byte_cache import ByteCache, encode
from stower.model.quantity import Quantity, quantity_of

Object = dict[str, Any]
COUNTED: Final = ("cpu", "memory")
BEST: Final = "BestEffort"
_known: Final = ByteCache()


@lru_cache(4096)
def _is_positive(text: str) -> bool:
    return quantity_of(text).sign > 0


def qos_class(spec: Object) -> str:
    """Returns Guaranteed, Burstable or BestEffort."""
    own = spec.get("resources")
    if own is not None:
        parts = [own]
    else:
        containers = spec.get("containers") or ()
        if spec.get("initContainers"):
            containers = (*containers, *spec["initContainers"])
        parts = [c.get("resources") or {} for c in containers]
    key = encode((own is not None, parts))
    found: str | None = _known.get(key)
    if found is None:
        found = _qos_class(own, parts)
        _known.put(key, found)
    return found


def _qos_class(own: Object | None, parts: list[Object]) -> str:
    if own is not None:
        guaranteed = not own.get("limits") or len(_counted(own["limits"])) == len(COUNTED)
    else:
        guaranteed = all(len(_counted(part.get("limits") or {})) == len(COUNTED) for part in parts)
    if not guaranteed:
        asked = (part.get(field) for part in parts for field in ("requests", "limits"))
        return "Burstable" if any(amounts and _counted(amounts) for amounts in asked) else BEST
    requested = _sums(parts, "requests")
    limited = _sums(parts, "limits")
    if not requested and not limited:
        return BEST
    if requested.keys() == limited.keys() and all(
        requested[n].cmp(limited[n]) == 0 for n in requested
    ):
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
