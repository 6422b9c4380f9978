"""Writes: the outputs of the engine, each with the preconditions on which it relies.

Each write but AgentAnswer is answered once, by its id (WriteOk, WriteFailed, ExtenderAnswered,
Solved).
"""

from typing import Any

import msgspec

from stower.model.kinds import ApiObject
from stower.model.kinds.pod import ClaimedResources, ExtendedResourceClaimStatus, PodCondition


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Creates the pod's binding to a node. Relies on the pod's uid, and on its resourceVersion
    where one is given."""

    id: int
    namespace: str
    name: str
    uid: str
    node_name: str
    resource_version: str = ""


class PatchPodStatus(msgspec.Struct, frozen=True, gc=False):
    """Sets a condition of the pod; unless None, its nominated node name and the claim that provides
    its extended resources; unless UNSET, what its claims take of its node's own resources. Removes
    the conditions of these types. `generation`: of the pod that the condition is about, its
    observedGeneration (KEP-5067). Relies on the pod's uid, and on its resourceVersion where one is
    given."""

    id: int
    namespace: str
    name: str
    uid: str
    condition: PodCondition | None = None
    nominated_node_name: str | None = None
    extended_resource_claim: ExtendedResourceClaimStatus | None = None
    claimed: tuple[ClaimedResources, ...] | msgspec.UnsetType = msgspec.UNSET
    resource_version: str = ""
    removed_conditions: tuple[str, ...] = ()
    generation: int = 0


class _OfObject(msgspec.Struct, frozen=True, gc=False):
    """Base of writes about an object of any kind but Pod."""

    id: int
    view: type
    namespace: str
    name: str
    uid: str


class PatchObject(_OfObject, frozen=True, gc=False):
    """Merges fields into an object, or into its subresource ("status"). Relies on the object's uid
    and resourceVersion."""

    resource_version: str
    patch: dict[str, Any]
    subresource: str = ""


class CreateObject(_OfObject, frozen=True, gc=False):
    """Creates an object; `body` is the whole object. Relies on no object of that name existing.
    `uid`: of the pod for which the object is created."""

    body: dict[str, Any]


class DeleteObject(_OfObject, frozen=True, gc=False):
    """Deletes an object of any version. Relies on the object's uid."""


class JsonPatchObject(_OfObject, frozen=True, gc=False):
    """Applies the operations of a JSON patch (RFC 6902) to an object. Relies on its `test`
    operations, and on nothing else. `uid`: of the pod for which the object is patched."""

    operations: list[dict[str, Any]]


ObjectWrite = PatchObject | CreateObject | DeleteObject | JsonPatchObject


def patch_of(
    obj: ApiObject, patch: dict[str, Any], subresource: str = "", id: int = 0
) -> PatchObject:
    """Returns the write that merges fields into the object; it relies on the version given here."""
    meta = obj.metadata
    return PatchObject(
        id, type(obj), meta.namespace, meta.name, meta.uid, meta.resource_version, patch,
        subresource,
    )  # fmt: skip


def no_op_patch(obj: ApiObject, subresource: str = "", id: int = 0) -> PatchObject:
    """Returns a write that changes nothing. It succeeds only where the object still has the version
    given here."""
    return patch_of(obj, {}, subresource, id)


class CallExtender(msgspec.Struct, frozen=True, gc=False):
    """Calls an extender about a pod. Only ExtenderAnswered answers it.

    extender: its index in the configuration; verb: filter, prioritize, preempt or bind; nodes: the
    nodes that the call is about, or the node to bind to; victims: by node, the victims' uids, and
    the number of PDB violations.
    """

    id: int
    extender: int
    verb: str
    namespace: str
    name: str
    uid: str
    nodes: tuple[str, ...]
    victims: dict[str, tuple[list[str], int]] = {}


class Solve(msgspec.Struct, frozen=True, gc=False):
    """Asks for a search that takes longer than a step may, for the tree of this root group. It is
    no request to the API server: the shell answers it (Solved) with `groups.solving.solve` of the
    message, in a process of its own; with WriteOk, where it leaves that to the engine. Without a
    message it is answered once other events have been, with nothing."""

    id: int
    namespace: str
    name: str
    uid: str
    message: bytes


class DeletePod(msgspec.Struct, frozen=True, gc=False):
    """Deletes a pod, with the pod's own grace period unless `grace_seconds` is given. Relies on the
    pod's uid."""

    id: int
    namespace: str
    name: str
    uid: str
    grace_seconds: int | None = None


class CreateEvent(msgspec.Struct, frozen=True, gc=False):
    """Creates an Event (events.k8s.io/v1) about an object of the apiVersion and kind in `about`.
    Losing an Event does no harm. `reporter`: the reporting controller, where it is not the
    scheduler."""

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


class AgentAnswer(msgspec.Struct, frozen=True, gc=False):
    """The HTTP response to an agent's request (the AgentAsked of the same id). It is not answered
    itself."""

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
    """Returns the name of the write's kind in metrics, in the style of upstream's API calls."""
    if isinstance(write, ObjectWrite):
        return f"{write.view.__name__.lower()}_write"
    return _CALLS[type(write)]


_VERBS: dict[type, str] = {
    Bind: "bind Pod",
    PatchPodStatus: "patch status of Pod",
    DeletePod: "delete Pod",
    PatchObject: "patch",
    JsonPatchObject: "patch",
    CreateObject: "create",
    DeleteObject: "delete",
}


def write_text(write: "ApiWrite") -> str:
    """Returns the write's verb, kind and object for messages, such as "bind Pod default/web"."""
    key = f"{write.namespace}/{write.name}" if write.namespace else write.name
    if isinstance(write, CreateEvent):
        return f"create Event {write.reason} about {write.about[1]} {key}"
    verb = _VERBS[type(write)]
    if isinstance(write, PatchObject) and write.subresource:
        verb = f"{verb} {write.subresource} of"
    return (
        f"{verb} {write.view.__name__} {key}" if isinstance(write, ObjectWrite) else f"{verb} {key}"
    )


# Writes to the API server, and all outputs of the engine.
ApiWrite = Bind | PatchPodStatus | DeletePod | ObjectWrite | CreateEvent
Write = ApiWrite | CallExtender | AgentAnswer | Solve
