"""Handles create and update requests, and writes changed objects to the store (for patches too).

The order is the real server's: read, namespace, mutating admission, preparation, validation,
validating admission, storage. Source: apiserver pkg/endpoints/handlers, pkg/registry/rest and
pkg/registry/generic/registry/store.go, Kubernetes 1.36.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from stower.api import admission, fields_v1, kinds, managed_fields
from stower.api.bodies import read_object
from stower.api.calls import Call
from stower.api.errors import (
    INVALID,
    OTHER_NAMESPACE,
    ApiError,
    FieldError,
    bad_request,
    invalid,
)
from stower.api.metadata import new_metadata_errors, update_metadata_errors
from stower.api.reads import object_response
from stower.api.registry import storage_error
from stower.api.requests import (
    Response,
    WriteOptions,
    write_options,
)
from stower.api.store import STATUS_ALLOWANCE, Record
from stower.model.integers import parse_decimal

Object = dict[str, Any]
Transform = Callable[[Object], Object]

_encode = msgspec.json.encode
_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
GENERATED_MAX: Final = 58  # of a generated name before its suffix
GENERATE_TRIES: Final = 8
SERVER_FIELDS: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def create(call: Call) -> Response:
    """POST to a collection."""
    options = write_options(call.request, "CreateOptions")
    item, warnings = read_object(call, options)
    return create_object(call, item, options, warnings)


def create_object(
    call: Call,
    item: Object,
    options: WriteOptions,
    warnings: tuple[str, ...] = (),
    managers: fields_v1.Managers | None = None,
) -> Response:
    """Keep a new object. Raises ApiError 403 where the caller may change but not create it."""
    if call.context.rbac is not None and call.request.info.verb != "create":
        call.context.rbac.check(call.request.user, call.request.info._replace(verb="create"))
    raw, more = add(call, item, options, managers)
    return object_response(call, raw, 201, (*warnings, *more))


def add(
    call: Call, item: Object, options: WriteOptions, managers: fields_v1.Managers | None = None
) -> tuple[bytes, list[str]]:
    """Keep a new object; its bytes, and warnings."""
    resource, strategy = call.resource, call.strategy
    meta: Object = item["metadata"]
    _set_namespace(call, meta)
    if call.name and not meta.get("name"):
        meta["name"] = call.name
    version = str(meta.get("resourceVersion") or "0")
    named = meta.get("name") or meta.get("generateName") or ""
    for name in (*SERVER_FIELDS, "resourceVersion", "selfLink", "generation"):
        meta.pop(name, None)
    meta["uid"] = call.context.identifiers.new_uid()
    meta["creationTimestamp"] = call.now
    if (strategy.generation and strategy.generation_first) or strategy.generation_once:
        meta["generation"] = 1
    admission.check_namespace(call, named)
    _set_managers(call, item, options, managers)
    _reset_status(call, item)
    admission.mutate_new(call, item)
    generated = _generate_name(call, meta)
    hooks = kinds.hooks_of(resource)
    if hooks.prepare_create is not None:
        hooks.prepare_create(call, item)
    if strategy.finalizers:
        kept = meta.get("finalizers") or []
        meta["finalizers"] = [*kept, *(f for f in strategy.finalizers if f not in kept)]
    errors = hooks.validate_create(call, item) if hooks.validate_create is not None else []
    if not errors or not strategy.metadata_last:
        plain = strategy.plain_finalizers
        errors = [
            *new_metadata_errors(meta, resource.namespaced, strategy.name_faults, plain), *errors,
        ]  # fmt: skip
    if errors:
        raise call_invalid(call, meta.get("name", ""), errors)
    usage = admission.check_new(call, item)
    key = call.key(meta["name"])
    taken = call.collection.records.get(key)
    if taken is not None:
        raise _make_exists_error(call, taken, generated)
    extra = hooks.warnings(call, item) if hooks.warnings is not None else []
    if options.dry_run:
        return _encode_unstored(call, key, call.as_stored(item), allowance=0), extra
    if version != "0" and parse_decimal(version, bits=64) is not None:
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    record = call.context.store.put(call.collection, key, call.as_stored(item), allowance=0)
    admission.settle(call, usage)
    if hooks.after is not None:
        hooks.after(call, item)
    return record.raw, extra


def _generate_name(call: Call, meta: Object) -> bool:
    """Whether the object asks for a name to be made; where it has none, one is."""
    if not meta.get("generateName"):
        return False
    for _ in range(GENERATE_TRIES if not meta.get("name") else 0):
        suffix = call.context.identifiers.letters(_SUFFIX, 5)
        meta["name"] = meta["generateName"][:GENERATED_MAX] + suffix
        if call.key(meta["name"]) not in call.collection.records:
            break
    return True


def _make_exists_error(call: Call, record: Record, generated: bool) -> ApiError:
    """There is an object of this name."""
    error = call.already_exists(record.key.rpartition("/")[2])
    if "deletionTimestamp" in record.decode()["metadata"]:
        error.message = f"object is being deleted: {error.message}"
    if generated:
        text = "the server was not able to generate a unique name for the object"
        error.message = f"{error.message}, {text}"
        error.details = {**(error.details or {}), "retryAfterSeconds": 1}
        error.headers["Retry-After"] = "1"
    return error


def call_invalid(call: Call, name: str, errors: list[FieldError]) -> ApiError:
    """422 about an object of the call's kind."""
    group = "" if call.resource.plural == "events" else call.resource.group  # as ever was
    return invalid(group, call.resource.kind, name, errors)


def _set_managers(
    call: Call, item: Object, options: WriteOptions, managers: fields_v1.Managers | None
) -> None:
    meta = item["metadata"]
    meta.pop("managedFields", None)
    kind = call.resource.type
    if managers is not None:
        if fields := fields_v1.write_managers(managers):
            meta["managedFields"] = fields
    elif kind is not None:
        manager = fields_v1.Manager(options.manager, "Update", call.resource.api_version)
        reset = ("f:status",) if call.strategy.status else ()
        alike = call.strategy.alike
        fields = managed_fields.create_managers(
            kind, call.context.skeleton_of(kind), item, manager, call.now, reset, alike
        )
        if fields:
            meta["managedFields"] = fields


def check_name(call: Call, name: str) -> None:
    """The object of a change has the name of the path. Raises ApiError 400."""
    if not name:
        raise bad_request(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be "
            "provided"
        )
    if name != call.name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({call.name})"
        )


def _set_namespace(call: Call, meta: Object) -> None:
    if not call.resource.namespaced:
        if meta.get("namespace"):
            meta.pop("namespace")
        return
    if meta.setdefault("namespace", call.namespace) == "":
        meta["namespace"] = call.namespace
    if meta["namespace"] != call.namespace:
        raise bad_request(OTHER_NAMESPACE)


def _reset_status(call: Call, item: Object) -> None:
    strategy, kind = call.strategy, call.resource.type
    custom = call.resource.custom
    if custom is not None:
        if custom.has_status:
            item.pop("status", None)
        return
    if strategy.status and not strategy.status_on_create and kind is not None:
        field = kind.fields.get("status")
        if field is not None:
            if field.always:
                item["status"] = field.type.empty()
            else:
                item.pop("status", None)


# Update


def update(call: Call) -> Response:
    """PUT of an object or its status."""
    options = write_options(call.request, "UpdateOptions")
    item, warnings = read_object(call, options)
    meta = item["metadata"]
    name = meta.get("name") or ""
    _set_namespace(call, meta)
    check_name(call, name)
    record = call.collection.records.get(call.key())
    if record is None:
        if not call.strategy.create_on_update or call.subresource:
            raise call.not_found()
        if meta.get("uid"):
            raise call.conflict(
                f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: "
            )
        meta.pop("resourceVersion", None)
        return create_object(call, item, options, warnings)
    return change(call, record, lambda old: item, options, warnings, put=True)


def change(
    call: Call,
    record: Record,
    transform: Transform,
    options: WriteOptions,
    warnings: Sequence[str] = (),
    *,
    put: bool = False,
    managers: fields_v1.Managers | None = None,
) -> Response:
    """Change an object, and answer with it."""
    raw, more = alter(call, record, transform, options, put=put, managers=managers)
    return object_response(call, raw, warnings=(*warnings, *more))


def alter(
    call: Call,
    record: Record,
    transform: Transform,
    options: WriteOptions,
    *,
    put: bool = False,
    managers: fields_v1.Managers | None = None,
) -> tuple[bytes, list[str]]:
    """Change an object by a function of its present state; its new bytes, and warnings."""
    old = call.decode(record)
    new = transform(old)
    meta: Object = new["metadata"]
    _check_versions(call, record, old, meta, put)
    old_meta = old["metadata"]
    keep_server_fields(old_meta, meta)
    sent_managers = meta.pop("managedFields", None)
    if sent_managers is not None and not any(sent_managers):
        # An empty list, or one with an empty entry, forgets who managed what.
        old_meta = {k: v for k, v in old_meta.items() if k != "managedFields"}
    elif sent_managers is not None and not call.subresource and managers is None:
        old_meta = {**old_meta, "managedFields": sent_managers}
    hooks = kinds.hooks_of(call.resource)
    status = call.subresource == "status"
    _update_managers(call, new, {**old, "metadata": old_meta}, options, managers)
    _keep_other_half(call, new, old, status)
    if not call.subresource:
        admission.mutate_update(call, new, old)
    prepare = hooks.prepare_status if status else hooks.prepare_update
    if prepare is not None:
        prepare(call, new, old)
    if call.strategy.generation and not status and _has_spec_change(call, new, old):
        meta["generation"] = old_meta.get("generation", 0) + 1
    errors = update_metadata_errors(
        meta, old_meta, call.resource.key, call.subresource, call.strategy.plain_finalizers
    )
    validate = hooks.validate_status if status else hooks.validate_update
    if validate is not None:
        errors += validate(call, new, old)
    if errors:
        raise call_invalid(call, meta.get("name", ""), errors)
    usage = admission.check_update(call, new, old)
    extra: list[str] = []
    if hooks.change_warnings is not None and not status:
        extra = hooks.change_warnings(call, new, old)
    elif hooks.warnings is not None and not status:
        extra = hooks.warnings(call, new)
    return _store(call, record, old, new, options, usage), extra


def _encode_unstored(call: Call, key: str, item: Object, allowance: int) -> bytes:
    """Returns the object that would be stored. Raises what the store would raise."""
    raw = _encode(item)
    call.context.store.check_size(call.collection, key, len(raw), allowance)
    return raw


def _store(
    call: Call, record: Record, old: Object, new: Object, options: WriteOptions, usage: Any
) -> bytes:
    meta = new["metadata"]
    meta["resourceVersion"] = old["metadata"]["resourceVersion"]
    if is_same(new, old):
        return record.raw
    allowance = STATUS_ALLOWANCE if call.subresource == "status" else 0
    new = call.as_stored(new)
    if options.dry_run:
        return _encode_unstored(call, record.key, new, allowance)
    store = call.context.store
    ends = (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
    )
    if ends and call.resource.key == ("", "namespaces"):
        ends = not (new.get("spec") or {}).get("finalizers")
    if ends:
        kept = store.remove(call.collection, record.key, old)
        meta["resourceVersion"] = str(kept.revision)
        raw = _encode(new)
    else:
        raw = store.put(call.collection, record.key, new, allowance).raw
    admission.settle(call, usage)
    hooks = kinds.hooks_of(call.resource)
    if hooks.after is not None:
        hooks.after(call, new if not ends else None)
    return raw


def is_same(new: Object, old: Object) -> bool:
    """Whether nothing changed but what is no change by itself: when managers last wrote."""
    for name, value in new.items():
        if name != "metadata" and (name not in old or old[name] != value):
            return False
    return len(new) == len(old) and _drop_times(new["metadata"]) == _drop_times(old["metadata"])


def _drop_times(meta: Object) -> Object:
    if "managedFields" not in meta:
        return meta
    entries = [{k: v for k, v in e.items() if k != "time"} for e in meta["managedFields"]]
    return {**meta, "managedFields": entries}


def _check_versions(call: Call, record: Record, old: Object, meta: Object, put: bool) -> None:
    uid = meta.get("uid")
    if put and uid and uid != old["metadata"]["uid"]:
        raise call.conflict(
            storage_error(
                call.resource.key,
                call.key(),
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                f"{old['metadata']['uid']}",
            )
        )
    sent = meta.get("resourceVersion")
    if sent and sent != "0":
        number = parse_decimal(str(sent), bits=64)
        if number is None:
            error = FieldError(INVALID, "metadata.resourceVersion", sent, _bad_number(str(sent)))
            if put:
                raise ApiError(500, "", f"{error.field}: {error.message}")
            raise call_invalid(call, call.name, [error])
        if number != record.revision:
            raise call.conflict(
                "the object has been modified; please apply your changes to the latest version "
                "and try again"
            )
    elif put and call.strategy.update_needs_version and not call.subresource:
        error = FieldError(
            INVALID, "metadata.resourceVersion", _Hex(0), "must be specified for an update"
        )
        resource = call.resource
        raise invalid(resource.group, resource.plural, call.name, [error])


class _Hex(int):
    """A number that messages show as Go's %#v does."""


def _bad_number(text: str) -> str:
    return f'strconv.ParseUint: parsing "{text}": invalid syntax'


def keep_server_fields(old_meta: Object, meta: Object) -> None:
    """Take over from the old metadata what only the server sets."""
    for name in SERVER_FIELDS:
        if name in ("uid", "deletionGracePeriodSeconds") and meta.get(name) and name in old_meta:
            continue  # must be what it is
        if name in old_meta:
            meta[name] = old_meta[name]
        else:
            meta.pop(name, None)
    meta.pop("selfLink", None)
    meta.pop("generation", None)
    if "generation" in old_meta:
        meta["generation"] = old_meta["generation"]
    if "namespace" in old_meta:
        meta.setdefault("namespace", old_meta["namespace"])


def _keep_other_half(call: Call, new: Object, old: Object, status: bool) -> None:
    """A status update changes nothing else of the object, and the other way round."""
    custom = call.resource.custom
    if status:
        for name in [n for n in new if n not in ("status", "metadata")]:
            del new[name]
        for name, value in old.items():
            if name not in ("status", "metadata"):
                new[name] = value
        if custom is not None:
            managers = new["metadata"].get("managedFields")
            kept = ("resourceVersion", "managedFields")
            new["metadata"] = _without(old["metadata"], *kept)
            if managers is not None:
                new["metadata"]["managedFields"] = managers
    elif call.strategy.status and not call.subresource:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]


def _has_spec_change(call: Call, new: Object, old: Object) -> bool:
    hooks = kinds.hooks_of(call.resource)
    unseen: tuple[str, ...] = ("metadata", "status")
    if call.resource.custom is not None and not call.resource.custom.has_status:
        unseen = ("metadata",)
    counted = hooks.counted or (lambda item: _without(item, *unseen))
    return bool(counted(new) != counted(old))


def _without(item: Object, *names: str) -> Object:
    return {k: v for k, v in item.items() if k not in names}


def _update_managers(
    call: Call, new: Object, old: Object, options: WriteOptions, managers: fields_v1.Managers | None
) -> None:
    kind = call.resource.type
    meta = new["metadata"]
    if managers is not None:
        if fields := fields_v1.write_managers(managers):
            meta["managedFields"] = fields
    elif kind is not None and fields_v1.is_managed(old["metadata"]):
        version = call.resource.api_version
        manager = fields_v1.Manager(
            options.manager, "Update", version, options.subresource or call.subresource
        )
        reset: tuple[str, ...] = ()
        if call.strategy.status:
            reset = ("f:spec",) if call.subresource == "status" else ("f:status",)
        fields = managed_fields.update_managers(kind, old, new, manager, call.now, reset)
        if fields:
            meta["managedFields"] = fields
    elif "managedFields" in old["metadata"]:
        meta["managedFields"] = old["metadata"]["managedFields"]
