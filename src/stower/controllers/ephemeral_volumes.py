"""Ephemeral volume controller: makes the claims of pods' generic ephemeral volumes. Garbage
collection deletes them with their pods.

Source: pkg/controller/volume/ephemeral (KEP-1698), Kubernetes 1.36; the texts of Events are kept
verbatim.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.event_recorder import EventRecorder
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
from stower.controllers.pods import ephemeral_claim_name, reference_to
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.controllers.write_answers import WriteAnswer
from stower.model.times import SECOND_NS

CLAIMS: Final = "persistentvolumeclaims"
REASON: Final = "FailedBinding"
# A claim of somebody else is looked at again when it changes; upstream tries again all the time.
AGAIN_NS: Final = 60 * SECOND_NS


class EphemeralVolumeController(BaseController):
    """One pod is one key."""

    name = "ephemeral-volume-controller"
    kinds = ("pods", CLAIMS)
    reported_kinds = (CLAIMS,)

    def __init__(self) -> None:
        self._events = EventRecorder("ephemeral_volume")
        self._making: dict[str, list[str]] = {}  # by key: volumes whose claims were asked for

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """A new pod with such volumes; the pod of a claim that is gone."""
        if kind == "pods":
            return (key_of(obj),) if old is None and _templates(obj) else ()
        if old is not obj:
            return ()
        name = name_of(obj)
        return tuple(
            key_of(pod)
            for pod in seen.list_namespace("pods", namespace_of(obj))
            if any(ephemeral_claim_name(pod, volume) == name for volume in _templates(pod))
        )

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Makes the claims that are missing, up to the first volume that cannot have one."""
        pod = seen.get("pods", key)
        self._making.pop(key, None)
        if pod is None or is_ending(pod):
            return
        for volume, template in _templates(pod).items():
            name = ephemeral_claim_name(pod, volume)
            claim = seen.get(CLAIMS, f"{namespace_of(pod)}/{name}")
            if claim is None:
                todo.create(CLAIMS, _make_claim(pod, name, template))
                self._making[key] = [volume]
                return  # the next one with the answer
            if (owner_of(claim) or {}).get("uid") != uid_of(pod):
                text = f"PVC {key_of(claim)} was not created for pod {key} (pod is not owner)"
                self._tell(pod, volume, text, todo)
                todo.requeue_at(todo.now_ns + AGAIN_NS)
                return

    def report_write(
        self, seen: ObjectStore, key: str, answer: WriteAnswer, todo: ReconcileResult
    ) -> None:
        """Says why a claim could not be made."""
        pod = seen.get("pods", key)
        if answer.is_good or not answer.is_notable or pod is None:
            return
        for volume in self._making.get(key, ()):
            name = ephemeral_claim_name(pod, volume)
            self._tell(pod, volume, f"create PVC {name}: {answer.failure}", todo)

    def _tell(self, pod: Object, volume: str, fault: str, todo: ReconcileResult) -> None:
        text = f"ephemeral volume {volume}: {fault}"
        self._events.record_state(todo, "pods", pod, "Warning", REASON, text)


def _templates(pod: Object) -> dict[str, Object]:
    """The claim templates of a pod's generic ephemeral volumes, by volume."""
    return {
        volume["name"]: (volume["ephemeral"] or {}).get("volumeClaimTemplate") or {}
        for volume in pod["spec"].get("volumes") or ()
        if "ephemeral" in volume
    }


def _make_claim(pod: Object, name: str, template: Object) -> Object:
    own = template.get("metadata") or {}
    meta: Object = {
        "name": name,
        "namespace": namespace_of(pod),
        "ownerReferences": [reference_to(pod, "pods")],
    }
    for field in ("labels", "annotations"):
        if own.get(field):
            meta[field] = own[field]
    return {"metadata": meta, "spec": template.get("spec") or {}}
