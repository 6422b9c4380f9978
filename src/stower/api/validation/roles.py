"""Checks roles and bindings (rbac.authorization.k8s.io/v1).

Source: pkg/apis/rbac/validation/validation.go, Kubernetes 1.36.
"""

from typing import Any, Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation.rules import BAD_OPERATOR, Faults, invalid, required
from stower.model.names import path_segment_faults, subdomain_faults

Object = dict[str, Any]
GROUP: Final = "rbac.authorization.k8s.io"
SUBJECTS: Final = ("ServiceAccount", "User", "Group")
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


def role(item: Object) -> Faults:
    """Returns what is wrong with a Role."""
    return _rules(item, is_namespaced=True)


def cluster_role(item: Object) -> Faults:
    """Returns what is wrong with a ClusterRole."""
    found = _rules(item, is_namespaced=False)
    rule = item.get("aggregationRule")
    if rule is None:
        return found
    selectors = rule.get("clusterRoleSelectors") or ()
    where = "aggregationRule.clusterRoleSelectors"
    if not selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        found.append(required(where, text))
    for i, selector in enumerate(selectors):
        for j, one in enumerate(selector.get("matchExpressions") or ()):
            if one.get("operator") not in OPERATORS:
                at = f"{where}[{i}].matchExpressions[{j}].operator"
                found.append(invalid(at, one.get("operator", ""), BAD_OPERATOR))
    return found


def _rules(item: Object, is_namespaced: bool) -> Faults:
    found: Faults = []
    for i, rule in enumerate(item.get("rules") or ()):
        path = f"rules[{i}]"
        if not rule.get("verbs"):
            found.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        urls = rule.get("nonResourceURLs")
        if urls:
            parts = ("apiGroups", "resources", "resourceNames")
            if is_namespaced:
                text = "namespaced rules cannot apply to non-resource URLs"
                found.append(invalid(f"{path}.nonResourceURLs", urls, text))
            elif any(rule.get(part) for part in parts):
                text = "rules cannot apply to both regular resources and non-resource URLs"
                found.append(invalid(f"{path}.nonResourceURLs", urls, text))
            continue
        if not rule.get("apiGroups"):
            text = "resource rules must supply at least one api group"
            found.append(required(f"{path}.apiGroups", text))
        if not rule.get("resources"):
            text = "resource rules must supply at least one resource"
            found.append(required(f"{path}.resources", text))
    return found


def role_binding(item: Object) -> Faults:
    """Returns what is wrong with a RoleBinding."""
    return _binding(item, ("Role", "ClusterRole"))


def cluster_role_binding(item: Object) -> Faults:
    """Returns what is wrong with a ClusterRoleBinding."""
    return _binding(item, ("ClusterRole",))


def _binding(item: Object, kinds: tuple[str, ...]) -> Faults:
    reference = item.get("roleRef") or {}
    found: Faults = []
    if reference.get("apiGroup") != GROUP:
        found.append(unsupported("roleRef.apiGroup", reference.get("apiGroup", ""), (GROUP,)))
    if reference.get("kind") not in kinds:
        found.append(unsupported("roleRef.kind", reference.get("kind", ""), kinds))
    name = reference.get("name") or ""
    if not name:
        found.append(required("roleRef.name"))
    found += [invalid("roleRef.name", name, text) for text in path_segment_faults(name)]
    for i, subject in enumerate(item.get("subjects") or ()):
        found += _subject(subject or {}, f"subjects[{i}]", is_namespaced="Role" in kinds)
    return found


def _subject(subject: Object, path: str, is_namespaced: bool) -> list[FieldError]:
    found: list[FieldError] = []
    name, group, kind = (subject.get(field) or "" for field in ("name", "apiGroup", "kind"))
    if not name:
        found.append(required(f"{path}.name"))
    if kind not in SUBJECTS:
        return [*found, unsupported(f"{path}.kind", kind, SUBJECTS)]
    wanted = "" if kind == "ServiceAccount" else GROUP
    if group != wanted:
        found.append(unsupported(f"{path}.apiGroup", group, (wanted,)))
    if kind == "ServiceAccount":
        found += [invalid(f"{path}.name", name, text) for text in subdomain_faults(name) if name]
        if not is_namespaced and not subject.get("namespace"):
            found.append(required(f"{path}.namespace"))
    return found
