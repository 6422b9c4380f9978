"""ReplicaSet controller: keeps the wanted number of pods; ReplicationControllers are kept by the
same rules. Source: pkg/controller/replicaset, pkg/controller/replication.
"""

from typing import Final

from stower.controllers.adoption import ControllerRefManager
from stower.controllers.creation_pace import CreationPace
from stower.controllers.deletion_order import order_for_deletion
from stower.controllers.event_recorder import EventRecorder
from stower.controllers.objects import Object, ObjectStore, is_ending, key_of, owner_of, uid_of
from stower.controllers.pods import (
    condition,
    count_available,
    is_active,
    is_finished,
    is_outdated,
    is_ready,
    pod_of,
    replicas,
)
from stower.controllers.runtime import MERGE, OwnerController, ReconcileResult
from stower.controllers.write_answers import WriteAnswer
from stower.model.times import time_text

BURST: Final = 500
FAILURE: Final = "ReplicaFailure"


class ReplicaSetController(OwnerController):
    """One ReplicaSet, or one ReplicationController, is one key."""

    reported_kinds = ("pods",)

    def __init__(self, own: str = "replicasets", name: str = "replicaset-controller") -> None:
        self.own, self.name, self.kinds = own, name, (own, "pods")
        self._events = EventRecorder(name)
        self._adoption = ControllerRefManager(self.own, "pods")
        self._pace = CreationPace(BURST)
        self._refused: dict[str, str] = {}  # why the last write of a pod was refused, by key

    def keys(
        self, seen: ObjectStore, kind: str, old: Object | None, obj: Object
    ) -> tuple[str, ...]:
        """Those that would take a pod that nobody owns, too."""
        more = self._adoption.keys(seen, kind, old, obj)
        return (*super().keys(seen, kind, old, obj), *more)

    def forget(self, key: str) -> None:
        """The set is gone."""
        self._pace.forget(key)
        self._refused.pop(key, None)

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """Make what is missing, delete what is too many, say how many there are."""
        owned = seen.list_owned(uid_of(obj), "pods")
        pods = [pod for pod in owned if is_active(pod)]
        if not is_ending(obj):
            if self._adoption.settle(seen, obj, pods, todo):
                return  # counted when that is done
        refused = self._refused.pop(key_of(obj), "")
        missing = replicas(obj) - len(pods)
        if not missing:
            refused = ""
        if not is_ending(obj):
            for _ in range(self._pace.allowed(key_of(obj), missing)):
                pod = pod_of(obj["spec"]["template"], obj, self.own)
                todo.create("pods", pod)
            if missing < 0:
                surplus = min(-missing, BURST)
                if surplus < len(pods):
                    pods_to_go = order_for_deletion(pods, _related(seen, obj), todo.now_ns)
                else:
                    pods_to_go = pods
                for pod in pods_to_go[:surplus]:
                    todo.delete("pods", pod)
        leaving = sum(
            is_ending(pod) and not is_finished(pod) and self._adoption.matches(obj, pod)
            for pod in owned
        )
        self._status(obj, pods, leaving, missing, refused, todo)

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        """An Event for each pod that was created or deleted, or could not be."""
        obj = seen.get(self.own, key)
        if obj is None or answer.method == "PATCH" or not answer.is_notable:
            return
        self._events.record_pod_write(todo, self.own, obj, answer)
        if not answer.is_good:
            self._refused[key] = answer.failure
            if answer.method == "POST":
                self._pace.refuse(key)

    def _status(
        self,
        obj: Object,
        pods: list[Object],
        leaving: int,
        missing: int,
        refused: str,
        todo: ReconcileResult,
    ) -> None:
        labels = (obj["spec"]["template"].get("metadata") or {}).get("labels") or {}
        status: Object = {
            "replicas": len(pods),
            "fullyLabeledReplicas": sum(
                labels.items() <= (p["metadata"].get("labels") or {}).items() for p in pods
            ),
            "readyReplicas": sum(map(is_ready, pods)),
            "availableReplicas": count_available(pods, obj, todo),
            "observedGeneration": obj["metadata"].get("generation", 0),
        }
        if self.own == "replicasets":
            status["terminatingReplicas"] = leaving
        known = obj.get("status") or {}
        zeros = {"fullyLabeledReplicas": 0, "readyReplicas": 0, "availableReplicas": 0}
        meta: Object = {}
        if bool(refused) != (condition(obj, FAILURE) is not None):
            others = [c for c in known.get("conditions") or () if c.get("type") != FAILURE]
            failure = {"type": FAILURE, "status": "True", "message": refused,
                       "lastTransitionTime": time_text(todo.now_ns),
                       "reason": "FailedCreate" if missing > 0 else "FailedDelete"}  # fmt: skip
            status["conditions"] = [*others, failure] if refused else others
            meta["resourceVersion"] = obj["metadata"].get("resourceVersion")  # others may add some
        elif not is_outdated({**zeros, **known}, status):
            return
        todo.patch(self.own, obj, {"metadata": meta, "status": status}, "status", MERGE)


def _related(seen: ObjectStore, obj: Object) -> list[Object]:
    """The pods of all ReplicaSets of the set's owner."""
    owner = owner_of(obj)
    sets = seen.list_owned(owner["uid"], "replicasets") if owner is not None else [obj]
    return [pod for one in sets for pod in seen.list_owned(uid_of(one), "pods")]
