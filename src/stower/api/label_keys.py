"""Merges matchLabelKeys and mismatchLabelKeys of new pods into their label selectors.

Source: mutatePodAffinity and mutateTopologySpreadConstraints in pkg/registry/core/pod/strategy.go,
Kubernetes 1.36. Updates leave the selectors as they are.
"""

from typing import Any, Final

Object = dict[str, Any]
TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def merge_label_keys(item: Object) -> None:
    """Adds to the selectors of a new pod what its own labels say under those keys."""
    spec = item["spec"]
    if not (spec.get("affinity") or spec.get("topologySpreadConstraints")):
        return
    labels = item["metadata"].get("labels") or {}
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity") if affinity else ():
        given = affinity.get(kind) or {}
        for term in given.get(PREFERRED) or ():
            _merge(term.get("podAffinityTerm") or {}, labels)
        for term in given.get(TERMS) or ():
            _merge(term, labels)
    for constraint in spec.get("topologySpreadConstraints") or ():
        if "matchLabelKeys" in constraint:
            _merge(constraint, labels)


def _merge(term: Object, labels: Object) -> None:
    selector = term.get("labelSelector")
    if selector is None:  # which selects nothing, whatever is added
        return
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field) or ():
            if key in labels:
                found = {"key": key, "operator": operator, "values": [labels[key]]}
                selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), found]
