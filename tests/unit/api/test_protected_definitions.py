"""CustomResourceDefinitions change nothing that the server has by itself."""

from typing import Any

import pytest

from stower.api.server import Api
from stower.apiserver.tables import load_registry
from tests.unit.api.role_cluster import JO, RBAC, Object, RoleCluster

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPROVED = {"annotations": {"api-approved.kubernetes.io": "https://example.com"}}


def definition(plural: str, group: str, kind: str, **more: Any) -> Object:
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **more}
    return {
        "metadata": {"name": f"{plural}.{group}", **APPROVED},
        "spec": {
            "group": group, "scope": "Cluster", "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True,
                          "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("plural", "group", "kind"),
    [
        ("clusterrolebindings", "rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("leases", "coordination.k8s.io", "Lease"),
        ("tokenreviews", "authentication.k8s.io", "TokenReview"),
        ("customresourcedefinitions", "apiextensions.k8s.io", "CustomResourceDefinition"),
    ],
)
def test_a_resource_of_the_server_cannot_be_defined(plural: str, group: str, kind: str) -> None:
    cluster = RoleCluster()
    before = cluster.ask("GET", f"/apis/{group}/v1")
    code, answer = cluster.ask("POST", DEFINITIONS, definition(plural, group, kind))
    assert (422, True) == (code, "is a resource of this server itself" in answer["message"])
    assert before == cluster.ask("GET", f"/apis/{group}/v1")


def test_a_stored_definition_of_one_changes_nothing() -> None:
    """As an earlier server may have accepted it."""
    cluster = RoleCluster()
    item = definition("leases", "coordination.k8s.io", "Lease")
    item["metadata"] |= {"uid": "u"}
    collection = cluster.api.store.collection(("apiextensions.k8s.io", "customresourcedefinitions"))
    cluster.api.store.put(collection, "leases.coordination.k8s.io", item)
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert 201 == cluster.ask("POST", leases, {"metadata": {"name": "kept"}})[0]
    cluster.api.restore()
    assert 200 == cluster.ask("GET", f"{leases}/kept")[0]
    assert 200 == cluster.ask("DELETE", f"{DEFINITIONS}/leases.coordination.k8s.io")[0]
    assert 200 == cluster.ask("GET", f"{leases}/kept")[0]


def test_groups_of_kubernetes_need_an_approval() -> None:
    body = definition("things", "new.k8s.io", "Thing")
    cluster = RoleCluster()
    code, answer = cluster.ask("POST", DEFINITIONS, {**body, "metadata": {
        "name": "things.new.k8s.io"
    }})  # fmt: skip
    assert (422, True) == (code, "protected groups must have approval" in answer["message"])
    assert 201 == cluster.ask("POST", DEFINITIONS, body)[0]
    other = definition("things", "example.com", "Thing")
    other["metadata"].pop("annotations")
    assert 201 == cluster.ask("POST", DEFINITIONS, other)[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [("items", "x"), ("items", [{"type": "string"}]), ("additionalProperties", "x")],
)
def test_a_schema_whose_parts_are_none_is_refused_and_not_kept(field: str, value: Any) -> None:
    inner = {"type": "array" if field == "items" else "object", field: value}
    body = definition("things", "example.com", "Thing", properties={"a": inner})
    cluster = RoleCluster()
    assert cluster.ask("POST", DEFINITIONS, body)[0] in (400, 422)
    assert 404 == cluster.ask("GET", f"{DEFINITIONS}/things.example.com")[0]


def test_a_binding_that_was_undone_is_in_force_no_more() -> None:
    api = Api(load_registry("1.36"), secret="s", by_roles=True)
    cluster = RoleCluster()
    cluster.api = api
    api.bootstrap(cluster.now_ns)
    api.store.durable = True

    def bind(name: str) -> None:
        body = {
            "metadata": {"name": name},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{**JO, "name": name}],
        }
        assert 201 == cluster.ask("POST", f"{RBAC}/clusterrolebindings", body)[0]

    bind("eve")
    assert 200 == cluster.ask("GET", "/api/v1/secrets", user="eve")[0]
    api.store.undo([])
    bind("moe")
    assert 403 == cluster.ask("GET", "/api/v1/secrets", user="eve")[0]
    assert 200 == cluster.ask("GET", "/api/v1/secrets", user="moe")[0]
