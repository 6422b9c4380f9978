"""Finds the volume of a claim, and says why a volume is none for it.

Source: pkg/controller/volume/persistentvolume (index.go, checkVolumeSatisfyClaim),
k8s.io/component-helpers/storage/volume.
"""

from collections.abc import Callable

from stower.controllers.objects import Object, ObjectStore, is_ending, name_of, namespace_of, uid_of
from stower.controllers.pods import selects
from stower.model.quantity import QuantityError, parse_quantity
from stower.model.storage_class import BETA_CLASS


def annotation_of(obj: Object, name: str) -> str | None:
    """Returns an annotation; None where there is none of the name."""
    value: str | None = (obj["metadata"].get("annotations") or {}).get(name)
    return value


def class_of(obj: Object) -> str:
    """Returns the name of the StorageClass of a claim or a volume, "" for none."""
    beta = annotation_of(obj, BETA_CLASS)
    return str(obj["spec"].get("storageClassName") or "") if beta is None else beta


def names_no_class(claim: Object) -> bool:
    """Returns whether the claim leaves its class to the cluster."""
    unset = claim["spec"].get("storageClassName") is None
    return unset and annotation_of(claim, BETA_CLASS) is None


def is_bound_to(volume: Object, claim: Object) -> bool:
    """Returns whether the volume is for this claim: it names the claim, perhaps without uid."""
    reference = volume["spec"].get("claimRef") or {}
    named = reference.get("name") == name_of(claim)
    placed = (reference.get("namespace") or "") == namespace_of(claim)
    return named and placed and reference.get("uid", uid_of(claim)) in ("", uid_of(claim))


def mismatch(volume: Object, claim: Object) -> str:
    """Returns why a claim cannot have the volume that it names, "" where it can."""
    if size_of(volume) < wanted_size(claim):
        return "requested PV is too small"
    if class_of(volume) != class_of(claim):
        return "storageClassName does not match"
    if _mode_of(volume) != _mode_of(claim):
        return "incompatible volumeMode"
    if not _has_modes(volume, claim):
        return "incompatible accessMode"
    return ""


def find_volume(
    seen: ObjectStore, claim: Object, waits: bool, is_promised: Callable[[Object], bool]
) -> Object | None:
    """Returns the volume for a claim that names none: the smallest that is free and large enough
    among those with the fewest access modes, one that names the claim before all. `waits`: for a
    pod, for which the scheduler chooses; then only the latter. `is_promised`: whether another claim
    is about to have a volume."""
    selector, wanted = claim["spec"].get("selector"), wanted_size(claim)
    best: tuple[tuple[bool, int, int, str], Object] | None = None
    for volume in seen.all("persistentvolumes"):
        is_meant = is_bound_to(volume, claim)
        if is_ending(volume) or size_of(volume) < wanted or _mode_of(volume) != _mode_of(claim):
            continue
        if volume["spec"].get("claimRef") and not is_meant:
            continue
        if not is_meant:
            is_free = (volume.get("status") or {}).get("phase") == "Available"
            if waits or not is_free or class_of(volume) != class_of(claim):
                continue
            if selector is not None and not selects(selector, volume):
                continue
            if is_promised(volume):
                continue
        if not _has_modes(volume, claim):
            continue
        modes = len(set(volume["spec"].get("accessModes") or ()))
        rank = (not is_meant, modes, size_of(volume), name_of(volume))
        if best is None or rank < best[0]:
            best = rank, volume
    return best[1] if best is not None else None


def size_of(volume: Object) -> int:
    """Returns the volume's bytes."""
    return bytes_of(volume["spec"].get("capacity"))


def wanted_size(claim: Object) -> int:
    """Returns the bytes that the claim asks for."""
    return bytes_of((claim["spec"].get("resources") or {}).get("requests"))


def _mode_of(obj: Object) -> str:
    return str(obj["spec"].get("volumeMode") or "Filesystem")


def _has_modes(volume: Object, claim: Object) -> bool:
    wanted = set(claim["spec"].get("accessModes") or ())
    return wanted <= set(volume["spec"].get("accessModes") or ())


def bytes_of(amounts: Object | None) -> int:
    """Returns the bytes of storage of a list of resources."""
    try:
        return parse_quantity(str((amounts or {}).get("storage") or "0")).value()
    except QuantityError:
        return 0
