"""Roles: who may do what, and how it is said where somebody may not."""

from typing import Any

from stower.api.request_info import RequestInfo
from stower.api.users import UserInfo
from tests.unit.api.role_cluster import JO, PODS, RBAC, READ_PODS, RoleCluster


def test_nobody_may_do_what_no_role_says() -> None:
    cluster = RoleCluster()
    assert (403, "Forbidden") == (
        lambda told: (told[0], told[1]["reason"])
    )(cluster.ask("GET", PODS, user="jo"))  # fmt: skip
    message = cluster.ask("GET", f"{PODS}/a", user="jo")[1]["message"]
    assert message == (
        'pods "a" is forbidden: User "jo" cannot get resource "pods" in API group "" in the '
        'namespace "default"'
    )
    message = cluster.ask("DELETE", "/api/v1/nodes/n", user="jo")[1]["message"]
    assert message.endswith('cannot delete resource "nodes" in API group "" at the cluster scope')
    assert 403 == cluster.ask("GET", "/metrics", user="jo")[0]
    assert 200 == cluster.ask("GET", "/version", user="jo")[0]
    assert 200 == cluster.ask("GET", "/apis/apps/v1", user="jo")[0]
    assert 200 == cluster.ask("GET", PODS)[0], "an administrator may do all"


def test_a_role_in_one_namespace_opens_that_one() -> None:
    cluster = RoleCluster()
    cluster.role("reader", [READ_PODS], "default")
    cluster.bind("Role", "reader", JO, "default")
    assert 200 == cluster.ask("GET", PODS, user="jo")[0]
    assert 200 == cluster.ask("GET", f"{PODS}?watch=1", user="jo")[0]
    assert 403 == cluster.ask("GET", "/api/v1/namespaces/kube-system/pods", user="jo")[0]
    assert 403 == cluster.ask("GET", "/api/v1/pods", user="jo")[0]
    assert 403 == cluster.ask("POST", PODS, {}, user="jo")[0]
    assert 403 == cluster.ask("GET", f"{PODS}/a/status", user="jo")[0], "a subresource is its own"


def test_groups_and_accounts_are_bound_too() -> None:
    cluster = RoleCluster()
    cluster.role("reader", [READ_PODS])
    group = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "readers"}
    cluster.bind("ClusterRole", "reader", group)
    assert 403 == cluster.ask("GET", "/api/v1/pods", user="jo")[0]
    assert 200 == cluster.ask("GET", "/api/v1/pods", user="jo", groups=("readers",))[0]
    account = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    cluster.bind("ClusterRole", "reader", account)
    assert 200 == cluster.ask("GET", "/api/v1/pods", user="system:serviceaccount:default:robot")[0]
    assert 403 == cluster.ask("GET", "/api/v1/pods", user="system:serviceaccount:other:robot")[0]


def test_names_stars_and_paths() -> None:
    cluster = RoleCluster()
    named = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"],
             "resourceNames": ["mine"]}  # fmt: skip
    status = {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["patch"]}
    cluster.role("some", [named, status, {"nonResourceURLs": ["/debug/*"], "verbs": ["get"]}])
    cluster.bind("ClusterRole", "some", JO)
    maps = "/api/v1/namespaces/default/configmaps"
    assert 404 == cluster.ask("GET", f"{maps}/mine", user="jo")[0]
    assert 403 == cluster.ask("GET", f"{maps}/other", user="jo")[0]
    assert 200 == cluster.ask("GET", f"{maps}?fieldSelector=metadata.name=mine", user="jo")[0]
    assert 403 == cluster.ask("GET", maps, user="jo")[0]
    assert 403 != cluster.ask("PATCH", f"{PODS}/a/status", {}, user="jo")[0]
    rbac = cluster.api.rbac
    assert rbac is not None
    jo = UserInfo("jo")
    for verb, path, is_allowed in (
        ("get", "/debug/queue", True), ("post", "/debug/queue", False), ("get", "/debugging", False)
    ):  # fmt: skip
        assert is_allowed == rbac.is_allowed(jo, RequestInfo(verb, path=path, is_resource=False))


def test_roles_are_aggregated_by_labels_and_followed_as_they_change() -> None:
    cluster = RoleCluster()
    aggregated = {"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]}
    cluster.role("view", [], aggregationRule=aggregated)
    cluster.bind("ClusterRole", "view", JO)
    assert 403 == cluster.ask("GET", "/api/v1/pods", user="jo")[0]
    cluster.role("pods", [READ_PODS], metadata={"labels": {"to": "view"}})
    assert 200 == cluster.ask("GET", "/api/v1/pods", user="jo")[0]
    assert 200 == cluster.ask("DELETE", f"{RBAC}/clusterroles/pods")[0]
    assert 403 == cluster.ask("GET", "/api/v1/pods", user="jo")[0]


def test_reviews_say_what_the_roles_say() -> None:
    cluster = RoleCluster()
    cluster.role("reader", [READ_PODS, {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    cluster.bind("ClusterRole", "reader", JO)
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

    def may(**spec: Any) -> bool:
        code, told = cluster.ask("POST", path, {"spec": {"user": "jo", **spec}})
        assert 201 == code, told
        return bool(told["status"]["allowed"])

    assert may(nonResourceAttributes={"path": "/metrics", "verb": "get"})
    assert not may(nonResourceAttributes={"path": "/debug/pod", "verb": "get"})
    assert may(resourceAttributes={"verb": "list", "resource": "pods"})
    assert not may(resourceAttributes={"verb": "list", "resource": "secrets"})
    own = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    spec = {"resourceAttributes": {"verb": "list", "resource": "pods"}}
    assert cluster.ask("POST", own, {"spec": spec}, user="jo")[1]["status"]["allowed"]
    assert not cluster.ask("POST", own, {"spec": spec}, user="mo")[1]["status"]["allowed"]
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    told = cluster.ask("POST", rules, {"spec": {"namespace": "default"}}, user="jo")[1]["status"]
    assert ["pods"] in [rule["resources"] for rule in told["resourceRules"]]
    assert ["/metrics"] in [rule["nonResourceURLs"] for rule in told["nonResourceRules"]]
