"""Applies structural schemas of custom resources to objects: pruning and defaults.

Source: KEP-1693 (structural schemas), KEP-575 (defaulting); apiextensions-apiserver
pkg/apiserver/schema and validation, Kubernetes 1.36.
"""

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from stower.api.errors import INVALID, FieldError
from stower.api.schema import Field, Type
from stower.cel.patterns import BadPatternError, compile_pattern

Object = dict[str, Any]
EMBEDDED: Final = "x-kubernetes-embedded-resource"
TOP: Final = ("kind", "apiVersion", "metadata")
SCALARS: Final = ("string", "integer", "number", "boolean")
PATTERNS_SIZE_MAX: Final = 300_000  # instructions of all patterns of a schema: 0.1 s to compile


def type_of(schema: Object, meta: Type) -> Type:
    """The type of a custom resource, for merges and managed fields."""
    kind = _type(schema)
    kind.form = "struct"
    field = Field(meta, True, True, dict)
    kind.fields = {**kind.fields, "metadata": field}
    return kind


def _deduce_type() -> Type:
    """The type of what no schema speaks of: maps are merged, lists are not. Source:
    __untyped_deduced_ of structured-merge-diff."""
    kind = Type("map", "object")
    kind.items = kind
    return kind


_DEDUCED: Final = _deduce_type()


def _type(schema: Object) -> Type:
    form = schema.get("type")
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    if form == "object" and "properties" in schema:
        kind = Type("struct", "object")
        kind.fields = {
            name: Field(_type(inner), True, False, partial(inner.get, "default"))
            for name, inner in schema["properties"].items()
        }
        kind.items = _DEDUCED if keeps else None
        kind.atomic = schema.get("x-kubernetes-map-type") == "atomic"
    elif form == "object" and keeps and "additionalProperties" not in schema:
        kind = Type("map", "object")
        kind.items = _DEDUCED
        kind.atomic = schema.get("x-kubernetes-map-type") == "atomic"
    elif keeps and form is None:
        kind = _DEDUCED
    elif form == "object":
        extra = schema.get("additionalProperties")
        kind = Type("map" if isinstance(extra, dict) else "any", "object")
        kind.items = _type(extra) if isinstance(extra, dict) else None
        kind.atomic = schema.get("x-kubernetes-map-type") == "atomic"
    elif form == "array":
        kind = Type("list", "array")
        kind.items = _type(schema.get("items") or {})
        kind.list_type = schema.get("x-kubernetes-list-type", "atomic")
        kind.map_keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    elif form == "string" and schema.get("format") not in (None, "", "byte"):
        kind = Type("scalar", "formatted string")  # merges take any scalar here
    else:
        kind = Type("scalar" if form else "any", form or "any")
    return kind


def get_field_schema(schema: Object, name: str) -> Object | None:
    """The schema of a field; None: there is none."""
    found: Object | None = (schema.get("properties") or {}).get(name)
    if found is not None:
        return found
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, dict) else {} if extra is not None else None


def pruned(schema: Object, value: Any, fills: bool = True, keeps_all: bool = False) -> Any:
    """The value without unknown fields; nulls that may not be are absent. `fills`: with defaults
    for fields that are absent; `keeps_all`: with unknown fields, as those of metadata are not known
    to the schema."""
    if isinstance(value, dict):
        keeps = keeps_all or schema.get("x-kubernetes-preserve-unknown-fields")
        is_resource = schema.get(EMBEDDED)
        made: Object = {}
        for name, inner in value.items():
            below = get_field_schema(schema, name)
            if below is None:
                if keeps or (is_resource and name in TOP):
                    made[name] = copy.deepcopy(inner)
            elif inner is None and not below.get("nullable"):
                continue
            else:
                whole = keeps_all or bool(is_resource and name in TOP)
                made[name] = pruned(below, inner, fills, whole)
        for name, below in (schema.get("properties") or {}).items() if fills else ():
            if name not in made and "default" in below:
                made[name] = copy.deepcopy(below["default"])
                made[name] = pruned(below, made[name])
        return made
    if isinstance(value, list):
        items = schema.get("items") or {}
        if items.get("type") in SCALARS and not any(isinstance(v, dict | list) for v in value):
            return value[:]
        return [pruned(items, v, fills, keeps_all) for v in value]
    return value


def unknown(schema: Object, value: Any, path: str = "") -> Iterator[str]:
    """The paths of fields that pruning drops."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in TOP and (not path or schema.get(EMBEDDED)):
                continue
            where = f"{path}.{name}" if path else name
            below = get_field_schema(schema, name)
            if below is not None:
                yield from unknown(below, inner, where)
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield where
    elif isinstance(value, list):
        items = schema.get("items") or {}
        if items.get("type") in SCALARS and not any(isinstance(v, dict | list) for v in value):
            return
        for i, inner in enumerate(value):
            yield from unknown(items, inner, f"{path}[{i}]")


# What a schema says of types and nothing else.
_SHAPE: Final = (
    "type", "nullable", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string",
)  # fmt: skip


def keep_types(schema: Object) -> Object:
    """The schema without anything but types."""
    made: Object = {name: schema[name] for name in _SHAPE if name in schema}
    if "properties" in schema:
        made["properties"] = {n: keep_types(s) for n, s in schema["properties"].items()}
    for name in ("items", "additionalProperties"):
        if name in schema:
            inner = schema[name]
            made[name] = keep_types(inner) if isinstance(inner, dict) else inner
    return made


_DOCUMENTATION: Final = ("description", "title", "example", "externalDocs", "id")


def undocumented(schema: Object) -> Object:
    """The schema without what is for readers."""
    made = {name: value for name, value in schema.items() if name not in _DOCUMENTATION}
    for name in ("properties", "patternProperties", "definitions"):
        if name in made:
            made[name] = {n: undocumented(inner) for n, inner in made[name].items()}
    for name in ("items", "additionalProperties", "not"):
        if isinstance(made.get(name), dict):
            made[name] = undocumented(made[name])
    for name in ("allOf", "anyOf", "oneOf"):
        if name in made:
            made[name] = [undocumented(inner) for inner in made[name]]
    return made


def pattern_faults(
    schema: Object, path: str, sizes: dict[str, int] | None = None
) -> Iterator[FieldError]:
    """Yields the patterns of a schema that are no regular expressions, and the first with which
    they are too large together. `sizes`: of those that were looked at already, "" for the sum."""
    sizes = {"": 0} if sizes is None else sizes
    wanted = schema.get("pattern")
    if wanted and wanted not in sizes and sizes[""] <= PATTERNS_SIZE_MAX:
        try:
            sizes[wanted] = compile_pattern(wanted).size
        except BadPatternError as error:
            text = f"must be a valid regular expression, but isn't: {error}"
            yield FieldError(INVALID, f"{path}.pattern", wanted, text)
        sizes[""] += sizes.get(wanted, 0)
        if sizes[""] > PATTERNS_SIZE_MAX:
            text = (
                f"the patterns of a schema take more than {PATTERNS_SIZE_MAX} instructions of RE2"
            )
            yield FieldError(INVALID, f"{path}.pattern", wanted, text)
    for name, inner in (schema.get("properties") or {}).items():
        yield from pattern_faults(inner, f"{path}.properties[{name}]", sizes)
    for word in ("allOf", "anyOf", "oneOf"):
        for i, inner in enumerate(schema.get(word) or ()):
            yield from pattern_faults(inner, f"{path}.{word}[{i}]", sizes)
    for word in ("items", "additionalProperties", "not"):
        if isinstance(schema.get(word), dict):
            yield from pattern_faults(schema[word], f"{path}.{word}", sizes)
