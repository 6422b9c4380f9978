"""Handles the binding subresource of pods: writes the node of a Binding into the pod.

Source: pkg/registry/core/pod/storage/storage.go, Kubernetes 1.36.
"""

from typing import Any

from stower.api import admission, pods
from stower.api.bodies import check_kind, check_media, check_shape, parse_object
from stower.api.calls import Call
from stower.api.errors import (
    OTHER_NAMESPACE,
    REQUIRED,
    ApiError,
    FieldError,
    bad_request,
    conflict,
    not_found,
    unsupported,
)
from stower.api.registry import storage_error
from stower.api.requests import Response, answer, write_options

Object = dict[str, Any]
SUCCESS: Object = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


def bind(call: Call) -> Response:
    """POST of a Binding to a pod."""
    return _bind(call, call.name)


def bind_named(call: Call) -> Response:
    """POST of a Binding to the collection of bindings; it names the pod."""
    return _bind(call, "")


def _bind(call: Call, name: str) -> Response:
    options = write_options(call.request, "CreateOptions")
    check_media(call)
    binding = parse_object(call.request.body, "Binding")
    check_kind(call, binding, "Binding", "v1")
    warnings = check_shape(call, binding, "Binding", "v1", options)
    meta = binding.get("metadata") or {}
    target = binding.get("target") or {}
    if meta.get("namespace") and meta["namespace"] != call.namespace:
        raise bad_request(OTHER_NAMESPACE)
    admission.check_namespace(call, name or meta.get("name") or "")
    if name and name != meta.get("name"):
        raise bad_request("name in URL does not match name in Binding object")
    name = name or meta.get("name") or ""
    errors = []
    if target.get("kind") not in (None, "", "Node"):
        errors.append(unsupported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        errors.append(FieldError(REQUIRED, "target.name"))
    if errors:
        texts = [f"{e.field}: {e.message}" for e in errors]
        raise ApiError(500, "", texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    assign(call, name, str(target["name"]), meta, options.dry_run)
    return answer(201, SUCCESS, warnings)


def assign(call: Call, name: str, node: str, meta: Object, dry_run: bool) -> None:
    """Write the node's name into the pod. Raises ApiError 404 or 409."""
    collection = call.context.store.collection(("", "pods"))
    key = f"{call.namespace}/{name}"
    record = collection.records.get(key)
    if record is None:
        raise not_found("", "pods", name)

    def make_conflict(why: str) -> ApiError:
        return conflict("", "pods/binding", name, why)

    def make_stale_conflict(why: str) -> ApiError:
        return conflict("", "pods", name, storage_error(collection.name, key, why))

    if meta.get("uid") and meta["uid"] != record.uid:
        raise make_stale_conflict(
            f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: "
            f"{record.uid}"
        )
    version = meta.get("resourceVersion")
    if version and version != str(record.revision):
        raise make_stale_conflict(
            f"Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in "
            f"object meta: {record.revision}"
        )
    pod = record.decode()
    spec = pod["spec"]
    if "deletionTimestamp" in pod["metadata"]:
        raise make_conflict(f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise make_conflict(f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise make_conflict(f"pod {name} has non-empty .spec.schedulingGates")
    if dry_run:
        return
    spec["nodeName"] = node
    for field in ("annotations", "labels"):
        if meta.get(field):
            pod["metadata"][field] = {**(pod["metadata"].get(field) or {}), **meta[field]}
    pod["status"].pop("nominatedNodeName", None)
    pods.set_condition(pod["status"], {"type": "PodScheduled", "status": "True"}, call.now)
    call.context.store.put(collection, key, pod)
