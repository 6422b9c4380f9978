"""Validates Workloads, PodGroups and CompositePodGroups of Kubernetes 1.37.

Source: the declarative rules of staging/src/k8s.io/api/scheduling/v1alpha3 and
pkg/apis/scheduling/validation/validation.go, Kubernetes 1.37; KEP-6012 "API validation" and
"Disruption mode" (the rule about nested modes).
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation.cluster_kinds import conditions
from stower.api.validation.group_parts import (
    TEMPLATES_MAX,
    claims,
    controller,
    named_list,
    needed_name,
    one_of,
    policy,
    priority,
    topology,
)
from stower.api.validation.rules import (
    IMMUTABLE,
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    named,
    required,
    too_many,
)
from stower.model import names

DEPTH_MAX: Final = 4
PODS: Final = "podGroupTemplates"
GROUPS: Final = "compositePodGroupTemplates"
POLICIES: Final = ("PreemptLowerPriority", "Never")
SEVERAL: Final = (
    "all priority and priorityClassName values must be identical, detected multiple values"
)
Values = tuple[Any, ...]


def workload(item: Object) -> Faults:
    """A new Workload."""
    return [*_check_declared(item), *_whole(item)]


def _check_declared(item: Object) -> Iterator[FieldError]:
    spec = item["spec"]
    yield from controller("spec.controllerRef", spec.get("controllerRef"))
    yield from one_of("spec", {k: v for k, v in spec.items() if v or v == 0}, (PODS, GROUPS))
    yield from _templates("spec", spec)


def workload_update(new: Object, old: Object) -> Faults:
    """A changed Workload: how many pods or groups a gang needs is all that can change."""
    spec, before = new["spec"], old["spec"]
    faults = list(_check_presence("spec", spec, before, ("controllerRef",)))
    return [*faults, *_changed_templates("spec", spec, before), *_whole(new)]


def pod_group(item: Object) -> Faults:
    """A new PodGroup."""
    spec = item["spec"]
    faults = list(_place("spec", spec))
    if spec.get("parentCompositePodGroupName") is not None and spec.get("workloadRef") is None:
        text = "required when `parentCompositePodGroupName` is specified"
        faults.append(required("spec.workloadRef", text))
    return [*faults, *_of_pods("spec", spec)]


PLACE: Final = ("parentCompositePodGroupName", "workloadRef")
FIXED: Final = (
    "schedulingConstraints", "disruptionMode", "priorityClassName", "priority", "preemptionPolicy",
)  # fmt: skip


def pod_group_update(new: Object, old: Object) -> Faults:
    """A changed PodGroup."""
    spec, before = new["spec"], old["spec"]
    faults = list(_check_presence("spec", spec, before, (*PLACE, *FIXED, "resourceClaims")))
    return [*faults, *_changed_policy("spec", spec, before, "minCount")]


def composite(item: Object) -> Faults:
    """A new CompositePodGroup."""
    spec = item["spec"]
    faults = list(_place("spec", spec))
    if spec.get("workloadRef") is None:
        faults.append(required("spec.workloadRef"))
    return [*faults, *_of_groups("spec", spec)]


def composite_update(new: Object, old: Object) -> Faults:
    """A changed CompositePodGroup."""
    return list(
        _check_presence("spec", new["spec"], old["spec"], (*PLACE, "schedulingPolicy", *FIXED))
    )


def composite_status(new: Object, old: Object) -> Faults:
    """A changed status of a CompositePodGroup."""
    return list(conditions("status.conditions", (new.get("status") or {}).get("conditions") or ()))


# The tree of templates


def _templates(path: str, given: Object) -> Iterator[FieldError]:
    yield from named_list(f"{path}.{PODS}", given.get(PODS) or [], TEMPLATES_MAX, _pod_template)
    yield from named_list(
        f"{path}.{GROUPS}", given.get(GROUPS) or [], TEMPLATES_MAX, _group_template
    )


def _pod_template(path: str, given: Object) -> Iterator[FieldError]:
    yield from needed_name(f"{path}.name", given.get("name", ""), names.short_name_faults)
    yield from _of_pods(path, given)


def _group_template(path: str, given: Object) -> Iterator[FieldError]:
    yield from needed_name(f"{path}.name", given.get("name", ""), names.short_name_faults)
    yield from _of_groups(path, given)
    yield from _templates(path, given)


def _whole(item: Object) -> Iterator[FieldError]:
    """What no template shows by itself."""
    spec = item["spec"]
    known = {template.get("name", "") for template in spec.get(PODS) or ()}
    yield from _same_names("spec", spec, known)
    groups = spec.get(GROUPS) or []
    for i, template in enumerate(groups):
        if _depth(template) >= DEPTH_MAX:
            text = f"maximum template hierarchy depth is {DEPTH_MAX}"
            yield invalid(f"spec.{GROUPS}[{i}]", template.get(GROUPS), text)
    if len({*_priorities(spec)}) > 1:
        text = SEVERAL if groups else "detected multiple priority configurations"
        yield invalid("spec", None, text)
    for i, template in enumerate(groups):
        yield from _check_nested(f"spec.{GROUPS}[{i}]", template)


def _same_names(path: str, given: Object, known: set[str]) -> Iterator[FieldError]:
    """Names that are in another list already; within one list, who reads the list says so."""
    groups = given.get(GROUPS) or []
    for i, template in enumerate(groups):
        if template.get("name", "") in known:
            yield duplicate(f"{path}.{GROUPS}[{i}].name", template.get("name", ""))
    known |= {template.get("name", "") for template in groups}
    for i, template in enumerate(groups):
        inner = f"{path}.{GROUPS}[{i}]"
        pods = template.get(PODS) or []
        for k, leaf in enumerate(pods):
            if leaf.get("name", "") in known:
                yield duplicate(f"{inner}.{PODS}[{k}].name", leaf.get("name", ""))
        known |= {leaf.get("name", "") for leaf in pods}
        yield from _same_names(inner, template, known)


def _depth(template: Object) -> int:
    """How many templates of groups are on top of each other; those of pods come below."""
    return 1 + max(map(_depth, template.get(GROUPS) or ()), default=0)


def _priorities(given: Object) -> Iterator[Values]:
    for template in (*(given.get(PODS) or ()), *(given.get(GROUPS) or ())):
        yield template.get("priorityClassName") or "", template.get("priority")
        yield from _priorities(template)


def _check_nested(path: str, given: Object) -> Iterator[FieldError]:
    """Each group of groups has some, and where all go together, none below goes alone."""
    pods, groups = given.get(PODS) or [], given.get(GROUPS) or []
    if not pods and not groups:
        text = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
        yield invalid(path, given.get("name", ""), text)
    for field, templates in ((PODS, pods), (GROUPS, groups)):
        for i, template in enumerate(templates):
            if _is_all(given) and not _is_all(template):
                text = (
                    "must be `all`, which is the disruption mode of the template that contains it"
                )
                mode = template.get("disruptionMode")
                yield invalid(f"{path}.{field}[{i}].disruptionMode", mode, text)
    for i, template in enumerate(groups):
        yield from _check_nested(f"{path}.{GROUPS}[{i}]", template)


def _is_all(given: Object) -> bool:
    return (given.get("disruptionMode") or {}).get("all") is not None


# What templates and groups have in common


def _place(path: str, given: Object) -> Iterator[FieldError]:
    """Where in which tree a group is."""
    parent, reference = given.get("parentCompositePodGroupName"), given.get("workloadRef")
    if parent is not None:
        at = f"{path}.parentCompositePodGroupName"
        yield from named(at, parent, names.long_name_faults)
    if reference is not None:
        at = f"{path}.workloadRef"
        workload = reference.get("workloadName", "")
        yield from needed_name(f"{at}.workloadName", workload, names.long_name_faults)
        template = reference.get("templateName", "")
        yield from needed_name(f"{at}.templateName", template, names.short_name_faults)


def _of_pods(path: str, given: Object) -> Iterator[FieldError]:
    yield from policy(f"{path}.schedulingPolicy", given.get("schedulingPolicy") or {})
    yield from topology(path, given)
    yield from claims(path, given)
    yield from _check_shared(path, given)


def _of_groups(path: str, given: Object) -> Iterator[FieldError]:
    at = f"{path}.schedulingPolicy"
    yield from policy(at, given.get("schedulingPolicy") or {}, "minGroupCount")
    yield from topology(path, given)
    yield from _check_shared(path, given)


def _check_shared(path: str, given: Object) -> Iterator[FieldError]:
    if given.get("disruptionMode") is not None:
        yield from one_of(f"{path}.disruptionMode", given["disruptionMode"], ("single", "all"))
    yield from priority(path, given)
    preemption = given.get("preemptionPolicy")
    if preemption is not None and preemption not in POLICIES:
        yield unsupported(f"{path}.preemptionPolicy", preemption, POLICIES)


# Changes


def _check_presence(
    path: str, new: Object, old: Object, fields: tuple[str, ...]
) -> Iterator[FieldError]:
    for field in fields:
        if (new.get(field) or None) != (old.get(field) or None):
            yield invalid(f"{path}.{field}", None, IMMUTABLE)


def _changed_policy(path: str, new: Object, old: Object, count: str) -> Iterator[FieldError]:
    at = f"{path}.schedulingPolicy"
    now, before = new.get("schedulingPolicy") or {}, old.get("schedulingPolicy") or {}
    if now == before:
        return
    yield from policy(at, now, count)
    if (now.get("basic") is None) != (before.get("basic") is None):
        yield invalid(f"{at}.basic", None, IMMUTABLE)
    if now.get("gang") is not None and before.get("gang") is None:
        yield invalid(f"{at}.gang", None, "field cannot be set once created")
    if now.get("gang") is None and before.get("gang") is not None:
        yield invalid(f"{at}.gang", None, "field cannot be cleared once set")


def _changed_templates(path: str, new: Object, old: Object) -> Iterator[FieldError]:
    for field in (PODS, GROUPS):
        at, now = f"{path}.{field}", new.get(field) or []
        before = {template.get("name", ""): template for template in old.get(field) or ()}
        if len(now) > TEMPLATES_MAX:
            yield too_many(at, len(now), TEMPLATES_MAX)
            continue
        for i, template in enumerate(now):
            was = before.pop(template.get("name", ""), None)
            if was is None:
                yield forbidden(f"{at}[{i}]", "item may not be added")
                continue
            count = "minCount" if field == PODS else "minGroupCount"
            yield from _check_presence(f"{at}[{i}]", template, was, (*FIXED, "resourceClaims"))
            yield from _changed_policy(f"{at}[{i}]", template, was, count)
            yield from _changed_templates(f"{at}[{i}]", template, was)
        for _ in before:
            yield forbidden(at, "item may not be removed")
