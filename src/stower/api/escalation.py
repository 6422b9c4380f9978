"""Refuses roles and bindings that would grant rights which their writer does not have.

A writer may grant what it holds itself in the namespace of the role, or what its roles let it
`escalate` (roles) or `bind` (bindings). Source: pkg/registry/rbac, Kubernetes 1.36.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from stower.api.calls import Call
from stower.api.errors import INVALID, FieldError, go_quote, not_found
from stower.api.rbac import EVERYTHING, GROUP, Rule, read_rules
from stower.api.request_info import RequestInfo
from stower.api.users import MASTERS

Object = dict[str, Any]
FULL_AUTHORITY: Final = (
    Rule((EVERYTHING,), (EVERYTHING,), (EVERYTHING,), (), ()),
    Rule((EVERYTHING,), (), (), (), (EVERYTHING,)),
)
SINGLES_MAX: Final = 10_000  # verbs times groups times resources times names of a role
MISSING_MAX: Final = 100  # that an error tells
# Changes of these alone give nobody anything.
GARBAGE_FIELDS: Final = ("finalizers", "ownerReferences", "managedFields", "resourceVersion",
                         "generation")  # fmt: skip


def check_new_role(call: Call, item: Object) -> None:
    """Checks a Role or ClusterRole that is created. Raises ApiError 403."""
    if _may(call, "escalate", call.resource.plural, call.request.info.name):
        return
    _check_granted(call, item, read_rules(item))
    if _is_aggregated(item):
        _check_granted(call, item, FULL_AUTHORITY)


def check_changed_role(call: Call, new: Object, old: Object) -> None:
    """Checks a Role or ClusterRole that is changed. Raises ApiError 403."""
    if not _is_only_garbage(new, old):
        if _is_aggregated(old) and not _is_aggregated(new):
            new = {**new, "aggregationRule": old["aggregationRule"]}
        check_new_role(call, new)


def check_new_binding(call: Call, item: Object) -> None:
    """Checks a RoleBinding or ClusterRoleBinding that is created. Raises ApiError 403 or 404."""
    reference = item["roleRef"]
    kind, name = reference.get("kind"), reference.get("name", "")
    is_cluster_role = kind == "ClusterRole"
    plural = "clusterroles" if is_cluster_role else "roles"
    if _may(call, "bind", plural, name):
        return
    key = name if is_cluster_role else f"{call.namespace}/{name}"
    record = call.context.store.collection((GROUP, plural)).records.get(key)
    if record is None:
        raise not_found(GROUP, plural, name)
    assert call.context.rbac is not None
    _check_granted(call, item, call.context.rbac.rules_of_role(record.decode()))


def check_changed_binding(call: Call, new: Object, old: Object) -> None:
    """Checks a RoleBinding or ClusterRoleBinding that is changed. Raises ApiError 403 or 404."""
    if not _is_only_garbage(new, old):
        check_new_binding(call, new)


def role_reference_errors(call: Call, new: Object, old: Object) -> list[FieldError]:
    """Returns an error if a binding is to refer to another role than before."""
    if new["roleRef"] == old["roleRef"]:
        return []
    return [FieldError(INVALID, "roleRef", new["roleRef"], "cannot change roleRef")]


def _may(call: Call, verb: str, plural: str, name: str) -> bool:
    """Whether the writer need not hold what it grants."""
    rbac, user = call.context.rbac, call.request.user
    if rbac is None or MASTERS in user.groups:
        return True
    asked = RequestInfo(verb, GROUP, "*", plural, "", call.namespace, name)
    return rbac.is_allowed(user, asked)


def _is_aggregated(role: Object) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _is_only_garbage(new: Object, old: Object) -> bool:
    """Whether nothing changed but what garbage collection reads."""

    def rest(item: Object) -> Object:
        meta = {k: v for k, v in item["metadata"].items() if k not in GARBAGE_FIELDS}
        return {**item, "metadata": meta}

    return rest(new) == rest(old)


def _check_granted(call: Call, item: Object, wanted: Sequence[Rule]) -> None:
    rbac, user = call.context.rbac, call.request.user
    assert rbac is not None
    held = rbac.rules_of(user, call.namespace)
    missing: list[Rule] = []
    singles = (one for rule in wanted for one in _single_rules(rule))
    for count, one in enumerate(singles):
        if count >= SINGLES_MAX:
            raise call.forbidden(
                str(item["metadata"].get("name") or ""),
                f"its rules allow more than {SINGLES_MAX:,} single things, which are too many to "
                "compare with what the user may do; divide it",
            )
        if not any(_covers(owner, one) for owner in held):
            missing.append(one)
            if len(missing) >= MISSING_MAX:
                break
    if not missing:
        return
    groups = " ".join(map(go_quote, user.groups))
    listed = "\n".join(sorted(_describe(missing)))
    why = (
        f"user {go_quote(user.name)} (groups=[{groups}]) is attempting to grant RBAC permissions "
        f"not currently held:\n{listed}"
    )
    raise call.forbidden(str(item["metadata"].get("name") or ""), why)


def _single_rules(rule: Rule) -> Iterator[Rule]:
    """Yields rules of one verb on one resource, name or path, which together are the rule."""
    for verb in rule.verbs:
        for group in rule.groups:
            for resource in rule.resources:
                for name in rule.names or ("",):
                    yield Rule((verb,), (group,), (resource,), (name,) if name else (), ())
        for path in rule.paths:
            yield Rule((verb,), (), (), (), (path,))


def _covers(owner: Rule, one: Rule) -> bool:
    """Whether a rule allows all that a single rule allows."""
    if EVERYTHING not in owner.verbs and one.verbs[0] not in owner.verbs:
        return False
    if one.paths:
        path = one.paths[0]
        return any(path == p or (p.endswith("*") and path.startswith(p[:-1])) for p in owner.paths)
    if EVERYTHING not in owner.groups and one.groups[0] not in owner.groups:
        return False
    if owner.names and (not one.names or one.names[0] not in owner.names):
        return False
    resource = one.resources[0]
    _, slash, subresource = resource.partition("/")
    wanted = {EVERYTHING, resource, *([f"*/{subresource}"] if slash else ())}
    return not wanted.isdisjoint(owner.resources)


def _describe(missing: Sequence[Rule]) -> Iterator[str]:
    """Yields the rules, those that differ in their verbs alone as one."""
    verbs: dict[Rule, list[str]] = {}
    for rule in missing:
        verbs.setdefault(rule._replace(verbs=()), []).append(rule.verbs[0])
    for rule, together in verbs.items():
        parts = (("NonResourceURLs", rule.paths), ("APIGroups", rule.groups),
                 ("Resources", rule.resources), ("ResourceNames", rule.names),
                 ("Verbs", tuple(dict.fromkeys(together))))  # fmt: skip
        shown = [f"{name}:[{' '.join(map(go_quote, values))}]".replace('" "', '", "')
                 for name, values in parts if values]  # fmt: skip
        yield "{" + ", ".join(shown) + "}"
