"""Handles the scale subresource: reads and sets the replicas of workloads and custom resources.

Source: pkg/registry/apps/*/storage, autoscaling/v1 Scale, Kubernetes 1.36.
"""

from typing import Any, Final

from stower.api import writes
from stower.api.bodies import check_shape, media_type, parse_json, read_unstored
from stower.api.calls import Call
from stower.api.content_negotiation import OBJECT, choose_format
from stower.api.errors import (
    INVALID,
    ApiError,
    FieldError,
    bad_request,
    invalid,
    unsupported_media_type,
)
from stower.api.patches import BadPatchError, CopyLimitError, PatchError, json_patch, merge
from stower.api.printers import columns_of
from stower.api.printers.parts import format_age
from stower.api.representations import partial_metadata
from stower.api.requests import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Response,
    answer,
)
from stower.api.requests import write_options as read_options

Object = dict[str, Any]
VERSION = "autoscaling/v1"


COLUMNS: Final = (
    ("Desired", "replicas is the desired number of instances for the scaled object."),
    ("Available", "replicas is the actual number of observed instances of the scaled object."),
)


def handle(call: Call) -> Response:
    """GET, PUT or PATCH of an object's Scale."""
    record = call.record()
    shown = scale_of(call, call.decode(record))
    if call.request.info.verb == "get":
        return _respond(call, shown)
    if call.request.info.verb == "update":
        options = read_options(call.request, "UpdateOptions")
        wanted = read_unstored(call, "Scale", VERSION)
    else:
        options = read_options(call.request, "PatchOptions")
        wanted = _patched(call, shown)
        check_shape(call, wanted, "Scale", VERSION)
    meta = wanted.get("metadata") or {}
    if (meta.get("name") or call.name) != call.name:
        raise bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL "
            f"({call.name})"
        )
    replicas = (wanted.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        text = "must be greater than or equal to 0"
        errors = [FieldError(INVALID, "spec.replicas", replicas, text)]
        raise invalid("autoscaling", "Scale", call.name, errors)

    def transform(old: Object) -> Object:
        changed = replaced(old, paths_of(call)[0], replicas)
        if meta.get("resourceVersion"):
            changed["metadata"] = {**old["metadata"], "resourceVersion": meta["resourceVersion"]}
        return changed

    options.subresource = call.subresource
    inner = Call(call.context, call.request, call.resource, call.namespace, call.name)
    raw, _ = writes.alter(inner, record, transform, options)
    return answer(200, scale_of(call, parse_json(raw)))


def _respond(call: Call, scale: Object) -> Response:
    form = choose_format(call.request, OBJECT, call.resource)
    if not form.name:
        return answer(200, scale)
    if form.name != "Table":
        return answer(200, partial_metadata(scale, form))
    own = {column["name"]: column for column in columns_of(call.resource)}
    row: Object = {
        "cells": [
            call.name,
            scale["spec"].get("replicas", 0),
            scale["status"]["replicas"],
            *([format_age(scale, call.request.now_ns)] if "Age" in own else []),
        ],
        "object": {"Metadata": partial_metadata(scale, form), "Object": scale}.get(form.include),
    }
    meta = {"resourceVersion": scale["metadata"]["resourceVersion"]}
    head = {"kind": "Table", "apiVersion": form.api_version, "metadata": meta}
    counts = [
        {"name": name, "type": "integer", "format": "", "description": text, "priority": 0}
        for name, text in COLUMNS
    ]
    columns = [own["Name"], *counts, *([own["Age"]] if "Age" in own else [])]
    return answer(200, {**head, "columnDefinitions": columns, "rows": [row]})


def _patched(call: Call, shown: Object) -> Object:
    form = media_type(call.request.content_type)
    try:
        change = parse_json(call.request.body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    try:
        if form == JSON_PATCH and isinstance(change, list):
            patched = json_patch(shown, change)
        elif form in (MERGE_PATCH, STRATEGIC_PATCH) and isinstance(change, dict):
            patched = merge(shown, change)
        else:
            raise unsupported_media_type()
    except PatchError as error:
        text = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", text, {}) from error
    except (BadPatchError, CopyLimitError) as error:
        raise bad_request(str(error)) from None
    if not isinstance(patched, dict):
        raise bad_request("the result of the patch is not a JSON object")
    return patched


def scale_of(call: Call, item: Object) -> Object:
    """The Scale of an object."""
    meta = item["metadata"]
    wanted, found, selected = paths_of(call)
    status: Object = {"replicas": found_at(item, found) or 0}
    given = found_at(item, selected) if selected else None
    selector = given if isinstance(given, str) else selector_text(given, call.resource.kind)
    if selector:
        status["selector"] = selector
    spec: Object = {}
    if replicas := found_at(item, wanted):
        spec["replicas"] = replicas
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": VERSION,
        "metadata": {name: meta[name] for name in names if name in meta},
        "spec": spec,
        "status": status,
    }


def paths_of(call: Call) -> tuple[str, str, str]:
    """Where replicas are asked for and counted, and the selector."""
    custom = call.resource.custom
    if custom is None:
        return ".spec.replicas", ".status.replicas", ".spec.selector"
    scale = custom.scale
    return (
        scale.get("specReplicasPath", ".spec.replicas"),
        scale.get("statusReplicasPath", ".status.replicas"),
        scale.get("labelSelectorPath", ""),
    )


def found_at(item: Any, path: str) -> Any:
    """The value at a path of names."""
    for name in path.strip(".").split("."):
        item = item.get(name) if isinstance(item, dict) else None
    return item


def replaced(item: Object, path: str, value: Any) -> Object:
    """The object with another value at a path of names; other parts are shared."""
    name, _, rest = path.strip(".").partition(".")
    inner = item.get(name)
    made = replaced(inner if isinstance(inner, dict) else {}, rest, value) if rest else value
    return {**item, name: made}


def selector_text(selector: Object | None, kind: str) -> str:
    """A selector as its text."""
    if selector is None:
        return ""
    if kind == "ReplicationController":
        return ",".join(f"{k}={v}" for k, v in sorted(selector.items()))
    terms = [(k, f"{k}={v}") for k, v in (selector.get("matchLabels") or {}).items()]
    words = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}
    for term in selector.get("matchExpressions") or ():
        values = ",".join(sorted(term.get("values") or ()))
        text = words.get(term.get("operator", ""), "{}").format(term["key"], values)
        terms.append((term["key"], text))
    return ",".join(text for _, text in sorted(terms))
