"""Validates the metadata of new and changed objects of all kinds.

Source: apimachinery pkg/api/validation/objectmeta.go, Kubernetes 1.36.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from stower.api.errors import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    TOO_LONG,
    FieldError,
    format_value,
)
from stower.model.names import label_faults, label_value_faults, qualified_name_faults

Object = dict[str, Any]
Faults = Callable[[str], Iterator[str]]
ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
MANAGER_BYTES_MAX: Final = 128
SUBRESOURCE_BYTES_MAX: Final = 256
IMMUTABLE: Final = "field is immutable"
STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")


def new_metadata_errors(
    meta: Object, namespaced: bool, name_faults: Faults, plain_finalizers: bool = False
) -> list[FieldError]:
    """What is wrong with the metadata of a new object. `plain_finalizers`: those without a slash
    are right too."""
    errors: list[FieldError] = []
    generate = meta.get("generateName")
    if generate:
        # As a prefix: a trailing dash is what it is for.
        base = generate[:-1] + "a" if generate.endswith("-") and len(generate) > 1 else generate
        errors += [
            FieldError(INVALID, "metadata.generateName", generate, f) for f in name_faults(base)
        ]
    name = meta.get("name") or ""
    if not name:
        errors.append(FieldError(REQUIRED, "metadata.name", "", "name or generateName is required"))
    else:
        errors += [FieldError(INVALID, "metadata.name", name, f) for f in name_faults(name)]
    if namespaced:
        namespace = meta.get("namespace") or ""
        if not namespace:
            errors.append(FieldError(REQUIRED, "metadata.namespace"))
        else:
            errors += [
                FieldError(INVALID, "metadata.namespace", namespace, f)
                for f in label_faults(namespace)
            ]
    names = meta.get("finalizers") or ()
    finalizers = finalizer_errors(names, "metadata.finalizers", plain_finalizers)
    return [*errors, *_named_errors(meta), *finalizers]


def _named_errors(meta: Object) -> list[FieldError]:
    errors = label_errors(meta.get("labels"), "metadata.labels")
    errors += annotation_errors(meta.get("annotations"), "metadata.annotations")
    errors += _owner_errors(meta.get("ownerReferences") or ())
    return errors + _manager_errors(meta.get("managedFields") or ())


def label_errors(labels: Object | None, path: str) -> list[FieldError]:
    """Faults of keys and values of labels."""
    errors = []
    for key, value in sorted((labels or {}).items()):
        errors += [FieldError(INVALID, path, key, f) for f in qualified_name_faults(key)]
        errors += [FieldError(INVALID, path, value, f) for f in label_value_faults(value)]
    return errors


def annotation_errors(annotations: Object | None, path: str) -> list[FieldError]:
    """Faults of annotations: keys are compared without case."""
    errors = []
    size = 0
    for key, value in sorted((annotations or {}).items()):
        errors += [FieldError(INVALID, path, key, f) for f in qualified_name_faults(key.lower())]
        size += len(key) + len(value)
    if size > ANNOTATIONS_BYTES_MAX:
        text = f"may not be more than {ANNOTATIONS_BYTES_MAX} bytes"
        errors.append(FieldError(TOO_LONG, path, "", text))
    return errors


def _owner_errors(owners: Iterable[Object]) -> list[FieldError]:
    errors = []
    controller: Object | None = None
    path = "metadata.ownerReferences"
    for owner in owners:
        at = path
        if not owner.get("apiVersion"):
            text = "version must not be empty"
            errors.append(
                FieldError(INVALID, f"{at}.apiVersion", owner.get("apiVersion", ""), text)
            )
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                text = "must not be empty"
                errors.append(FieldError(INVALID, f"{at}.{name}", owner.get(name, ""), text))
        if owner.get("kind") == "Event" and owner.get("apiVersion") == "v1":
            text = "v1, Kind=Event is disallowed from being an owner"
            errors.append(FieldError(INVALID, at, format_value(owner), text))
        if owner.get("controller"):
            if controller is not None:
                text = (
                    'Only one reference can have Controller set to true. Found "true" in '
                    f"references for {controller.get('kind')}/{controller.get('name')} and "
                    f"{owner.get('kind')}/{owner.get('name')}"
                )
                errors.append(FieldError(INVALID, path, list(owners), text))
            else:
                controller = owner
    return errors


_MANAGER: Final = ("operation", "fieldsType", "manager", "subresource")
_KEPT_MAX: Final = 512  # characters; what is longer is not kept


@lru_cache(1024)
def _is_fine_manager(
    operation: str | None, fields_type: str | None, manager: str | None, subresource: str | None
) -> bool:
    """Whether an entry with these values has no fault: there are few managers."""
    return (
        operation in ("Apply", "Update")
        and fields_type in (None, "", "FieldsV1")
        and len((manager or "").encode()) <= MANAGER_BYTES_MAX
        and len((subresource or "").encode()) <= SUBRESOURCE_BYTES_MAX
        and (manager or "").isprintable()
    )


def _manager_errors(entries: Iterable[Object]) -> list[FieldError]:
    """Faults of entries about who manages what. The server itself makes none."""
    errors = []
    for i, entry in enumerate(entries):
        values = [entry.get(name) for name in _MANAGER]
        if sum(map(len, filter(None, values))) <= _KEPT_MAX and _is_fine_manager(*values):
            continue
        at = "metadata.managedFields"
        if entry.get("operation") not in ("Apply", "Update"):
            text, value = "must be `Apply` or `Update`", entry.get("operation", "")
            errors.append(FieldError(INVALID, f"{at}[{i}].operation", value, text))
        if entry.get("fieldsType") not in (None, "", "FieldsV1"):
            text, value = "must be `FieldsV1`", entry["fieldsType"]
            errors.append(FieldError(INVALID, f"{at}[{i}].fieldsType", value, text))
        for name, limit in (("manager", MANAGER_BYTES_MAX), ("subresource", SUBRESOURCE_BYTES_MAX)):
            if len(entry.get(name, "").encode()) > limit:
                text = f"may not be more than {limit} bytes"
                errors.append(FieldError(TOO_LONG, f"{at}[{i}].{name}", "", text))
        manager = entry.get("manager", "")
        if not manager.isprintable():
            for position, character in enumerate(manager):
                if not character.isprintable():
                    text = f"invalid character U+{ord(character):04X} (at position {position})"
                    errors.append(FieldError(INVALID, f"{at}[{i}].manager", manager, text))
    return errors


def finalizer_errors(finalizers: Iterable[str], path: str, plain: bool = False) -> list[FieldError]:
    """Faults of names of finalizers, and two that exclude each other. `plain`: names without a
    slash are right too."""
    errors = []
    names = list(finalizers)
    for i, name in enumerate(names):
        at = f"{path}[{i}]"
        errors += [FieldError(INVALID, path, name, f) for f in qualified_name_faults(name)]
        if not plain and "/" not in name and name not in STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            errors.append(FieldError(INVALID, at, name, text))
    if "orphan" in names and "foregroundDeletion" in names:
        text = "finalizer orphan and foregroundDeletion cannot be both set"
        errors.append(FieldError(INVALID, path, names, text))
    return errors


def finalizer_warnings(meta: Object, old: Object) -> list[str]:
    """Advice on the names of new finalizers of custom resources, which need no slash."""
    found = []
    for name in sorted({*(meta.get("finalizers") or ())} - {*(old.get("finalizers") or ())}):
        if "/" not in name and name not in STANDARD_FINALIZERS:
            path = " including a path (/)" if "." in name else ""
            found.append(
                f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name{path} '
                "to avoid accidental conflicts with other finalizer writers"
            )
    return found


# How often ValidateUpdate of a kind calls ValidateObjectMetaUpdate, and ValidateObjectMeta: a call
# is one more cause. The handlers themselves look at the fields that all kinds have first.
_BOTH: Final = (1, 1)
_CALLS: Final = {
    ("", "pods"): _BOTH,
    ("", "configmaps"): _BOTH,
    ("", "secrets"): _BOTH,
    ("", "serviceaccounts"): _BOTH,
    ("", "namespaces"): _BOTH,
    ("", "nodes"): _BOTH,
    ("", "persistentvolumeclaims"): _BOTH,
    ("", "limitranges"): (0, 1),
    ("resource.k8s.io", "deviceclasses"): _BOTH,
    ("resource.k8s.io", "resourceclaims"): _BOTH,
    ("resource.k8s.io", "resourceclaimtemplates"): _BOTH,
    ("storage.k8s.io", "csinodes"): (0, 1),
    ("storage.k8s.io", "volumeattachments"): (0, 1),
    ("", "persistentvolumes"): (0, 2),
    ("policy", "poddisruptionbudgets"): (0, 0),
    ("", "events"): (0, 0),
}


_FIXED: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
                 "deletionGracePeriodSeconds")  # fmt: skip
_LOOKED_AT: Final = ("labels", "annotations", "ownerReferences", "finalizers", *_FIXED)


def update_metadata_errors(
    meta: Object,
    old: Object,
    key: tuple[str, str],
    subresource: str,
    plain_finalizers: bool = False,
) -> list[FieldError]:
    """What a change of metadata may not do, as often as the real server says it."""
    is_same = all(meta.get(name) == old.get(name) for name in _LOOKED_AT)
    if is_same and not _manager_errors(meta.get("managedFields") or ()):
        return []  # it was right when it came
    updates, wholes = (1, 0) if subresource == "status" else _CALLS.get(key, (1, 0))
    common = _named_errors(meta)
    names = list(meta.get("finalizers") or ())
    faults = finalizer_errors(names, "metadata.finalizers", plain_finalizers)
    unqualified = [e for e in faults if "[" not in e.field]
    strange = [e for e in faults if "[" in e.field]
    fixed = _fixed_errors(meta, old)
    return [
        *common, *unqualified, *fixed, *common,
        *(fixed + common + strange) * updates,
        *(common + unqualified + strange) * wholes,
    ]  # fmt: skip


def _fixed_errors(meta: Object, old: Object) -> list[FieldError]:
    """Fields that never change, and finalizers that come too late."""
    errors: list[FieldError] = []
    if "deletionTimestamp" in old:
        added = [f for f in meta.get("finalizers") or () if f not in (old.get("finalizers") or ())]
        if added:
            listed = ", ".join(f'"{f}"' for f in added)
            text = (
                "no new finalizers can be added if the object is being deleted, found new "
                f"finalizers []string{{{listed}}}"
            )
            errors.append(FieldError(FORBIDDEN, "metadata.finalizers", None, text))
    for name in _FIXED:
        if meta.get(name) != old.get(name):
            errors.append(FieldError(INVALID, f"metadata.{name}", meta.get(name), IMMUTABLE))
    return errors
