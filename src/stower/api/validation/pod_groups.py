"""Rules for Workloads and PodGroups (scheduling.k8s.io/v1alpha2), with the gates of groups on.

Source: the declarative rules of pkg/apis/scheduling/v1alpha2 and
pkg/apis/scheduling/validation/validation.go, Kubernetes 1.36.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation.others import conditions
from stower.api.validation.rules import (
    IMMUTABLE,
    Faults,
    Object,
    duplicate,
    invalid,
    named,
    required,
    too_many,
)
from stower.model import names

TEMPLATES_MAX: Final = 8
CLAIMS_MAX: Final = 4
TOPOLOGIES_MAX: Final = 1
PRIORITY_MAX: Final = 1_000_000_000
MODES: Final = ("Pod", "PodGroup")
AT_LEAST_ONE: Final = "must be greater than or equal to 1"

Each = Callable[[str, Object], Iterator[FieldError]]


def workload(item: Object) -> Faults:
    """A new Workload."""
    spec = item["spec"]
    faults = list(_controller("spec.controllerRef", spec.get("controllerRef")))
    templates = spec.get("podGroupTemplates")
    if not templates:
        return [*faults, required("spec.podGroupTemplates")]
    return [*faults, *_list("spec.podGroupTemplates", templates, TEMPLATES_MAX, _template)]


def workload_update(new: Object, old: Object) -> Faults:
    """A changed Workload: all of it stays as it was made."""
    faults = list(_same(new, old, ("controllerRef", "podGroupTemplates")))
    templates = new["spec"].get("podGroupTemplates") or []
    if templates != (old["spec"].get("podGroupTemplates") or []):
        if not templates:
            faults.append(required("spec.podGroupTemplates"))
        elif len(templates) > TEMPLATES_MAX:
            faults.append(too_many("spec.podGroupTemplates", len(templates), TEMPLATES_MAX))
    return faults


def pod_group(item: Object) -> Faults:
    """A new PodGroup."""
    spec = item["spec"]
    faults: Faults = []
    reference = spec.get("podGroupTemplateRef")
    if reference is not None:
        faults += _reference("spec.podGroupTemplateRef", reference)
    return [*faults, *_group("spec", spec)]


FIXED: Final = (
    "podGroupTemplateRef", "schedulingPolicy", "schedulingConstraints", "resourceClaims",
    "disruptionMode", "priorityClassName", "priority",
)  # fmt: skip


def pod_group_update(new: Object, old: Object) -> Faults:
    """A changed PodGroup: all of it stays as it was made."""
    faults = list(_same(new, old, FIXED))
    claims = new["spec"].get("resourceClaims") or []
    if len(claims) > CLAIMS_MAX and claims != (old["spec"].get("resourceClaims") or []):
        faults.append(too_many("spec.resourceClaims", len(claims), CLAIMS_MAX))
    return faults


def pod_group_status(new: Object, old: Object) -> Faults:
    """A changed status."""
    status = new.get("status") or {}
    faults = list(conditions("status.conditions", status.get("conditions") or ()))
    known = {claim.get("name") for claim in new["spec"].get("resourceClaims") or ()}

    def made(at: str, item: Object) -> Iterator[FieldError]:
        if item.get("name", "") not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield invalid(f"{at}.name", item.get("name", ""), text)
        name = item.get("resourceClaimName")
        if name is not None:
            yield from named(f"{at}.resourceClaimName", name, names.long_name_faults)

    given = status.get("resourceClaimStatuses") or []
    return [*faults, *_list("status.resourceClaimStatuses", given, CLAIMS_MAX, made)]


def _same(new: Object, old: Object, fields: Iterable[str]) -> Iterator[FieldError]:
    for field in fields:
        if (new["spec"].get(field) or None) != (old["spec"].get(field) or None):
            yield invalid(f"spec.{field}", None, IMMUTABLE)


def _list(path: str, given: list[Any], limit: int, each: Each) -> Iterator[FieldError]:
    """A list whose items have names of their own; one that is too long is not looked into."""
    if len(given) > limit:
        yield too_many(path, len(given), limit)
        return
    seen: set[str] = set()
    for i, item in enumerate(given):
        name = item.get("name", "")
        if name in seen:
            yield duplicate(f"{path}[{i}]", item)
        seen.add(name)
    for i, item in enumerate(given):
        yield from each(f"{path}[{i}]", item)


def _name(path: str, name: str, faults: Callable[[str], Iterable[str]]) -> Iterator[FieldError]:
    if not name:
        yield required(path)
    else:
        yield from named(path, name, faults)


def _controller(path: str, given: Object | None) -> Iterator[FieldError]:
    if given is None:
        return
    if given.get("apiGroup"):
        yield from named(f"{path}.apiGroup", given["apiGroup"], names.long_name_faults)
    for field in ("kind", "name"):
        yield from _name(f"{path}.{field}", given.get(field, ""), names.path_segment_faults)


def _reference(path: str, given: Object) -> Iterator[FieldError]:
    to = given.get("workload")
    if to is None:
        yield invalid(path, "", "must specify one of: `workload`")
        return
    name = to.get("workloadName", "")
    yield from _name(f"{path}.workload.workloadName", name, names.long_name_faults)
    template = to.get("podGroupTemplateName", "")
    yield from _name(f"{path}.workload.podGroupTemplateName", template, names.label_faults)


def _template(path: str, given: Object) -> Iterator[FieldError]:
    yield from _name(f"{path}.name", given.get("name", ""), names.label_faults)
    yield from _group(path, given)


def _group(path: str, given: Object) -> Iterator[FieldError]:
    """What a template and a group have in common."""
    yield from _policy(f"{path}.schedulingPolicy", given.get("schedulingPolicy") or {})
    topology = (given.get("schedulingConstraints") or {}).get("topology") or []
    at = f"{path}.schedulingConstraints.topology"
    if len(topology) > TOPOLOGIES_MAX:
        yield FieldError("FieldValueTooMany", at, len(topology), "must have at most 1 item")
    else:
        for i, constraint in enumerate(topology):
            key = constraint.get("key", "")
            yield from _name(f"{at}[{i}].key", key, names.qualified_name_faults)
    claims = given.get("resourceClaims") or []
    yield from _list(f"{path}.resourceClaims", claims, CLAIMS_MAX, _claim)
    mode = given.get("disruptionMode")
    if mode is not None and mode not in MODES:
        yield unsupported(f"{path}.disruptionMode", mode, MODES)
    if given.get("priorityClassName"):
        name = given["priorityClassName"]
        yield from named(f"{path}.priorityClassName", name, names.long_name_faults)
    priority = given.get("priority")
    if priority is not None and priority > PRIORITY_MAX:
        text = f"must be less than or equal to {PRIORITY_MAX}"
        yield invalid(f"{path}.priority", priority, text)


def _policy(path: str, given: Object) -> Iterator[FieldError]:
    chosen = [name for name in ("basic", "gang") if given.get(name) is not None]
    if not chosen:
        yield invalid(path, "", "must specify one of: `basic`, `gang`")
    elif len(chosen) > 1:
        text = "must specify exactly one of: `basic`, `gang`"
        yield invalid(path, f"{{{', '.join(chosen)}}}", text)
    if given.get("gang") is not None:
        count = given["gang"].get("minCount") or 0
        if not count:
            yield required(f"{path}.gang.minCount")
        elif count < 1:
            yield invalid(f"{path}.gang.minCount", count, AT_LEAST_ONE)


def _claim(path: str, given: Object) -> Iterator[FieldError]:
    yield from _name(f"{path}.name", given.get("name", ""), names.label_faults)
    fields = ("resourceClaimName", "resourceClaimTemplateName")
    chosen = [name for name in fields if given.get(name) is not None]
    told = "`resourceClaimName`, `resourceClaimTemplateName`"
    if not chosen:
        yield invalid(path, "", f"must specify one of: {told}")
    elif len(chosen) > 1:
        text = f"must specify exactly one of: {told}"
        yield invalid(path, f"{{{', '.join(chosen)}}}", text)
    for name in chosen:
        yield from named(f"{path}.{name}", given[name], names.long_name_faults)
