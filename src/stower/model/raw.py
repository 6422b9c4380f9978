"""Decodes the JSON of objects to typed views, and edits the JSON without losing unknown fields.

A typed view holds only what scheduling reads, so it is never written back. A change is spliced into
the bytes instead: every field that is not on its path keeps its exact text.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from stower.model.errors import InvalidObject
from stower.model.kinds import KIND_BY_NAME, ApiObject, Kind

T = TypeVar("T")

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


class TypeMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What kind of object the bytes hold."""

    api_version: str = ""
    kind: str = ""


# Besides malformed JSON: text that is not UTF-8, and nesting without end.
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

# Of a value beyond a bound, msgspec's text has only the bound: `int` <= 2147483647, say.
OUT_OF_BOUNDS: Final = "a value out of bounds"
UNKNOWN_FIELD: Final = "a known field"

_STEP: Final = re.compile(r"\.[^.\[]+|\[[^\]]*\]")
_TYPE_NAMES: Final = {
    bool: "bool", int: "int", float: "float", str: "str", dict: "object", list: "array",
}  # fmt: skip

_type_meta = msgspec.json.Decoder(TypeMeta)


def kind_of(data: bytes) -> Kind | None:
    """The kind of the object, or None where it is not one of KINDS."""
    try:
        meta = _type_meta.decode(data)
    except _UNREADABLE as error:
        raise InvalidObject("apiVersion, kind", _head(data), str(error)) from None
    return KIND_BY_NAME.get((meta.api_version, meta.kind))


def decode(data: bytes, view: type[T]) -> T:
    """The typed view of an object's JSON. Raises InvalidObject with the field's path.

    A null reads as an absent field, as Kubernetes reads it.
    """
    decoder = _decoders.get(view)
    if decoder is None:
        decoder = _decoders.setdefault(view, msgspec.json.Decoder(view))
    try:
        return decoder.decode(data)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        try:
            value = without_nulls(msgspec.json.decode(data))
        except _UNREADABLE as error:
            raise InvalidObject("$", _head(data), f"JSON ({error})") from None
        try:
            return msgspec.convert(value, view)
        except msgspec.ValidationError as error:
            # Not the first error: that may be about a null, which is no fault.
            raise to_invalid_object(error, value) from None
    except _UNREADABLE as error:
        raise InvalidObject("$", _head(data), f"JSON ({error})") from None


def decode_object(data: bytes) -> ApiObject | None:
    """The typed view of any object of KINDS; None for another kind."""
    kind = kind_of(data)
    return None if kind is None else decode(data, kind.view)


def edit(data: bytes, changes: Mapping[str, Any]) -> bytes:
    """The object with these fields set; None removes one. All other fields keep their bytes.

    `changes` is nested as the object is: a mapping goes down, anything else replaces. Where a
    mapping meets no object, a new one is made. Keys keep their order, new ones come last.
    """
    fields = _fields.decode(data) if data and data.lstrip()[:1] == b"{" else {}
    for name, change in changes.items():
        if change is None:
            fields.pop(name, None)
        elif isinstance(change, Mapping):
            inner = fields.get(name)
            fields[name] = msgspec.Raw(edit(bytes(inner) if inner is not None else b"", change))
        else:
            fields[name] = msgspec.Raw(msgspec.json.encode(change))
    return msgspec.json.encode(fields)


def to_invalid_object(error: msgspec.ValidationError, value: Any) -> InvalidObject:
    """What msgspec has against a decoded value, with the path of the field."""
    path, got, want = fault_of(error)
    path, found = _locate(path, got, value)
    if got == OUT_OF_BOUNDS:
        got = str(found)
    return InvalidObject(path.removeprefix(".") or "$", _Plain(got), want)


def _locate(path: str, got: str, value: Any) -> tuple[str, Any]:
    """The path with the key of a map in place of `[...]`, and what is there."""
    located = ""
    for part in _STEP.findall(path):
        step = part.strip(".[]")
        if part == "[...]" and isinstance(value, dict):
            step = next((k for k, v in value.items() if _TYPE_NAMES.get(type(v)) == got), "...")
            part = f"[{step}]"
        located += part
        if isinstance(value, list) and step.isdecimal():
            value = value[int(step)]
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return located, value


def fault_of(error: msgspec.ValidationError) -> tuple[str, str, str]:
    """Path below the value, what was found and what is wanted, of msgspec's text.

    The text is one of `Expected X, got Y`, `Object missing required field X`, `Object contains
    unknown field X` or another, and then ` - at $.path`.
    """
    text, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    name = text.partition("`")[2].rstrip("`")
    if text.startswith("Object missing required field"):
        return f"{path}.{name}", "nothing", "a value"
    if text.startswith("Object contains unknown field"):
        return path, name, UNKNOWN_FIELD
    want, comma, got = text.removeprefix("Expected ").replace("`", "").partition(", got ")
    return (path, got, want) if comma else (path, OUT_OF_BOUNDS, want)


class _Plain(str):
    """Text that an error shows without quotes of its own."""

    def __repr__(self) -> str:
        return self.replace("`", "")


def without_nulls(value: Any) -> Any:
    """The decoded value without the fields that are null."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value


def _head(data: bytes) -> str:
    return data[:40].decode("utf-8", "replace")
