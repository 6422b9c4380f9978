"""Finds what a pod has that rules forbid by now, and that its changes may therefore keep.

Source: GetValidationOptionsFromPodSpecAndMeta in pkg/api/pod, Kubernetes 1.36 with its default
gates.
"""

from collections.abc import Iterator
from typing import Any

from stower.api.validation import amounts, paths, scheduling, security_contexts
from stower.api.validation.pod_annotations import DELETION_COST, is_deletion_cost
from stower.api.validation.rules import Allowed, Object, label_selector
from stower.model import names

REQUIRED = scheduling.REQUIRED_TERMS
PREFERRED = scheduling.PREFERRED_TERMS


def allowed_before(old: Object) -> Allowed:
    """What a change of the pod may keep."""
    spec = old["spec"]
    affinity = spec.get("affinity") or {}
    spread = spec.get("topologySpreadConstraints") or ()
    tolerations = spec.get("tolerations") or ()
    cost = (old["metadata"].get("annotations") or {}).get(DELETION_COST)
    return Allowed(
        comparisons=any(t.get("operator") in ("Lt", "Gt") for t in tolerations),
        deletion_cost=cost is not None and not is_deletion_cost(cost),
        huge_pages=_has_partial_pages(spec),
        node_values=_has_bad_node_values(affinity.get("nodeAffinity") or {}),
        restarting=_has_restarting(spec),
        selector_values=_has_bad_selectors(affinity),
        spread_keys=any(map(_has_bad_keys, spread)),
        spread_selectors=any(
            _is_any(label_selector("", one.get("labelSelector"))) for one in spread
        ),
        selinux_policies="seLinuxChangePolicy" in (spec.get("securityContext") or {}),
        sysctls=any(
            security_contexts.host_namespace(one.get("name", ""), spec)
            for one in (spec.get("securityContext") or {}).get("sysctls") or ()
        ),
        token_paths=_has_bad_token_paths(spec),
        user_namespace_devices=spec.get("hostUsers") is False and _has_devices(spec),
    )


def _is_any(found: Iterator[Any]) -> bool:
    return next(found, None) is not None


def _has_partial_pages(spec: Object) -> bool:
    amounts_of = [spec.get("overhead") or {}]
    for _, container in security_contexts.containers_of("", spec):
        resources = container.get("resources") or {}
        amounts_of += [resources.get("requests") or {}, resources.get("limits") or {}]
    return any(
        name.startswith(amounts.HUGE) and not amounts.is_whole_page(name, value)
        for given in amounts_of
        for name, value in given.items()
    )


def _has_bad_node_values(affinity: Object) -> bool:
    return any(
        names.label_value_faults(value)
        for term in (affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or ()
        for requirement in term.get("matchExpressions") or ()
        for value in requirement.get("values") or ()
    )


def _has_restarting(spec: Object) -> bool:
    return any(
        policy.get("restartPolicy") == "RestartContainer"
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") != "Always"
        for policy in container.get("resizePolicy") or ()
    )


def _has_bad_selectors(affinity: Object) -> bool:
    terms: list[Object] = []
    for kind in ("podAffinity", "podAntiAffinity"):
        given = affinity.get(kind) or {}
        terms += given.get(REQUIRED) or ()
        terms += (term.get("podAffinityTerm") or {} for term in given.get(PREFERRED) or ())
    return any(_is_any(scheduling.pod_term_selectors("", term)) for term in terms)


def _has_bad_keys(constraint: Object) -> bool:
    keys, selector = constraint.get("matchLabelKeys") or [], constraint.get("labelSelector")
    return _is_any(scheduling.match_label_keys("", keys, [], selector))


def _has_bad_token_paths(spec: Object) -> bool:
    return any(
        paths.not_reserved("", (source.get("serviceAccountToken") or {}).get("path", ""))
        for volume in spec.get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
    )


def _has_devices(spec: Object) -> bool:
    return any(c.get("volumeDevices") for _, c in security_contexts.containers_of("", spec))
