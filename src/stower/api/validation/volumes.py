"""Validates the volumes of a pod, and the specs of PersistentVolumeClaims."""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation.amounts import quantity
from stower.api.validation.rules import (
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    named,
    required,
)
from stower.model import names

HOST_PATH_TYPES: Final = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate",
                          "File", "FileOrCreate", "Socket")  # fmt: skip
# The field that each kind of volume cannot do without.
NEEDED: Final = {
    "awsElasticBlockStore": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "azureFile": ("secretName", "shareName"),
    "cephfs": ("monitors",),
    "cinder": ("volumeID",),
    "csi": ("driver",),
    "flexVolume": ("driver",),
    "gcePersistentDisk": ("pdName",),
    "gitRepo": ("repository",),
    "glusterfs": ("endpoints", "path"),
    "iscsi": ("targetPortal", "iqn"),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "portworxVolume": ("volumeID",),
    "quobyte": ("registry", "volume"),
    "rbd": ("monitors", "image"),
    "secret": ("secretName",),
    "configMap": ("name",),
    "vsphereVolume": ("volumePath",),
    "hostPath": ("path",),
}


def volumes(path: str, pod: Object) -> tuple[dict[str, Object], Faults]:
    """The well-formed volumes by name, and what is wrong with the others."""
    found: dict[str, Object] = {}
    faults: Faults = []
    for i, volume in enumerate(pod["spec"].get("volumes") or ()):
        at = f"{path}[{i}]"
        mine = list(_source(at, volume))
        name = volume.get("name", "")
        if not name:
            mine.append(required(f"{at}.name"))
        else:
            mine += named(f"{at}.name", name, names.label_faults)
        if name in found:
            mine.append(duplicate(f"{at}.name", name))
        if mine:
            faults += mine
        else:
            found[name] = volume
    return found, faults


def _source(path: str, volume: Object) -> Iterator[FieldError]:
    kinds = [k for k in volume if k != "name"]
    for extra in kinds[1:]:
        yield forbidden(f"{path}.{extra}", "may not specify more than 1 volume type")
    for kind in kinds[:1]:
        source, at = volume[kind], f"{path}.{kind}"
        for field in NEEDED.get(kind, ()):
            if not source.get(field):
                yield required(f"{at}.{field}")
        yield from _particular(kind, source, at)


def _particular(kind: str, source: Object, path: str) -> Iterator[FieldError]:
    if kind == "emptyDir" and "sizeLimit" in source:
        if quantity(source["sizeLimit"]).sign < 0:
            text = "SizeLimit field must be a valid resource quantity"
            yield forbidden(f"{path}.sizeLimit", text)
    elif kind == "hostPath":
        where = source.get("path", "")
        if ".." in where.split("/"):
            yield invalid(f"{path}.path", where, "must not contain '..'")
        if source.get("type", "") not in HOST_PATH_TYPES:
            yield unsupported(f"{path}.type", source["type"], HOST_PATH_TYPES)
    elif kind in ("secret", "configMap", "downwardAPI", "projected"):
        mode = source.get("defaultMode")
        if mode is not None and not 0 <= mode <= 0o777:
            text = "must be a number between 0 and 0777 (octal), both inclusive"
            yield invalid(f"{path}.defaultMode", mode, text)
        yield from _items(f"{path}.items", source.get("items") or (), kind)
        for i, part in enumerate(source.get("sources") or ()):
            if len([k for k in part if part[k] is not None]) > 1:
                text = "may not specify more than 1 volume type per source"
                yield forbidden(f"{path}.sources[{i}]", text)
    elif kind == "nfs" and source.get("path") and not source["path"].startswith("/"):
        yield invalid(f"{path}.path", source["path"], "must be an absolute path")
    elif kind == "ephemeral":
        template = source.get("volumeClaimTemplate")
        if template is None:
            yield required(f"{path}.volumeClaimTemplate")
        else:
            yield from claim_spec(f"{path}.volumeClaimTemplate.spec", template.get("spec") or {})
    elif kind == "csi" and source.get("driver"):
        yield from named(f"{path}.driver", source["driver"].lower(), names.subdomain_faults)
    elif kind == "image" and not source.get("reference"):
        yield required(f"{path}.reference")


def _items(path: str, given: Any, kind: str) -> Iterator[FieldError]:
    for i, item in enumerate(given):
        at = f"{path}[{i}]"
        if kind != "downwardAPI" and not item.get("key"):
            yield required(f"{at}.key")
        where = item.get("path", "")
        if not where:
            yield required(f"{at}.path")
        elif where.startswith("/"):
            yield invalid(f"{at}.path", where, "must be a relative path")
        elif ".." in where.split("/"):
            yield invalid(f"{at}.path", where, "must not contain '..'")
        mode = item.get("mode")
        if mode is not None and not 0 <= mode <= 0o777:
            text = "must be a number between 0 and 0777 (octal), both inclusive"
            yield invalid(f"{at}.mode", mode, text)


ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def claim_spec(path: str, spec: Object) -> Iterator[FieldError]:
    """The spec of a PersistentVolumeClaim."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield unsupported(f"{path}.accessModes", mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        text = "may not use ReadWriteOncePod with other access modes"
        yield forbidden(f"{path}.accessModes", text)
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        yield required(f"{path}.resources[storage]")
    elif quantity(requests["storage"]).sign <= 0:
        text = "must be greater than zero"
        yield invalid(f"{path}.resources[storage]", requests["storage"], text)
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        yield from named(f"{path}.storageClassName", name, names.subdomain_faults)
    if spec.get("volumeMode", "Filesystem") not in ("Block", "Filesystem"):
        yield unsupported(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))
