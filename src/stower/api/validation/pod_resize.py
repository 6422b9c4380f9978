"""Validates changes of a pod's resources in place (the subresource `resize`).

Source: ValidatePodResize in pkg/apis/core/validation, Kubernetes 1.36 with its default gates: init
containers and pod-level resources can be resized too.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.equality import same
from stower.api.errors import FieldError
from stower.api.qos import qos_class
from stower.api.schema import Type
from stower.api.validation import pods
from stower.api.validation.allowances import allowed_before
from stower.api.validation.pod_annotations import MIRROR
from stower.api.validation.rules import WHOLE, Faults, Object, forbidden, invalid

RESIZABLE: Final = ("cpu", "memory")
ONLY_COMPUTE: Final = "only cpu and memory resources are mutable"
ONLY_COMPUTE_INIT: Final = (
    "only cpu and memory resources for init or sidecar containers are mutable"
)
RESTARTING: Final = (
    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
)


def resize(kind: Type, new: Object, old: Object) -> Faults:
    """A change of resources in place. `kind`: the type of pods, by which values are compared."""
    spec, before = new["spec"], old["spec"]
    faults = list(pods.pod(new, allowed_before(old)))
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [forbidden(WHOLE, "static pods cannot be resized")]
    if (before.get("os") or {}).get("name") == "windows":
        return [forbidden(WHOLE, "windows pods cannot be resized")]
    status = old.get("status") or {}
    if (status.get("qosClass") or qos_class(before)) != qos_class(spec):
        text = "Pod QOS Class may not change as a result of resizing"
        faults.append(invalid("spec", (new.get("status") or {}).get("qosClass", ""), text))
    if not _is_supported(status):
        faults.append(forbidden("spec", "Pod running on node without support for resize"))
    types = kind.fields["spec"].type
    same_but_compute = dict(spec)
    if _has_resources(before) or _has_resources(spec):
        faults += _pod_level(types, spec, before, same_but_compute)
    if status.get("nodeAllocatableResourceClaimStatuses"):
        text = "pods with node allocatable resource claims cannot be resized"
        faults.append(forbidden("spec", text))
    moved = list(_order(spec, before))
    if moved:
        return faults + moved
    for field in ("initContainers", "containers"):
        for i, container in enumerate(before.get(field) or ()):
            at = f"spec.{field}[{i}].resources"
            now = spec[field][i].get("resources") or {}
            faults += _no_removal(at, now, container.get("resources") or {}, "resource")
    faults += _containers(types, same_but_compute, before)
    faults += _init_containers(types, same_but_compute, before)
    if not faults and not same(types, same_but_compute, before):
        faults.append(forbidden("spec", ONLY_COMPUTE))
    return faults


def _is_supported(status: Object) -> bool:
    """The first running container shows its resources, as on any node that can resize."""
    for container in status.get("containerStatuses") or ():
        if "running" in (container.get("state") or {}):
            return "resources" in container
    return True


def _has_resources(spec: Object) -> bool:
    own = spec.get("resources") or {}
    return bool(own.get("requests") or own.get("limits"))


def _pod_level(
    types: Type, new: Object, old: Object, same_but_compute: Object
) -> Iterator[FieldError]:
    """Pod-level resources: cpu and memory change, nothing is removed."""
    now, before = new.get("resources"), old.get("resources")
    if now is None:
        yield forbidden("spec.resources", "pod-level resources cannot be removed")
        return
    if before is not None:
        yield from _no_removal("spec.resources", now, before, "pod-level resource")
    made: Object | None = _without_compute(now, before or {})
    if before is None and not any((made or {}).values()):
        made = None
    same_but_compute.pop("resources", None)
    if made is not None:
        same_but_compute["resources"] = made
    if not same(types.fields["resources"].type, made, before):
        yield forbidden("spec", f"{ONLY_COMPUTE} at pod-level")


def _order(new: Object, old: Object) -> Iterator[FieldError]:
    for field in ("containers", "initContainers"):
        now, before = new.get(field) or [], old.get(field) or []
        if len(now) != len(before):
            yield forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
            continue
        for i, container in enumerate(before):
            if now[i].get("name") != container.get("name"):
                text = f"{field} may not be renamed or reordered on resize"
                yield forbidden(f"spec.{field}[{i}].name", text)


def _no_removal(path: str, new: Object, old: Object, what: str) -> Iterator[FieldError]:
    for field in ("requests", "limits"):
        if any(name not in (new.get(field) or {}) for name in old.get(field) or {}):
            yield forbidden(f"{path}.{field}", f"{what} {field} cannot be removed")


def _without_compute(new: Object, old: Object) -> Object:
    """The new resources with cpu and memory as they were."""
    made: Object = {k: v for k, v in new.items() if k not in ("requests", "limits")}
    for field in ("requests", "limits"):
        kept = {k: v for k, v in (new.get(field) or {}).items() if k not in RESIZABLE}
        before = old.get(field) or {}
        kept |= {k: v for k, v in before.items() if k in RESIZABLE}
        if kept:
            made[field] = kept
    return made


def _without_resize(new: Object, old: Object) -> Object:
    """The new container with cpu and memory as they were, and without claims of devices."""
    made = _without_compute(new.get("resources") or {}, old.get("resources") or {})
    made.pop("claims", None)
    return {**new, "resources": made}


def _containers(types: Type, spec: Object, old: Object) -> Iterator[FieldError]:
    kept: list[Any] = []
    items = types.fields["containers"].type.items
    assert items is not None
    for now, before in zip(spec.get("containers") or (), old.get("containers") or (), strict=True):
        kept.append(_without_resize(now, before))
        if not same(items, kept[-1], before):
            yield forbidden("spec", ONLY_COMPUTE)
    if kept:
        spec["containers"] = kept


def _init_containers(types: Type, spec: Object, old: Object) -> Iterator[FieldError]:
    kept: list[Any] = []
    items = types.fields["initContainers"].type.items
    assert items is not None
    both = zip(spec.get("initContainers") or (), old.get("initContainers") or (), strict=True)
    for i, (now, before) in enumerate(both):
        at = f"spec.initContainers[{i}]"
        kept.append(_without_resize(now, before))
        if not same(items, kept[-1], before):
            yield forbidden(at, ONLY_COMPUTE_INIT)
        if now.get("restartPolicy") != "Always" and not same(items, now, before):
            for policy in now.get("resizePolicy") or ():
                if policy.get("restartPolicy") == "RestartContainer":
                    yield forbidden(at, RESTARTING)
    if kept:
        spec["initContainers"] = kept
