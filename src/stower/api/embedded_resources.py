"""Reads and validates resources within custom resources (x-kubernetes-embedded-resource): each has
a kind, an apiVersion and perhaps metadata, whatever its schema says.

Source: apiextensions-apiserver pkg/apiserver/schema/objectmeta, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.custom_schema import EMBEDDED
from stower.api.errors import INVALID, REQUIRED, FieldError
from stower.api.metadata import new_metadata_errors
from stower.api.schema import BadValueError, Reading, Type
from stower.model import names

Object = dict[str, Any]
_SUBSCHEMAS: Final = ("items", "additionalProperties")


class BadResourceError(Exception):
    """A kind, apiVersion or metadata that is of the wrong type."""

    def __init__(self, fault: FieldError) -> None:
        super().__init__(f"{fault.field}: {fault.message}")
        self.fault = fault


def has_embedded(schema: Object) -> bool:
    """Whether values of a schema may have resources in them, or be one."""
    if schema.get(EMBEDDED):
        return True
    inner = [*(schema.get("properties") or {}).values(), *map(schema.get, _SUBSCHEMAS)]
    return any(has_embedded(below) for below in inner if isinstance(below, dict))


def _parts(schema: Object, value: Any, path: str) -> Iterator[tuple[Object, Any, str]]:
    """Yields the fields, values and items that have a schema, with their schemas and paths."""
    if isinstance(value, dict):
        properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, inner in value.items():
            if name in properties:
                yield properties[name], inner, f"{path}.{name}" if path else name
            elif isinstance(extra, dict):
                yield extra, inner, f"{path}[{name}]" if path else f"[{name}]"
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for i, inner in enumerate(value):
                yield items, inner, f"{path}[{i}]"


def clean_resources(schema: Object, value: Any, path: str, meta: Type) -> list[str]:
    """Replaces the metadata of the resources in a value by what is known of them, and returns the
    paths of unknown fields. Raises BadResourceError. `meta`: the type of metadata."""
    found = []
    if isinstance(value, dict) and schema.get(EMBEDDED):
        found += _clean_resource(value, path, meta)
    for below, inner, at in _parts(schema, value, path):
        found += clean_resources(below, inner, at, meta)
    return sorted(found)


def _clean_resource(value: Object, path: str, meta: Type) -> list[str]:
    prefix = f"{path}." if path else ""
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            text = "must be a string"
            raise BadResourceError(FieldError(INVALID, f"{prefix}{name}", value[name], text))
    if "metadata" not in value:
        return []
    given = value["metadata"]
    try:
        cleaned = meta.clean({} if given is None else given, Reading())
    except BadValueError as error:
        raise BadResourceError(
            FieldError(INVALID, f"{prefix}metadata", given, str(error))
        ) from None
    if not cleaned.get("creationTimestamp"):
        cleaned.pop("creationTimestamp", None)
    value["metadata"] = cleaned
    unknown = (name for name in given or () if name not in meta.fields)
    return [f"{prefix}metadata.{name}" for name in unknown]


def resource_faults(schema: Object, value: Any, path: str) -> Iterator[FieldError]:
    """Yields what is wrong with the resources in a value, their schemas aside."""
    if isinstance(value, dict) and schema.get(EMBEDDED):
        yield from _resource_faults(value, f"{path}." if path else "")
    for below, inner, at in _parts(schema, value, path):
        yield from resource_faults(below, inner, at)


def _resource_faults(value: Object, prefix: str) -> Iterator[FieldError]:
    for name in ("apiVersion", "kind"):
        if name not in value:
            yield FieldError(REQUIRED, f"{prefix}{name}")
            continue
        given = value[name]
        text = ""
        if not isinstance(given, str):
            text = "must be a string"
        elif not given:
            text = "must not be empty"
        elif name == "apiVersion" and given.count("/") > 1:
            text = f"unexpected GroupVersion string: {given}"
        elif name == "kind" and (faults := [*names.label_1035_faults(given.lower())]):
            text = "may have mixed case, but should otherwise match: " + ",".join(faults)
        if text:
            yield FieldError(INVALID, f"{prefix}{name}", given, text)
    meta = value.get("metadata")
    if not isinstance(meta, dict):
        return
    named = meta if meta.get("name") else {**meta, "name": "fakename"}
    namespaced = bool(meta.get("namespace"))
    for fault in new_metadata_errors(named, namespaced, names.path_segment_faults, True):
        yield fault._replace(field=prefix + fault.field)
