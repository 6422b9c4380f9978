"""Validates the volume mounts and block devices of containers.

Source: ValidateVolumeMounts and ValidateVolumeDevices in pkg/apis/core/validation, Kubernetes 1.36.
Some of upstream's paths name the field without the index of the mount.
"""

from collections.abc import Iterator
from typing import Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation import paths
from stower.api.validation.rules import Object, forbidden, invalid, missing, required

PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
RECURSIONS: Final = ("Disabled", "Enabled", "IfPossible")


def mounts(path: str, container: Object, volumes: dict[str, Object]) -> Iterator[FieldError]:
    """The mounts of a container. `volumes`: the pod's well-formed volumes by name."""
    devices = {
        device.get("name", ""): device.get("devicePath", "")
        for device in container.get("volumeDevices") or ()
    }
    seen: set[str] = set()
    for i, mount in enumerate(container.get("volumeMounts") or ()):
        at = f"{path}[{i}]"
        name, where = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            yield required(f"{at}.name")
        if name not in volumes:
            yield missing(f"{at}.name", name)
        if not where:
            yield required(f"{at}.mountPath")
        if where in seen:
            yield invalid(f"{at}.mountPath", where, "must be unique")
        seen.add(where)
        if name in devices:
            yield invalid(f"{at}.name", name, "must not already exist in volumeDevices")
        if where in devices.values():
            text = "must not already exist as a path in volumeDevices"
            yield invalid(f"{at}.mountPath", where, text)
        if mount.get("subPath"):
            yield from paths.local(f"{path}.subPath", mount["subPath"])
        if mount.get("subPathExpr"):
            if mount.get("subPath"):
                text = "subPathExpr and subPath are mutually exclusive"
                yield invalid(f"{at}.subPathExpr", mount["subPathExpr"], text)
            yield from paths.local(f"{path}.subPathExpr", mount["subPathExpr"])
        if "mountPropagation" in mount:
            yield from _propagation(f"{path}.mountPropagation", mount, container)
        if "recursiveReadOnly" in mount:
            yield from _recursion(f"{path}.recursiveReadOnly", mount)


def _propagation(path: str, mount: Object, container: Object) -> Iterator[FieldError]:
    word = mount["mountPropagation"]
    if word not in PROPAGATIONS:
        yield unsupported(path, word, PROPAGATIONS)
    privileged = (container.get("securityContext") or {}).get("privileged")
    if word == "Bidirectional" and not privileged:
        text = "Bidirectional mount propagation is available only to privileged containers"
        yield forbidden(path, text)


def _recursion(path: str, mount: Object) -> Iterator[FieldError]:
    word = mount["recursiveReadOnly"]
    if word not in RECURSIONS:
        yield unsupported(path, word, RECURSIONS)
    elif word != "Disabled":
        if not mount.get("readOnly"):
            yield forbidden(path, "may only be specified when readOnly is true")
        if mount.get("mountPropagation", "None") != "None":
            text = "may only be specified when mountPropagation is None or not specified"
            yield forbidden(path, text)


def devices(path: str, container: Object, volumes: dict[str, Object]) -> Iterator[FieldError]:
    """The block devices of a container."""
    mounted = {
        m.get("name", ""): m.get("mountPath", "") for m in container.get("volumeMounts") or ()
    }
    names: set[str] = set()
    seen: set[str] = set()
    for i, device in enumerate(container.get("volumeDevices") or ()):
        at = f"{path}[{i}]"
        name, where = device.get("name", ""), device.get("devicePath", "")
        volume = volumes.get(name)
        if not name:
            yield required(f"{at}.name")
        if name in names:
            yield invalid(f"{at}.name", name, "must be unique")
        if volume is None:
            yield missing(f"{at}.name", name)
        elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
            text = (
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block "
                "mode"
            )
            yield invalid(f"{at}.name", name, text)
        if not where:
            yield required(f"{at}.devicePath")
        if where in seen:
            yield invalid(f"{at}.devicePath", where, "must be unique")
        if ".." in where.split("/"):
            yield invalid(f"{at}.devicePath", where, "can not contain backsteps ('..')")
        else:
            seen.add(where)
        if name in mounted:
            yield invalid(f"{at}.name", name, "must not already exist in volumeMounts")
        if where in mounted.values():
            text = "must not already exist as a path in volumeMounts"
            yield invalid(f"{at}.devicePath", where, text)
        if name:
            names.add(name)
