"""Volumes: a claim gets a volume made for it. Source: pkg/controller/volume/persistentvolume.

A class with WaitForFirstConsumer waits until the scheduler has named a node on the claim.
"""

from collections.abc import Iterable
from typing import Final

from stower.actors.objects import Object, Objects, is_ending, key_of, name_of, namespace_of, uid_of
from stower.actors.pods import is_finished
from stower.actors.runtime import Base, Todo

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
PROVISIONER: Final = "stower.dev/volumes"
HOSTNAME: Final = "kubernetes.io/hostname"


class Volumes(Base):
    """One claim is one key; `pv/NAME` is a volume whose claim is gone."""

    name = "persistentvolume-binder"
    kinds = ("persistentvolumeclaims", "persistentvolumes", "storageclasses", "pods")

    def keys(self, seen: Objects, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The claim, or that of a volume; a class may be what claims wait for."""
        if kind == "persistentvolumeclaims":
            volume = obj["spec"].get("volumeName")
            return (key_of(obj), f"pv/{volume}") if volume and old is obj else (key_of(obj),)
        if kind == "pods":
            return _claims(obj) if old is obj or is_finished(obj) else ()
        if kind == "persistentvolumes":
            if is_ending(obj):
                return (f"pv/{name_of(obj)}",)
            claim = obj["spec"].get("claimRef")
            return () if claim is None else (f"{claim['namespace']}/{claim['name']}",)
        return tuple(map(key_of, seen.all("persistentvolumeclaims")))

    def reconcile(self, seen: Objects, key: str, todo: Todo) -> None:
        """Make a volume, or bind to it; let it go after its claim."""
        if key.startswith("pv/"):
            self._release(seen, key.removeprefix("pv/"), todo)
            return
        claim = seen.get("persistentvolumeclaims", key)
        if claim is None:
            return
        if is_ending(claim):
            pods = seen.within("pods", namespace_of(claim))
            if not any(key in _claims(pod) and not is_finished(pod) for pod in pods):
                _unprotect("persistentvolumeclaims", claim, CLAIM_PROTECTION, todo)
            return
        bound = claim["spec"].get("volumeName")
        name = bound or f"pvc-{uid_of(claim)}"
        volume = seen.get("persistentvolumes", name)
        if volume is None:
            if not bound:
                self._provision(seen, claim, name, todo)
            return
        if not bound:
            todo.patch("persistentvolumeclaims", claim, {"spec": {"volumeName": name}})
        elif (claim.get("status") or {}).get("phase") != "Bound":
            status = {
                "phase": "Bound",
                "accessModes": volume["spec"].get("accessModes"),
                "capacity": volume["spec"].get("capacity"),
            }
            todo.patch("persistentvolumeclaims", claim, {"status": status}, "status")
        if (volume.get("status") or {}).get("phase") != "Bound":
            todo.patch("persistentvolumes", volume, {"status": {"phase": "Bound"}}, "status")

    def _provision(self, seen: Objects, claim: Object, name: str, todo: Todo) -> None:
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
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "name": name_of(claim),
                "namespace": namespace_of(claim),
                "uid": uid_of(claim),
            },
        }
        if claim["spec"].get("volumeMode"):
            spec["volumeMode"] = claim["spec"]["volumeMode"]
        if node:
            expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
            terms = [{"matchExpressions": [expression]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        todo.create("persistentvolumes", {"metadata": {"name": name}, "spec": spec})

    def _release(self, seen: Objects, name: str, todo: Todo) -> None:
        volume = seen.get("persistentvolumes", name)
        if volume is None:
            return
        claim = volume["spec"].get("claimRef") or {}
        there = seen.get("persistentvolumeclaims", f"{claim.get('namespace')}/{claim.get('name')}")
        if there is not None and uid_of(there) == claim.get("uid"):
            return
        if is_ending(volume):
            _unprotect("persistentvolumes", volume, VOLUME_PROTECTION, todo)
        elif volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            todo.delete("persistentvolumes", volume)
        elif (volume.get("status") or {}).get("phase") != "Released":
            todo.patch("persistentvolumes", volume, {"status": {"phase": "Released"}}, "status")


def _claims(pod: Object) -> tuple[str, ...]:
    """Keys of the claims that a pod mounts."""
    namespace, found = namespace_of(pod), []
    for volume in pod["spec"].get("volumes") or ():
        name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if volume.get("ephemeral") is not None:
            name = f"{name_of(pod)}-{volume['name']}"
        if name:
            found.append(f"{namespace}/{name}")
    return tuple(found)


def _unprotect(kind: str, obj: Object, finalizer: str, todo: Todo) -> None:
    """Nobody uses it any more: it may go."""
    if finalizer in (obj["metadata"].get("finalizers") or ()):
        patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer]}}
        todo.patch(kind, obj, patch)
