"""Versions of one kind that are kept as another: events.k8s.io and core events.

Source: pkg/apis/events/v1/conversion.go, Kubernetes 1.36.
"""

from collections.abc import Callable
from typing import Any, Final

from stower.api.registry import Resource

Object = dict[str, Any]
_RENAMED: Final = (
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


def _renamed(item: Object, names: dict[str, str]) -> Object:
    return {names.get(name, name): value for name, value in item.items()}


def event_from_new(item: Object) -> Object:
    """A core event of an events.k8s.io one."""
    made = _renamed(item, dict(_RENAMED))
    made.setdefault("involvedObject", {})
    made.setdefault("source", {})
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        made.setdefault(name, None)
    made.setdefault("reportingComponent", "")
    made.setdefault("reportingInstance", "")
    return made


def event_to_new(item: Object) -> Object:
    """An events.k8s.io event of a core one."""
    made = _renamed(item, {old: new for new, old in _RENAMED})
    for name in ("reportingController", "reportingInstance"):
        if made.get(name) == "":
            del made[name]
    made.setdefault("eventTime", None)
    for name in ("deprecatedFirstTimestamp", "deprecatedLastTimestamp"):
        made.setdefault(name, None)
    return made


Conversion = Callable[[Object], Object]


def out_of_store(resource: Resource) -> Conversion | None:
    """How a stored object becomes one of this version; None: it is one."""
    return event_to_new if resource.group == "events.k8s.io" else None


def into_store(resource: Resource) -> Conversion | None:
    """How an object of this version becomes a stored one; None: it is one."""
    return event_from_new if resource.group == "events.k8s.io" else None
