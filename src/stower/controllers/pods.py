"""Helpers for controllers that own pods: build from a template, evict, count, rank for deletion."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from stower.controllers.objects import RESOURCES, Object, is_ending, name_of, namespace_of, uid_of
from stower.controllers.runtime import ReconcileResult
from stower.model.selectors import LabelSelector
from stower.model.times import time_ns, time_text

TEMPLATE_HASH: Final = "pod-template-hash"
REVISION_HASH: Final = "controller-revision-hash"
LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # of hashes (apimachinery rand.SafeEncodeString)


def claims_of(pod: Object) -> tuple[str, ...]:
    """Keys of the claims that a pod mounts."""
    namespace, found = namespace_of(pod), []
    for volume in pod["spec"].get("volumes") or ():
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if volume.get("ephemeral") is not None:
            name = ephemeral_claim_name(pod, volume["name"])
        if name:
            found.append(f"{namespace}/{name}")
    return tuple(found)


def ephemeral_claim_name(pod: Object, volume: str) -> str:
    """The name of the claim that is made for a generic ephemeral volume of a pod."""
    return f"{name_of(pod)}-{volume}"


def condition(obj: Object, type: str) -> Object | None:
    """The condition of that type, or None."""
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found.get("type") == type:
            return dict(found)
    return None


def is_true(obj: Object, type: str) -> bool:
    """The object has the condition, with the status True."""
    return (condition(obj, type) or {}).get("status") == "True"


def evict(pod: Object, reason: str, manager: str, todo: ReconcileResult) -> bool:
    """Tell whom a NoExecute taint disrupts, then delete the pod; whether it has come to that."""
    is_told = condition(pod, "DisruptionTarget") is not None
    if is_told:
        todo.delete("pods", pod)
    else:
        target = {"type": "DisruptionTarget", "status": "True", "reason": reason,
                  "message": f"{manager}: deleting due to NoExecute taint",
                  "lastTransitionTime": time_text(todo.now_ns)}  # fmt: skip
        todo.patch("pods", pod, {"status": {"conditions": [target]}}, "status")
    return is_told


def phase(pod: Object) -> str:
    """Its phase."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_finished(pod: Object) -> bool:
    """It has ended, well or not."""
    return phase(pod) in ("Succeeded", "Failed")


def is_active(pod: Object) -> bool:
    """Neither ended nor being deleted."""
    return not is_finished(pod) and not is_ending(pod)


def is_ready(pod: Object) -> bool:
    """Its Ready condition holds."""
    return is_true(pod, "Ready")


def is_available(pod: Object, ready_s: int, now_ns: int) -> tuple[bool, int | None]:
    """Ready for so long; and when it will be, where it is not yet."""
    ready = condition(pod, "Ready")
    if ready is None or ready.get("status") != "True":
        return False, None
    since_ns = time_ns(ready.get("lastTransitionTime")) or 0
    due_ns = since_ns + ready_s * 1_000_000_000
    return (True, None) if not ready_s or due_ns <= now_ns else (False, due_ns)


def min_ready_s(owner: Object) -> int:
    """How long the pods of a workload must be ready until they are available, in seconds."""
    return int(owner["spec"].get("minReadySeconds") or 0)


def count_available(pods: Iterable[Object], owner: Object, todo: ReconcileResult) -> int:
    """How many pods of a workload are available. It is looked at again when one will be."""
    count, ready_s = 0, min_ready_s(owner)
    for pod in pods:
        good, due_ns = is_available(pod, ready_s, todo.now_ns)
        count += good
        if due_ns is not None:
            todo.requeue_at(due_ns)
    return count


def replicas(owner: Object) -> int:
    """How many pods a workload should have."""
    wanted = owner["spec"].get("replicas")
    return 1 if wanted is None else int(wanted)


def sidecar_statuses(pod: Object) -> list[Object]:
    """The statuses of the init containers that stay."""
    sidecars = {
        c["name"]
        for c in pod["spec"].get("initContainers") or ()
        if c.get("restartPolicy") == "Always"
    }
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return [c for c in statuses if c.get("name") in sidecars]


def reference_to(owner: Object, kind: str) -> Object:
    """An owner reference to its controller. `kind`: the plural."""
    resource = RESOURCES[kind]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name_of(owner),
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def pod_of(
    template: Object, owner: Object, kind: str, name: str = "", labels: Object | None = None
) -> Object:
    """A pod of the template. Without a name, the server makes one."""
    own = template.get("metadata") or {}
    meta: Object = {
        "namespace": namespace_of(owner),
        "labels": {**(own.get("labels") or {}), **(labels or {})},
        "ownerReferences": [reference_to(owner, kind)],
    }
    if name:
        meta["name"] = name
    else:
        meta["generateName"] = f"{name_of(owner)[:57]}-"
    for field in ("annotations", "finalizers"):
        if own.get(field):
            meta[field] = own[field]
    return {"metadata": meta, "spec": template.get("spec") or {}}


def hash_of(value: Any) -> str:
    """A short name for a value: equal values, equal names. No vowels, as upstream's."""
    digest = hashlib.sha256(msgspec.json.encode(value, order="deterministic")).digest()
    return "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:9])


def selects(selector: Object | None, obj: Object) -> bool:
    """The label selector takes the object; None takes none, an empty one all.

    The selector of a ReplicationController is the plain map of labels.
    """
    return selection(selector)(obj)


def selection(selector: Object | None) -> Callable[[Object], bool]:
    """As `selects`, for many objects."""
    if selector is None:
        return lambda obj: False
    if any(isinstance(value, str) for value in selector.values()):
        selector = {"matchLabels": selector}
    wanted = (selector.get("matchLabels") or {}).items()
    if not selector.get("matchExpressions"):
        return lambda obj: wanted <= (obj["metadata"].get("labels") or {}).items()
    whole = msgspec.convert(selector, LabelSelector)
    return lambda obj: whole.matches(obj["metadata"].get("labels") or {})


def absolute(value: Any, total: int, round_up: bool) -> int:
    """A number, or a share of the total."""
    text = str(value)
    if text.endswith("%") and text[:-1].isdecimal():
        share = int(text[:-1]) * total
        return -(-share // 100) if round_up else share // 100
    return int(text) if text.lstrip("-").isdecimal() else 0


def is_outdated(status: Object | None, wanted: Object) -> bool:
    """Whether the status has not yet all of this."""
    known = status or {}
    return any(known.get(name) != value for name, value in wanted.items())
