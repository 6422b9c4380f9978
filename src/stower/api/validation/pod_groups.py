"""Validates Workloads and PodGroups (scheduling.k8s.io/v1alpha2), with the gates of groups on.

Source: the declarative rules of pkg/apis/scheduling/v1alpha2 and
pkg/apis/scheduling/validation/validation.go, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation.cluster_kinds import conditions
from stower.api.validation.group_parts import (
    CLAIMS_MAX,
    TEMPLATES_MAX,
    claims,
    controller,
    named_list,
    needed_name,
    policy,
    priority,
    topology,
    unchanged,
)
from stower.api.validation.rules import Faults, Object, invalid, named, required, too_many
from stower.model import names

MODES: Final = ("Pod", "PodGroup")


def workload(item: Object) -> Faults:
    """A new Workload."""
    spec = item["spec"]
    faults = list(controller("spec.controllerRef", spec.get("controllerRef")))
    templates = spec.get("podGroupTemplates")
    if not templates:
        return [*faults, required("spec.podGroupTemplates")]
    return [*faults, *named_list("spec.podGroupTemplates", templates, TEMPLATES_MAX, _template)]


def workload_update(new: Object, old: Object) -> Faults:
    """A changed Workload: all of it stays as it was made."""
    faults = list(unchanged(new, old, ("controllerRef", "podGroupTemplates")))
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
    faults = list(unchanged(new, old, FIXED))
    claims = new["spec"].get("resourceClaims") or []
    if len(claims) > CLAIMS_MAX and claims != (old["spec"].get("resourceClaims") or []):
        faults.append(too_many("spec.resourceClaims", len(claims), CLAIMS_MAX))
    return faults


def pod_group_status(new: Object, old: Object) -> Faults:
    """A changed status."""
    status = new.get("status") or {}
    faults = list(conditions("status.conditions", status.get("conditions") or ()))
    known = {claim.get("name") for claim in new["spec"].get("resourceClaims") or ()}

    def check_made(at: str, item: Object) -> Iterator[FieldError]:
        name = item.get("resourceClaimName")
        if name is not None:
            yield from named(f"{at}.resourceClaimName", name, names.long_name_faults)

    given, path = status.get("resourceClaimStatuses") or [], "status.resourceClaimStatuses"
    for i, item in enumerate(given):
        if item.get("name", "") not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            faults.append(invalid(f"{path}[{i}].name", item.get("name", ""), text))
    return [*faults, *named_list(path, given, CLAIMS_MAX, check_made)]


def _reference(path: str, given: Object) -> Iterator[FieldError]:
    to = given.get("workload")
    if to is None:
        yield invalid(path, "", "must specify one of: `workload`")
        return
    name = to.get("workloadName", "")
    yield from needed_name(f"{path}.workload.workloadName", name, names.long_name_faults)
    template = to.get("podGroupTemplateName", "")
    yield from needed_name(
        f"{path}.workload.podGroupTemplateName", template, names.short_name_faults
    )


def _template(path: str, given: Object) -> Iterator[FieldError]:
    yield from needed_name(f"{path}.name", given.get("name", ""), names.short_name_faults)
    yield from _group(path, given)


def _group(path: str, given: Object) -> Iterator[FieldError]:
    """What a template and a group have in common."""
    yield from policy(f"{path}.schedulingPolicy", given.get("schedulingPolicy") or {})
    yield from topology(path, given)
    yield from claims(path, given)
    mode = given.get("disruptionMode")
    if mode is not None and mode not in MODES:
        yield unsupported(f"{path}.disruptionMode", mode, MODES)
    yield from priority(path, given)
