"""Writes a PodScheduling for pods created with a node, so that drivers allocate their claims.

A driver allocates a delayed claim on the node that a PodScheduling selects. The scheduler creates
no PodScheduling for a pod that was created with spec.nodeName, so this controller does: with that
node selected and no candidate nodes. It remains until the driver has allocated the claims and they
are reserved for the pod (resource_claims.py); meanwhile the kubelet does not start the pod.

Source: ensurePodSchedulingContext of pkg/controller/resourceclaim, Kubernetes 1.30.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.claims import (
    are_named,
    is_allocated,
    is_delayed,
    is_flagged,
    is_negotiated,
    is_reserved,
    used_by,
    users_of,
)
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    owner_of,
    uid_of,
)
from stower.controllers.pods import is_active, reference_to
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.times import SECOND_NS

# The claims of a pod that the scheduler has just bound are allocated, but may be seen after it.
PAUSE_NS: Final = SECOND_NS


class PresetNodeController(BaseController):
    """One pod is one key, and so is its PodScheduling, which has its name."""

    name = "preset-node-controller"
    kinds = ("pods", "resourceclaims", "resourceclasses", "podschedulings")

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, int]] = {}  # by key: uid and since when

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The pod, or those that use a claim; a class says that claims are negotiated."""
        if kind == "podschedulings":
            return (key_of(obj),)
        if kind == "pods":
            return (key_of(obj),) if _is_placed(obj) else ()
        if kind == "resourceclaims":
            if not is_negotiated(seen, obj):
                return ()
            return tuple(key_of(pod) for pod in users_of(seen, obj) if _is_placed(pod))
        if old is not None and old is not obj:
            return ()  # it has the same name: its claims are the same
        return tuple(key_of(pod) for pod in seen.all("pods") if _is_placed(pod))

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Select the node for drivers that are still to allocate; take that back after."""
        uid, since_ns = self._waiting.pop(key, ("", 0))
        pod = seen.get("pods", key)
        if pod is None or not _is_placed(pod):
            return
        scheduling = seen.get("podschedulings", key)
        claims = [seen.get("resourceclaims", claim) for claim in used_by(pod)]
        delayed = [c for c in claims if c and is_negotiated(seen, c) and is_delayed(c)]
        # A driver allocates all claims of a pod or none, so it is to see all of them.
        is_whole = are_named(pod) and None not in claims
        if not is_active(pod) or (is_whole and _are_prepared(pod, delayed)):
            if scheduling is not None and _is_ours(scheduling, pod):
                todo.delete("podschedulings", scheduling)
        elif scheduling is None and is_whole and any(map(_is_pending, delayed)):
            if uid != uid_of(pod):
                since_ns = todo.now_ns
            if todo.now_ns < since_ns + PAUSE_NS:
                self._waiting[key] = (uid_of(pod), since_ns)
                todo.requeue_at(since_ns + PAUSE_NS)
            else:
                _select(pod, todo)


def _select(pod: Object, todo: ReconcileResult) -> None:
    meta = {
        "name": name_of(pod),
        "namespace": namespace_of(pod),
        "ownerReferences": [reference_to(pod, "pods")],
    }
    todo.create(
        "podschedulings", {"metadata": meta, "spec": {"selectedNode": pod["spec"]["nodeName"]}}
    )


def _is_placed(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName") and pod["spec"].get("resourceClaims"))


def _are_prepared(pod: Object, delayed: list[Object]) -> bool:
    """Nothing is left for drivers to do."""
    return all(is_allocated(claim) and is_reserved(claim, pod) for claim in delayed)


def _is_pending(claim: Object) -> bool:
    return not (is_allocated(claim) or is_flagged(claim) or is_ending(claim))


def _is_ours(scheduling: Object, pod: Object) -> bool:
    """It was made here: the scheduler's own has nodes to choose from."""
    owner, spec = owner_of(scheduling) or {}, scheduling.get("spec") or {}
    if owner.get("uid") != uid_of(pod) or is_ending(scheduling):
        return False
    return not spec.get("potentialNodes") and not spec.get("round")
