"""Validates parts that the kinds for groups of pods share in all versions of scheduling.k8s.io.

Source: the declarative rules of pkg/apis/scheduling, Kubernetes 1.36 and 1.37.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from stower.api.errors import FieldError
from stower.api.validation.rules import (
    IMMUTABLE,
    Object,
    duplicate,
    invalid,
    named,
    required,
    too_many,
)
from stower.model import names

TEMPLATES_MAX: Final = 8
CLAIMS_MAX: Final = 4
TOPOLOGIES_MAX: Final = 1
PRIORITY_MAX: Final = 1_000_000_000
AT_LEAST_ONE: Final = "must be greater than or equal to 1"

Each = Callable[[str, Object], Iterator[FieldError]]


def unchanged(new: Object, old: Object, fields: Iterable[str]) -> Iterator[FieldError]:
    """These fields of the spec stay as they were made."""
    for field in fields:
        if (new["spec"].get(field) or None) != (old["spec"].get(field) or None):
            yield invalid(f"spec.{field}", None, IMMUTABLE)


def named_list(path: str, given: list[Any], limit: int, each: Each) -> Iterator[FieldError]:
    """A list whose items have names of their own; one that is too long is not looked into."""
    if len(given) > limit:
        yield too_many(path, len(given), limit)
        return
    seen: set[str] = set()
    for i, item in enumerate(given):
        name = item.get("name", "")
        if name in seen:
            yield duplicate(f"{path}[{i}]", item)
        seen.add(name)
    for i, item in enumerate(given):
        yield from each(f"{path}[{i}]", item)


def needed_name(
    path: str, name: str, faults: Callable[[str], Iterable[str]]
) -> Iterator[FieldError]:
    """A name that must be there."""
    if not name:
        yield required(path)
    else:
        yield from named(path, name, faults)


def controller(path: str, given: Object | None) -> Iterator[FieldError]:
    """The object that a Workload was made for."""
    if given is None:
        return
    if given.get("apiGroup"):
        yield from named(f"{path}.apiGroup", given["apiGroup"], names.long_name_faults)
    for field in ("kind", "name"):
        yield from needed_name(f"{path}.{field}", given.get(field, ""), names.path_segment_faults)


def one_of(path: str, given: Object, fields: tuple[str, ...]) -> Iterator[FieldError]:
    """A union: exactly one of the fields is there."""
    chosen = [name for name in fields if given.get(name) is not None]
    told = ", ".join(f"`{name}`" for name in fields)
    if not chosen:
        yield invalid(path, "", f"must specify one of: {told}")
    elif len(chosen) > 1:
        text = f"must specify exactly one of: {told}"
        yield invalid(path, f"{{{', '.join(chosen)}}}", text)


def policy(path: str, given: Object, count: str = "minCount") -> Iterator[FieldError]:
    """Basic, or a gang with a minimum."""
    yield from one_of(path, given, ("basic", "gang"))
    if given.get("gang") is not None:
        minimum = given["gang"].get(count) or 0
        if not minimum:
            yield required(f"{path}.gang.{count}")
        elif minimum < 1:
            yield invalid(f"{path}.gang.{count}", minimum, AT_LEAST_ONE)


def topology(path: str, given: Object) -> Iterator[FieldError]:
    """At most one key of a node label."""
    found = (given.get("schedulingConstraints") or {}).get("topology") or []
    at = f"{path}.schedulingConstraints.topology"
    if len(found) > TOPOLOGIES_MAX:
        yield FieldError("FieldValueTooMany", at, len(found), "must have at most 1 item")
    else:
        for i, constraint in enumerate(found):
            key = constraint.get("key", "")
            yield from needed_name(f"{at}[{i}].key", key, names.qualified_name_faults)


def claims(path: str, given: Object) -> Iterator[FieldError]:
    """Claims that all pods of a group share."""
    found = given.get("resourceClaims") or []
    yield from named_list(f"{path}.resourceClaims", found, CLAIMS_MAX, _claim)


def priority(path: str, given: Object) -> Iterator[FieldError]:
    """How important a group is."""
    if given.get("priorityClassName"):
        name = given["priorityClassName"]
        yield from named(f"{path}.priorityClassName", name, names.long_name_faults)
    value = given.get("priority")
    if value is not None and value > PRIORITY_MAX:
        text = f"must be less than or equal to {PRIORITY_MAX}"
        yield invalid(f"{path}.priority", value, text)


def _claim(path: str, given: Object) -> Iterator[FieldError]:
    yield from needed_name(f"{path}.name", given.get("name", ""), names.short_name_faults)
    fields = ("resourceClaimName", "resourceClaimTemplateName")
    yield from one_of(path, given, fields)
    for name in fields:
        if given.get(name) is not None:
            yield from named(f"{path}.{name}", given[name], names.long_name_faults)
