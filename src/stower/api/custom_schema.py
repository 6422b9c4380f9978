"""Applies structural schemas of custom resources to objects: pruning, defaults, validation.

Source: KEP-1693 (structural schemas), KEP-575 (defaulting); apiextensions-apiserver
pkg/apiserver/schema and validation, Kubernetes 1.36.
"""

import copy
import sys
from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    FieldError,
    format_value,
    go_quote,
    unsupported,
)
from stower.api.formats import is_of_format
from stower.api.schema import Field, Type
from stower.cel.patterns import BadPatternError, Pattern, compile_pattern

Object = dict[str, Any]
TOP: Final = ("kind", "apiVersion", "metadata")
SCALARS: Final = ("string", "integer", "number", "boolean")
_PLAIN: Final = frozenset(("type", "description", "maxLength", "minLength", "pattern"))
# Of one object: instructions of patterns times bytes, a second at worst. Texts of 1 MiB may have
# patterns of 140 instructions; most have 10 to 30.
PATTERN_WORK_MAX: Final = 150_000_000
PATTERNS_SIZE_MAX: Final = 300_000  # instructions of all patterns of a schema: 0.1 s to compile
TYPES: Final = {
    "object": dict, "array": list, "string": str, "boolean": bool,
}  # fmt: skip


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
            name: Field(_type(inner), True, False, lambda: None)
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
    else:
        kind = Type("scalar" if form else "any", form or "any")
    return kind


_ANY: Final = {"x-kubernetes-preserve-unknown-fields": True}


def _get_field_schema(schema: Object, name: str) -> Object | None:
    """The schema of a field; None: there is none."""
    found: Object | None = (schema.get("properties") or {}).get(name)
    if found is not None:
        return found
    if schema.get("x-kubernetes-embedded-resource") and name in TOP:
        return _ANY
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, dict) else {} if extra is True else None


def pruned(schema: Object, value: Any, fills: bool = True) -> Any:
    """The value without unknown fields; nulls that may not be are absent. `fills`: with defaults
    for fields that are absent."""
    if isinstance(value, dict):
        keeps = schema.get("x-kubernetes-preserve-unknown-fields")
        made: Object = {}
        for name, inner in value.items():
            below = _get_field_schema(schema, name)
            if below is None:
                if keeps:
                    made[name] = copy.deepcopy(inner)
            elif inner is None and not below.get("nullable"):
                continue
            else:
                made[name] = pruned(below, inner, fills)
        for name, below in (schema.get("properties") or {}).items() if fills else ():
            if name not in made and "default" in below:
                made[name] = copy.deepcopy(below["default"])
                made[name] = pruned(below, made[name])
        return made
    if isinstance(value, list):
        items = schema.get("items") or {}
        if items.get("type") in SCALARS and not any(isinstance(v, dict | list) for v in value):
            return value[:]
        return [pruned(items, v, fills) for v in value]
    return value


def unknown(schema: Object, value: Any, path: str = "") -> Iterator[str]:
    """The paths of fields that pruning drops."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not path and name in TOP:
                continue
            where = f"{path}.{name}" if path else name
            below = _get_field_schema(schema, name)
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


def _is_of_type(value: Any, form: str) -> bool:
    if form == "integer":
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return is_whole and -(1 << 63) <= value < 1 << 63
    if form == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    wanted = TYPES.get(form)
    return wanted is None or type(value) is wanted


def _word(value: Any) -> str:
    words = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer",
             float: "number", type(None): "null"}  # fmt: skip
    return words.get(type(value), "object")


class _TooMuchWorkError(Exception):
    """The patterns of a schema take too long on an object. Its text is the path of a value."""


class _PatternWork:
    """What patterns may still cost for one object. RE2 takes time in proportion to the length of
    the text times the size of the pattern."""

    def __init__(self) -> None:
        self._left = PATTERN_WORK_MAX

    def match(self, wanted: str, text: str, at: str) -> bool | None:
        """Returns whether a pattern occurs in a text; None for one that is no regular expression,
        as definitions of earlier servers may have one. Raises _TooMuchWorkError."""
        try:
            pattern = compile_pattern(wanted)
        except BadPatternError:
            return None
        if not self.take(pattern, len(text) if text.isascii() else len(text.encode())):
            raise _TooMuchWorkError(at)
        return pattern.occurs_in(text)

    def take(self, pattern: Pattern, length: int) -> bool:
        """Counts the work on so many bytes; returns whether it may be done."""
        if pattern.size * length > self._left:
            return False
        self._left -= pattern.size * length
        return True


UNKNOWN: Final = object()  # an old value that there is not


def value_faults(
    schema: Object, value: Any, path: str, top: bool = False, old: Any = UNKNOWN
) -> Iterator[FieldError]:
    """What a schema has against a value. `old`: of a change, of which parts that are as they were
    are not checked, other than the whole with `top`. Source: apiextensions-apiserver
    pkg/apiserver/validation/ratcheting.go."""
    try:
        yield from _faults(schema, value, path, _PatternWork(), top, old)
    except _TooMuchWorkError as error:
        text = "the patterns of the definition take too long on this object; shorten its texts"
        yield FieldError(INVALID, str(error), "", text)


def _faults(
    schema: Object,
    value: Any,
    path: str,
    work: _PatternWork,
    top: bool = False,
    old: Any = UNKNOWN,
) -> Iterator[FieldError]:
    if old is not UNKNOWN and not top and old == value:
        return
    at = path or "<nil>"
    form = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if not (_is_of_type(value, "integer") or isinstance(value, str)):
            text = f'{at} in body must be of type integer,string: "{_word(value)}"'
            yield FieldError(TYPE_INVALID, at, _word(value), text)
        return
    if value is None and schema.get("nullable"):
        return
    if form and not _is_of_type(value, form):
        text = f'{at} in body must be of type {form}: "{_word(value)}"'
        yield FieldError(TYPE_INVALID, at, _word(value), text)
        return
    choices = schema.get("enum")
    if choices and value not in choices:
        yield unsupported(at, value, [c if isinstance(c, str) else str(c) for c in choices])
    if isinstance(value, str):
        yield from _text_faults(schema, value, at, work)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_faults(schema, value, at)
    elif isinstance(value, list):
        yield from _count_faults(schema, len(value), at, "Items")
        items = schema.get("items") or {}
        plain = _are_plain(items, value, work)
        before = {} if plain else _items_by_key(schema, old)
        for i, inner in enumerate(() if plain else value):
            was = before.get(_keys_of(schema, inner), UNKNOWN) if before else UNKNOWN
            yield from _faults(items, inner, f"{path}[{i}]", work, old=was)
    elif isinstance(value, dict):
        yield from _count_faults(schema, len(value), at, "Properties")
        for name in schema.get("required") or ():
            if name not in value and not (top and name in TOP):
                where = f"{path}.{name}" if path else name
                yield FieldError(REQUIRED, where)
        for name, inner in value.items():
            below = _get_field_schema(schema, name)
            if below is not None and not (top and name in TOP):
                was = old.get(name, UNKNOWN) if isinstance(old, dict) else UNKNOWN
                yield from _faults(below, inner, f"{path}.{name}" if path else name, work, old=was)
    yield from _check_combined(schema, value, path, at, work)


def _items_by_key(schema: Object, old: Any) -> dict[Any, Any]:
    """The items of an old map-like list: those of other lists are not told apart."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    return {_keys_of(schema, item): item for item in old}


def _keys_of(schema: Object, item: Any) -> tuple[str, ...]:
    names = schema.get("x-kubernetes-list-map-keys") or ()
    return tuple(format_value(item.get(n)) if isinstance(item, dict) else "" for n in names)


def _are_plain(schema: Object, values: list[Any], work: _PatternWork) -> bool:
    """Whether all are texts with which nothing is wrong: the common case of long lists, quickly."""
    if schema.get("type") != "string" or not _PLAIN.issuperset(schema):
        return False
    most, least = schema.get("maxLength", sys.maxsize), schema.get("minLength", 0)
    if not all(type(value) is str and least <= len(value) <= most for value in values):
        return False
    wanted = schema.get("pattern")
    if not wanted:
        return True
    try:
        pattern = compile_pattern(wanted)
        if not work.take(pattern, len("".join(values).encode(errors="replace"))):
            return False  # said of the first that is too much
        return all(map(pattern.occurs_in, values))
    except BadPatternError:
        return False


def _check_combined(
    schema: Object, value: Any, path: str, at: str, work: _PatternWork
) -> Iterator[FieldError]:
    for inner in schema.get("allOf") or ():
        yield from _faults(inner, value, path, work)
    for word in ("anyOf", "oneOf"):
        options = schema.get(word)
        if options:
            passed = sum(not any(True for _ in _faults(o, value, path, work)) for o in options)
            if not passed or (word == "oneOf" and passed > 1):
                text = f'"{at}" must validate one and only one schema ({word})'
                yield FieldError(INVALID, at, value, text)
    denied = schema.get("not")
    if denied and not any(True for _ in _faults(denied, value, path, work)):
        yield FieldError(INVALID, at, value, f'"{at}" must not validate the schema (not)')


def _text_faults(schema: Object, value: str, at: str, work: _PatternWork) -> Iterator[FieldError]:
    most, least = schema.get("maxLength"), schema.get("minLength")
    if most is not None and len(value) > most:
        yield FieldError(TOO_LONG, at, "", f"may not be more than {most} bytes")
    if least is not None and len(value) < least:
        text = f"{at} in body should be at least {least} chars long"
        yield FieldError(INVALID, at, value, text)
    wanted = schema.get("pattern")
    if wanted and not (found := work.match(wanted, value, at)):
        text = f"{at} in body should match '{wanted}'"
        text += "" if found is False else ", but pattern is invalid"
        yield FieldError(INVALID, at, value, text)
    if (form := schema.get("format")) and not is_of_format(value, form):
        text = f"{at} in body must be of type {form}: {go_quote(value)}"
        yield FieldError(INVALID, at, value, text)


def _number_faults(schema: Object, value: float, at: str) -> Iterator[FieldError]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value <= least if schema.get("exclusiveMinimum") else value < least):
        word = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        yield FieldError(INVALID, at, value, f"{at} in body should be {word} {least}")
    if most is not None and (value >= most if schema.get("exclusiveMaximum") else value > most):
        word = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        yield FieldError(INVALID, at, value, f"{at} in body should be {word} {most}")
    factor = schema.get("multipleOf")
    if factor and value % factor:
        yield FieldError(INVALID, at, value, f"{at} in body should be a multiple of {factor}")


def _count_faults(schema: Object, count: int, at: str, name: str) -> Iterator[FieldError]:
    word = name.lower()
    least, most = schema.get(f"min{name}"), schema.get(f"max{name}")
    if most is not None and count > most:
        yield FieldError(TOO_MANY, at, count, f"must have at most {most} {word}")
    if least is not None and count < least:
        text = f"{at} in body should have at least {least} {word}"
        yield FieldError(INVALID, at, count, text)


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


def list_faults(schema: Object, value: Any, path: str) -> Iterator[FieldError]:
    """Items of sets and map-like lists that are there twice."""
    if isinstance(value, dict):
        for name, inner in value.items():
            below = _get_field_schema(schema, name)
            if below:
                yield from list_faults(below, inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        items = schema.get("items") or {}
        kind = schema.get("x-kubernetes-list-type")
        if kind not in ("set", "map") and items.get("type") not in ("object", "array"):
            return
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        seen: list[Any] = []
        for i, item in enumerate(value):
            if kind in ("set", "map"):
                own = item
                if kind == "map" and isinstance(item, dict):
                    own = {key: item.get(key) for key in keys}
                if own in seen:
                    yield FieldError(DUPLICATE, f"{path}[{i}]", own)
                seen.append(own)
            yield from list_faults(items, item, f"{path}[{i}]")
