"""RoleCluster: an API server with roles, asked by whoever is named."""

import json
from typing import Any

from stower.api.requests import Request
from stower.api.server import Api
from stower.api.users import AUTHENTICATED, UserInfo
from stower.api.watches import Watch
from stower.apiserver.tables import load_registry

NOW_NS = 1_800_000_000 * 10**9
RBAC = "/apis/rbac.authorization.k8s.io/v1"
Object = dict[str, Any]


class RoleCluster:
    """An API server with roles."""

    def __init__(self) -> None:
        self.api = Api(load_registry("1.36"), secret="s", by_roles=True)
        self.now_ns = NOW_NS
        self.api.bootstrap(NOW_NS)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        user: str = "",
        groups: tuple[str, ...] = (),
        content_type: str = "application/json",
        impersonation: tuple[tuple[str, str], ...] = (),
    ) -> tuple[int, Any]:
        """Returns status and JSON of the answer. Without a user, the administrator asks."""
        path, _, query = path.partition("?")
        pairs = tuple(tuple(p.partition("=")[::2]) for p in query.split("&") if p)
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(method, path, self.now_ns, pairs, data, content_type)  # type: ignore[arg-type]
        request.impersonation = impersonation
        if user:
            request.user = UserInfo(user, (*groups, AUTHENTICATED))
        answer = self.api.handle(request)
        if isinstance(answer, Watch):
            return 200, None
        return answer.status, json.loads(answer.body) if answer.body[:1] == b"{" else answer.body

    def bind(self, kind: str, role: str, subject: Object, namespace: str = "") -> None:
        """Give somebody a role."""
        where = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else (
            f"{RBAC}/clusterrolebindings")  # fmt: skip
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}
        body = {"metadata": {"generateName": "b-"}, "roleRef": ref, "subjects": [subject]}
        code, told = self.ask("POST", where, body)
        assert 201 == code, told

    def role(self, name: str, rules: list[Object], namespace: str = "", **more: Any) -> None:
        """A role."""
        where = f"{RBAC}/namespaces/{namespace}/roles" if namespace else f"{RBAC}/clusterroles"
        body = {"metadata": {"name": name, **more.pop("metadata", {})}, "rules": rules, **more}
        code, told = self.ask("POST", where, body)
        assert 201 == code, told


JO: Object = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jo"}
READ_PODS: Object = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
PODS = "/api/v1/namespaces/default/pods"
