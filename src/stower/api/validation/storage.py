"""Validates the kinds of storage.k8s.io.

Source: pkg/apis/storage/validation/validation.go, Kubernetes 1.36.
"""

from collections.abc import Callable
from typing import Final

from stower.api.validation.rules import (
    IMMUTABLE,
    Faults,
    Object,
    forbidden,
    invalid,
    named,
    one_of,
    required,
)
from stower.model import names

RECLAIM: Final = ("Delete", "Retain")
BINDING: Final = ("Immediate", "WaitForFirstConsumer")
ONE_SOURCE: Final = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def _immutable(new: Object, old: Object, *fields: str) -> Faults:
    return [
        invalid(field, new.get(field), IMMUTABLE)
        for field in fields
        if new.get(field) != old.get(field)
    ]


def _nothing(item: Object) -> Faults:
    return []


def _class(item: Object) -> Faults:
    name = item.get("provisioner", "")
    faults = [] if name else [required("provisioner")]
    if name:
        faults += named("provisioner", name.lower(), names.qualified_name_faults)
    faults += one_of("reclaimPolicy", item.get("reclaimPolicy"), RECLAIM)
    return faults + one_of("volumeBindingMode", item.get("volumeBindingMode"), BINDING)


def _class_update(new: Object, old: Object) -> Faults:
    return _immutable(new, old, "parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")


def _driver_update(new: Object, old: Object) -> Faults:
    now, was = new["spec"], old["spec"]
    faults = []
    if now.get("attachRequired") != was.get("attachRequired"):
        faults.append(invalid("spec.attachedRequired", now.get("attachRequired"), IMMUTABLE))
    if now.get("volumeLifecycleModes") != was.get("volumeLifecycleModes"):
        path = "spec.volumeLifecycleModes"
        faults.append(invalid(path, now.get("volumeLifecycleModes"), IMMUTABLE))
    return faults


def _node_update(new: Object, old: Object) -> Faults:
    """A driver that stays is the same, but for what can be allocated of it."""

    def get_fixed(driver: Object) -> Object:
        return {k: v for k, v in driver.items() if k != "allocatable"}

    return [
        invalid("spec.drivers", driver, IMMUTABLE)
        for was in old["spec"].get("drivers") or ()
        for driver in new["spec"].get("drivers") or ()
        if was.get("name") == driver.get("name") and get_fixed(was) != get_fixed(driver)
    ]


def _capacity(item: Object) -> Faults:
    return named("storageClassName", item.get("storageClassName", ""), names.subdomain_faults)


def _capacity_update(new: Object, old: Object) -> Faults:
    return _immutable(new, old, "nodeTopology", "storageClassName")


def _attachment(item: Object) -> Faults:
    spec, faults = item["spec"], []
    if not spec.get("attacher"):
        faults.append(required("spec.attacher"))
    source = spec.get("source") or {}
    given = [n for n in ("inlineVolumeSpec", "persistentVolumeName") if source.get(n) is not None]
    if not given:
        faults.append(required("spec.source", ONE_SOURCE))
    elif len(given) > 1:
        faults.append(forbidden("spec.source", ONE_SOURCE))
    elif source.get("persistentVolumeName") == "":
        text = "must specify non empty persistentVolumeName"
        faults.append(required("spec.source.persistentVolumeName", text))
    return faults + named("spec.nodeName", spec.get("nodeName", ""), names.subdomain_faults)


def _attachment_update(new: Object, old: Object) -> Faults:
    return _immutable(new, old, "spec")


CREATE: Final[dict[str, Callable[[Object], Faults]]] = {
    "csidrivers": _nothing,
    "csinodes": _nothing,
    "csistoragecapacities": _capacity,
    "storageclasses": _class,
    "volumeattachments": _attachment,
}
UPDATE: Final[dict[str, Callable[[Object, Object], Faults]]] = {
    "csidrivers": _driver_update,
    "csinodes": _node_update,
    "csistoragecapacities": _capacity_update,
    "storageclasses": _class_update,
    "volumeattachments": _attachment_update,
}
