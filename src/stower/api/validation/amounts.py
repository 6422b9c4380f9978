"""Validates resource names and quantities, and requests against limits."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation.rules import (
    NOT_NEGATIVE,
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    label_key,
    missing,
    named,
    required,
)
from stower.model import names
from stower.model.quantity import Quantity, quantity_of

HUGE: Final = "hugepages-"
CONTAINER: Final = ("cpu", "memory", "ephemeral-storage")
COUNTED: Final = ("pods", "resourcequotas", "services", "replicationcontrollers", "secrets",
                  "configmaps", "persistentvolumeclaims", "services.nodeports",
                  "services.loadbalancers")  # fmt: skip
STANDARD: Final = frozenset(
    [*CONTAINER, *COUNTED, "storage", "requests.storage", "requests.cpu", "requests.memory",
     "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage"]
)  # fmt: skip
POD_LEVEL: Final = ("cpu", "memory")
INTEGER: Final = "must be an integer"
quantity = lru_cache(maxsize=65536)(quantity_of)
NameRule = Callable[[str, str], Faults]


def is_native(name: str) -> bool:
    """A resource of Kubernetes' own."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended(name: str) -> bool:
    """A resource that somebody else defines. Source: helper.IsExtendedResourceName."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not names.qualified_name_faults(f"requests.{name}")


def may_overcommit(name: str) -> bool:
    """Whether requests may be less than limits."""
    return is_native(name) and not name.startswith(HUGE)


def _name(path: str, name: str) -> Faults:
    faults = label_key(path, name)
    if faults:
        return faults
    standard = name in STANDARD or name.startswith((HUGE, f"requests.{HUGE}"))
    if "/" not in name and not standard:
        return [invalid(path, name, "must be a standard resource type or fully qualified")]
    return []


def container_name(path: str, name: str) -> Faults:
    """The name of a resource that a container can ask for."""
    faults = _name(path, name)
    if "/" not in name:
        if name not in CONTAINER and not name.startswith(HUGE):
            faults.append(invalid(path, name, "must be a standard resource for containers"))
    elif not is_native(name) and not is_extended(name):
        faults.append(invalid(path, name, "doesn't follow extended resource name standard"))
    return faults


def pod_name(path: str, name: str) -> Faults:
    """The name of a resource that a pod as a whole can ask for."""
    faults = _name(path, name)
    if not faults and name not in POD_LEVEL and not name.startswith(HUGE):
        return [unsupported(path, name, (*POD_LEVEL, HUGE))]
    return faults


def amount(path: str, name: str, value: str) -> Faults:
    """A quantity of a resource."""
    faults: Faults = []
    found = quantity(value)
    if found.sign < 0:
        faults.append(invalid(path, value, NOT_NEGATIVE))
    if (name in COUNTED or is_extended(name)) and found.milli_value() % 1000:
        faults.append(invalid(path, value, INTEGER))
    return faults


def requirements(
    path: str, given: Object | None, claims: frozenset[str], rule: NameRule = container_name
) -> Iterator[FieldError]:
    """Requests, limits and claims of a container or a pod."""
    if not given:
        return
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    huge = compute = False
    for name, value in limits.items():
        at = f"{path}.limits[{name}]"
        yield from rule(at, name)
        yield from amount(at, name, value)
        huge |= name.startswith(HUGE)
        compute |= name in POD_LEVEL
    for name, value in requests.items():
        at = f"{path}.requests[{name}]"
        yield from rule(at, name)
        yield from amount(at, name, value)
        if name in limits:
            order = quantity(value).cmp(quantity(limits[name]))
            if order != 0 and not may_overcommit(name):
                text = f"must be equal to {name} limit of {limits[name]}"
                yield invalid(f"{path}.requests", value, text)
            elif order > 0:
                text = f"must be less than or equal to {name} limit of {limits[name]}"
                yield invalid(f"{path}.requests", value, text)
        elif not may_overcommit(name):
            text = "Limit must be set for non overcommitable resources"
            yield required(f"{path}.limits", text)
        huge |= name.startswith(HUGE)
        compute |= name in POD_LEVEL
    for name, value in (*limits.items(), *requests.items()):
        if name.startswith(HUGE) and _has_partial_page(name, value):
            text = f"{value} is not positive integer multiple of {name.removeprefix(HUGE)}"
            field = "limits" if limits.get(name) == value else "requests"
            yield invalid(f"{path}.{field}[{name}]", value, text)
    if huge and not compute:
        yield forbidden(path, "HugePages require cpu or memory")
    yield from claim_names(f"{path}.claims", given.get("claims") or (), claims)


def _has_partial_page(name: str, value: str) -> bool:
    """Not a whole number of pages."""
    try:
        page: Quantity = quantity(name.removeprefix(HUGE))
    except ValueError:
        return False
    size = page.value()
    return size > 0 and quantity(value).value() % size != 0


def claim_names(path: str, given: Any, known: frozenset[str]) -> Iterator[FieldError]:
    """A container's claims: of those of its pod, each once."""
    seen: set[str] = set()
    for i, claim in enumerate(given):
        at = f"{path}[{i}]"
        name, request = claim.get("name", ""), claim.get("request", "")
        if not name:
            yield required(at)
            continue
        if name in seen:
            yield duplicate(at, name)
        else:
            key = name
            if request:
                yield from named(f"{at}.request", request, names.label_faults)
                key = f"{name}/{request}"
            if key in seen:
                yield duplicate(at, key)
            elif not request and any(k.startswith(f"{name}/") for k in seen):
                yield duplicate(at, name)
            seen.add(key)
        if name not in known:
            text = "must be one of the names in pod.spec.resourceClaims"
            text += ": " + ", ".join(sorted(known)) if known else " which is empty"
            yield missing(at, name, text)
