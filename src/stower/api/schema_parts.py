"""Builds parts of type definitions for kinds that are not in the tables, in the tables' OpenAPI v2.

Must not know the kinds that are defined.
"""

from collections.abc import Iterable
from typing import Any, Final

Object = dict[str, Any]
META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
TEXT: Final = {"type": "string"}
INT32: Final = {"type": "integer", "format": "int32"}
ALL_VERBS: Final = (
    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
)  # fmt: skip
_AS_GIVEN: Final = {"group": "", "version": ""}


def ref(name: str) -> Object:
    """Another definition."""
    return {"$ref": f"#/definitions/{name}"}


def struct(required: tuple[str, ...] = (), **properties: Object) -> Object:
    """An object with these fields."""
    return {"type": "object", "required": [*required], "properties": properties}


def atomic(item: Object) -> Object:
    """A list that is written as a whole."""
    return {"type": "array", "items": item, "x-kubernetes-list-type": "atomic"}


def by_key(item: Object, key: str, strategy: str = "") -> Object:
    """A list of which each item is found by a field; `strategy`: how strategic patches merge it."""
    found: Object = {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
    }
    if strategy:
        found["x-kubernetes-patch-merge-key"] = key
        found["x-kubernetes-patch-strategy"] = strategy
    return found


def conditions() -> Object:
    """metav1.Conditions."""
    return by_key(ref(f"{META}Condition"), "type", "merge")


def entry(kind: str, plural: str, scope: str, *, status: bool = True) -> Object:
    """What discovery says of a resource."""
    found: Object = {
        "resource": plural,
        "responseKind": {**_AS_GIVEN, "kind": kind},
        "scope": scope,
        "singularResource": kind.lower(),
        "verbs": [*ALL_VERBS],
    }
    if status:
        found["subresources"] = [
            {
                "subresource": "status",
                "responseKind": {**_AS_GIVEN, "kind": kind},
                "verbs": ["get", "patch", "update"],
            }
        ]
    return found


def columns(named: Iterable[tuple[str, str]]) -> list[Object]:
    """Printed columns: their names and what they are."""
    return [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": text,
            "priority": 0,
        }
        for name, text in named
    ]
