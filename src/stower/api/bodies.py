"""Decodes request bodies from JSON into typed objects, with the error texts of Go's decoder."""

import re
from typing import Any, Final

import msgspec

from stower.api import conversion
from stower.api.byte_cache import ByteCache, encode
from stower.api.calls import Call
from stower.api.defaults import TIMED
from stower.api.errors import INVALID, ApiError, FieldError, bad_request, invalid
from stower.api.go_json import decoding_error
from stower.api.requests import JSON, Request, WriteOptions
from stower.api.schema import BadValueError, CleanValue, Reading, Type
from stower.api.strict_json import read_pairs, strict_faults

Object = dict[str, Any]
DEPTH_MAX: Final = 1_000  # msgspec gives up a little above
SUMMARY_BYTES: Final = 30
TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)
# Versions whose types the real server still knows, and serves no more.
RETIRED: Final = ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
SCHEME: Final = "pkg/api/legacyscheme/scheme.go:30"
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder().decode
_specs: Final = ByteCache()


_APART: Final = re.compile(rb'"\s+:')


def parse_json(body: bytes) -> Any:
    """The JSON value. Raises ValueError with roughly Go's text."""
    try:
        return _decode(body)
    except _UNREADABLE as error:
        if isinstance(error, RecursionError):
            raise ValueError("exceeded max depth") from None
        text = str(error)
        if not body.strip() or "truncated" in text:
            raise ValueError("unexpected end of JSON input") from None
        raise ValueError(decoding_error(body) or text) from None


def media_type(content_type: str) -> str:
    """The media type without parameters."""
    return content_type.partition(";")[0].strip().lower()


def check_media(call: Call) -> None:
    """The body is JSON by now, whatever it was. Raises ApiError 415."""
    if media_type(call.request.content_type) not in ("", JSON):
        text = (
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml, application/vnd.kubernetes.protobuf"
        )
        raise ApiError(415, "UnsupportedMediaType", text)


def read_object(call: Call, options: WriteOptions) -> tuple[Object, tuple[str, ...]]:
    """The object of a request's body, cleaned, with defaults; and warnings."""
    check_media(call)
    resource = call.resource
    item = parse_request(call.request, resource.kind)
    sent = len(item)
    check_kind(call, item, resource.kind, resource.api_version)
    name = f'{item["kind"]} in version "{item["apiVersion"].rpartition("/")[2]}"'
    prefix = f"{name} cannot be handled as a {resource.kind}: "
    return cleaned(call, item, options, prefix, call.request.body, len(item) - sent)


def parse_request(request: Request, kind: str) -> Object:
    """The body of a request, which must be an object. Raises ApiError 400."""
    if why := request.yaml_faults[0]:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): {why} "
            f"({_summary(request.body)})"
        )
    return parse_object(request.body, kind)


def parse_object(body: bytes, kind: str) -> Object:
    """A body that must be an object."""
    try:
        item = parse_json(body)
        if item is None:
            return {}
        if not isinstance(item, dict):
            found = {list: "array", str: "string", bool: "bool"}.get(type(item), "number")
            raise ValueError(f"json: cannot unmarshal {found} into Go value of type {TYPE_META}")
        version = item.get("apiVersion")
        if isinstance(version, str) and version.count("/") > 1:
            raise ValueError(f"unexpected GroupVersion string: {version}")
    except ValueError as error:
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get "
            f"version/kind; json parse error: {error} ({_summary(body)})"
        ) from None
    return item


def _summary(body: bytes) -> str:
    """The head of a body, as summarizeData has it."""
    if not body:
        return "<empty>"
    head = body[:SUMMARY_BYTES]
    text = head.decode("utf-8", "replace") if body[:1] == b"{" else head.hex()
    return f"{text} ..." if len(body) > SUMMARY_BYTES else text


def check_kind(call: Call, item: Object, kind: str, api_version: str) -> None:
    """Fill in apiVersion and kind where they are missing, or refuse others. Raises ApiError 400."""
    found = item["kind"] = item.get("kind") or kind
    version = item["apiVersion"] = item.get("apiVersion") or api_version
    if found == kind and version == api_version:
        return
    if not isinstance(found, str) or not isinstance(version, str):
        field = "kind" if not isinstance(found, str) else "apiVersion"
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get "
            "version/kind; json parse error: json: cannot unmarshal into Go struct field "
            f".{field} of type string ({_summary(call.request.body)})"
        )
    group, _, number = version.rpartition("/")
    is_custom = call.resource.custom is not None and kind == call.resource.kind
    if is_custom and version == api_version:
        if call.subresource != "status":  # which takes nothing but the status
            raise invalid_type(call, item)
        item["kind"] = kind
        return
    known = call.context.registry.kinds
    is_known = version in RETIRED or f"{group}/{number}/{found}" in known
    if is_custom or (found == kind and is_known):
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({api_version})"
        )
    why = unconvertible(call, kind, found, version)
    raise bad_request(f'{found} in version "{number}" cannot be handled as a {kind}: {why}')


def invalid_type(call: Call, item: Object) -> ApiError:
    """Returns the error for a custom resource of another kind or version (422)."""
    resource, kind, version = call.resource, item["kind"], item["apiVersion"]
    faults = []
    if kind != resource.kind:
        faults.append(FieldError(INVALID, "kind", kind, f"must be {resource.kind}"))
    if version != resource.api_version:
        text = f"must be {resource.api_version}"
        faults.append(FieldError(INVALID, "apiVersion", version, text))
    meta = item.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else ""
    return invalid(version.rpartition("/")[0], kind, name if isinstance(name, str) else "", faults)


def unconvertible(call: Call, kind: str, found: str, version: str) -> str:
    """Why an object of one kind and version cannot be read as one of the kind asked for."""
    group, _, number = version.rpartition("/")
    if f"{group}/{number}/{found}" not in call.context.registry.kinds:
        return f'no kind "{found}" is registered for version "{version}" in scheme "{SCHEME}"'
    internal = f"{call.resource.group.partition('.')[0] or 'core'}.{kind}"
    return f"converting ({number}.{found}) to ({internal}): unknown conversion"


def read_unstored(call: Call, kind: str, api_version: str) -> Object:
    """The body of a request whose kind is not kept, checked against its type, as it was sent."""
    check_media(call)
    item = parse_request(call.request, kind)
    check_kind(call, item, kind, api_version)
    check_shape(call, item, kind, api_version)
    return item


def check_shape(
    call: Call,
    item: Any,
    kind: str,
    api_version: str,
    options: WriteOptions | None = None,
    prefix: str | None = None,
) -> tuple[str, ...]:
    """Look at an object with its type's eyes; warnings of unknown fields. Raises ApiError 400."""
    group, _, version = api_version.rpartition("/")
    form = call.context.registry.type_of_kind(group, version, kind)
    if prefix is None:
        prefix = f'{kind} in version "{version}" cannot be handled as a {kind}: '
    reading = Reading()
    try:
        form.clean(item, reading)
    except BadValueError as error:
        raise bad_request(f"{prefix}{error}") from None
    if not reading.unknown or options is None or options.validation == "Ignore":
        return ()
    found = tuple(strict_faults(item, form))
    if options.validation == "Strict":
        raise bad_request(f"{prefix}strict decoding error: {', '.join(found)}")
    return found


def cleaned(
    call: Call,
    item: Object,
    options: WriteOptions,
    prefix: str,
    body: bytes = b"",
    added: int = 0,
) -> tuple[Object, tuple[str, ...]]:
    """The object as its type reads it, without kind and apiVersion; and warnings. Raises ApiError,
    which has BadValueError as its cause for a value of the wrong type.

    `added`: fields of the item that are not in the body, which is looked through for fields that
    are there twice only if it has more of them than the item.
    """
    resource = call.resource
    if resource.custom is not None:
        repeated: list[str] = []
        if options.validation != "Ignore" and body:
            repeated = _yaml_repeats(call, options)
            if not repeated and may_repeat(body, count_keys(item) - added):
                repeated = strict_faults(read_pairs(body), None)
        read: tuple[Object, tuple[str, ...]]
        read = resource.custom.read(item, options, prefix, repeated)
        return read
    kind = resource.type
    assert kind is not None
    reading = Reading()
    try:
        if call.strategy.alike and type(item.get("spec")) is dict:
            known = {**item, "spec": _known_spec(kind, item["spec"], reading)}
            made = kind.clean(known, reading)
        else:
            made = kind.clean(item, reading)
    except BadValueError as error:
        raise bad_request(f"{prefix}{error}") from error
    made.pop("kind", None)
    made.pop("apiVersion", None)
    found: list[str] = []
    if options.validation != "Ignore":
        if body and (reading.unknown or may_repeat(body, reading.keys - added)):
            found = strict_faults(read_pairs(body), kind)
        elif reading.unknown:
            found = strict_faults(item, kind)
        if body:
            found = [*_yaml_repeats(call, options), *found]
        if found and options.validation == "Strict":
            raise bad_request(f"{prefix}strict decoding error: {', '.join(found)}")
    if (timed := TIMED.get(resource.key)) is not None:
        timed(made, call.now)
    converter = conversion.into_store(resource)
    return (converter(made) if converter is not None else made), tuple(found)


def _yaml_repeats(call: Call, options: WriteOptions) -> list[str]:
    """What a strict reader of YAML has against the keys of a body."""
    repeats = call.request.yaml_faults[1]
    if not repeats:
        return []
    return [repeats] if options.validation == "Strict" else yaml_warnings(repeats)


def yaml_warnings(fault: str) -> list[str]:
    """The lines of a fault of YAML, each a warning. Source: parseYAMLWarnings."""
    return [line.strip() for line in fault.split("\n")[1:]]


def _known_spec(kind: Type, spec: Object, reading: Reading) -> Object | CleanValue:
    """The spec as its type reads it, where one like it was read lately; or else itself."""
    key = encode((kind.name, spec))
    found = _specs.get(key)
    if found is None:
        own = Reading()
        try:
            made = kind.fields["spec"].type.clean(spec, own)
        except BadValueError:
            return spec  # the reader of the whole knows where it is
        found = encode(made), own.keys, own.unknown
        if not own.unknown:
            _specs.put(key, found)
    raw, keys, unknown = found
    reading.keys += keys
    reading.unknown += unknown
    return CleanValue(_decode(raw))


def clean_again(kind: Type, item: Object) -> Object:
    """A value that was changed, as its type reads it. Raises BadValueError."""
    made: Object = kind.clean(item, Reading())
    made.pop("kind", None)
    made.pop("apiVersion", None)
    return made


def may_repeat(body: bytes, keys: int) -> bool:
    """Whether a key may be there twice in a body that was read as one with so many keys.

    Every key ends in a quote and a colon; only where these are apart, or inside of text, must the
    body be read again to know.
    """
    return body.count(b'":') != keys or _APART.search(body) is not None


def count_keys(value: Any) -> int:
    """How many keys all objects in it have."""
    count, left = 0, [value]
    while left:
        inner = left.pop()
        if type(inner) is dict:
            count += len(inner)
            left += inner.values()
        elif type(inner) is list:
            left += inner
    return count
