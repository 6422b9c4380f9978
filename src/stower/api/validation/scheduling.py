"""Validates scheduling fields: affinity, tolerations, taints, topology spread, gates, claims."""

import re
from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError, go_quote, unsupported
from stower.api.validation.go_values import go_value
from stower.api.validation.rules import (
    BAD_OPERATOR,
    NONE_ALLOWED,
    POSITIVE,
    WHOLE,
    Allowed,
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    label_key,
    label_selector,
    named,
    required,
)
from stower.model import names
from stower.model.integers import parse_signed

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
SPREAD_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
INCLUSION: Final = ("Honor", "Ignore")
REQUIRED_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_TERMS: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def affinity(
    path: str, given: Object | None, allowed: Allowed = NONE_ALLOWED
) -> Iterator[FieldError]:
    """All of spec.affinity."""
    if given is None:
        return
    node = given.get("nodeAffinity")
    if node is not None:
        at = f"{path}.nodeAffinity"
        if REQUIRED_TERMS in node:
            terms = node[REQUIRED_TERMS]
            yield from node_selector(f"{at}.{REQUIRED_TERMS}", terms, allowed.node_values)
        for i, term in enumerate(node.get(PREFERRED_TERMS) or ()):
            where = f"{at}.{PREFERRED_TERMS}[{i}]"
            yield from _weight(f"{where}.weight", term.get("weight", 0))
            yield from node_term(f"{where}.preference", term.get("preference") or {}, True)
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = given.get(kind)
        if terms is None:
            continue
        for i, term in enumerate(terms.get(REQUIRED_TERMS) or ()):
            yield from _pod_term(f"{path}.{kind}.{REQUIRED_TERMS}[{i}]", term, allowed)
        for i, term in enumerate(terms.get(PREFERRED_TERMS) or ()):
            where = f"{path}.{kind}.{PREFERRED_TERMS}[{i}]"
            yield from _weight(f"{where}.weight", term.get("weight", 0))
            own = term.get("podAffinityTerm") or {}
            yield from _pod_term(f"{where}.podAffinityTerm", own, allowed)


def _weight(path: str, value: int) -> Faults:
    return [] if 1 <= value <= 100 else [invalid(path, value, "must be in the range 1-100")]


def node_selector(path: str, given: Object, any_value: bool = False) -> Iterator[FieldError]:
    """A NodeSelector. `any_value`: values that no label can have are no faults."""
    terms = given.get("nodeSelectorTerms")
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for i, term in enumerate(terms or ()):
        yield from node_term(f"{path}.nodeSelectorTerms[{i}]", term, any_value)


def node_term(path: str, term: Object, any_value: bool = False) -> Iterator[FieldError]:
    """One term of a NodeSelector."""
    for i, requirement in enumerate(term.get("matchExpressions") or ()):
        yield from _expression(f"{path}.matchExpressions[{i}]", requirement, any_value)
    for i, requirement in enumerate(term.get("matchFields") or ()):
        yield from _field(f"{path}.matchFields[{i}]", requirement)


def _expression(path: str, given: Object, any_value: bool) -> Iterator[FieldError]:
    operator, values = given.get("operator", ""), given.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            yield required(f"{path}.values", text)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden(f"{path}.values", text)
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield required(f"{path}.values", text)
    else:
        yield invalid(f"{path}.operator", operator, BAD_OPERATOR)
    yield from label_key(f"{path}.key", given.get("key", ""))
    for i, value in enumerate(() if any_value else values):
        for fault in names.label_value_faults(value):
            yield invalid(f"{path}.values[{i}]", value, fault)


def _field(path: str, given: Object) -> Iterator[FieldError]:
    operator, values = given.get("operator", ""), given.get("values") or ()
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            text = (
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            )
            yield required(f"{path}.values", text)
    else:
        yield invalid(f"{path}.operator", operator, BAD_OPERATOR)
    if given.get("key") != "metadata.name":
        yield invalid(f"{path}.key", given.get("key", ""), "not a valid field selector key")
        return
    for i, value in enumerate(values):
        yield from named(f"{path}.values[{i}]", value, names.subdomain_faults)


def _pod_term(path: str, term: Object, allowed: Allowed) -> Iterator[FieldError]:
    yield from pod_term_selectors(path, term, allowed.selector_values)
    for name in term.get("namespaces") or ():
        yield from named(f"{path}.namespace", name, names.label_faults)
    keys, other = term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or []
    yield from match_label_keys(path, keys, other, term.get("labelSelector"))
    key = term.get("topologyKey", "")
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from label_key(f"{path}.topologyKey", key)


def pod_term_selectors(path: str, term: Object, any_value: bool = False) -> Iterator[FieldError]:
    """The selectors of a term of pod affinity."""
    for field in ("labelSelector", "namespaceSelector"):
        yield from label_selector(f"{path}.{field}", term.get(field), any_value)


def match_label_keys(
    path: str, keys: list[str], other: list[str], selector: Object | None
) -> Iterator[FieldError]:
    """Keys whose values come from the pod (and `other`, whose values must differ): well-formed,
    and in one place only.

    A key that was merged into the selector when the pod was made stands there once. Source:
    ValidateMatchLabelKeysAndMismatchLabelKeys; the path without the field's name is upstream's.
    """
    for name, given in (("matchLabelKeys", keys), ("mismatchLabelKeys", other)):
        if given and selector is None:
            yield forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set")
        for i, key in enumerate(given if selector is not None else ()):
            yield from label_key(f"{path}.{name}[{i}]", key)
    if selector is not None:
        at = {key: i for i, key in enumerate(keys)}
        seen = {*(selector.get("matchLabels") or ())}
        for term in selector.get("matchExpressions") or ():
            key = term.get("key", "")
            if key in at and key in seen:
                text = "exists in both matchLabelKeys and labelSelector"
                yield invalid(f"{path}[{at[key]}]", key, text)
            seen.add(key)
    for i, key in enumerate(keys):
        if key in other:
            text = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(f"{path}.matchLabelKeys[{i}]", key, text)


def unmerged_label_keys(
    path: str, keys: list[str], selector: Object | None
) -> Iterator[FieldError]:
    """The same of a pod that was made when keys were not merged into its selectors."""
    if not keys:
        return
    used: set[str] = set()
    if selector is None:
        yield forbidden(path, "must not be specified when labelSelector is not set")
    else:
        terms = selector.get("matchExpressions") or ()
        used = {*(selector.get("matchLabels") or ()), *(term.get("key", "") for term in terms)}
    for i, key in enumerate(keys):
        yield from label_key(f"{path}[{i}]", key)
        if key in used:
            yield invalid(f"{path}[{i}]", key, "exists in both matchLabelKeys and labelSelector")


DECIMAL: Final = re.compile(r"(0|-?[1-9][0-9]*)\Z")


def _decimal(path: str, value: str) -> Iterator[FieldError]:
    """A number to compare with, as Go writes and reads it."""
    if not value:
        yield invalid(path, value, "must be non-empty")
    elif not DECIMAL.match(value):
        yield invalid(path, value, "must be a valid decimal integer in canonical form")
    quoted = go_quote(value)
    if not re.match(r"[-+]?[0-9]+\Z", value):
        yield invalid(path, value, f"strconv.ParseInt: parsing {quoted}: invalid syntax")
    elif parse_signed(value) is None:
        yield invalid(path, value, f"strconv.ParseInt: parsing {quoted}: value out of range")


def tolerations(path: str, given: Any, comparisons: bool = False) -> Iterator[FieldError]:
    """spec.tolerations; `comparisons`: Lt and Gt are there already (their gate is off)."""
    for i, toleration in enumerate(given or ()):
        at = f"{path}[{i}]"
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        value, effect = toleration.get("value", ""), toleration.get("effect", "")
        if key:
            yield from label_key(f"{at}.key", key)
        elif operator != "Exists":
            text = (
                'operator must be Exists when `key` is empty, which means "match all values and '
                'all keys"'
            )
            yield invalid(f"{at}.operator", operator, text)
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{at}.effect", effect, text)
        if operator in ("Equal", ""):
            faults = names.label_value_faults(value)
            if faults:
                yield invalid(f"{at}.operator", value, ";".join(faults))
        elif operator == "Exists":
            if value:
                text = "value must be empty when `operator` is 'Exists'"
                yield invalid(f"{at}.operator", value, text)
        elif operator in ("Lt", "Gt"):
            if not comparisons:
                yield unsupported(f"{at}.operator", operator, ("Equal", "Exists", "Lt", "Gt"))
            else:
                yield from _decimal(f"{at}.value", value)
        else:
            yield unsupported(f"{at}.operator", operator, ("Equal", "Exists"))
        if effect and effect not in EFFECTS:
            yield unsupported(f"{at}.effect", effect, EFFECTS)


def taints(path: str, given: Any) -> Iterator[FieldError]:
    """spec.taints of a node."""
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(given or ()):
        at = f"{path}[{i}]"
        key, effect, value = taint.get("key", ""), taint.get("effect", ""), taint.get("value", "")
        yield from label_key(f"{at}.key", key)
        faults = names.label_value_faults(value)
        if faults:
            yield invalid(f"{at}.value", value, ";".join(faults))
        if not effect:
            yield required(f"{at}.effect")
        elif effect not in EFFECTS:
            yield unsupported(f"{at}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            shown = {
                "Key": key, "Value": value, "Effect": effect, "TimeAdded": taint.get("timeAdded"),
            }  # fmt: skip
            text = "taints must be unique by key and effect pair"
            yield duplicate(at, shown)._replace(detail=text)
        seen.add((key, effect))


def topology_spread(path: str, given: Any, allowed: Allowed = NONE_ALLOWED) -> Iterator[FieldError]:
    """spec.topologySpreadConstraints."""
    constraints = given or []
    for i, constraint in enumerate(constraints):
        at = f"{path}[{i}]"
        skew, action = constraint.get("maxSkew", 0), constraint.get("whenUnsatisfiable", "")
        key = constraint.get("topologyKey", "")
        if skew <= 0:
            yield invalid(f"{at}.maxSkew", skew, POSITIVE)
        if not key:
            yield required(f"{at}.topologyKey", "can not be empty")
        if action not in SPREAD_ACTIONS:
            yield unsupported(f"{at}.whenUnsatisfiable", action, SPREAD_ACTIONS)
        for other in constraints[i + 1 :]:
            if other.get("topologyKey", "") == key and other.get("whenUnsatisfiable", "") == action:
                yield duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
                break
        domains = constraint.get("minDomains")
        if domains is not None:
            if domains <= 0:
                yield invalid(f"{at}.minDomains", domains, POSITIVE)
            if action != "DoNotSchedule":
                text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                yield invalid(f"{at}.minDomains", domains, text)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if field in constraint and constraint[field] not in INCLUSION:
                yield unsupported(f"{at}.{field}", constraint[field], INCLUSION)
        keys, selector = constraint.get("matchLabelKeys") or [], constraint.get("labelSelector")
        if allowed.spread_keys:
            yield from unmerged_label_keys(f"{at}.matchLabelKeys", keys, selector)
        else:
            yield from match_label_keys(at, keys, [], selector)
        if not allowed.spread_selectors:
            yield from label_selector(f"{at}.labelSelector", selector)


def scheduling_gates(path: str, given: Any) -> Iterator[FieldError]:
    """spec.schedulingGates."""
    seen: set[str] = set()
    for i, gate in enumerate(given or ()):
        name = gate.get("name", "")
        yield from label_key(f"{path}[{i}]", name)
        if name in seen:
            yield duplicate(f"{path}[{i}]", name)
        seen.add(name)


def resource_claims(path: str, given: Any, static: bool = False) -> Iterator[FieldError]:
    """spec.resourceClaims. `static`: the pod is a mirror of one that its kubelet was given."""
    seen: set[str] = set()
    for i, claim in enumerate(given or ()):
        if static:
            yield forbidden(WHOLE, "static pods do not support resource claims")
            continue
        at = f"{path}[{i}]"
        name = claim.get("name", "")
        if not name:
            yield required(f"{at}.name")
        elif name in seen:
            yield duplicate(f"{at}.name", name)
        else:
            yield from named(f"{at}.name", name, names.label_faults)
            seen.add(name)
        sources = [f for f in ("resourceClaimName", "resourceClaimTemplateName") if f in claim]
        if len(sources) == 2:
            text = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            yield invalid(at, go_value("PodResourceClaim", claim), text)
        if not sources:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield invalid(at, go_value("PodResourceClaim", claim), text)
        for field in sources:
            yield from named(f"{at}.{field}", claim[field], names.subdomain_faults)
