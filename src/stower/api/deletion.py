"""Handles delete and deletecollection: preconditions, grace, finalizers, propagation policies.

Source: apiserver pkg/registry/rest/delete.go, pkg/registry/generic/registry/store.go, 1.36.
"""

from typing import Any

import msgspec

from stower.api import admission, kinds
from stower.api.bodies import check_media, check_shape, parse_json
from stower.api.calls import Call
from stower.api.errors import bad_request, conflict
from stower.api.reads import list_objects, object_response, selection_of
from stower.api.requests import (
    DeleteOptions,
    Response,
    answer,
    delete_options,
    list_options,
)
from stower.api.store import Record
from stower.model.times import time_ns, time_text

Object = dict[str, Any]
NOW_NS = 1_000_000_000
GRACE_SECONDS_MAX = 100 * 365 * 86400  # as far as dates are looked ahead
DEPENDENTS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}


def read_options(call: Call) -> DeleteOptions:
    """Options of the body, or of the query where there is none."""
    body = call.request.body
    if not body.strip():
        return delete_options(call.request, None)
    check_media(call)
    try:
        value = parse_json(body)
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object of kind DeleteOptions")
    kind, version = value.get("kind") or "DeleteOptions", value.get("apiVersion") or "v1"
    number = str(version).rpartition("/")[2]
    if kind != "DeleteOptions" or number not in ("v1", "v1beta1", "v1alpha1", "v2", "v1alpha2"):
        raise bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme '
            '"pkg/apis/meta/internalversion/scheme/register.go:27"'
        )
    check_shape(call, value, "DeleteOptions", "v1", prefix="")
    return delete_options(call.request, value)


def delete(call: Call) -> Response:
    """DELETE of an object."""
    options = read_options(call)
    admission.check_delete(call)
    record = call.record()
    _check_preconditions(call, record, options)
    raw, gone = remove(call, record, options)
    if gone and not options.dry_run and not _answers_object(call):
        return _success(call, record)
    if gone and options.dry_run and not _answers_object(call):
        return _success(call, record)
    return object_response(call, raw)


def _answers_object(call: Call) -> bool:
    return call.strategy.returns_deleted


def _success(call: Call, record: Record) -> Response:
    details = {
        "name": call.name,
        "group": call.resource.group,
        "kind": call.resource.plural,
        "uid": record.uid,
    }
    return answer(
        200,
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {k: v for k, v in details.items() if v},
        },
    )


def _check_preconditions(call: Call, record: Record, options: DeleteOptions) -> None:
    wanted = options.resource_version
    if call.resource.key == ("", "namespaces"):
        if options.uid and options.uid != record.uid:
            raise call.conflict(
                f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: "
                f"{record.uid}"
            )
        if wanted and wanted != str(record.revision):
            raise call.conflict(
                f"Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion "
                f"in object meta: {record.revision}"
            )
        return
    group, kind = call.resource.group, call.resource.kind
    if options.uid and options.uid != record.uid:
        raise conflict(
            group, kind, call.name,
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({record.uid}). The object might have been deleted and then recreated",
        )  # fmt: skip
    if wanted and wanted != str(record.revision):
        raise conflict(
            group, kind, call.name,
            f"the ResourceVersion in the precondition ({wanted}) does not match the "
            f"ResourceVersion in record ({record.revision}). The object might have been modified",
        )  # fmt: skip


def remove(call: Call, record: Record, options: DeleteOptions) -> tuple[bytes, bool]:
    """Delete an object or begin to: its last bytes, and whether it is gone."""
    item = record.decode()
    meta = item["metadata"]
    grace = _grace(call, item, options)
    finalizers = _finalizers(call, meta, options)
    begun = "deletionTimestamp" in meta
    waits = bool(finalizers) or grace > 0 or _namespace_waits(call, item)
    store = call.context.store
    if not waits:
        # Only pods show that they were on their way out, even if it was no time.
        shown = item if call.resource.key == ("", "pods") else record.decode()
        if shown is item:
            _begin(call, meta, grace, begun)
        if options.dry_run:
            return msgspec.json.encode(shown), True
        if shown is item:
            store.put(call.collection, record.key, item)
        kept = store.remove(call.collection, record.key, shown)
        _run_deletion_hooks(call)
        return (kept.raw if shown is item else record.raw), True
    changed = meta.get("finalizers", []) != finalizers
    old_grace = meta.get("deletionGracePeriodSeconds")
    if not begun or (old_grace is not None and grace < old_grace):
        _begin(call, meta, grace, begun)
        changed = True
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    if call.resource.key == ("", "namespaces"):
        item["status"] = {**(item.get("status") or {}), "phase": "Terminating"}
        changed = changed or not begun
    if not changed or options.dry_run:
        return msgspec.json.encode(item), False
    return store.put(call.collection, record.key, item).raw, False


def _begin(call: Call, meta: Object, grace: int, begun: bool) -> None:
    """Mark the object as on its way out, or shorten that way."""
    end = time_text(call.request.now_ns + min(grace, GRACE_SECONDS_MAX) * NOW_NS)
    if begun:  # what is left gets shorter by the difference
        before = time_ns(meta["deletionTimestamp"]) or call.request.now_ns
        shorter = (meta.get("deletionGracePeriodSeconds") or 0) - grace
        shorter = max(-GRACE_SECONDS_MAX, min(shorter, GRACE_SECONDS_MAX))
        end = time_text(max(0, before - shorter * NOW_NS))
    meta["deletionTimestamp"] = end
    if call.resource.key != ("", "namespaces"):
        meta["deletionGracePeriodSeconds"] = grace
    if not begun and meta.get("generation", 0) > 0:
        meta["generation"] += 1


def _run_deletion_hooks(call: Call) -> None:
    hooks = kinds.hooks_of(call.resource)
    if hooks.after is not None:
        hooks.after(call, None)


def _grace(call: Call, item: Object, options: DeleteOptions) -> int:
    """Seconds that the object has left. Only pods end gracefully."""
    if call.resource.key != ("", "pods"):
        return 0
    spec, status = item["spec"], item.get("status") or {}
    wanted = options.grace_seconds
    if wanted is None:
        begun = item["metadata"].get("deletionGracePeriodSeconds")
        wanted = begun if begun is not None else spec.get("terminationGracePeriodSeconds", 30)
    if wanted < 0:
        wanted = 1
    # Nobody runs it (any more): there is nothing to wait for.
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        return 0
    return int(wanted)


def _namespace_waits(call: Call, item: Object) -> bool:
    if call.resource.key != ("", "namespaces"):
        return False
    begun = "deletionTimestamp" in item["metadata"]
    return not begun or bool((item.get("spec") or {}).get("finalizers"))


def _finalizers(call: Call, meta: Object, options: DeleteOptions) -> list[str]:
    """The finalizers with those that the propagation policy asks for."""
    found = list(meta.get("finalizers") or ())
    policy = options.policy
    if policy is None:
        if any(f in found for f in DEPENDENTS.values()):
            return found
        policy = "Orphan" if call.strategy.orphans else "Background"
    if call.resource.key in NOT_OWNERS:
        return found
    found = [f for f in found if f not in DEPENDENTS.values()]
    if policy in DEPENDENTS:
        found.append(DEPENDENTS[policy])
    return found


# Nothing collects what belongs to these.
NOT_OWNERS = frozenset({("", "events")})


def delete_collection(call: Call) -> Response:
    """DELETE of a collection: all that a selection takes, one by one."""
    options = read_options(call)
    selection = selection_of(call, list_options(call.request))
    listed = list_objects(call)
    for record in [r for r in call.collection.records.values() if selection.selects(r)]:
        one = Call(
            call.context,
            call.request,
            call.resource,
            record.key.rpartition("/")[0],
            record.key.rpartition("/")[2],
        )
        remove(one, record, options)
    return listed
