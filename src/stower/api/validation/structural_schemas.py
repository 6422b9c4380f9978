"""Validates that the schemas of CustomResourceDefinitions are structural: the types of all fields
are given outside of allOf, anyOf, oneOf and not, which constrain values only.

Source: apiextensions-apiserver pkg/apiserver/schema/validation.go, complete.go and convert.go,
Kubernetes 1.36.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Final

from stower.api.custom_schema import EMBEDDED, pattern_faults
from stower.api.errors import FORBIDDEN, INVALID, REQUIRED, FieldError

Object = dict[str, Any]
KEEPS_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"
FAULTS_MAX: Final = 1000  # that are told of one schema; arbitrary: each names its place in full
PARTS_MAX: Final = 100_000  # schemas in a schema, arbitrary: 5 s; public definitions have 10,000
PATH_MAX: Final = 10_000  # of characters, arbitrary: as each check makes the path of each field
DEPTH_MAX: Final = 60  # arbitrary, for the recursion; public definitions have some 20 levels
_INT_OR_STRING_TYPES: Final = [{"type": "integer"}, {"type": "string"}]
ALTERNATIVES: Final = ("anyOf", "allOf", "oneOf")
# Where a schema is, for messages about its type.
ROOT: Final = "at the root"
ITEM: Final = "for specified array items"
FIELD: Final = "for specified object fields"
# What the schemas within allOf, anyOf, oneOf and not must not have.
_OUTSIDE_ONLY: Final = (
    ("type", "empty"),
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    (KEEPS_UNKNOWN, "false"),
    (EMBEDDED, "false"),
    (INT_OR_STRING, "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-validations", "empty"),
)
_POINTERS: Final = ("default", "x-kubernetes-list-type", "x-kubernetes-map-type")
_EMBEDDED_TYPE: Final = f"must be object if {EMBEDDED} is true"
_NO_FIELDS: Final = f"must not be empty if {EMBEDDED} is true without {KEEPS_UNKNOWN}"
_METADATA: Final = (
    "must not specify anything other than name and generateName, but metadata is implicitly "
    "specified"
)
_UNSUPPORTED: Final = (  # in the order of upstream's checks, with the names of its messages
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
)


def parts(schema: Object) -> Iterator[tuple[str, Object]]:
    """Yields the schemas of the fields, values and items of a schema, with their paths."""
    for name, inner in (schema.get("properties") or {}).items():
        yield f".properties[{name}]", inner
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield f".{word}", schema[word]


def constraints(schema: Object) -> Iterator[tuple[str, Object]]:
    """Yields the schemas in allOf, anyOf, oneOf and not of a schema, with their paths."""
    for word in ALTERNATIVES:
        for i, inner in enumerate(schema.get(word) or ()):
            yield f".{word}[{i}]", inner
    if schema.get("not") is not None:
        yield ".not", schema["not"]


def others(schema: Object) -> Iterator[tuple[str, Object]]:
    """Yields the schemas in what is not supported: they are validated as part of a definition."""
    for word in ("definitions", "patternProperties", "dependencies"):
        for name, inner in (schema.get(word) or {}).items():
            if isinstance(inner, dict):
                yield f".{word}[{name}]", inner
    if isinstance(schema.get("additionalItems"), dict):
        yield ".additionalItems", schema["additionalItems"]
    if isinstance(schema.get("items"), list):
        for i, inner in enumerate(schema["items"]):
            yield f".items[{i}]", inner


def size_faults(schema: Object, path: str) -> list[FieldError]:
    """Returns the error of a schema that is too large to be looked at, or in which something is
    nested too deep or has too long a path; at most one."""
    waiting, count = [(schema, 0, len(path))], 0
    while waiting:
        at, depth, length = waiting.pop()
        count += 1
        text = ""
        if count > PARTS_MAX:
            text = f"must not have more than {PARTS_MAX} parts"
        elif depth > DEPTH_MAX:
            text = f"must not be nested more than {DEPTH_MAX} levels deep"
        elif length > PATH_MAX:
            text = f"must not have fields with paths of more than {PATH_MAX} characters"
        if text:
            return [FieldError(FORBIDDEN, path, None, text)]
        for name, inner in (*parts(at), *constraints(at), *others(at)):
            waiting.append((inner, depth + 1, length + len(name)))
    return []


def unsupported_text(schema: Object) -> str | None:
    """Returns why a schema cannot be read as a structural one; None: it can."""
    for name, shown in _UNSUPPORTED:
        found = schema.get(name)
        if found or (name == "additionalItems" and found is not None):
            return f"OpenAPIV3Schema '{shown}' is not supported"
    for _, inner in constraints(schema):
        if (text := unsupported_text(inner)) is not None:
            return text
    if schema.get(KEEPS_UNKNOWN) is False:
        return f"internal error: '{KEEPS_UNKNOWN}' must be true or undefined"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    for _, inner in parts(schema):
        if (text := unsupported_text(inner)) is not None:
            return text
    return None


def structural_faults(schema: Object, path: str) -> list[FieldError]:
    """Returns what keeps the schema of a resource from being structural, in upstream's order.

    The schema is one that unsupported_text has nothing against.
    """
    incomplete = (  # of fields, upstream checks no completeness
        _completeness(inner, schema, path, path + name) for name, inner in constraints(schema)
    )
    every = chain(
        _invariants(schema, ROOT, path),
        pattern_faults(schema, path),
        chain.from_iterable(incomplete),
    )
    found = islice(every, FAULTS_MAX)
    return sorted(found, key=lambda error: f"{error.field}: {error.message}")


def _invariants(schema: Object, level: str, path: str) -> Iterator[FieldError]:
    properties, extra = schema.get("properties") or {}, schema.get("additionalProperties")
    if schema.get("type") == "array" and schema.get("items") is None:
        yield FieldError(REQUIRED, f"{path}.items", "", "must be specified")
    for name, inner in parts(schema):
        below = ITEM if name == ".items" else FIELD
        yield from _invariants(inner, below, path + name)
    at = f"{path}.additionalProperties"
    if extra is not None and level is ROOT:
        yield FieldError(FORBIDDEN, at, None, "must not be used at the root")
    if extra is not None and schema.get(EMBEDDED):
        yield FieldError(FORBIDDEN, at, None, f"must not be used if {EMBEDDED} is set")
    if schema.get(INT_OR_STRING):
        for name in (KEEPS_UNKNOWN, EMBEDDED):
            if schema.get(name):
                text = f"must be false if {INT_OR_STRING} is true"
                yield FieldError(INVALID, f"{path}.{name}", True, text)
    yield from _constraint_faults(schema, path, True, True)
    yield from _type_faults(schema, level, path)
    if level is ROOT or schema.get(EMBEDDED):
        for name in ("kind", "apiVersion"):
            kind = properties.get(name, {}).get("type") or ""
            if name in properties and kind != "string":
                yield FieldError(INVALID, f"{path}.properties[{name}].type", kind, "must be string")
        if "metadata" in properties:
            yield from _metadata_faults(properties["metadata"], level, path)
    if schema.get(EMBEDDED) and not schema.get(KEEPS_UNKNOWN) and not properties:
        yield FieldError(REQUIRED, f"{path}.properties", "", _NO_FIELDS)


def _type_faults(schema: Object, level: str, path: str) -> Iterator[FieldError]:
    form, at = schema.get("type") or "", f"{path}.type"
    if schema.get(EMBEDDED) and form != "object":
        yield FieldError(INVALID if form else REQUIRED, at, form, _EMBEDDED_TYPE)
    elif not form and not schema.get(INT_OR_STRING) and not schema.get(KEEPS_UNKNOWN):
        yield FieldError(REQUIRED, at, "", f"must not be empty {level}")
    if level is ROOT and form not in ("", "object"):
        yield FieldError(INVALID, at, form, "must be object at the root")


def _metadata_faults(schema: Object, level: str, path: str) -> Iterator[FieldError]:
    """`path`: of the schema of the resource."""
    at = f"{path}.properties[metadata]"
    if (form := schema.get("type") or "") != "object":
        yield FieldError(INVALID, f"{at}.type", form, "must be object")
    if level is not ROOT:
        return
    known = {"type", "default"}
    if set(schema.get("properties") or ()) <= {"name", "generateName"}:
        known.add("properties")
    if any(name not in known and value not in (None, False, "") for name, value in schema.items()):
        yield FieldError(FORBIDDEN, at, None, _METADATA)


def _constraint_faults(
    schema: Object, path: str, may_name_types: bool, is_outermost: bool
) -> Iterator[FieldError]:
    """Yields what is wrong within the allOf, anyOf, oneOf and not of a schema.

    `may_name_types`: whether anyOf may have the two types of x-kubernetes-int-or-string, as the
    first of allOf may have it where the schema `is_outermost`, itself in none of the four.
    """
    names_types = may_name_types and schema.get("anyOf") == _INT_OR_STRING_TYPES
    for name, inner in constraints(schema):
        if not (names_types and name.startswith(".anyOf")):
            yield from _nested_faults(inner, path + name, is_outermost and name == ".allOf[0]")


def _nested_faults(schema: Object, path: str, may_name_types: bool = False) -> Iterator[FieldError]:
    """Yields what is wrong with a schema within allOf, anyOf, oneOf or not."""
    yield from _constraint_faults(schema, path, may_name_types, False)
    for name, inner in parts(schema):
        if name != ".additionalProperties":
            yield from _nested_faults(inner, path + name)
    if schema.get("additionalProperties") not in (None, False):
        text = "must be undefined to be structural"
        yield FieldError(FORBIDDEN, f"{path}.additionalProperties", None, text)
    for name, wanted in _OUTSIDE_ONLY:
        found = schema.get(name)
        if found is not None if name in _POINTERS else found:
            yield FieldError(
                FORBIDDEN, f"{path}.{name}", None, f"must be {wanted} to be structural"
            )
    if "metadata" in (schema.get("properties") or {}):
        text = "must not be specified in a nested context"
        yield FieldError(FORBIDDEN, f"{path}.properties[metadata]", None, text)


def _completeness(constraint: Object, schema: Object, path: str, at: str) -> Iterator[FieldError]:
    """Yields the fields and items that a constraint is about and that have no schema.

    `at`: the path of the constraint, which is about the values of the schema at `path`.
    """
    for name, inner in constraints(constraint):
        yield from _completeness(inner, schema, path, at + name)
    known = schema.get("properties") or {}
    for field, inner in (constraint.get("properties") or {}).items():
        name = f".properties[{field}]"
        if field in known:
            yield from _completeness(inner, known[field], path + name, at + name)
        else:
            yield FieldError(REQUIRED, path + name, "", f"because it is defined in {at + name}")
    if constraint.get("items") is not None:
        if schema.get("items") is not None:
            yield from _completeness(
                constraint["items"], schema["items"], f"{path}.items", f"{at}.items"
            )
        else:
            text = f"because it is defined in {at}.items"
            yield FieldError(REQUIRED, f"{path}.items", "", text)
