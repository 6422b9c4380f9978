"""Applies a scheduler's writes to objects: bindings, patches, creations."""

import msgspec

from stower.api.patches import PatchError, json_patch, merge
from stower.framework.writes import Bind, CreateObject, JsonPatchObject, PatchObject, PatchPodStatus
from stower.model.kinds import ApiObject, Pod
from stower.model.kinds.pod import PodCondition, PodStatus


def bound(pod: Pod, write: Bind) -> Pod:
    """The pod as the binding subresource leaves it."""
    spec = msgspec.structs.replace(pod.spec, node_name=write.node_name)
    scheduled = PodCondition("PodScheduled", "True")
    return msgspec.structs.replace(pod, spec=spec, status=_with_condition(pod, scheduled))


def patched(pod: Pod, write: PatchPodStatus) -> Pod:
    """The pod with its status patched."""
    status = pod.status
    if write.condition is not None:
        status = _with_condition(pod, write.condition)
    if write.removed_conditions:
        left = (c for c in status.conditions or () if c.type not in write.removed_conditions)
        status = msgspec.structs.replace(status, conditions=tuple(left))
    if write.nominated_node_name is not None:
        name = write.nominated_node_name
        status = msgspec.structs.replace(status, nominated_node_name=name)
    if write.extended_resource_claim is not None:
        claim = write.extended_resource_claim
        status = msgspec.structs.replace(status, extended_resource_claim_status=claim)
    if write.claimed is not msgspec.UNSET:
        status = msgspec.structs.replace(
            status, node_allocatable_resource_claim_statuses=write.claimed or None
        )
    return msgspec.structs.replace(pod, status=status)


def make_object(write: CreateObject, uid: str) -> ApiObject:
    """The object that is made; nobody can give one a status as it is made."""
    fields = {**write.body, "status": {}, "metadata": {**write.body["metadata"], "uid": uid}}
    made: ApiObject = msgspec.convert(fields, write.view)
    return made


def _with_condition(pod: Pod, condition: PodCondition) -> PodStatus:
    others = tuple(c for c in pod.status.conditions or () if c.type != condition.type)
    return msgspec.structs.replace(pod.status, conditions=(*others, condition))


def merged(found: ApiObject, write: PatchObject) -> ApiObject:
    """The object with the fields of a patch merged in (RFC 7386)."""
    merged: ApiObject = msgspec.convert(merge(msgspec.to_builtins(found), write.patch), write.view)
    return merged


def json_patched(found: ApiObject, write: JsonPatchObject) -> ApiObject | None:
    """The object with the operations of a JSON patch carried out; None where one cannot be."""
    try:
        data = json_patch(msgspec.to_builtins(found), write.operations)
    except PatchError:
        return None
    changed: ApiObject = msgspec.convert(data, type(found))
    return changed
