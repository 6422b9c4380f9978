"""PersistentVolume controller: binds claims and volumes to each other, creates a volume where none
fits, and gives volumes back.

A claim of a class with WaitForFirstConsumer waits until the scheduler has named a node on it. What
is read is checked again by the server, so that no volume is given to two claims.
Source: pkg/controller/volume/persistentvolume/pv_controller.go.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from stower.controllers.event_recorder import EventRecorder
from stower.controllers.objects import (
    Object,
    ObjectStore,
    is_ending,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from stower.controllers.pods import claims_of, is_finished
from stower.controllers.runtime import BaseController, ReconcileResult
from stower.controllers.volume_matching import (
    annotation_of,
    class_of,
    find_volume,
    is_bound_to,
    mismatch,
    names_no_class,
)
from stower.model.storage_class import OWN_PROVISIONER, default_class

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
# On claims: external provisioners look at the first, older ones at the second.
PROVISIONERS: Final = (
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
)
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
HOSTNAME: Final = "kubernetes.io/hostname"
CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
IN_TREE: Final = "kubernetes.io/"
# What became of the plugins that were in the tree. Source: k8s.io/csi-translation-lib/plugins.
DRIVERS: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
NORMAL: Final = "Normal"
WARNING: Final = "Warning"
LOST: Final = "Bound claim has lost {}. Data on the volume is lost!"


class PersistentVolumeController(BaseController):
    """One claim is one key; `pv/NAME` is a volume."""

    name = "persistentvolume-binder"
    kinds = (CLAIMS, VOLUMES, "storageclasses", "pods")

    def __init__(self) -> None:
        self._events = EventRecorder(self.name)
        # By volume: its version and the claim for which it was asked for in this version.
        self._asked: dict[str, tuple[str, Object]] = {}

    def keys(self, seen: ObjectStore, kind: str, old: Object | None, obj: Object) -> Iterable[str]:
        """The claim and its volume, or the other way round; a class may be what claims wait for."""
        if kind == CLAIMS:
            volume = obj["spec"].get("volumeName")
            return (key_of(obj), f"pv/{volume}") if volume else (key_of(obj),)
        if kind == "pods":
            return claims_of(obj) if old is obj or is_finished(obj) else ()
        if kind == VOLUMES:
            claim = obj["spec"].get("claimRef")
            own = f"pv/{name_of(obj)}"
            if claim is not None:
                return own, f"{claim.get('namespace')}/{claim.get('name')}"
            return own, *(key_of(c) for c in seen.all(CLAIMS) if not _is_complete(c))
        return tuple(map(key_of, seen.all(CLAIMS)))

    def reconcile(self, seen: ObjectStore, key: str, todo: ReconcileResult) -> None:
        """Says what is to be done for a claim or a volume."""
        if key.startswith("pv/"):
            name = key.removeprefix("pv/")
            volume = seen.get(VOLUMES, name)
            if volume is not None:
                _reconcile_volume(seen, volume, todo)
            else:
                self._asked.pop(name, None)
            return
        claim = seen.get(CLAIMS, key)
        if claim is None:
            return
        if is_ending(claim):
            self._events.clear_state(claim)
            pods = seen.list_namespace("pods", namespace_of(claim))
            # A kubelet starts no pod with a claim that is being deleted.
            if not any(
                key in claims_of(pod) and pod["spec"].get("nodeName") and not is_finished(pod)
                for pod in pods
            ):
                todo.unprotect(CLAIMS, claim, CLAIM_PROTECTION)
        elif _is_complete(claim):
            self._check_bound(seen, claim, todo)
        elif claim["spec"].get("volumeName"):
            self._bind_named(seen, claim, todo)
        else:
            self._find(seen, claim, todo)

    # Claims

    def _check_bound(self, seen: ObjectStore, claim: Object, todo: ReconcileResult) -> None:
        """A claim that is bound stays with its volume, or is lost."""
        name = claim["spec"].get("volumeName")
        volume = seen.get(VOLUMES, name) if name else None
        if volume is None:
            what = "its PersistentVolume" if name else "reference to PersistentVolume"
            self._lose(claim, "ClaimLost", LOST.format(what), todo)
        elif not volume["spec"].get("claimRef") or is_bound_to(volume, claim):
            self._bind(claim, volume, todo)
        else:
            text = "Two claims are bound to the same volume, this one is bound incorrectly"
            self._lose(claim, "ClaimMisbound", text, todo)

    def _bind_named(self, seen: ObjectStore, claim: Object, todo: ReconcileResult) -> None:
        """A claim that names its volume gets that or none."""
        volume = seen.get(VOLUMES, claim["spec"]["volumeName"])
        if volume is None:
            _set_phase(CLAIMS, claim, "Pending", todo)
            return
        if is_bound_to(volume, claim):
            self._bind(claim, volume, todo)
            return
        if volume["spec"].get("claimRef"):
            text = f'volume "{name_of(volume)}" already bound to a different claim.'
            self._tell(claim, WARNING, "FailedBinding", text, todo)
        elif fault := mismatch(volume, claim):
            text = f'Cannot bind to requested volume "{name_of(volume)}": {fault}'
            self._tell(claim, WARNING, "VolumeMismatch", text, todo)
        else:
            self._bind(claim, volume, todo)
            return
        _set_phase(CLAIMS, claim, "Pending", todo)

    def _find(self, seen: ObjectStore, claim: Object, todo: ReconcileResult) -> None:
        """A claim that names no volume gets one that fits, or a new one."""
        storage_class = seen.get("storageclasses", class_of(claim)) if class_of(claim) else None
        waits = (storage_class or {}).get("volumeBindingMode") == "WaitForFirstConsumer"
        volume = find_volume(seen, claim, waits, partial(self._is_promised, seen, claim))
        if volume is not None:
            self._bind(claim, volume, todo)
            return
        if names_no_class(claim) and (name := _default_class(seen)):
            todo.patch(CLAIMS, claim, {"spec": {"storageClassName": name}})
            return
        node = annotation_of(claim, SELECTED_NODE)
        if waits and not node:
            text = "waiting for first consumer to be created before binding"
            self._tell(claim, NORMAL, "WaitForFirstConsumer", text, todo)
        elif not class_of(claim):
            text = "no persistent volumes available for this claim and no storage class is set"
            self._tell(claim, NORMAL, "FailedBinding", text, todo)
        elif storage_class is None:
            text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
            self._tell(claim, WARNING, "ProvisioningFailed", text, todo)
        else:
            self._provision(claim, storage_class, node, todo)
        _set_phase(CLAIMS, claim, "Pending", todo)

    def _provision(
        self, claim: Object, storage_class: Object, node: str | None, todo: ReconcileResult
    ) -> None:
        """Names the provisioner in the claim, as external provisioners want, and makes a volume
        where it is ours."""
        by = str(storage_class.get("provisioner"))
        if by not in DRIVERS and by.startswith(IN_TREE):
            text = f"no volume plugin matched name: {by}"
            self._tell(claim, WARNING, "ProvisioningFailed", text, todo)
            return
        by = DRIVERS.get(by, by)
        if annotation_of(claim, PROVISIONERS[0]) != by:
            marks = dict.fromkeys(PROVISIONERS, by)
            todo.patch(CLAIMS, claim, {"metadata": {"annotations": marks}})
        if by == OWN_PROVISIONER:
            made = _new_volume(claim, storage_class, node)
            todo.create(VOLUMES, made)
            text = f"Successfully provisioned volume {made['metadata']['name']}"
            self._tell(claim, NORMAL, "ProvisioningSucceeded", text, todo)
        else:
            text = (
                "Waiting for a volume to be created either by the external provisioner "
                f"'{by}' or manually by the system administrator. If volume creation is delayed, "
                "please verify that the provisioner is running and correctly registered."
            )
            self._tell(claim, NORMAL, "ExternalProvisioning", text, todo)

    def _is_promised(self, seen: ObjectStore, claim: Object, volume: Object) -> bool:
        """Returns whether another claim, which still is there, has asked for the volume as it is
        seen; the answer changes it."""
        version, other = self._asked.get(name_of(volume), ("", claim))
        there = seen.get(CLAIMS, key_of(other))
        return (
            version == volume["metadata"]["resourceVersion"]
            and uid_of(other) != uid_of(claim)
            and there is not None
            and uid_of(there) == uid_of(other)
            and not is_ending(there)
        )

    def _bind(self, claim: Object, volume: Object, todo: ReconcileResult) -> None:
        """Does the next step of binding them: the volume's reference decides who has it."""
        reference = volume["spec"].get("claimRef")
        if (reference or {}).get("uid") != uid_of(claim):
            changed = {**volume, "spec": {**volume["spec"], "claimRef": _reference(claim)}}
            if reference is None:
                marks = {**(volume["metadata"].get("annotations") or {}), BY_CONTROLLER: "yes"}
                changed["metadata"] = {**volume["metadata"], "annotations": marks}
            self._asked[name_of(volume)] = volume["metadata"]["resourceVersion"], claim
            todo.update(VOLUMES, changed)  # refused if the volume is no longer as it was
            return
        self._events.clear_state(claim)
        _set_phase(VOLUMES, volume, "Bound", todo)
        if not _is_complete(claim) or claim["spec"].get("volumeName") != name_of(volume):
            marks = {BIND_COMPLETED: "yes"}
            if not claim["spec"].get("volumeName"):
                marks[BY_CONTROLLER] = "yes"
            spec = {"volumeName": name_of(volume)}
            todo.patch(CLAIMS, claim, {"metadata": {"annotations": marks}, "spec": spec})
        elif (claim.get("status") or {}).get("phase") != "Bound":
            status = {
                "phase": "Bound",
                "accessModes": volume["spec"].get("accessModes"),
                "capacity": volume["spec"].get("capacity"),
            }
            todo.patch(CLAIMS, claim, {"status": status}, "status")

    def _lose(self, claim: Object, reason: str, text: str, todo: ReconcileResult) -> None:
        self._tell(claim, WARNING, reason, text, todo)
        _set_phase(CLAIMS, claim, "Lost", todo)

    def _tell(
        self, claim: Object, type: str, reason: str, text: str, todo: ReconcileResult
    ) -> None:
        self._events.record_state(todo, CLAIMS, claim, type, reason, text)


def _default_class(seen: ObjectStore) -> str:
    metas = (one["metadata"] for one in seen.all("storageclasses"))
    return default_class(
        (meta["name"], meta.get("creationTimestamp") or "", meta.get("annotations"))
        for meta in metas
    )


# Volumes


def _reconcile_volume(seen: ObjectStore, volume: Object, todo: ReconcileResult) -> None:
    """A volume is free, or its claim's; it is given back when its claim is gone."""
    reference = volume["spec"].get("claimRef") or {}
    key = f"{reference.get('namespace')}/{reference.get('name')}"
    claim = seen.get(CLAIMS, key) if reference.get("uid") else None
    if claim is not None and uid_of(claim) != reference["uid"]:
        claim = None
    if is_ending(volume):
        if claim is None:
            todo.unprotect(VOLUMES, volume, VOLUME_PROTECTION)
    elif not reference.get("uid"):
        _set_phase(VOLUMES, volume, "Available", todo)
    elif claim is None:
        _give_back(volume, todo)
    elif claim["spec"].get("volumeName") not in (None, "", name_of(volume)):
        # The claim has another one.
        is_ours = annotation_of(volume, PROVISIONED_BY) is not None
        if is_ours and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
            todo.delete(VOLUMES, volume)
        else:
            todo.update(VOLUMES, _unbound(volume))


def _give_back(volume: Object, todo: ReconcileResult) -> None:
    """Does what the reclaim policy says."""
    policy = volume["spec"].get("persistentVolumeReclaimPolicy")
    if policy == "Delete":
        todo.delete(VOLUMES, volume)
    elif policy == "Recycle":
        spec = {name: value for name, value in volume["spec"].items() if name != "claimRef"}
        todo.update(VOLUMES, {**volume, "spec": spec})
    else:
        _set_phase(VOLUMES, volume, "Released", todo)


def _unbound(volume: Object) -> Object:
    """Returns the volume without its claim; a reference that a user made stays, without uid."""
    reference, spec = volume["spec"]["claimRef"], dict(volume["spec"])
    annotations = dict(volume["metadata"].get("annotations") or {})
    if annotations.pop(BY_CONTROLLER, None) is not None:
        del spec["claimRef"]
    else:
        spec["claimRef"] = {
            k: v for k, v in reference.items() if k not in ("uid", "resourceVersion")
        }
    return {**volume, "metadata": {**volume["metadata"], "annotations": annotations}, "spec": spec}


def _new_volume(claim: Object, storage_class: Object, node: str | None) -> Object:
    """Returns a volume for the claim, on the node that is named."""
    name = f"pvc-{uid_of(claim)}"
    spec: Object = {
        "capacity": (claim["spec"].get("resources") or {}).get("requests") or {},
        "accessModes": claim["spec"].get("accessModes") or ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "storageClassName": name_of(storage_class),
        "csi": {"driver": OWN_PROVISIONER, "volumeHandle": name},
        "claimRef": _reference(claim),
    }
    if claim["spec"].get("volumeMode"):
        spec["volumeMode"] = claim["spec"]["volumeMode"]
    if node:
        expression = {"key": HOSTNAME, "operator": "In", "values": [node]}
        spec["nodeAffinity"] = {
            "required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        }
    return {
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: OWN_PROVISIONER}},
        "spec": spec,
    }


def _is_complete(claim: Object) -> bool:
    return annotation_of(claim, BIND_COMPLETED) is not None


def _set_phase(kind: str, obj: Object, phase: str, todo: ReconcileResult) -> None:
    if (obj.get("status") or {}).get("phase") != phase:
        todo.patch(kind, obj, {"status": {"phase": phase}}, "status")


def _reference(claim: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": name_of(claim),
        "namespace": namespace_of(claim),
        "uid": uid_of(claim),
    }
