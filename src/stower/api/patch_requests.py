"""Handles PATCH requests in all four forms: applies a patch to the stored object and writes it.

The forms are JSON patch, JSON merge patch, strategic merge patch and server-side apply. Source:
apiserver pkg/endpoints/handlers/patch.go, Kubernetes 1.36.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec

from stower.api import conversion, fields_v1, managed_fields
from stower.api.applied_types import typed_faults
from stower.api.bodies import (
    check_shape,
    cleaned,
    count_keys,
    invalid_type,
    may_repeat,
    media_type,
    parse_json,
    unconvertible,
    yaml_warnings,
)
from stower.api.calls import Call
from stower.api.errors import (
    INVALID,
    OTHER_NAMESPACE,
    ApiError,
    FieldError,
    bad_request,
    invalid,
    unsupported_media_type,
)
from stower.api.go_order import touched_by_merge, touched_by_operations
from stower.api.go_text import MAP, go_text
from stower.api.patches import (
    OPERATIONS_MAX,
    BadPatchError,
    CopyLimitError,
    PatchError,
    json_patch,
    merge,
    strategic,
)
from stower.api.requests import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Response,
    WriteOptions,
    write_options,
)
from stower.api.schema import BadValueError, Reading, Type, word
from stower.api.strict_json import read_pairs, record_faults, strict_faults
from stower.api.writes import (
    Transform,
    call_invalid,
    change,
    check_name,
    create_object,
)

Object = dict[str, Any]

OPERATION_FIELDS: Final = ("op", "path", "from", "value")
CUSTOM_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
KUBECTL: Final = "kubectl"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_encode = msgspec.json.encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def patch(call: Call) -> Response:
    """PATCH of an object or its status, in any of four forms."""
    form = media_type(call.request.content_type)
    known = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
    custom = call.resource.custom is not None
    if custom and form not in CUSTOM_PATCHES:
        text = (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{', '.join(CUSTOM_PATCHES)}"
        )
        raise ApiError(415, "UnsupportedMediaType", text)
    if form not in known:
        raise unsupported_media_type()
    call.request.content_type = form
    options = write_options(call.request, "PatchOptions")
    if form == APPLY_PATCH:
        return apply(call, options)
    record = call.record()
    transform, warnings = patch_transform(call, form, options)
    return change(call, record, transform, options, warnings)


def patch_transform(call: Call, form: str, options: WriteOptions) -> tuple[Transform, list[str]]:
    """What the patch of the request does to an object (without kind and apiVersion).

    The list fills with warnings when that is done.
    """
    body = call.request.body
    change = _read_change(body, form)
    resource = call.resource
    warnings: list[str] = []
    strategically = form == STRATEGIC_PATCH

    def transform(old: Object) -> Object:
        shown = old
        converter = conversion.out_of_store(resource)
        if converter is not None and resource.custom is None:
            shown = converter(old)
        full = {"kind": resource.kind, "apiVersion": resource.api_version, **shown}
        try:
            if form == JSON_PATCH:
                patched = json_patch(full, change)
            elif form == MERGE_PATCH:
                patched = merge(full, change)
            else:
                patched = strategic(full, change, resource.type)
        except PatchError as error:
            text = "the server rejected our request due to an error in our request"
            raise ApiError(422, "Invalid", text, {}) from error
        except CopyLimitError as error:
            raise ApiError(413, "RequestEntityTooLarge", str(error)) from None
        except BadPatchError as error:
            reason = {400: "BadRequest", 422: "Invalid"}.get(error.code, "")
            raise ApiError(error.code, reason, str(error)) from None
        if not isinstance(patched, dict):
            raise bad_request("the result of the patch is not a JSON object")
        if not strategically:
            _check_version_there(call, patched)
        if resource.custom is not None:
            patched = _with_own_kind(call, patched)
        try:
            if not strategically:  # which looks at neither
                _check_patched_kind(call, patched)
            faults = _faults_of(body, change, form, options)
            quick = None if faults else _cleaned_status(call, shown, patched)
            if quick is not None:
                return _named(call, quick)
            item, more = _cleaned(
                call, patched, options, faults, lambda: _patched_text(call, patched, change)
            )
        except ApiError as error:
            text, why = go_text(change), error.message
            if not strategically:
                text = _patched_text(call, patched, change)
            elif isinstance(error.__cause__, BadValueError):
                why = _conversion_fault(error.__cause__)
            raise invalid("", "", "", [FieldError(INVALID, "patch", text, why)]) from None
        warnings[:] = more
        return _named(call, item)

    return transform, warnings


def _read_change(body: bytes, form: str) -> Any:
    """The patch of a body. Raises ApiError 400 or 413."""
    try:
        change = parse_json(body)
    except ValueError as error:
        prefix = "" if form == STRATEGIC_PATCH else "error decoding patch: "
        raise bad_request(f"{prefix}{error}") from None
    if change is None:
        return [] if form == JSON_PATCH else {}
    found = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(change), "number")
    if form == JSON_PATCH:
        if not isinstance(change, list) or not all(isinstance(c, dict) for c in change):
            what, into = found, "[]handlers.jsonPatchOp"
            if isinstance(change, list):
                what, into = "value", "handlers.jsonPatchOp"
            text = f"json: cannot unmarshal {what} into Go value of type {into}"
            raise bad_request(f"error decoding patch: {text}")
        if len(change) > OPERATIONS_MAX:
            text = (
                f"The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, "
                f"got {len(change)}"
            )
            raise ApiError(413, "RequestEntityTooLarge", text)
    elif not isinstance(change, dict):
        prefix = "" if form == STRATEGIC_PATCH else "error decoding patch: "
        text = f"json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        raise bad_request(f"{prefix}{text}")
    return change


def _patched_text(call: Call, patched: Object, change: Any) -> str:
    """The patched object as upstream's library leaves it."""
    kind = call.resource.type if call.resource.custom is None else None
    order = call.context.go_order
    if isinstance(change, list):
        new = [operation.get("value") for operation in change]
        return order.text(patched, kind, touched_by_operations(change), new)
    return order.text(patched, kind, touched_by_merge(change), [])


def _faults_of(body: bytes, change: Any, form: str, options: WriteOptions) -> list[str]:
    """What a strict reader has against the patch itself."""
    if options.validation == "Ignore":
        return []
    repeats = may_repeat(body, count_keys(change))
    if form != JSON_PATCH:
        return strict_faults(read_pairs(body), None) if repeats else []
    if repeats or any(name not in OPERATION_FIELDS for operation in change for name in operation):
        return [f"json patch {text}" for text in record_faults(read_pairs(body), OPERATION_FIELDS)]
    return []


def _cleaned(
    call: Call,
    patched: Object,
    options: WriteOptions,
    faults: list[str],
    text: Callable[[], str],
) -> tuple[Object, list[str]]:
    """The patched object as its type reads it, and warnings. Raises ApiError.

    `text`: the patched object as JSON, whose order its faults have.
    """
    lenient = replace(options, validation="Warn") if options.validation == "Strict" else options
    item, more = cleaned(call, patched, lenient, "")
    if len(more) > 1 and call.resource.custom is None:
        more = tuple(strict_faults(read_pairs(text()), call.resource.type))
    faults = [*faults, *more]
    if faults and options.validation == "Strict":
        raise bad_request(f"strict decoding error: {', '.join(faults)}")
    return item, faults


def _cleaned_status(call: Call, known: Object, patched: Object) -> Object | None:
    """The same where only metadata and status can have changed: what is stored is clean already.

    None where that is not so, or something is wrong, which the general way can name.
    """
    kind = call.resource.type
    if call.subresource != "status" or call.resource.custom is not None or kind is None:
        return None
    if conversion.out_of_store(call.resource) is not None:
        return None
    made = {**known, "metadata": dict(known["metadata"])}
    reading = Reading()
    for name, value in patched.items():
        if value is known.get(name):
            continue
        if name in ("metadata", "status"):
            try:
                made[name] = kind.fields[name].type.clean(value, reading)
            except (BadValueError, KeyError):
                return None
        elif name not in ("kind", "apiVersion"):
            return None
    return None if reading.unknown or len(patched) != len(known) + 2 else made


def _named(call: Call, item: Object) -> Object:
    """The item, if its name and namespace are those of the path."""
    meta = item["metadata"]
    if call.resource.namespaced and meta.get("namespace", call.namespace) != call.namespace:
        raise bad_request(OTHER_NAMESPACE)
    if meta.get("name") != call.name and meta.get("name") and call.resource.custom is not None:
        fault = FieldError(INVALID, "metadata.name", meta["name"], "field is immutable")
        raise call_invalid(call, call.name, [fault])
    check_name(call, meta.get("name") or "")
    return item


def _check_version_there(call: Call, patched: Object) -> None:
    """A patched object names its version. Raises ApiError 400.

    Without one, upstream reads it as the version it has inside, of whose fields none has the name
    that clients know: the object comes out empty.
    """
    if call.resource.custom is None and not patched.get("apiVersion"):
        if (patched.get("kind") or call.resource.kind) == call.resource.kind:
            check_name(call, "")


def _check_patched_kind(call: Call, patched: Object) -> None:
    """A patched object is of its kind yet, or names none and has a Go type. Raises ApiError 400."""
    resource = call.resource
    kind, version = patched.get("kind") or "", patched.get("apiVersion") or ""
    for field, value in (("kind", kind), ("apiVersion", version)):
        if not isinstance(value, str):
            raise bad_request(
                "couldn't get version/kind; json parse error: json: cannot unmarshal "
                f"{word(value).partition(' ')[0]} into Go struct field .{field} of type string"
            )
    if resource.custom is None:
        kind = kind or resource.kind
    if kind == resource.kind and version == resource.api_version:
        return
    group, _, number = version.rpartition("/")
    if f"{group}/{number}/{kind}" in call.context.registry.kinds:  # it is read as what it says
        check_shape(call, patched, kind, version, prefix="")
    raise bad_request(unconvertible(call, resource.kind, kind, version))


def _with_own_kind(call: Call, patched: Object) -> Object:
    """A patched custom resource names no other kind and version. Raises ApiError 422."""
    kind, version = patched.get("kind"), patched.get("apiVersion")
    if not (isinstance(kind, str) and isinstance(version, str) and kind and version):
        return patched
    is_same = (kind, version) == (call.resource.kind, call.resource.api_version)
    if is_same or version.count("/") > 1:
        return patched
    if call.subresource != "status":  # which takes nothing but the status
        raise invalid_type(call, patched)
    return {**patched, "kind": call.resource.kind, "apiVersion": call.resource.api_version}


def apply(call: Call, options: WriteOptions) -> Response:
    """Server-side apply."""
    resource = call.resource
    sent = _read_config(call)
    shown = _check_config(call, sent)
    kind = resource.type
    assert kind is not None
    config = {k: v for k, v in sent.items() if k not in ("kind", "apiVersion")}
    if faults := typed_faults(kind, config):
        raise ApiError(500, "", f"failed to create typed patch object ({shown}): {faults}")
    config["metadata"] = sent["metadata"] = _named_metadata(call, sent.get("metadata") or {})
    manager = fields_v1.Manager(options.manager, "Apply", resource.api_version, call.subresource)
    record = call.collection.records.get(call.key())
    strategy = call.strategy
    reset: tuple[str, ...] = ()
    if strategy.status:
        reset = ("f:spec",) if call.subresource == "status" else ("f:status",)
    repeats = call.request.yaml_faults[1]
    if record is None:
        if call.subresource:
            raise call.not_found()
        if config["metadata"].get("uid"):
            raise call.conflict(
                "uid mismatch: the provided object specified uid "
                f"{config['metadata']['uid']}, and no existing object was found"
            )
        item, warnings = _converted(call, config, options, shown)
        found = _repeats_of(repeats, options)
        fields = managed_fields.applied_fields(kind, config)
        wanted = frozenset(p for p in fields if p[0] not in reset) - managed_fields.IGNORED
        return create_object(
            call, item, options, (*found, *warnings), {manager: fields_v1.Entry(call.now, wanted)}
        )
    old = call.decode(record)
    applied = dict(config.items())
    applied["metadata"] = meta = dict(config["metadata"])
    sent_version = meta.pop("resourceVersion", None)
    if not fields_v1.read_managers(old["metadata"]):
        first = fields_v1.Manager("before-first-apply", "Update", resource.api_version)
        old["metadata"]["managedFields"] = managed_fields.create_managers(
            kind, call.context.skeleton_of(kind), old, first, call.now, reset
        )
    allowed = _last_applied(kind, old) if options.manager == KUBECTL else frozenset()
    merged, managers = managed_fields.apply(
        kind, old, applied, manager, options.force, reset, allowed
    )
    annotations = merged["metadata"].get("annotations") or {}
    if options.manager == KUBECTL and LAST_APPLIED in annotations:
        merged = _with_last_applied(merged, sent)
    if sent_version:
        merged = {**merged, "metadata": {**merged["metadata"], "resourceVersion": sent_version}}
    before = fields_v1.read_managers(old["metadata"])
    time = call.now
    if before.get(manager) and before[manager].fields == managers[manager].fields:
        time = before[manager].time
    managers[manager] = fields_v1.Entry(time, managers[manager].fields)
    item, more = _converted(call, merged, options, shown)
    found = _repeats_of(repeats, options)
    return change(call, record, lambda _: item, options, (*found, *more), managers=managers)


def _read_config(call: Call) -> Object:
    """The applied configuration. Raises ApiError 400."""
    fault, _ = call.request.yaml_faults
    if fault:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {fault}")
    body = call.request.body
    if not body.strip():
        return {}
    try:
        config = parse_json(body)
    except ValueError as error:
        raise bad_request(f"error decoding YAML: {error}") from None
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {word(config).partition(' ')[0]} into Go value of type {MAP}"
        )
    return config


def _check_config(call: Call, config: Object) -> str:
    """How messages name the configuration: by what it says itself. Raises ApiError 400."""
    resource, meta = call.resource, config.get("metadata")
    version, kind = (
        value if isinstance(value := config.get(field), str) else ""
        for field in ("apiVersion", "kind")
    )
    group, _, number = version.rpartition("/")
    shown_kind = f"{group}/{number}, Kind={kind}"
    if (version, kind) != (resource.api_version, resource.kind):
        raise bad_request(f"invalid object type: {shown_kind}")
    own = meta if isinstance(meta, dict) else {}
    if own.get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    namespace, name = (
        value if isinstance(value := own.get(field), str) else "" for field in ("namespace", "name")
    )
    return f"{namespace}/{name}; {shown_kind}"


def _named_metadata(call: Call, meta: Object) -> Object:
    """The metadata of a configuration with the name in the path. Raises ApiError 400."""
    if call.resource.namespaced and (meta.get("namespace") or call.namespace) != call.namespace:
        raise bad_request(OTHER_NAMESPACE)
    name = meta.get("name") or call.name
    check_name(call, name)
    return {**meta, "name": name}


def _converted(
    call: Call, item: Object, options: WriteOptions, shown: str
) -> tuple[Object, tuple[str, ...]]:
    """The object as its type reads it, and warnings. Raises ApiError, 500 for wrong types."""
    try:
        return cleaned(call, item, options, "")
    except ApiError as error:
        if not isinstance(error.__cause__, BadValueError):
            raise
        kind = shown.partition("; ")[2]
        text = (
            f"failed to convert new object ({shown}) to proper version: unable to convert "
            f"unstructured object to {kind}: {_conversion_fault(error.__cause__)}"
        )
        raise ApiError(500, "", text) from None


_GO_KINDS: Final = {"array": "slice", "object": "map", "number": "int64"}


def _conversion_fault(error: BadValueError) -> str:
    """What is wrong with a value in the words of Go's converter of unstructured objects. Source:
    fromUnstructured in apimachinery pkg/runtime/converter.go."""
    got, want = error.got, error.want
    if error.text:
        is_of_bytes = error.text.startswith("illegal base64")
        return f"error decoding from json: {error.text}" if is_of_bytes else error.text
    is_float = got.startswith("number ") and not got[7:].lstrip("-").isdecimal()
    found = "float64" if is_float else _GO_KINDS.get(got, got)
    if error.reads_itself or found.startswith("number "):
        return f"json: cannot unmarshal {got} into Go value of type {want}"
    if want.startswith(("map[", "[]")):
        return f"cannot restore {'map' if want[0] == 'm' else 'slice'} from {found}"
    if "." in want:
        return f"cannot restore struct from: {found}"
    if (found, want) == ("int64", "string") or (is_float and want in ("int32", "int64")):
        return f"cannot convert {found} to {want}"
    return f"unrecognized type: {want}"


def _repeats_of(repeats: str, options: WriteOptions) -> list[str]:
    """Warnings of keys that an applied configuration has twice. Raises ApiError 400."""
    if not repeats or options.validation == "Ignore":
        return []
    if options.validation == "Strict":
        raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: {repeats}")
    return yaml_warnings(repeats)


def _last_applied(kind: Type, live: Object) -> frozenset[fields_v1.Path]:
    """Fields of the last client-side apply that nobody has changed since.

    kubectl may take them over without conflict. Source: lastAppliedManager.
    """
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED, "")
    try:
        last = parse_json(text.encode())
        if not isinstance(last, dict) or not isinstance(last.get("metadata", {}), dict):
            return frozenset()
        kind.clean(last, Reading())  # for its types
    except (ValueError, BadValueError):
        return frozenset()
    last = {k: v for k, v in last.items() if k not in ("kind", "apiVersion")}
    fields = frozenset(managed_fields.applied_fields(kind, last))
    differs = managed_fields.compare(kind, last, managed_fields.without_managers(live))
    return fields - differs.changed - differs.removed


def _with_last_applied(merged: Object, sent: Object) -> Object:
    """The object whose annotation for client-side apply says what was applied now."""
    meta = {k: v for k, v in sent["metadata"].items() if k != "annotations"}
    own = {k: v for k, v in (sent["metadata"].get("annotations") or {}).items()
           if k != LAST_APPLIED}  # fmt: skip
    if own:
        meta["annotations"] = own
    text = _encode_sorted({**sent, "metadata": meta}).decode() + "\n"
    annotations = {**merged["metadata"]["annotations"], LAST_APPLIED: text}
    return {**merged, "metadata": {**merged["metadata"], "annotations": annotations}}
