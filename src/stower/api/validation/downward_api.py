"""Validates references to a pod's own fields and resources, in variables and in volumes.

Source: pkg/apis/core/validation (validateObjectFieldSelector and what follows it), Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation import paths
from stower.api.validation.rules import Faults, Object, invalid, label_key, required

VARIABLE_FIELDS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
    "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
FILE_FIELDS: Final = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace",
    "metadata.uid",
)  # fmt: skip
# What the API server translates at all; each place supports some of them.
KNOWN_FIELDS: Final = frozenset(
    (*VARIABLE_FIELDS, *FILE_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase")
)
OLD_HOST: Final = "spec.host"  # of old clients: spec.nodeName
SUBSCRIPTED: Final = ("metadata.annotations", "metadata.labels")
RESOURCES: Final = tuple(
    f"{kind}.{name}"
    for kind in ("limits", "requests")
    for name in ("cpu", "ephemeral-storage", "memory")
)
HUGE_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")
BYTE_DIVISORS: Final = (
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
)  # fmt: skip
DIVISORS: Final = {  # by the resource: its name in messages, and the divisors
    "cpu": ("cpu", ("1m", "1")),
    "memory": ("memory", BYTE_DIVISORS),
    "ephemeral-storage": ("local ephemeral storage", BYTE_DIVISORS),
    "hugepages-": ("hugepages", BYTE_DIVISORS),
}


def _split_subscript(path: str) -> tuple[str, str] | None:
    """`labels['key']` as its two parts. Source: fieldpath.SplitMaybeSubscriptedPath."""
    at = path.find("['", 1)
    if at < 0 or not path.endswith("']") or len(path) < at + 4:
        return None
    return path[:at], path[at + 2 : -2]


def field_reference(path: str, given: Object, supported: tuple[str, ...]) -> Iterator[FieldError]:
    """A reference to a field of the pod: one of those supported, a label or an annotation."""
    version, where = given.get("apiVersion", ""), given.get("fieldPath", "")
    if not version:
        yield required(f"{path}.apiVersion")
        return
    if not where:
        yield required(f"{path}.fieldPath")
        return
    match = _split_subscript(where)
    why = None
    if version != "v1":
        why = f"unsupported pod version: {version}"
    elif match is not None and match[0] not in SUBSCRIPTED:
        why = f"field label does not support subscript: {where}"
    elif match is None and where not in KNOWN_FIELDS and where != OLD_HOST:
        why = f"field label not supported: {where}"
    if why is not None:
        yield invalid(f"{path}.fieldPath", where, f"error converting fieldPath: {why}")
        return
    if match is not None:
        is_label = match[0] == "metadata.labels"
        yield from label_key(path, match[1] if is_label else match[1].lower())
        return
    found = "spec.nodeName" if where == OLD_HOST else where
    if found not in supported:
        yield unsupported(f"{path}.fieldPath", found, supported)


def resource_reference(path: str, given: Object, needs_container: bool) -> Iterator[FieldError]:
    """A reference to a container's requests or limits. `needs_container`: it must be named."""
    resource = given.get("resource", "")
    if needs_container and not given.get("containerName"):
        yield required(f"{path}.containerName")
    elif not resource:
        yield required(f"{path}.resource")
    elif resource not in RESOURCES and not resource.startswith(HUGE_PAGES):
        yield unsupported(f"{path}.resource", resource, RESOURCES)
    divisor = given.get("divisor") or "0"
    if divisor == "0":
        return
    name = resource.partition(".")[2]
    kind = "hugepages-" if resource.startswith(HUGE_PAGES) else name
    if resource not in RESOURCES and kind != "hugepages-":
        return
    words, values = DIVISORS[kind]
    if divisor not in values:
        listed = " and ".join(values) if kind == "cpu" else ", ".join(values)
        text = f"only divisor's values {listed} are supported with the {words} resource"
        yield invalid(f"{path}.divisor", resource, text)


def volume_file(path: str, given: Object) -> Iterator[FieldError]:
    """A file with a field or a resource of the pod."""
    where = given.get("path", "")
    if not where:
        yield required(f"{path}.path")
    yield from paths.not_reserved(f"{path}.path", where)
    field, resource = given.get("fieldRef"), given.get("resourceFieldRef")
    if field is not None:
        yield from field_reference(f"{path}.fieldRef", field, FILE_FIELDS)
        if resource is not None:
            text = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield invalid(path, "resource", text)
    elif resource is not None:
        yield from resource_reference(f"{path}.resourceFieldRef", resource, needs_container=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from paths.mode(f"{path}.mode", given.get("mode"))


def volume_files(path: str, source: Object) -> Faults:
    """A downward API volume; upstream's paths do not tell which item it is."""
    faults = paths.mode(f"{path}.defaultMode", source.get("defaultMode"))
    for item in source.get("items") or ():
        faults += volume_file(path, item)
    return faults
