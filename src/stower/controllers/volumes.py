"""PersistentVolume controller: binds claims to volumes and creates a volume where none fits.

A claim of a class with WaitForFirstConsumer waits until the scheduler has named a node on it.
Source: pkg/controller/volume/persistentvolume.
"""

from collections.abc import Iterable
from typing import Final

from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pods import claims_of, is_finished, selects
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.model.quantity import QuantityError, parse_quantity

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
PROVISIONER: Final = "stower.dev/volumes"
HOSTNAME: Final = "kubernetes.io/hostname"


class PersistentVolumeController(BaseController):
    """One claim is one key; `pv/NAME` is a volume that is free, or whose claim is gone."""

    name = "persistentvolume-binder"
    kinds = ("persistentvolumeclaims", "persistentvolumes", "storageclasses", "pods")

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The claim, or that of a volume; a class may be what claims wait for."""
        if kind == "persistentvolumeclaims":
            volume = obj["spec"].get("volumeName")
            return (key_of(obj), f"pv/{volume}") if volume and old is obj else (key_of(obj),)
        if kind == "pods":
            return claims_of(obj) if old is obj or is_finished(obj) else ()
        if kind == "persistentvolumes":
            if is_ending(obj):
                return (f"pv/{name_of(obj)}",)
            claim = obj["spec"].get("claimRef")
            if claim is None:
                waiting = (key_of(c) for c in seen.all("persistentvolumeclaims") if _is_unbound(c))
                return (f"pv/{name_of(obj)}", *waiting)
            return (f"{claim.get('namespace') or 'default'}/{claim.get('name')}",)
        return tuple(map(key_of, seen.all("persistentvolumeclaims")))

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Make a volume, or bind to it; let it go after its claim."""
        if key.startswith("pv/"):
            self._release(seen, key.removeprefix("pv/"), todo)
            return
        claim = seen.get("persistentvolumeclaims", key)
        if claim is None:
            return
        if is_ending(claim):
            pods = seen.list_namespace("pods", namespace_of(claim))
            if not any(key in claims_of(pod) and not is_finished(pod) for pod in pods):
                todo.unprotect("persistentvolumeclaims", claim, CLAIM_PROTECTION)
            return
        bound = claim["spec"].get("volumeName")
        name = bound or f"pvc-{uid_of(claim)}"
        volume = seen.get("persistentvolumes", name)
        if volume is None and not bound:
            volume = _find_fitting(seen, claim)
            if volume is None:
                self._provision(seen, claim, name, todo)
                return
            name = name_of(volume)
            if "uid" not in (volume["spec"].get("claimRef") or {}):
                todo.patch("persistentvolumes", volume, {"spec": {"claimRef": _reference(claim)}})
        if volume is None:
            return
        if not bound:
            done = {"metadata": {"annotations": {BIND_COMPLETED: "yes", BY_CONTROLLER: "yes"}}}
            todo.patch("persistentvolumeclaims", claim, {**done, "spec": {"volumeName": name}})
        elif (claim.get("status") or {}).get("phase") != "Bound":
            status = {
                "phase": "Bound",
                "accessModes": volume["spec"].get("accessModes"),
                "capacity": volume["spec"].get("capacity"),
            }
            todo.patch("persistentvolumeclaims", claim, {"status": status}, "status")
        if (volume.get("status") or {}).get("phase") != "Bound":
            todo.patch("persistentvolumes", volume, {"status": {"phase": "Bound"}}, "status")

    def _provision(
        self, seen: ObjectStore, claim: Object, name: str, todo: ReconcileResult
    ) -> None:
        class_name = claim["spec"].get("storageClassName")
        storage_class = seen.get("storageclasses", class_name) if class_name else None
        if storage_class is None or storage_class.get("provisioner") != PROVISIONER:
            return
        node = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
        if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer" and not node:
            return
        spec: Object = {
            "capacity": (claim["spec"].get("resources") or {}).get("requests") or {},
            "accessModes": claim["spec"].get("accessModes") or ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
            "storageClassName": class_name,
            "csi": {"driver": PROVISIONER, "volumeHandle": name},
            "claimRef": _reference(claim),
        }
        if claim["spec"].get("volumeMode"):
            spec["volumeMode"] = claim["spec"]["volumeMode"]
        if node:
            expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
            terms = [{"matchExpressions": [expression]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        todo.create("persistentvolumes", {"metadata": {"name": name}, "spec": spec})

    def _release(self, seen: ObjectStore, name: str, todo: ReconcileResult) -> None:
        volume = seen.get("persistentvolumes", name)
        if volume is None:
            return
        claim = volume["spec"].get("claimRef") or {}
        if not claim and not is_ending(volume):
            if (volume.get("status") or {}).get("phase") != "Available":
                todo.patch(
                    "persistentvolumes", volume, {"status": {"phase": "Available"}}, "status"
                )
            return
        there = seen.get("persistentvolumeclaims", f"{claim.get('namespace')}/{claim.get('name')}")
        if there is not None and uid_of(there) == claim.get("uid"):
            return
        if is_ending(volume):
            todo.unprotect("persistentvolumes", volume, VOLUME_PROTECTION)
        elif volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            todo.delete("persistentvolumes", volume)
        elif (volume.get("status") or {}).get("phase") != "Released":
            todo.patch("persistentvolumes", volume, {"status": {"phase": "Released"}}, "status")


def _reference(claim: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": name_of(claim),
        "namespace": namespace_of(claim),
        "uid": uid_of(claim),
    }


def _is_unbound(claim: Object) -> bool:
    return not claim["spec"].get("volumeName") and not is_ending(claim)


def _find_fitting(seen: ObjectStore, claim: Object) -> Object | None:
    """The smallest volume that is free and large enough, one that names the claim before all.

    Source: pkg/controller/volume/persistentvolume/index.go. Where the class waits for a pod, only
    the latter: the scheduler chooses.
    """
    spec = claim["spec"]
    storage_class = seen.get("storageclasses", spec.get("storageClassName") or "")
    waits = (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
    wanted = _bytes((spec.get("resources") or {}).get("requests"))
    found: tuple[bool, int, str] | None = None
    for volume in seen.all("persistentvolumes"):
        own = volume["spec"]
        meant = own.get("claimRef")
        if is_ending(volume) or (meant and not _is_meant(meant, claim)) or (waits and not meant):
            continue
        if (own.get("storageClassName") or "") != (spec.get("storageClassName") or ""):
            continue
        if not set(spec.get("accessModes") or ()) <= set(own.get("accessModes") or ()):
            continue
        if (own.get("volumeMode") or "Filesystem") != (spec.get("volumeMode") or "Filesystem"):
            continue
        if spec.get("selector") is not None and not selects(spec["selector"], volume):
            continue
        size = _bytes(own.get("capacity"))
        if size >= wanted:
            rank = (not meant, size, name_of(volume))
            found = rank if found is None else min(found, rank)
    return None if found is None else seen.get("persistentvolumes", found[2])


def _is_meant(reference: Object, claim: Object) -> bool:
    named = reference.get("name") == name_of(claim)
    placed = (reference.get("namespace") or "default") == namespace_of(claim)
    return named and placed and reference.get("uid", uid_of(claim)) == uid_of(claim)


def _bytes(amounts: Object | None) -> int:
    try:
        return parse_quantity(str((amounts or {}).get("storage") or "0")).value()
    except QuantityError:
        return 0
