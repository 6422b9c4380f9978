"""Authorizes requests by roles and their bindings (rbac.authorization.k8s.io).

A request is allowed if a role that is bound to its user, or to a group of its user, has a rule that
covers the request; every other request is forbidden. Escalation is not checked: a user who may
write roles and bindings can grant more rights than the user has.

Source: plugin/pkg/auth/authorizer/rbac, plugin/pkg/auth/authorizer/rbac/bootstrappolicy, 1.36.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from stower.api.attributes import Attributes
from stower.api.errors import ApiError, forbidden
from stower.api.store import Store
from stower.model.selectors import LabelSelector

Object = dict[str, Any]
GROUP: Final = "rbac.authorization.k8s.io"
MASTERS: Final = "system:masters"
EVERYTHING: Final = "*"
ACCOUNT: Final = "system:serviceaccount:"


class Rule(NamedTuple):
    """What one rule of a role allows. `paths`: of what is no resource."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...]
    paths: tuple[str, ...]

    def allows(self, asked: Attributes) -> bool:
        """Whether it covers this."""
        if EVERYTHING not in self.verbs and asked.verb not in self.verbs:
            return False
        if asked.path:
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

    def is_allowed(self, user: str, groups: Iterable[str], asked: Attributes) -> bool:
        """Whether it is allowed."""
        groups = tuple(groups)
        if MASTERS in groups:
            return True
        who = {("User", user), *(("Group", group) for group in groups)}
        for bound in self._read():
            if bound.namespace not in ("", asked.namespace) or who.isdisjoint(bound.subjects):
                continue
            if any(rule.allows(asked) for rule in bound.rules):
                return True
        return False

    def check(self, user: str, groups: Iterable[str], asked: Attributes) -> None:
        """Raises ApiError 403 where it is not."""
        if self.is_allowed(user, groups, asked):
            return
        if asked.path:
            text = f'forbidden: User "{user}" cannot {asked.verb} path "{asked.path}"'
            raise ApiError(403, "Forbidden", text)
        where = "at the cluster scope"
        if asked.namespace:
            where = f'in the namespace "{asked.namespace}"'
        why = (
            f'User "{user}" cannot {asked.verb} resource "{asked.full_resource}" in API group '
            f'"{asked.group}" {where}'
        )
        raise forbidden(asked.group, asked.resource, asked.name, why)

    def rules_of(self, user: str, groups: Iterable[str], namespace: str) -> list[Rule]:
        """All rules that speak for somebody in a namespace."""
        who = {("User", user), *(("Group", group) for group in groups)}
        return [
            rule
            for bound in self._read()
            if bound.namespace in ("", namespace) and not who.isdisjoint(bound.subjects)
            for rule in bound.rules
        ]

    def _read(self) -> list[_BoundRole]:
        stamp = tuple((len(c.records), len(c.log), c.start) for c in self._known.values())
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


def _subjects(given: Iterable[Object], namespace: str) -> Iterator[tuple[str, str]]:
    for one in given:
        if one.get("kind") == "ServiceAccount":
            yield "User", f"{ACCOUNT}{one.get('namespace') or namespace}:{one['name']}"
        elif one.get("kind") in ("User", "Group"):
            yield one["kind"], one["name"]


def _rules(role: Object, cluster: dict[str, Object]) -> Iterator[Rule]:
    """Its own, and those of the roles that it aggregates."""
    for rule in role.get("rules") or ():
        yield Rule(*(tuple(rule.get(name) or ()) for name in (
            "verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")))  # fmt: skip
    for given in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        selector = msgspec.convert(given, LabelSelector)
        for other in cluster.values():
            labels = other["metadata"].get("labels") or {}
            if other is not role and selector.matches(labels):
                yield from _rules({**other, "aggregationRule": None}, cluster)


def _role(name: str, *rules: Object) -> Object:
    return {"kind": "ClusterRole", "metadata": {"name": name}, "rules": [*rules]}


def _rule(verbs: str, groups: str, resources: str) -> Object:
    return {"verbs": verbs.split(), "apiGroups": ["" if g == "core" else g for g in groups.split()],
            "resources": resources.split()}  # fmt: skip


def _binding(role: str, *subjects: str) -> Object:
    return {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": name} for name in subjects],
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
        _rule(f"patch update {_READ}", "core", "persistentvolumeclaims persistentvolumes"),
        _rule("create", "authentication.k8s.io", "tokenreviews"),
        _rule("create", "authorization.k8s.io", "subjectaccessreviews"),
        _rule(_READ, "storage.k8s.io", "csinodes csidrivers csistoragecapacities storageclasses"),
        _rule(f"patch update {_READ}", "resource.k8s.io", "resourceclaims"),
        _rule("patch update", "resource.k8s.io", "resourceclaims/status resourceclaims/binding"),
        _rule(_READ, "resource.k8s.io", "deviceclasses resourceslices devicetaintrules"),
    ),
    _binding("cluster-admin", MASTERS),
    _binding("system:discovery", "system:authenticated"),
    _binding("system:basic-user", "system:authenticated"),
)  # fmt: skip
