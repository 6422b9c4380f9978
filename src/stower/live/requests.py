"""Turns the engine's writes into requests to an API server. Sends nothing."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from stower.engine.groups.group_status import OF_PODS, OF_PODS_ALPHA
from stower.framework.writes import (
    ApiWrite,
    Bind,
    CreateEvent,
    CreateObject,
    DeleteObject,
    DeletePod,
    JsonPatchObject,
    ObjectWrite,
    PatchObject,
    PatchPodStatus,
)
from stower.live.client import JSON, collection_path
from stower.model.kinds import KIND_BY_NAME, KIND_BY_VIEW, Pod, PodGroup
from stower.model.times import micro_time_text, time_text

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
V1ALPHA2: Final = "scheduling.k8s.io/v1alpha2"
REPORTING_CONTROLLER: Final = "stower-scheduler"

encode = msgspec.json.Encoder().encode
_is_plain = re.compile(r"[a-z0-9.-]*").fullmatch


def _quote_name(name: str) -> str:
    return name if _is_plain(name) else quote(name, safe="")


def build_request(
    write: ApiWrite,
    cached_pod: Pod | None,
    wall_ns: int,
    instance: str,
    api_versions: Mapping[type, str] = {},
) -> tuple[str, str, bytes, str]:
    """Returns method, path, body and content type of the request for a write.

    `cached_pod`: the pod as last observed; `wall_ns`: the time since the epoch; `instance`: the
    scheduler's name in Events; `api_versions`: by view, the apiVersion in which a kind is served,
    if that is not the kind's own.
    """
    namespace, name = _quote_name(write.namespace), _quote_name(write.name)
    if isinstance(write, Bind):
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/binding"
        return "POST", path, encode(_binding(write)), JSON
    if isinstance(write, PatchPodStatus):
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        return (
            "PATCH",
            path,
            encode(_status_patch(write, cached_pod, time_text(wall_ns))),
            STRATEGIC_MERGE_PATCH,
        )
    if isinstance(write, ObjectWrite):
        kind = KIND_BY_VIEW[write.view]
        version = api_versions.get(write.view, kind.api_version)
        path = collection_path(kind, namespace, version)
        if isinstance(write, CreateObject):
            obj = {"apiVersion": kind.api_version, "kind": kind.name, **write.body}
            return "POST", path, encode(obj), JSON
        if isinstance(write, DeleteObject):
            options = _DELETE_OPTIONS | {"preconditions": {"uid": write.uid}}
            return "DELETE", f"{path}/{name}", encode(options), JSON
        if isinstance(write, JsonPatchObject):
            return "PATCH", f"{path}/{name}", encode(write.operations), JSON_PATCH
        subresource_path = f"/{write.subresource}" if write.subresource else ""
        return (
            "PATCH",
            f"{path}/{name}{subresource_path}",
            encode(_with_preconditions(convert_patch(write, version))),
            MERGE_PATCH,
        )
    if isinstance(write, DeletePod):
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        options = _DELETE_OPTIONS | {"preconditions": {"uid": write.uid}}
        if write.grace_seconds is None:
            return "DELETE", path, encode(options), JSON
        options_with_grace = options | {"gracePeriodSeconds": write.grace_seconds}
        return "DELETE", path, encode(options_with_grace), JSON
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    return "POST", path, encode(_event(write, instance, api_versions)), JSON


def convert_patch(write: PatchObject, version: str) -> PatchObject:
    """Returns the patch for an apiVersion: PodGroup of v1alpha2 has another condition type."""
    if write.view is not PodGroup or version != V1ALPHA2:
        return write
    conditions = [
        {**condition, "type": OF_PODS_ALPHA if condition["type"] == OF_PODS else condition["type"]}
        for condition in write.patch["status"]["conditions"]
    ]
    return msgspec.structs.replace(write, patch={"status": {"conditions": conditions}})


def _with_preconditions(write: PatchObject) -> dict[str, Any]:
    meta = {"uid": write.uid, "resourceVersion": write.resource_version}
    return {**write.patch, "metadata": {**write.patch.get("metadata", {}), **meta}}


_DELETE_OPTIONS: Final = {"apiVersion": "v1", "kind": "DeleteOptions"}


def _binding(write: Bind) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": write.name,
            "namespace": write.namespace,
            "uid": write.uid,
            **_version_precondition(write),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": write.node_name},
    }


def _status_patch(write: PatchPodStatus, cached_pod: Pod | None, now: str) -> dict[str, Any]:
    status: dict[str, Any] = {}
    if write.condition is not None:
        condition: dict[str, Any] = msgspec.to_builtins(write.condition)
        before = cached_pod.condition(write.condition.type) if cached_pod is not None else None
        if before is None or before.status != write.condition.status:
            condition["lastTransitionTime"] = now
        if write.generation:
            condition["observedGeneration"] = write.generation
        status["conditions"] = [condition]
    for type in write.removed_conditions:
        status.setdefault("conditions", []).append({"type": type, "$patch": "delete"})
    if write.nominated_node_name is not None:
        status["nominatedNodeName"] = write.nominated_node_name or None
    if write.extended_resource_claim is not None:
        status["extendedResourceClaimStatus"] = write.extended_resource_claim
    if write.claimed is not msgspec.UNSET:
        status["nodeAllocatableResourceClaimStatuses"] = write.claimed or None
    return {"metadata": {"uid": write.uid, **_version_precondition(write)}, "status": status}


def _version_precondition(write: Bind | PatchPodStatus) -> dict[str, str]:
    """Returns the resourceVersion that must still hold, if the write has one."""
    return {"resourceVersion": write.resource_version} if write.resource_version else {}


def _event(write: CreateEvent, instance: str, api_versions: Mapping[type, str]) -> dict[str, Any]:
    kind = KIND_BY_NAME.get(write.about)
    version = api_versions.get(kind.view, write.about[0]) if kind is not None else write.about[0]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{write.name[:200]}.{write.at_ns:x}{write.id & 0xFFF:03x}",
            "namespace": write.namespace,
        },
        "eventTime": micro_time_text(write.at_ns),
        "reportingController": write.reporter or REPORTING_CONTROLLER,
        "reportingInstance": instance,
        "action": write.action,
        "reason": write.reason,
        "regarding": {
            "apiVersion": version,
            "kind": write.about[1],
            "namespace": write.namespace,
            "name": write.name,
            "uid": write.uid,
        },
        "note": write.note,
        "type": write.type,
    }
