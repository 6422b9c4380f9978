"""Volume expansion: claims that ask for more than they have, and the simulated resizer that grows
the volumes of our own provisioner. Those of others grow when their resizers run.

The simulated driver needs no step on a node. Whether a claim may grow is decided by admission.

Source: pkg/controller/volume/expand; kubernetes-csi/external-resizer.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.event_recorder import EventRecorder
from stower.controllers.objects import Object, ObjectStore, is_ending, key_of, uid_of
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.controllers.volume_matching import bytes_of, size_of, wanted_size
from stower.model.storage_class import OWN_PROVISIONER
from stower.model.times import time_text

CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
RESIZING: Final = "Resizing"
IN_PROGRESS: Final = "ControllerResizeInProgress"
EXTERNAL: Final = "waiting for an external controller to expand this PVC"


class VolumeExpansionController(BaseController):
    """One claim is one key."""

    name = "volume_expand"
    kinds = (CLAIMS, VOLUMES)

    def __init__(self) -> None:
        self._events = EventRecorder(self.name)
        self._resizer = EventRecorder(f"external-resizer {OWN_PROVISIONER}")

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The claim, or that of a volume."""
        if kind == CLAIMS:
            return (key_of(obj),)
        claim = obj["spec"].get("claimRef")
        return () if claim is None else (f"{claim.get('namespace')}/{claim.get('name')}",)

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Does the next step of growing a claim."""
        claim = seen.get(CLAIMS, key)
        if claim is None or is_ending(claim):
            return
        status = claim.get("status") or {}
        volume = seen.get(VOLUMES, claim["spec"].get("volumeName") or "")
        if status.get("phase") != "Bound" or volume is None:
            return
        if (volume["spec"].get("claimRef") or {}).get("uid") != uid_of(claim):
            return
        if wanted_size(claim) <= bytes_of(status.get("capacity")):
            self._events.clear_state(claim)
            self._resizer.clear_state(claim)
            return
        self._events.record_state(todo, CLAIMS, claim, "Normal", "ExternalExpanding", EXTERNAL)
        if (volume["spec"].get("csi") or {}).get("driver") == OWN_PROVISIONER:
            self._grow(claim, volume, todo)

    def _grow(self, claim: Object, volume: Object, todo: ReconcileResult) -> None:
        wanted = {"storage": claim["spec"]["resources"]["requests"]["storage"]}
        status = claim["status"]
        name = volume["metadata"]["name"]
        text = f"External resizer is resizing volume {name}"
        self._resizer.record_state(todo, CLAIMS, claim, "Normal", "Resizing", text)
        if status.get("allocatedResources") != wanted or not _is_resizing(claim):
            resizing = {"type": RESIZING, "status": "True",
                        "lastTransitionTime": time_text(todo.now_ns)}  # fmt: skip
            marks = {
                "allocatedResources": wanted,
                "allocatedResourceStatuses": {"storage": IN_PROGRESS},
                "conditions": [resizing],
            }
            todo.patch(CLAIMS, claim, {"status": marks}, "status")
        elif size_of(volume) < wanted_size(claim):
            todo.patch(VOLUMES, volume, {"spec": {"capacity": wanted}})
        else:
            done = {
                "capacity": wanted,
                "allocatedResourceStatuses": {"storage": None},
                "conditions": [{"$patch": "delete", "type": RESIZING}],
            }
            todo.patch(CLAIMS, claim, {"status": done}, "status")
            text = "Resize volume succeeded"
            self._resizer.record(todo, CLAIMS, claim, "Normal", "VolumeResizeSuccessful", text)


def _is_resizing(claim: Object) -> bool:
    conditions = claim["status"].get("conditions") or ()
    return any(c["type"] == RESIZING and c["status"] == "True" for c in conditions)
