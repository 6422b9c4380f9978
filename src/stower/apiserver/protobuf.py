"""Decodes bodies in Kubernetes' protobuf into the JSON that they stand for.

kubectl sends some creations in protobuf and does not fall back. The messages are built from the
tables' field numbers when the first such body arrives. Source: apimachinery
runtime/serializer/protobuf.
"""

import base64
from functools import lru_cache
from typing import Any, Final

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from stower.api.registry import Registry
from stower.api.schema import SCHEMA_OR_BOOL, SCHEMA_OR_SCHEMAS, SCHEMA_OR_STRINGS, Type
from stower.model.times import SECOND_NS, time_text

Object = dict[str, Any]
MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
LAST_SECOND: Final = 253_402_300_799  # of the year 9999
MAGIC: Final = b"k8s\0"
UNKNOWN: Final = "k8s.io.apimachinery.pkg.runtime.Unknown"

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "uint32": _Field.TYPE_UINT32,
    "double": _Field.TYPE_DOUBLE,
}


class BadProtobufError(ValueError):
    """The body cannot be read."""


class Decoder:
    """Reads bodies of all kinds that the tables know."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._messages: Object = registry.tables["protobuf"]
        self._classes: dict[str, type[Message]] = {}

    def decode(self, body: bytes) -> bytes:
        """The body as JSON. Raises BadProtobufError."""
        if not body.startswith(MAGIC):
            raise BadProtobufError("provided data does not appear to be a protobuf message")
        try:
            unknown: Any = self._class(UNKNOWN).FromString(body[len(MAGIC) :])
            meta = unknown.typeMeta
            group, _, version = meta.apiVersion.rpartition("/")
            name = self.registry.kinds.get(f"{group}/{version}/{meta.kind}")
            if name is None:
                raise BadProtobufError(
                    f'this server has no kind "{meta.kind}" in version "{meta.apiVersion}"'
                )
            kind = self.registry.schema.type_of(name)
            full = message_name(name)
            if full not in self._messages:
                raise BadProtobufError(
                    f"{meta.kind} of {meta.apiVersion} is not supported in protobuf; send JSON"
                )
            message = self._class(full).FromString(unknown.raw)
        except (DecodeError, RecursionError) as error:
            raise BadProtobufError(str(error) or "truncated message") from None
        item = {"apiVersion": meta.apiVersion, "kind": meta.kind, **_struct(message, kind)}
        return msgspec.json.encode(item)

    def _class(self, name: str) -> type[Message]:
        found = self._classes.get(name)
        if found is None:
            self._build(name)
            found = self._classes[name]
        return found

    def _build(self, name: str) -> None:
        """Make classes of a message and all that it refers to."""
        needed: dict[str, list[list[Any]]] = {}
        waiting = [name]
        while waiting:
            full = waiting.pop()
            if full in needed:
                continue
            if full not in self._messages:
                raise BadProtobufError(f"unknown message {full}")
            needed[full] = self._messages[full]
            waiting += [r for f in needed[full] if (r := self._reference(full, f[2])) is not None]
        file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", syntax="proto2")
        # One file for all: a message's full name becomes a flat one.
        for full, fields in needed.items():
            message = file.message_type.add(name=flat(full))
            for field in fields:
                self._add_field(message, full, *field)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        descriptor = pool.FindMessageTypeByName(flat(name))
        self._classes[name] = message_factory.GetMessageClass(descriptor)

    def _reference(self, owner: str, text: str) -> str | None:
        """The full name of the message that a field holds."""
        text = text.removeprefix("repeated ")
        if text.startswith("map<"):
            text = text[4:-1].partition(",")[2].strip()
        if text in _SCALARS:
            return None
        if text.startswith("."):
            return text[1:]
        package = owner.rpartition(".")[0]
        return f"{package}.{text}"

    def _add_field(
        self, message: descriptor_pb2.DescriptorProto, owner: str, name: str, number: int, text: str
    ) -> None:
        repeated = text.startswith(("repeated ", "map<"))
        label = _Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, label=label)
        if text.startswith("map<"):
            entry = message.nested_type.add(name=f"{name}Entry")
            entry.options.map_entry = True
            key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL)
            key.type = _Field.TYPE_STRING
            value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
            self._set_type(value, owner, text[4:-1].partition(",")[2].strip())
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{message.name}.{name}Entry"
        else:
            self._set_type(field, owner, text.removeprefix("repeated "))

    def _set_type(self, field: Any, owner: str, text: str) -> None:
        reference = self._reference(owner, text)
        if reference is None:
            field.type = _SCALARS[text]
        else:
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{flat(reference)}"


def message_name(definition: str) -> str:
    """The message of a definition: io.k8s.api.core.v1.Pod is k8s.io.api.core.v1.Pod."""
    rest = definition.removeprefix("io.k8s.")
    return "k8s.io." + rest.replace("-", "_")


def flat(name: str) -> str:
    """A full name as one word."""
    return name.replace(".", "_").replace("-", "_")


@lru_cache(maxsize=4096)
def _json_name(kind: Type, name: str) -> str | None:
    """The JSON name of a field of a message; None: it is an embedded struct's.

    Most are the same. Upstream's generator takes some from Go (aPIGroup, Webhooks), and those of
    JSON Schema without their punctuation (xKubernetesListType, ref).
    """
    if name in kind.fields:
        return name
    return next((n for n in kind.fields if _letters(n) == _letters(name)), None)


def _letters(name: str) -> str:
    return name.lstrip("$").replace("-", "").lower()


def _struct(message: Message, kind: Type | None) -> Object:
    """The fields that are set; an embedded struct's become the struct's own."""
    item: Object = {}
    for field, value in message.ListFields():
        name = _json_name(kind, field.name) if kind is not None else None
        if name is None and field.message_type is not None and not field.is_repeated:
            item |= _struct(value, kind)
        elif name is not None and kind is not None:
            made = _value(field, value, kind.fields[name].type)
            if made is not None:
                item[name] = made
    return item


def _value(field: Any, value: Any, kind: Type) -> Any:
    if kind.form == "map":
        return {key: _convert_value(value[key], kind.items) for key in value}
    if field.is_repeated:
        return [_convert_value(v, kind.items) for v in value]
    return _convert_value(value, kind)


def _convert_value(value: Any, kind: Type | None) -> Any:
    if not isinstance(value, Message):
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value
    found: Any = value
    name = kind.name.rpartition(".")[2] if kind is not None else ""
    if name == "Quantity":
        return found.string
    if name in ("Time", "MicroTime"):
        if not found.HasField("seconds"):
            return None
        if not 0 <= found.seconds <= LAST_SECOND or not 0 <= found.nanos < SECOND_NS:
            raise BadProtobufError(f"the time {found.seconds} s, {found.nanos} ns is out of range")
        text = time_text(found.seconds * SECOND_NS)
        return text if name == "Time" else text[:-1] + f".{found.nanos // 1000:06d}Z"
    if name == "IntOrString":
        return found.strVal if found.type == 1 else found.intVal
    if kind is not None and kind.schema is not None:
        return _schema_or_other(found, name, kind.schema)
    if kind is not None and kind.form == "any":
        raw = found.Raw if name == "FieldsV1" else found.raw
        try:
            return msgspec.json.decode(raw) if raw else None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadProtobufError(str(error)) from None
    if kind is not None and kind.form == "list":
        return [_convert_value(v, kind.items) for v in found.items]
    return _struct(value, kind)


def _schema_or_other(message: Any, name: str, schema: Type) -> Any:
    """A JSON schema, or what may stand for one. Source: apiextensions v1/marshal.go."""
    if name == SCHEMA_OR_SCHEMAS and message.jSONSchemas:
        return [_struct(inner, schema) for inner in message.jSONSchemas]
    if name == SCHEMA_OR_STRINGS and message.property:
        return [*message.property]
    if message.HasField("schema"):
        return _struct(message.schema, schema)
    return message.allows if name == SCHEMA_OR_BOOL else None
