"""Compiles the types of the API from its published schema.

`Type.clean` reads a decoded JSON value as the real server's decoder and encoder together do: it
drops and counts unknown fields, treats nulls as absent fields, omits what is empty and may be
omitted, adds what is always there, and puts quantities and times into canonical form. Patches and
server-side apply read the same types for merge keys and list kinds.

Must not know kinds, defaults or validation.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from stower.model.quantity import MILLI, Quantity, QuantityError, quantity_of
from stower.model.times import micro_time, seconds_time

Value = Any
INT32: Final = (-(2**31), 2**31 - 1)
INT64: Final = (-(2**63), 2**63 - 1)
EXPONENT_MIN: Final = 1e21  # Go prints smaller whole floats as integers
PREFIX: Final = "#/definitions/"
# Types whose amounts keep what they say below a thousandth: only core resource lists are rounded.
EXACT: Final = "io.k8s.api.resource."
RAW: Final = ("RawExtension", "FieldsV1", "JSON")
JSON_SCHEMA: Final = "JSONSchemaProps"
SCHEMA_OR_BOOL: Final = f"{JSON_SCHEMA}OrBool"
SCHEMA_OR_SCHEMAS: Final = f"{JSON_SCHEMA}OrArray"
SCHEMA_OR_STRINGS: Final = f"{JSON_SCHEMA}OrStringArray"


class MapKey(str):
    """A key of a map in the path of a value, which Go's decoder leaves out."""

    __slots__ = ()


class BadValueError(Exception):
    """A value of the wrong type; `path` is filled from the inside out.

    `reads_itself`: the wanted type stands for one that has a decoder of its own.
    """

    def __init__(self, got: str, want: str, text: str = "", reads_itself: bool = False) -> None:
        super().__init__(text)
        self.got, self.want, self.text, self.reads_itself = got, want, text, reads_itself
        self.path: list[str] = []
        self.struct = ""

    def __str__(self) -> str:
        """The text of Go's decoder."""
        if self.text:
            return self.text
        where = ".".join(name for name in reversed(self.path) if type(name) is not MapKey)
        return (
            f"json: cannot unmarshal {self.got} into Go struct field "
            f"{self.struct}.{where} of type {self.want}"
        )


class Reading:
    """What one pass over a value found besides the result."""

    __slots__ = ("keys", "unknown")

    def __init__(self) -> None:
        self.keys = 0
        self.unknown = 0


class CleanValue:
    """A value of a struct that was read already."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


Clean = Callable[[Value, Reading], Value]


class Type:
    """One type: a struct, map, list or scalar, and how lists and maps of it merge."""

    __slots__ = ("atomic", "clean", "fields", "form", "go_name", "items", "list_type", "map_keys",
                 "name", "schema")  # fmt: skip

    def __init__(self, form: str, go_name: str) -> None:
        self.form = form  # struct, map, list, scalar or any
        self.go_name = go_name
        self.name = go_name
        self.clean: Clean = _as_is
        self.fields: dict[str, Field] = {}
        self.items: Type | None = None
        self.list_type = "atomic"
        self.map_keys: tuple[str, ...] = ()
        self.atomic = False
        self.schema: Type | None = None  # what values are unless they are something simpler

    def get_field_type(self, name: str) -> "Type | None":
        """The type of a field or of an entry; of a struct that keeps unknown fields, `items` is
        theirs. None: there is none."""
        field = self.fields.get(name)
        return self.items if field is None else field.type

    def empty(self) -> Value:
        """What an absent value of this type reads as."""
        return self.clean({}, Reading())


class Field:
    """A field of a struct."""

    __slots__ = ("always", "keep", "merge_key", "strategy", "type", "zero")

    def __init__(self, kind: Type, keep: bool, always: bool, zero: Callable[[], Value]) -> None:
        self.type = kind
        self.keep = keep  # an empty value stays
        self.always = always  # an absent value reads as zero()
        self.zero = zero
        self.merge_key = ""
        self.strategy: tuple[str, ...] = ()


def _as_is(value: Value, reading: Reading) -> Value:
    return value


def word(value: Value) -> str:
    """The word of Go's decoder for a JSON value."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "number"
    if isinstance(value, float):
        return f"number {value}"
    return {str: "string", dict: "object", list: "array", type(None): "null"}[type(value)]


def _string(value: Value, reading: Reading) -> Value:
    if type(value) is not str:
        raise BadValueError(word(value), "string")
    return value


def _boolean(value: Value, reading: Reading) -> Value:
    if type(value) is not bool:
        raise BadValueError(word(value), "bool")
    return value


def _integer(low: int, high: int, name: str) -> Clean:
    def clean(value: Value, reading: Reading) -> Value:
        if type(value) is not int:
            raise BadValueError(word(value), name)
        if not low <= value <= high:
            raise BadValueError(f"number {value}", name)
        return value

    return clean


def _number(value: Value, reading: Reading) -> Value:
    if type(value) is not int and type(value) is not float:
        raise BadValueError(word(value), "float64")
    if type(value) is float and value.is_integer() and abs(value) < EXPONENT_MIN:
        return int(value)
    return value


@lru_cache(maxsize=65536)
def canonical_quantity(text: str) -> str:
    """The quantity as it is printed. Raises BadValueError with the parser's text."""
    try:
        return str(quantity_of(text))
    except QuantityError as error:
        raise BadValueError("", "", str(error)) from None


@lru_cache(maxsize=65536)
def whole_milli(text: str) -> str:
    """The canonical quantity rounded up to thousandths, as amounts of resources are."""
    if text[-1] not in "nu" and "." not in text and "e" not in text:
        return text
    quantity = quantity_of(text)
    milli = Quantity.of_milli(quantity.round_up(MILLI), quantity.format)
    return text if milli.cmp(quantity) == 0 else str(milli)


def _quantity(value: Value, reading: Reading) -> Value:
    if type(value) is str:
        return canonical_quantity(value)
    if type(value) is int or type(value) is float:
        return canonical_quantity(str(value))
    return canonical_quantity(word(value))  # which reads as none


def _int_or_string(value: Value, reading: Reading) -> Value:
    if type(value) is str or (type(value) is int and INT32[0] <= value <= INT32[1]):
        return value
    got = f"number {value}" if type(value) is int else word(value)
    raise BadValueError(got, "int32", reads_itself=True)


def _time_text(value: Value) -> str:
    if type(value) is not str:
        raise BadValueError(word(value), "string", reads_itself=True)
    return value


def _time(value: Value, reading: Reading) -> Value:
    text = _time_text(value)
    found = seconds_time(text)
    if found is None:
        raise BadValueError("", "", f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": '
                               f'cannot parse "{text}" as "2006"')  # fmt: skip
    return found


def _micro_time(value: Value, reading: Reading) -> Value:
    text = _time_text(value)
    found = micro_time(text)
    if found is None:
        rest, part = text, "2006"
        if seconds_time(text) is not None:  # only the fraction is not as it must be
            rest, part = text[19:], ".000000"
        layout = "2006-01-02T15:04:05.000000Z07:00"
        told = f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{part}"'
        raise BadValueError("", "", told)
    return found


def _bytes(value: Value, reading: Reading) -> Value:
    if type(value) is not str:
        raise BadValueError(word(value), "[]uint8")
    text: str = value
    try:
        b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        ends = next((i for i, c in enumerate(text) if not re.match(r"[A-Za-z0-9+/=]", c)), 0)
        raise BadValueError("", "", f"illegal base64 data at input byte {ends}") from None
    return text


class Schema:
    """All types of one set of tables, compiled when first asked for."""

    def __init__(
        self,
        definitions: dict[str, Any],
        facts: dict[str, str],
        defaults: Mapping[str, Callable[[Value], None]],
    ) -> None:
        self.definitions = definitions
        self._defaults = defaults  # by the type's name without its prefix, as core.v1.Container
        self._facts = {name: _facts_of(row) for name, row in facts.items()}
        self._types: dict[str, Type] = {}

    def add(self, definitions: Mapping[str, Any], facts: Mapping[str, str]) -> None:
        """More definitions, of types that nothing refers to yet."""
        self.definitions = {**self.definitions, **definitions}
        self._facts.update((name, _facts_of(row)) for name, row in facts.items())

    def type_of(self, name: str) -> Type:
        """The type of a definition."""
        found = self._types.get(name)
        return found if found is not None else self._compile(name)

    def _compile(self, name: str) -> Type:
        definition = self.definitions[name]
        short = name.rsplit(".", 1)[1]
        version = name.split(".")[-2]
        scalar = _SCALAR_TYPES.get(short) if "apimachinery" in name else None
        if scalar is not None:
            kind = Type("scalar", scalar[0])
            kind.clean = scalar[1]
        elif short in RAW:
            kind = Type("any", f"runtime.{short}")
        elif short in (SCHEMA_OR_BOOL, SCHEMA_OR_SCHEMAS, SCHEMA_OR_STRINGS):
            kind = Type("any", f"{version}.{short}")
        else:
            kind = Type("struct", f"{version}.{short}")
        kind.name = name
        self._types[name] = kind  # before its fields: types refer to themselves
        if short.startswith(f"{JSON_SCHEMA}Or"):
            kind.schema = self.type_of(f"{name.rpartition('.')[0]}.{JSON_SCHEMA}")
            kind.clean = _schema_or_other(kind.schema, short)
        elif kind.form == "struct":
            kind.atomic = definition.get("x-kubernetes-map-type") == "atomic"
            required = definition.get("required", ())
            facts = self._facts.get(name, {})
            rounds = not name.startswith(EXACT)
            for field, schema in definition.get("properties", {}).items():
                kind.fields[field] = self._field(
                    schema, field in required, facts.get(field, ""), rounds
                )
            kind.clean = _struct(kind, short, self._defaults.get(name.removeprefix("io.k8s.api.")))
        return kind

    def _field(self, schema: dict[str, Any], required: bool, facts: str, rounds: bool) -> Field:
        kind = self.inline(schema, rounds)
        always = (required and "o" not in facts) or any(f in facts for f in "ast")
        pointer = "p" in facts or (kind.form in ("struct", "any") and "s" not in facts)
        zero: Callable[[], Value] = _none
        if kind.form == "struct" and "s" in facts:
            zero = kind.empty
        elif kind.form == "scalar" and "p" not in facts:
            zero = _zeros.get(kind.go_name, _none)
        if kind.form == "struct" and "s" not in facts:
            always = "a" in facts  # a pointer
        field = Field(kind, pointer or always, always, zero)
        field.merge_key = schema.get("x-kubernetes-patch-merge-key", "")
        strategy = schema.get("x-kubernetes-patch-strategy", "")
        field.strategy = tuple(strategy.split(",")) if strategy else ()
        return field

    def inline(self, schema: dict[str, Any], rounds: bool = True) -> Type:
        """The type of a property. `rounds`: whether amounts by name are a core ResourceList, which
        upstream rounds up to thousandths."""
        if "$ref" in schema:
            return self.type_of(schema["$ref"].removeprefix(PREFIX))
        form = schema.get("type")
        if form == "array":
            kind = Type("list", "")
            kind.items = self.inline(schema["items"], rounds)
            kind.go_name = f"[]{kind.items.go_name}"
            kind.list_type = schema.get("x-kubernetes-list-type", "atomic")
            kind.map_keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
            kind.clean = _list(kind)
        elif form == "object" and "additionalProperties" in schema:
            kind = Type("map", "")
            kind.items = self.inline(schema["additionalProperties"], rounds)
            kind.go_name = f"map[string]{kind.items.go_name}"
            kind.atomic = schema.get("x-kubernetes-map-type") == "atomic"
            kind.clean = _map(kind, rounds)
        elif form in ("string", "boolean", "integer", "number"):
            key = {"byte": "byte", "int32": "int32", "int64": "int64"}.get(
                schema.get("format", ""), form
            )
            go_name, clean = _SCALARS[key]
            kind = Type("scalar", go_name)
            kind.clean = clean
        else:
            kind = Type("any", "interface {}")
        return kind


def _facts_of(row: str) -> dict[str, str]:
    return dict(entry.rsplit(":", 1) for entry in row.split())


def _none() -> None:
    return None


def _struct(kind: Type, short: str, defaults: Callable[[Value], None] | None) -> Clean:
    fields: dict[str, tuple[Type, bool]] = {n: (f.type, f.keep) for n, f in kind.fields.items()}
    always = [(name, field.zero) for name, field in kind.fields.items() if field.always]
    go_name = kind.go_name

    def clean(value: Value, reading: Reading) -> Value:
        if type(value) is not dict:
            if type(value) is CleanValue:
                return value.value
            raise BadValueError(word(value), go_name)
        out = {}
        reading.keys += len(value)
        for name, inner in value.items():
            field = fields.get(name)
            if field is None:
                reading.unknown += 1
            elif inner is not None:
                try:
                    cleaned = field[0].clean(inner, reading)
                except BadValueError as error:
                    error.path.append(name)
                    error.struct = error.struct or short
                    raise
                if cleaned or field[1]:
                    out[name] = cleaned
        for name, zero in always:
            if name not in out:
                out[name] = zero()
        if defaults is not None:
            defaults(out)
        return out

    return clean


def skeleton(kind: Type) -> Value:
    """The parts of a struct that are there whatever a client sends, without defaults."""
    return {
        name: skeleton(field.type) if field.type.form == "struct" and field.zero() is not None
        else None if field.type.form == "struct" else field.zero()
        for name, field in kind.fields.items() if field.always
    }  # fmt: skip


def _list(kind: Type) -> Clean:
    items = kind.items
    assert items is not None
    go_name = kind.go_name

    def clean(value: Value, reading: Reading) -> Value:
        if type(value) is not list:
            raise BadValueError(word(value), go_name)
        inner = items.clean
        if None in value:
            value = [_zero_item(items) if v is None else v for v in value]
        return [inner(v, reading) for v in value]

    return clean


def _zero_item(kind: Type) -> Value:
    return {} if kind.form == "struct" else _zeros.get(kind.go_name, _none)()


def _map(kind: Type, rounds: bool) -> Clean:
    items = kind.items
    assert items is not None
    go_name = kind.go_name
    of_resources = rounds and items.go_name == "resource.Quantity"

    def clean(value: Value, reading: Reading) -> Value:
        if type(value) is not dict:
            raise BadValueError(word(value), go_name)
        reading.keys += len(value)
        inner = items.clean
        out = {}
        for name, v in value.items():
            try:
                out[name] = inner(_zero_item(items) if v is None else v, reading)
                if of_resources:
                    out[name] = whole_milli(out[name])
            except BadValueError as error:
                error.path.append(MapKey(name))
                raise
        return out

    return clean


def _schema_or_other(schema: Type, short: str) -> Clean:
    """Reads a JSON schema or what may stand in its place. Unknown fields within are dropped and
    not counted: upstream's strict decoding does not look there. Source: apiextensions
    v1/marshal.go."""

    def clean(value: Value, reading: Reading) -> Value:
        own = Reading()
        found = None
        if type(value) is dict:
            found = schema.clean(value, own)
        elif short == SCHEMA_OR_BOOL:
            if type(value) is not bool:
                raise BadValueError("", "", "boolean or JSON schema expected")
            found = value
        elif type(value) is list and value:
            one = schema.clean if short == SCHEMA_OR_SCHEMAS else _string
            found = [one(_zero_item(schema) if v is None else v, own) for v in value]
        reading.keys += own.keys
        return found

    return clean


_SCALARS: Final[dict[str, tuple[str, Clean]]] = {
    "string": ("string", _string),
    "byte": ("[]uint8", _bytes),
    "boolean": ("bool", _boolean),
    "int32": ("int32", _integer(*INT32, "int32")),
    "int64": ("int64", _integer(*INT64, "int64")),
    "integer": ("int32", _integer(*INT32, "int32")),
    "number": ("float64", _number),
}
_SCALAR_TYPES: Final[dict[str, tuple[str, Clean]]] = {
    "Quantity": ("resource.Quantity", _quantity),
    "IntOrString": ("intstr.IntOrString", _int_or_string),
    "Time": ("v1.Time", _time),
    "MicroTime": ("v1.MicroTime", _micro_time),
}
_zeros: Final[dict[str, Callable[[], Value]]] = {
    "string": str,
    "[]uint8": _none,
    "bool": bool,
    "int32": int,
    "int64": int,
    "float64": int,
    "resource.Quantity": lambda: "0",
    "intstr.IntOrString": int,
}
