"""Authorizes requests by roles and their bindings (rbac.authorization.k8s.io).

A request is allowed if a role that is bound to its user, or to a group of its user, has a rule that
covers the request; every other request is forbidden.

Source: plugin/pkg/auth/authorizer/rbac, plugin/pkg/auth/authorizer/rbac/bootstrappolicy, 1.36.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from stower.api.errors import ApiError, forbidden
from stower.api.request_info import RequestInfo
from stower.api.store import Store
from stower.api.users import ACCOUNT_PREFIX, AUTHENTICATED, MASTERS, UserInfo
from stower.model.selectors import LabelSelector

Object = dict[str, Any]
GROUP: Final = "rbac.authorization.k8s.io"
EVERYTHING: Final = "*"


class Rule(NamedTuple):
    """What one rule of a role allows. `paths`: of what is no resource."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...]
    paths: tuple[str, ...]

    def allows(self, asked: RequestInfo) -> bool:
        """Whether it covers this."""
        if EVERYTHING not in self.verbs and asked.verb not in self.verbs:
            return False
        if not asked.is_resource:
            return any(_covers(path, asked.path) for path in self.paths)
        if EVERYTHING not in self.groups and asked.group not in self.groups:
            return False
        if self.names and asked.name not in self.names:
            return False
        wanted = {EVERYTHING, asked.full_resource}
        if asked.subresource:
            wanted.add(f"*/{asked.subresource}")
        return not wanted.isdisjoint(self.resources)


def _covers(path: str, asked: str) -> bool:
    if path.endswith("*"):
        return asked.startswith(path[:-1])
    return path == asked


class _BoundRole(NamedTuple):
    """A role that is bound: to whom, in which namespace ("" for all), and what it allows."""

    subjects: frozenset[tuple[str, str]]  # (User or Group, name)
    namespace: str
    rules: tuple[Rule, ...]


class Rbac:
    """Reads roles and bindings from a store, once for each change of them."""

    def __init__(self, store: Store) -> None:
        kinds = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
        self._known = {kind: store.collection((GROUP, kind)) for kind in kinds}
        self._stamp: tuple[Any, ...] = ()
        self._bound: list[_BoundRole] = []

    def is_allowed(self, user: UserInfo, asked: RequestInfo) -> bool:
        """Returns whether the user's roles allow it."""
        if MASTERS in user.groups:
            return True
        who = _subjects_of(user)
        for bound in self._read():
            if bound.namespace not in ("", asked.namespace) or who.isdisjoint(bound.subjects):
                continue
            if any(rule.allows(asked) for rule in bound.rules):
                return True
        return False

    def check(self, user: UserInfo, asked: RequestInfo) -> None:
        """Raises ApiError 403 where the user's roles do not allow it."""
        if self.is_allowed(user, asked):
            return
        if not asked.is_resource:
            text = f'forbidden: User "{user.name}" cannot {asked.verb} path "{asked.path}"'
            raise ApiError(403, "Forbidden", text)
        where = "at the cluster scope"
        if asked.namespace:
            where = f'in the namespace "{asked.namespace}"'
        why = (
            f'User "{user.name}" cannot {asked.verb} resource "{asked.full_resource}" in API group '
            f'"{asked.group}" {where}'
        )
        raise forbidden(asked.group, asked.resource, asked.name, why)

    def rules_of(self, user: UserInfo, namespace: str) -> list[Rule]:
        """Returns the rules that apply to a user in a namespace."""
        who = _subjects_of(user)
        return [
            rule
            for bound in self._read()
            if bound.namespace in ("", namespace) and not who.isdisjoint(bound.subjects)
            for rule in bound.rules
        ]

    def rules_of_role(self, role: Object) -> list[Rule]:
        """Returns the rules of a Role or ClusterRole, with those that it aggregates."""
        cluster = {key: r.decode() for key, r in self._known["clusterroles"].records.items()}
        return [*_rules(role, cluster)]

    def _read(self) -> list[_BoundRole]:
        stamp = tuple(collection.changes for collection in self._known.values())
        if stamp != self._stamp:
            self._stamp, self._bound = stamp, [*self._bindings()]
        return self._bound

    def _bindings(self) -> Iterator[_BoundRole]:
        roles = {key: r.decode() for key, r in self._known["roles"].records.items()}
        cluster = {key: r.decode() for key, r in self._known["clusterroles"].records.items()}
        for kind in ("clusterrolebindings", "rolebindings"):
            for record in self._known[kind].records.values():
                item = record.decode()
                namespace = item["metadata"].get("namespace") or ""
                ref = item.get("roleRef") or {}
                key = ref.get("name", "")
                if ref.get("kind") == "ClusterRole":
                    role = cluster.get(key)
                else:
                    role = roles.get(f"{namespace}/{key}")
                if role is not None:
                    subjects = frozenset(_subjects(item.get("subjects") or (), namespace))
                    yield _BoundRole(subjects, namespace, tuple(_rules(role, cluster)))


def _subjects_of(user: UserInfo) -> set[tuple[str, str]]:
    return {("User", user.name), *(("Group", group) for group in user.groups)}


def _subjects(given: Iterable[Object], namespace: str) -> Iterator[tuple[str, str]]:
    for one in given:
        if one.get("kind") == "ServiceAccount":
            yield "User", f"{ACCOUNT_PREFIX}{one.get('namespace') or namespace}:{one['name']}"
        elif one.get("kind") in ("User", "Group"):
            yield one["kind"], one["name"]


def read_rules(role: Object) -> list[Rule]:
    """Returns the rules that a Role or ClusterRole has itself."""
    names = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
    return [
        Rule(*(tuple(rule.get(name) or ()) for name in names)) for rule in role.get("rules") or ()
    ]


def _rules(
    role: Object, cluster: dict[str, Object], seen: frozenset[str] = frozenset()
) -> Iterator[Rule]:
    """Yields the rules of a role and of those that it aggregates."""
    yield from read_rules(role)
    seen |= {role["metadata"].get("name") or ""}
    for given in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        selector = msgspec.convert(given, LabelSelector)
        for name, other in cluster.items():
            if name not in seen and selector.matches(other["metadata"].get("labels") or {}):
                yield from _rules(other, cluster, seen)


def _role(name: str, *rules: Object) -> Object:
    return {"kind": "ClusterRole", "metadata": {"name": name}, "rules": [*rules]}


def _rule(verbs: str, groups: str, resources: str) -> Object:
    return {"verbs": verbs.split(), "apiGroups": ["" if g == "core" else g for g in groups.split()],
            "resources": resources.split()}  # fmt: skip


def _binding(role: str, *subjects: str, kind: str = "Group") -> Object:
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": kind, "name": name} for name in subjects],
    }


_DISCOVERY: Final = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi",
                     "/openapi/*", "/readyz", "/version", "/version/"]  # fmt: skip
_READ: Final = "get list watch"
# What every cluster has, as far as it is of use here. Source: bootstrappolicy/policy.go.
BOOTSTRAP: Final = (
    _role("cluster-admin", _rule("*", "*", "*"), {"verbs": ["*"], "nonResourceURLs": ["*"]}),
    _role("system:discovery", {"verbs": ["get"], "nonResourceURLs": _DISCOVERY}),
    _role(
        "system:basic-user",
        _rule("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
        _rule("create", "authentication.k8s.io", "selfsubjectreviews"),
    ),
    _role(
        "system:auth-delegator",
        _rule("create", "authentication.k8s.io", "tokenreviews"),
        _rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    ),
    _role(
        "system:kube-scheduler",
        _rule("create patch update", "core events.k8s.io", "events"),
        _rule("create", "coordination.k8s.io", "leases"),
        {**_rule("get list update watch", "coordination.k8s.io", "leases"),
         "resourceNames": ["kube-scheduler"]},
        _rule(_READ, "core", "nodes namespaces"),
        _rule(f"delete {_READ}", "core", "pods"),
        _rule("create", "core", "bindings pods/binding"),
        _rule("patch update", "core", "pods/status"),
        _rule(_READ, "core", "replicationcontrollers services"),
        _rule(_READ, "apps extensions", "replicasets"),
        _rule(_READ, "apps", "statefulsets"),
        _rule(_READ, "policy", "poddisruptionbudgets"),
        _rule(_READ, "core", "persistentvolumeclaims persistentvolumes"),
        _rule("create", "authentication.k8s.io", "tokenreviews"),
        _rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        _rule(_READ, "storage.k8s.io", "csinodes csidrivers csistoragecapacities"),
        _rule(_READ, "storage.k8s.io", "volumeattachments"),
        _rule(f"create delete patch update {_READ}", "resource.k8s.io", "resourceclaims"),
        _rule("patch update", "resource.k8s.io", "resourceclaims/status resourceclaims/binding"),
        _rule(_READ, "resource.k8s.io", "deviceclasses resourceslices devicetaintrules"),
        _rule(_READ, "scheduling.k8s.io", "podgroups"),
        _rule("patch update", "scheduling.k8s.io", "podgroups/status"),
    ),
    _role(
        "system:volume-scheduler",
        _rule(f"patch update {_READ}", "core", "persistentvolumeclaims persistentvolumes"),
        _rule(_READ, "storage.k8s.io", "storageclasses"),
    ),
    _binding("cluster-admin", MASTERS),
    _binding("system:discovery", AUTHENTICATED),
    _binding("system:basic-user", AUTHENTICATED),
    _binding("system:kube-scheduler", "system:kube-scheduler", kind="User"),
    _binding("system:volume-scheduler", "system:kube-scheduler", kind="User"),
)  # fmt: skip
