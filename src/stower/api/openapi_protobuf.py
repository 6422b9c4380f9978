"""Encodes the OpenAPI v2 document as protobuf, which is the only form that kubectl reads.

kubectl requests the document for a kind without a path of its own that takes patches, such as List.
Encoded by hand: a few dozen fields that are only written. Source: google/gnostic,
openapiv2/OpenAPIv2.proto.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

Object = dict[str, Any]
MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
METHODS: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}
_encode = msgspec.json.Encoder().encode


def document(spec: Object) -> bytes:
    """The document: a message Document."""
    info = _field(1, spec["info"]["title"]) + _field(2, spec["info"]["version"])
    paths = (_named(2, path, _path(item)) for path, item in spec["paths"].items())
    definitions = (_named(1, name, _schema(s)) for name, s in spec["definitions"].items())
    return (
        _field(1, spec["swagger"])
        + _field(2, info)
        + _field(8, b"".join(paths))
        + _field(9, b"".join(definitions))
    )


def _field(number: int, value: str | bytes) -> bytes:
    """A field whose value says how long it is."""
    raw = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def _flag(number: int) -> bytes:
    """A bool that is true."""
    return _varint(number << 3) + b"\x01"


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _named(number: int, name: str, value: bytes) -> bytes:
    """An entry of a map: NamedSchema, NamedPathItem and so on."""
    return _field(number, _field(1, name) + _field(2, value))


def _any(value: Any) -> bytes:
    """A message Any: the value as YAML, which JSON is."""
    return _field(2, _encode(value))


def _extensions(number: int, item: Object) -> bytes:
    found = ((k, v) for k, v in item.items() if k.startswith("x-"))
    return b"".join(_named(number, name, _any(value)) for name, value in found)


def _path(item: Object) -> bytes:
    return b"".join(_field(METHODS[method], _operation(o)) for method, o in item.items())


def _operation(operation: Object) -> bytes:
    made = b"".join(_field(6, media) for media in operation.get("produces", ()))
    made += b"".join(_field(7, media) for media in operation.get("consumes", ()))
    for parameter in operation.get("parameters", ()):
        query = _field(2, "query") + _field(4, parameter["name"]) + _field(6, parameter["type"])
        # ParametersItem, Parameter, NonBodyParameter, QueryParameterSubSchema.
        made += _field(8, _field(1, _field(2, _field(3, query))))
    answers = (
        _named(1, code, _field(1, _field(1, response["description"])))
        for code, response in operation["responses"].items()
    )
    return made + _field(9, b"".join(answers)) + _extensions(13, operation)


def _schemas(number: int, schemas: Iterable[Object]) -> bytes:
    return b"".join(_field(number, _schema(schema)) for schema in schemas)


def _schema(schema: Object) -> bytes:
    made = b""
    for name, number in (("$ref", 1), ("format", 2), ("description", 4)):
        if isinstance(schema.get(name), str):
            made += _field(number, schema[name])
    made += b"".join(_field(19, name) for name in schema.get("required", ()))
    made += b"".join(_field(20, _any(value)) for value in schema.get("enum", ()))
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        made += _field(21, _field(1, _schema(more)))
    elif more:
        made += _field(21, _flag(2))
    if isinstance(schema.get("type"), str):
        made += _field(22, _field(1, schema["type"]))
    if isinstance(schema.get("items"), dict):
        made += _field(23, _schemas(1, [schema["items"]]))
    made += _schemas(24, schema.get("allOf", ()))
    if schema.get("properties"):
        entries = (_named(1, name, _schema(s)) for name, s in schema["properties"].items())
        made += _field(25, b"".join(entries))
    return made + _extensions(31, schema)
