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
        return [unsupported(path, name, sorted((*POD_LEVEL, HUGE)))]
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
    path: str,
    given: Object | None,
    claims: frozenset[str],
    rule: NameRule = container_name,
    any_page: bool = False,
) -> Iterator[FieldError]:
    """Requests, limits and claims of a container or a pod. `any_page`: huge pages need not be
    whole."""
    if not given:
        return
    limits, requests = given.get("limits") or {}, given.get("requests") or {}
    for name, value in limits.items():
        yield from _amount(f"{path}.limits[{name}]", name, value, rule)
        yield from _page(f"{path}.limits[{name}]", name, value, any_page)
    for name, value in requests.items():
        yield from _amount(f"{path}.requests[{name}]", name, value, rule)
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
        yield from _page(f"{path}.requests[{name}]", name, value, any_page)
    given_names = {*limits, *requests}
    if any(n.startswith(HUGE) for n in given_names) and given_names.isdisjoint(POD_LEVEL):
        yield forbidden(path, "HugePages require cpu or memory")
    yield from claim_names(f"{path}.claims", given.get("claims") or (), claims)


def _amount(path: str, name: str, value: str, rule: NameRule) -> Faults:
    return [*rule(path, name), *amount(path, name, value)]


def _page(path: str, name: str, value: str, any_page: bool) -> Faults:
    if any_page or not name.startswith(HUGE) or is_whole_page(name, value):
        return []
    return [invalid(path, value, f"{value} is not positive integer multiple of {name}")]


def is_whole_page(name: str, value: str) -> bool:
    """Whether the amount of a resource of huge pages is a whole number of them."""
    try:
        page: Quantity = quantity(name.removeprefix(HUGE))
    except ValueError:
        return False
    if page.sign <= 0 or page.milli_value() % 1000:
        return False
    return quantity(value).value() % page.value() == 0


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
