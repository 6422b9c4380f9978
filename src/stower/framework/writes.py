"""What comes out of the engine: writes, each with what it relies on. Each is answered once, by
id.
"""

from typing import Any

import msgspec

from stower.model.kinds import ApiObject
from stower.model.kinds.pod import ClaimedResources, ExtendedResourceClaimStatus, PodCondition


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Create the pod's binding to a node. Relies on the pod's uid, and on its resourceVersion where
    one is given."""

    id: int
    namespace: str
    name: str
    uid: str
    node_name: str
    resource_version: str = ""


class PatchPodStatus(msgspec.Struct, frozen=True, gc=False):
    """Set a condition of the pod and, unless None, its nominated node name, and which claim its
    extended resources are met by; unless UNSET, what its claims take of its node's own resources.
    Relies on its uid, and on its resourceVersion where one is given."""

    id: int
    namespace: str
    name: str
    uid: str
    condition: PodCondition | None = None
    nominated_node_name: str | None = None
    extended_resource_claim: ExtendedResourceClaimStatus | None = None
    claimed: tuple[ClaimedResources, ...] | msgspec.UnsetType = msgspec.UNSET
    resource_version: str = ""


class _OfObject(msgspec.Struct, frozen=True, gc=False):
    """About any object but a pod."""

    id: int
    view: type
    namespace: str
    name: str
    uid: str


class PatchObject(_OfObject, frozen=True, gc=False):
    """Merge these fields into an object, or into a subresource of it ("status"). Relies on its uid
    and resourceVersion."""

    resource_version: str
    patch: dict[str, Any]
    subresource: str = ""


class CreateObject(_OfObject, frozen=True, gc=False):
    """Make an object, of which `body` is all. Relies on there being none of that name. `uid` is
    that of the pod that it is made for."""

    body: dict[str, Any]


class DeleteObject(_OfObject, frozen=True, gc=False):
    """Delete an object, whatever its version. Relies on its uid."""


class JsonPatchObject(_OfObject, frozen=True, gc=False):
    """Carry out operations of a JSON patch (RFC 6902) on an object. Relies on what its `test`
    operations say, and on nothing else. `uid` is that of the pod that it is written for."""

    operations: list[dict[str, Any]]


ObjectWrite = PatchObject | CreateObject | DeleteObject | JsonPatchObject


def patch_of(
    obj: ApiObject, patch: dict[str, Any], subresource: str = "", id: int = 0
) -> PatchObject:
    """What merges these fields into the object as it was seen."""
    meta = obj.metadata
    return PatchObject(
        id, type(obj), meta.namespace, meta.name, meta.uid, meta.resource_version, patch,
        subresource,
    )  # fmt: skip


def no_op_patch(obj: ApiObject, subresource: str = "", id: int = 0) -> PatchObject:
    """Changes nothing: where it is carried out, the object is still as it was seen."""
    return patch_of(obj, {}, subresource, id)


class CallExtender(msgspec.Struct, frozen=True, gc=False):
    """Ask an extender about a pod; answered by ExtenderAnswered, and only by that.

    extender: index into the configuration's; verb: filter, prioritize, preempt or bind; nodes:
    those asked about, or the one to bind to; victims: by node, their uids, and how many budgets
    are broken.
    """

    id: int
    extender: int
    verb: str
    namespace: str
    name: str
    uid: str
    nodes: tuple[str, ...]
    victims: dict[str, tuple[list[str], int]] = {}


class DeletePod(msgspec.Struct, frozen=True, gc=False):
    """Delete a pod, with the time that it gives itself to end, unless seconds are given. Relies on
    its uid."""

    id: int
    namespace: str
    name: str
    uid: str
    grace_seconds: int | None = None


class CreateEvent(msgspec.Struct, frozen=True, gc=False):
    """An Event (events.k8s.io/v1) about an object of the apiVersion and kind in `about`; losing one
    does no harm. `reporter`: who tells, where it is not the scheduler."""

    id: int
    namespace: str
    name: str
    uid: str
    type: str
    reason: str
    action: str
    note: str
    at_ns: int
    about: tuple[str, str] = ("v1", "Pod")
    reporter: str = ""


# What is written to the API server, and all that an engine may want done.
class AgentAnswer(msgspec.Struct, frozen=True, gc=False):
    """What whoever has asked (`AgentAsked`, by id) is told over HTTP. Answered by nobody."""

    id: int
    status: int
    body: str
    type: str


_CALLS: dict[type, str] = {
    Bind: "pod_binding",
    PatchPodStatus: "pod_status_patch",
    DeletePod: "pod_delete",
    CreateEvent: "event",
}


def call_name(write: "ApiWrite") -> str:
    """What the write is called where it is counted, as upstream calls its own."""
    if isinstance(write, ObjectWrite):
        return f"{write.view.__name__.lower()}_write"
    return _CALLS[type(write)]


ApiWrite = Bind | PatchPodStatus | DeletePod | ObjectWrite | CreateEvent
Write = ApiWrite | CallExtender | AgentAnswer
