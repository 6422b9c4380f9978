"""Validates each schema of a CustomResourceDefinition by itself: the keywords that it may have, and
the kinds of lists and maps.

Source: apiextensions-apiserver pkg/apis/apiextensions/validation/validation.go
(ValidateCustomResourceDefinitionOpenAPISchema), Kubernetes 1.36.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from stower.api.custom_schema import EMBEDDED
from stower.api.errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    TOO_MANY,
    FieldError,
    unsupported,
)
from stower.api.validation.structural_schemas import (
    KEEPS_UNKNOWN,
    constraints,
    others,
    parts,
)

Object = dict[str, Any]
LIST_TYPE: Final = "x-kubernetes-list-type"
LIST_KEYS: Final = "x-kubernetes-list-map-keys"
MAP_TYPE: Final = "x-kubernetes-map-type"
TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED: Final = (
    "id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref",
)  # fmt: skip
_UNIQUE_ITEMS: Final = (
    "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
)
KEYS_MAX: Final = 100  # arbitrary: an error quotes all keys, and there may be one for each
_KEY: Final = f"this property is in {LIST_KEYS}, so it"


class Place(NamedTuple):
    """Where a schema is. `in_metadata`: whether in the schema of the metadata, kind or apiVersion
    of a resource; `no_default`: why no default may be there; `uncorrelated`: the path of the
    outermost list around it whose items have no old values."""

    in_metadata: bool = False
    no_default: str = ""
    uncorrelated: str = ""


class Lenience(NamedTuple):
    """The rules that schemas stored earlier may break, as one of them does already."""

    types: bool = False
    set_items: bool = False
    map_keys: bool = False

    @classmethod
    def of(cls, schemas: Iterable[Object]) -> "Lenience":
        """Returns the lenience towards a definition with these schemas before."""
        found = [node for schema in schemas for node in _all_schemas(schema)]
        return cls(
            any(_type_faults(node, "") for node in found),
            any(_set_faults(node, "") for node in found),
            any(any(True for _ in _map_key_faults(node, "")) for node in found),
        )


def _all_schemas(schema: Object) -> Iterator[Object]:
    waiting = [schema]
    while waiting:
        yield (at := waiting.pop())
        waiting += [inner for walk in (parts, constraints, others) for _, inner in walk(at)]


def schema_faults(
    schema: Object, path: str, place: Place, lenience: Lenience
) -> Iterator[FieldError]:
    """Yields what is wrong with a schema, the schemas in it aside."""
    if not lenience.types:
        yield from _type_faults(schema, path)
    yield from _keyword_faults(schema, path, place)
    if schema.get("uniqueItems"):
        yield FieldError(FORBIDDEN, f"{path}.uniqueItems", None, _UNIQUE_ITEMS)
    extra = schema.get("additionalProperties")
    if extra is not None and extra is not True and schema.get("properties"):
        text = "additionalProperties and properties are mutual exclusive"
        yield FieldError(FORBIDDEN, f"{path}.additionalProperties", None, text)
    if schema.get(KEEPS_UNKNOWN) is False:
        yield FieldError(INVALID, f"{path}.{KEEPS_UNKNOWN}", False, "must be true or undefined")
    yield from _kind_faults(schema, path, lenience)
    if schema.get(LIST_TYPE) == "map":
        yield from _map_faults(schema, path)
    if not lenience.map_keys:
        yield from _map_key_faults(schema, path)


def _type_faults(schema: Object, path: str) -> list[FieldError]:
    form = schema.get("type") or ""
    return [] if not form or form in TYPES else [unsupported(f"{path}.type", form, TYPES)]


def _keyword_faults(schema: Object, path: str, place: Place) -> Iterator[FieldError]:
    if schema.get("default") is not None and place.no_default:
        text = f"must not be set {place.no_default}"
        yield FieldError(FORBIDDEN, f"{path}.default", None, text)
    for name in _UNSUPPORTED:
        found = schema.get(name)
        if found or (found is not None and name in ("additionalItems", "dependencies", "$ref")):
            yield FieldError(FORBIDDEN, f"{path}.{name}", None, f"{name} is not supported")
    if schema.get("type") == "null":
        text = "type cannot be set to null, use nullable as an alternative"
        yield FieldError(FORBIDDEN, f"{path}.type", None, text)
    if isinstance(schema.get("items"), list) and schema["items"]:
        text = "items must be a schema object and not an array"
        yield FieldError(FORBIDDEN, f"{path}.items", None, text)
    if place.in_metadata and schema.get(EMBEDDED):
        text = "must not be used inside of resource meta"
        yield FieldError(FORBIDDEN, f"{path}.{EMBEDDED}", None, text)


def _kind_faults(schema: Object, path: str, lenience: Lenience) -> Iterator[FieldError]:
    """Yields what is wrong with the kind of a list or map."""
    form, keys = schema.get("type") or "", schema.get(LIST_KEYS)
    map_type, list_type = schema.get(MAP_TYPE), schema.get(LIST_TYPE)
    at = f"{path}.type"
    if map_type is not None and form != "object":
        text = f"must be object if {MAP_TYPE} is specified"
        yield FieldError(INVALID if form else REQUIRED, at, form, text)
    if map_type not in (None, "atomic", "granular"):
        yield unsupported(f"{path}.{MAP_TYPE}", map_type, ("atomic", "granular"))
    if list_type is not None and form != "array":
        text = f"must be array if {LIST_TYPE} is specified"
        yield FieldError(INVALID if form else REQUIRED, at, form, text)
    elif not lenience.set_items:
        yield from _set_faults(schema, path)
    if list_type not in (None, "atomic", "set", "map"):
        yield unsupported(f"{path}.{LIST_TYPE}", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        text = f"must be map if {LIST_KEYS} is non-empty"
        kind = REQUIRED if list_type is None else INVALID
        yield FieldError(kind, f"{path}.{LIST_TYPE}", list_type, text)


def _set_faults(schema: Object, path: str) -> list[FieldError]:
    """The items of a set are atomic: lists are so by default, maps are not."""
    items = schema.get("items")
    if schema.get(LIST_TYPE) != "set" or not isinstance(items, dict):
        return []
    list_type = items.get(LIST_TYPE)
    text = f"must be atomic as item of a list with {LIST_TYPE}=set"
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        return [FieldError(INVALID, f"{path}.items.{LIST_TYPE}", list_type, text)]
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        return [FieldError(INVALID, f"{path}.items.{MAP_TYPE}", list_type, text)]
    return []


def _map_faults(schema: Object, path: str) -> Iterator[FieldError]:
    """Yields what is wrong with the keys of a map-like list."""
    keys, items, at = schema.get(LIST_KEYS) or [], schema.get("items"), f"{path}.{LIST_KEYS}"
    if len(keys) > KEYS_MAX:
        yield FieldError(TOO_MANY, at, len(keys), f"must have at most {KEYS_MAX} items")
        return
    if not keys:
        yield FieldError(REQUIRED, at, "", f"must not be empty if {LIST_TYPE} is map")
    if items is None:
        text = f"must have a schema if {LIST_TYPE} is map"
        yield FieldError(REQUIRED, f"{path}.items", "", text)
    if not isinstance(items, dict):
        return
    form, parent = items.get("type") or "", f"if parent array's {LIST_TYPE} is map"
    if form != "object":
        text = f"must be object {parent}"
        yield FieldError(INVALID, f"{path}.items.type", form, text)
        return
    properties = items.get("properties") or {}
    seen: set[str] = set()
    for key in keys:
        if key not in properties:
            yield FieldError(INVALID, at, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            text = f"must be a scalar type {parent}"
            yield FieldError(INVALID, f"{path}.items.properties[{key}].type", form, text)
        if key in seen:
            yield FieldError(INVALID, at, keys, "must not contain duplicate entries")
        seen.add(key)


def _map_key_faults(schema: Object, path: str) -> Iterator[FieldError]:
    """Yields what is wrong with the items of sets and map-like lists: each item is there, and each
    key of it."""
    kind, items = schema.get(LIST_TYPE), schema.get("items")
    if kind not in ("set", "map") or not isinstance(items, dict):
        return
    if items.get("nullable"):
        text = f"cannot be nullable when {LIST_TYPE} is {kind}"
        yield FieldError(FORBIDDEN, f"{path}.items.nullable", None, text)
    properties, required = items.get("properties") or {}, items.get("required") or ()
    for key in schema.get(LIST_KEYS) or () if kind == "map" else ():
        if key not in properties:
            continue
        at = f"{path}.items.properties[{key}]"
        if key not in required and properties[key].get("default") is None:
            text = f"{_KEY} must have a default or be a required property"
            yield FieldError(REQUIRED, f"{at}.default", "", text)
        if properties[key].get("nullable"):
            yield FieldError(FORBIDDEN, f"{at}.nullable", None, f"{_KEY} cannot be nullable")
