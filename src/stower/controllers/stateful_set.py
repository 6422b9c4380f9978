"""StatefulSet controller: keeps pods with stable names, created and deleted one after the other.

Source: pkg/controller/statefulset.
"""

from stower.controllers.objects import Object, ObjectStore, is_ending, name_of, namespace_of, uid_of
from stower.controllers.pods import (
    REVISION_HASH,
    hash_of,
    is_active,
    is_available,
    is_finished,
    is_outdated,
    is_ready,
    pod_of,
)
from stower.controllers.runtime import OwnerController, ReconcileResult


def ordinal(pod: Object) -> int:
    """The number at the end of its name."""
    text = name_of(pod).rpartition("-")[2]
    return int(text) if text.isdecimal() else -1


def _revision(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION_HASH) or "")


class StatefulSetController(OwnerController):
    """One StatefulSet is one key."""

    name = "statefulset-controller"
    kinds = ("statefulsets", "pods", "persistentvolumeclaims")
    own = "statefulsets"

    def reconcile_owner(self, seen: ObjectStore, obj: Object, todo: ReconcileResult) -> None:
        """One step: make the next pod, end the last, replace one that is old."""
        spec = obj["spec"]
        wanted = 1 if spec.get("replicas") is None else int(spec["replicas"])
        start = (spec.get("ordinals") or {}).get("start") or 0
        revision = f"{name_of(obj)}-{hash_of(spec['template'])}"
        pods = {ordinal(p): p for p in seen.list_owned(uid_of(obj), "pods")}
        if not is_ending(obj):
            self._place(seen, obj, pods, range(start, start + wanted), revision, todo)
        self._status(obj, list(pods.values()), wanted, revision, todo)

    def _place(
        self,
        seen: ObjectStore,
        obj: Object,
        pods: dict[int, Object],
        numbers: range,
        revision: str,
        todo: ReconcileResult,
    ) -> None:
        parallel = obj["spec"].get("podManagementPolicy") == "Parallel"
        for number in numbers:
            pod = pods.get(number)
            if pod is None:
                self._create(seen, obj, number, revision, todo)
            elif is_finished(pod) and not is_ending(pod):
                todo.delete("pods", pod)  # it is made again when it is gone
            elif not is_ending(pod) and is_ready(pod):
                continue
            if not parallel:
                return  # the next one waits for this one
        surplus = sorted((n for n in pods if n not in numbers), reverse=True)
        for number in surplus:
            if not is_ending(pods[number]):
                todo.delete("pods", pods[number])
            if not parallel:
                return
        self._update(obj, pods, numbers, revision, todo)

    def _create(
        self, seen: ObjectStore, obj: Object, number: int, revision: str, todo: ReconcileResult
    ) -> None:
        spec, name = obj["spec"], f"{name_of(obj)}-{number}"
        labels = {
            REVISION_HASH: revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(number),
        }
        pod = pod_of(spec["template"], obj, "statefulsets", name, labels)
        volumes = list((pod["spec"].get("volumes")) or ())
        for template in spec.get("volumeClaimTemplates") or ():
            claim = f"{name_of(template)}-{name}"
            own = {"name": name_of(template), "persistentVolumeClaim": {"claimName": claim}}
            volumes = [v for v in volumes if v["name"] != own["name"]] + [own]
            if seen.get("persistentvolumeclaims", f"{namespace_of(obj)}/{claim}") is None:
                labels = {
                    **((spec["selector"] or {}).get("matchLabels") or {}),
                    **(template["metadata"].get("labels") or {}),
                }
                meta = {"name": claim, "namespace": namespace_of(obj), "labels": labels}
                todo.create("persistentvolumeclaims", {"metadata": meta, "spec": template["spec"]})
        more: Object = {"hostname": name, "subdomain": spec.get("serviceName") or ""}
        if volumes:
            more["volumes"] = volumes
        todo.create("pods", {**pod, "spec": {**pod["spec"], **more}})

    def _update(
        self,
        obj: Object,
        pods: dict[int, Object],
        numbers: range,
        revision: str,
        todo: ReconcileResult,
    ) -> None:
        strategy = obj["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
        for number in reversed(numbers):
            pod = pods.get(number)
            if number < partition or pod is None:
                continue
            if is_ending(pod) or not is_ready(pod):
                return
            if _revision(pod) != revision:
                todo.delete("pods", pod)
                return

    def _status(
        self, obj: Object, pods: list[Object], wanted: int, revision: str, todo: ReconcileResult
    ) -> None:
        known = obj.get("status") or {}
        active = [pod for pod in pods if is_active(pod)]
        updated = [p for p in active if _revision(p) == revision]
        current = known.get("currentRevision") or revision
        if len(updated) == wanted and len(active) == wanted and all(map(is_ready, active)):
            current = revision
        available = 0
        for pod in active:
            good, due_ns = is_available(pod, obj["spec"].get("minReadySeconds") or 0, todo.now_ns)
            available += good
            if due_ns is not None:
                todo.requeue_at(due_ns)
        status = {
            "observedGeneration": obj["metadata"].get("generation", 0),
            "replicas": len(active),
            "readyReplicas": sum(map(is_ready, active)),
            "availableReplicas": available,
            "updatedReplicas": len(updated),
            "currentReplicas": sum(_revision(p) == current for p in active),
            "currentRevision": current,
            "updateRevision": revision,
        }
        numbers = {k: known.get(k, 0) for k in status}
        if is_outdated(numbers, status):
            todo.patch("statefulsets", obj, {"status": status}, "status")
