"""ReplicaSet controller: keeps the wanted number of pods. Source: pkg/controller/replicaset."""

from stower.controllers.adoption import ControllerRefManager
from stower.controllers.objects import Object, ObjectStore, is_ending, uid_of
from stower.controllers.pods import (
    is_active,
    is_available,
    is_outdated,
    is_ready,
    pod_of,
    to_delete_first,
)
from stower.controllers.runtime import OwnerController, ReconcileResult

BURST = 500


class ReplicaSetController(OwnerController):
    """One ReplicaSet is one key."""

    name = "replicaset-controller"
    kinds = ("replicasets", "pods")
    own = "replicasets"

    def __init__(self) -> None:
        self._adoption = ControllerRefManager(self.own, "pods")

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """Those that would take a pod that nobody owns, too."""
        more = self._adoption.keys(seen, kind, old, obj)
        return (*super().keys(seen, kind, old, obj), *more)

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """Make what is missing, delete what is too many, say how many there are."""
        spec = obj["spec"]
        pods = [pod for pod in seen.list_owned(uid_of(obj), "pods") if is_active(pod)]
        if not is_ending(obj):
            if self._adoption.settle(seen, obj, pods, todo):
                return  # counted when that is done
        missing = spec.get("replicas", 1) - len(pods)
        if not is_ending(obj):
            for _ in range(min(missing, BURST)):
                todo.create("pods", pod_of(spec["template"], obj, "replicasets"))
            if missing < 0:
                for pod in to_delete_first(pods)[: min(-missing, BURST)]:
                    todo.delete("pods", pod)
        self._status(obj, pods, todo)

    def _status(self, obj: Object, pods: list[Object], todo: ReconcileResult) -> None:
        spec = obj["spec"]
        available = 0
        for pod in pods:
            good, due_ns = is_available(pod, spec.get("minReadySeconds") or 0, todo.now_ns)
            available += good
            if due_ns is not None:
                todo.requeue_at(due_ns)
        labels = (spec["template"].get("metadata") or {}).get("labels") or {}
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(
                labels.items() <= (p["metadata"].get("labels") or {}).items() for p in pods
            ),
            "readyReplicas": sum(map(is_ready, pods)),
            "availableReplicas": available,
            "observedGeneration": obj["metadata"].get("generation", 0),
        }
        if is_outdated({"fullyLabeledReplicas": 0, "readyReplicas": 0, "availableReplicas": 0,
                    **(obj.get("status") or {})}, status):  # fmt: skip
            todo.patch("replicasets", obj, {"status": status}, "status")
