"""ResourceClaim controller: creates claims from templates and removes reservations and allocations.

A reservation is removed only when its pod has ended or is known to be deleted: a pod that is not
in the store may be one that the scheduler has just bound. Only the driver deallocates a claim that
the driver has allocated; such a claim has a finalizer other than ours. An unused claim of a driver
is not deallocated either (rule K2 of negotiated devices): a claim created by a user stays allocated
until it is deleted (S0.34), and a claim created for a pod is deleted with the pod.

Source: pkg/controller/resourceclaim, Kubernetes 1.36. One write at a time: a claim is examined
again when the result of its last write is known.
"""

from collections.abc import Iterable
from typing import Any, Final

from stower.controllers.absence import AbsenceCache
from stower.controllers.claims import (
    consumers_of,
    extended_of,
    is_allocated,
    is_flagged,
    is_reserved,
    is_usable_on,
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
from stower.controllers.pods import is_finished
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.kinds.resource_claim import FINALIZER, POD_CLAIM_NAME, RESERVED_FOR_MAX

GENERATED_MAX: Final = 57  # of the pod's and the claim's name, with both hyphens


class ResourceClaimController(BaseController):
    """`pod:NAMESPACE/NAME` for claims to make, `claim:NAMESPACE/NAME` for claims to give back."""

    name = "resourceclaim-controller"
    kinds = ("pods", "resourceclaims", "resourceclaimtemplates", "nodes")

    def __init__(self) -> None:
        self._absence = AbsenceCache()

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The pod and its claims; whoever waits for a template or a node, or uses a claim."""
        if kind == "pods":
            if not _has_claims(obj):
                return ()
            claims = (
                [f"claim:{key}" for key in used_by(obj)] if old is obj or _is_finished(obj) else []
            )
            return (f"pod:{key_of(obj)}", *claims)
        if kind == "resourceclaims":
            return (f"claim:{key_of(obj)}", *(f"pod:{key_of(pod)}" for pod in users_of(seen, obj)))
        if kind == "nodes":
            if old is not None and (old is obj or _labels(old) == _labels(obj)):
                return ()
            placed = seen.pods_on(name_of(obj))
            return tuple(f"pod:{key_of(pod)}" for pod in placed if _has_claims(pod))
        if old is obj:
            return ()
        waiting = (
            pod
            for pod in seen.list_namespace("pods", namespace_of(obj))
            if _names_template(pod, name_of(obj))
        )
        return tuple(f"pod:{key_of(pod)}" for pod in waiting)

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Make what is missing, or give back what is used no more."""
        what, _, of = key.partition(":")
        if what == "pod":
            pod = seen.get("pods", of)
            if pod is not None and not is_ending(pod) and not is_finished(pod):
                self._make(seen, pod, todo)
        else:
            claim = seen.get("resourceclaims", of)
            if claim is not None:
                self._release(seen, claim, todo)

    def handle_answer(self, key: str, method: str, path: str, status: int, body: bytes) -> None:
        """Whether a consumer is there."""
        self._absence.handle_answer(key, path, status, body)

    # Claims from templates

    def _make(self, seen: ObjectStore, pod: Object, todo: ReconcileResult) -> None:
        statuses: list[Object] = []
        is_whole = True
        for entry in pod["spec"].get("resourceClaims") or ():
            template = entry.get("resourceClaimTemplateName")
            if not template:
                continue
            claim = _find_claim(seen, pod, entry["name"])
            if claim is None:
                is_whole = False
                self._create(seen, pod, entry, todo)
            else:
                statuses.append({"name": entry["name"], "resourceClaimName": name_of(claim)})
        if not is_whole:
            return
        known = (pod.get("status") or {}).get("resourceClaimStatuses") or []
        if statuses and _by_name(known) != _by_name(statuses):
            todo.patch("pods", pod, {"status": {"resourceClaimStatuses": statuses}}, "status")
        elif pod["spec"].get("nodeName"):
            self._reserve(seen, pod, todo)

    def _create(self, seen: ObjectStore, pod: Object, entry: Object, todo: ReconcileResult) -> None:
        name = entry["resourceClaimTemplateName"]
        template = seen.get("resourceclaimtemplates", f"{namespace_of(pod)}/{name}")
        if template is None:
            return  # it is looked at again when there is one
        own = template["spec"].get("metadata") or {}
        meta: Object = {
            "namespace": namespace_of(pod),
            "generateName": claim_name_prefix(name_of(pod), entry["name"]),
            "annotations": {**(own.get("annotations") or {}), POD_CLAIM_NAME: entry["name"]},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": name_of(pod), "uid": uid_of(pod),
                 "controller": True}
            ],
        }  # fmt: skip
        if own.get("labels"):
            meta["labels"] = own["labels"]
        todo.create("resourceclaims", {"metadata": meta, "spec": template["spec"]["spec"]})

    def _reserve(self, seen: ObjectStore, pod: Object, todo: ReconcileResult) -> None:
        """A pod that was given its node by somebody else uses claims that are allocated."""
        node = seen.get("nodes", pod["spec"]["nodeName"])
        for key in used_by(pod):
            claim = seen.get("resourceclaims", key)
            if claim is None or is_reserved(claim, pod) or not _can_be_reserved(claim, node):
                continue
            consumer = {"resource": "pods", "name": name_of(pod), "uid": uid_of(pod)}
            reserved = [*consumers_of(claim), consumer]
            wanted = {**claim, "status": {**claim["status"], "reservedFor": reserved}}
            todo.update("resourceclaims", wanted, "status")
            return

    # Claims given back

    def _release(self, seen: ObjectStore, claim: Object, todo: ReconcileResult) -> None:
        status = claim.get("status") or {}
        reserved = status.get("reservedFor") or []
        left = [consumer for consumer in reserved if self._uses(seen, claim, consumer, todo)]
        finalizers = claim["metadata"].get("finalizers") or []
        if len(left) != len(reserved):
            status = {**status, "reservedFor": left}
            if not left and FINALIZER in finalizers:
                status.pop("allocation", None)
            todo.update("resourceclaims", {**claim, "status": status}, "status")
            return
        if left:
            return
        if FINALIZER in finalizers:
            if status.get("allocation") and is_ending(claim):
                status = {k: v for k, v in status.items() if k != "allocation"}
                todo.update("resourceclaims", {**claim, "status": status}, "status")
                return
            # Without an allocation nothing needs protection; while the scheduler is about to write
            # one, its pod still wants the claim.
            if not status.get("allocation") and (is_ending(claim) or not _is_wanted(seen, claim)):
                others = [finalizer for finalizer in finalizers if finalizer != FINALIZER]
                meta = {**claim["metadata"], "finalizers": others}
                todo.update("resourceclaims", {**claim, "metadata": meta})
                return
        owner = owner_of(claim)
        if owner is None or owner.get("kind") != "Pod" or is_ending(claim):
            return
        # Where the pod is gone or another has its name, the claim is garbage.
        pod = seen.get("pods", f"{namespace_of(claim)}/{owner['name']}")
        if pod is not None and uid_of(pod) == owner["uid"] and _is_finished(pod):
            todo.delete("resourceclaims", claim)

    def _uses(
        self, seen: ObjectStore, claim: Object, consumer: Object, todo: ReconcileResult
    ) -> bool:
        """Whether a consumer may still be there; others than pods are left alone."""
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        namespace, name, uid = namespace_of(claim), consumer["name"], consumer["uid"]
        pod = seen.get("pods", f"{namespace}/{name}")
        if pod is not None and uid_of(pod) == uid:
            return not _is_finished(pod)
        key = f"claim:{key_of(claim)}"
        return not self._absence.is_gone(seen, "pods", namespace, name, uid, key, todo)


def claim_name_prefix(pod: str, claim: str) -> str:
    """The start of a claim's name; the server adds five letters."""
    length = len(pod) + len(claim) + 2
    if length <= GENERATED_MAX:
        return f"{pod}-{claim}-"
    of_pod = pod[: len(pod) * GENERATED_MAX // length]
    return f"{of_pod}-{claim[: len(claim) * GENERATED_MAX // length]}"


def _has_claims(pod: Object) -> bool:
    return bool(pod["spec"].get("resourceClaims") or extended_of(pod))


def _labels(node: Object) -> Object:
    return node["metadata"].get("labels") or {}


def _can_be_reserved(claim: Object, node: Object | None) -> bool:
    """For one more pod, which is on the node."""
    if is_ending(claim) or is_flagged(claim) or not is_allocated(claim):
        return False
    return len(consumers_of(claim)) < RESERVED_FOR_MAX and is_usable_on(claim, node)


def _is_finished(pod: Object) -> bool:
    """It needs no claims any more: ended, or deleted before it had a node."""
    return is_finished(pod) or (is_ending(pod) and not pod["spec"].get("nodeName"))


def _is_wanted(seen: ObjectStore, claim: Object) -> bool:
    """Whether some pod that has not ended names the claim."""
    return any(not _is_finished(pod) for pod in users_of(seen, claim))


def _find_claim(seen: ObjectStore, pod: Object, entry: str) -> Object | None:
    """The claim that was made for an entry of the pod."""
    for claim in seen.list_owned(uid_of(pod), "resourceclaims"):
        if (claim["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME) == entry:
            return claim
    return None


def _names_template(pod: Object, name: str) -> bool:
    entries = pod["spec"].get("resourceClaims") or ()
    return any(entry.get("resourceClaimTemplateName") == name for entry in entries)


def _by_name(statuses: list[Any]) -> dict[str, Any]:
    return {status["name"]: status.get("resourceClaimName") for status in statuses}
