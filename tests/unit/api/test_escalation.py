"""Nobody grants by roles and bindings what they do not hold themselves."""

import time

import pytest

from tests.unit.api.role_cluster import JO, RBAC, READ_PODS, Object, RoleCluster

GROUP = "rbac.authorization.k8s.io"
MANAGE: Object = {
    "apiGroups": [GROUP],
    "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
    "verbs": ["get", "create", "update", "patch", "delete"],
}
SECRETS: Object = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
EVERYTHING: Object = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
APPLY = "application/apply-patch+yaml"


def managed(*more: Object) -> RoleCluster:
    """Returns a cluster in which jo may write roles and bindings, and more."""
    cluster = RoleCluster()
    cluster.role("manager", [MANAGE, *more])
    cluster.bind("ClusterRole", "manager", JO)
    return cluster


def role(name: str, *rules: Object, **more: object) -> Object:
    return {"metadata": {"name": name}, "rules": [*rules], **more}


def binding(kind: str, name: str, user: str = "jo") -> Object:
    subject = {"kind": "User", "name": user, "apiGroup": GROUP}
    reference = {"apiGroup": GROUP, "kind": kind, "name": name}
    return {"metadata": {"name": "mine"}, "roleRef": reference, "subjects": [subject]}


@pytest.mark.parametrize(
    ("rule", "is_allowed"),
    [
        (READ_PODS, True),
        ({**READ_PODS, "resourceNames": ["a"]}, True),
        ({**READ_PODS, "verbs": ["get"]}, True),
        ({**READ_PODS, "verbs": ["get", "delete"]}, False),
        ({**READ_PODS, "resources": ["pods", "pods/log"]}, False),
        ({**READ_PODS, "resources": ["*"]}, False),
        ({**READ_PODS, "apiGroups": ["", "apps"]}, False),
        (SECRETS, False),
        (EVERYTHING, False),
        ({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}, False),
        ({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"],
          "resourceNames": ["mine"]}, True),
        ({"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}, True),
        ({"nonResourceURLs": ["/debug/queue"], "verbs": ["get"]}, True),
        ({"nonResourceURLs": ["/*"], "verbs": ["get"]}, False),
    ],
)  # fmt: skip
def test_a_role_may_contain_what_its_writer_holds(rule: Object, is_allowed: bool) -> None:
    cluster = managed(
        READ_PODS,
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"], "resourceNames": ["mine"]},
        {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["patch"]},
        {"nonResourceURLs": ["/debug/*"], "verbs": ["get"]},
    )
    path = f"{RBAC}/clusterroles"
    code, answer = cluster.ask("POST", path, role("r", rule), user="jo")
    assert (201 if is_allowed else 403) == code, answer
    if not is_allowed:
        assert "attempting to grant RBAC permissions not currently held" in answer["message"]
        assert 404 == cluster.ask("GET", f"{path}/r")[0]
    assert 201 == cluster.ask("POST", path, role("empty"), user="jo")[0]
    assert (200 if is_allowed else 403) == cluster.ask(
        "PUT", f"{path}/empty", role("empty", rule), user="jo"
    )[0]
    assert (200 if is_allowed else 403) == cluster.ask(
        "PATCH", f"{path}/empty", {"rules": [rule]}, "jo", (), "application/merge-patch+json"
    )[0]


def test_what_is_missing_is_named() -> None:
    answer = managed().ask("POST", f"{RBAC}/clusterroles", role("r", SECRETS), user="jo")[1]
    assert answer["message"] == (
        'clusterroles.rbac.authorization.k8s.io "r" is forbidden: user "jo" '
        '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently '
        'held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )


def test_rights_in_a_namespace_can_be_granted_there_and_nowhere_else() -> None:
    cluster = RoleCluster()
    cluster.role("manager", [MANAGE, SECRETS], "default")
    cluster.bind("Role", "manager", JO, "default")
    for namespace, code in (("default", 201), ("kube-system", 403)):
        path = f"{RBAC}/namespaces/{namespace}/roles"
        assert code == cluster.ask("POST", path, role("r", SECRETS), user="jo")[0]
    assert 403 == cluster.ask("POST", f"{RBAC}/clusterroles", role("r", SECRETS), user="jo")[0]


@pytest.mark.parametrize("path", ["clusterrolebindings", "namespaces/default/rolebindings"])
def test_only_a_role_whose_rights_are_held_can_be_bound(path: str) -> None:
    cluster = managed(READ_PODS)
    cluster.role("reader", [READ_PODS])
    cluster.role("spy", [SECRETS])
    where = f"{RBAC}/{path}"
    for name in ("cluster-admin", "spy"):
        code, answer = cluster.ask("POST", where, binding("ClusterRole", name), user="jo")
        assert (403, "Forbidden") == (code, answer["reason"])
    assert 404 == cluster.ask("POST", where, binding("ClusterRole", "none"), user="jo")[0]
    assert 201 == cluster.ask("POST", where, binding("ClusterRole", "reader"), user="jo")[0]
    other = {**binding("ClusterRole", "spy", "mo"), "metadata": {"name": "s"}}
    assert 201 == cluster.ask("POST", where, other)[0]
    patch = {"subjects": binding("ClusterRole", "spy")["subjects"]}
    merge = "application/merge-patch+json"
    assert 403 == cluster.ask("PATCH", f"{where}/s", patch, "jo", (), merge)[0]
    labels = {"metadata": {"finalizers": ["example.com/x"]}}
    assert 200 == cluster.ask("PATCH", f"{where}/s", labels, "jo", (), merge)[0]
    other = {**binding("ClusterRole", "reader"), "metadata": {"name": "s"}}
    code, answer = cluster.ask("PUT", f"{where}/s", other)
    assert 422 == code
    assert "cannot change roleRef" in answer["message"]


def test_the_verbs_escalate_and_bind_allow_it() -> None:
    cluster = managed(
        {"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["bind"],
         "resourceNames": ["spy"]},
        {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"]},
    )  # fmt: skip
    cluster.role("spy", [SECRETS])
    bindings = f"{RBAC}/clusterrolebindings"
    assert 201 == cluster.ask("POST", bindings, binding("ClusterRole", "spy"), user="jo")[0]
    where = f"{RBAC}/namespaces/default/roles"
    assert 201 == cluster.ask("POST", where, role("r", EVERYTHING), user="jo")[0]
    assert 403 == cluster.ask("POST", f"{RBAC}/clusterroles", role("r", EVERYTHING), user="jo")[0]


def test_aggregation_needs_all_rights() -> None:
    cluster = managed()
    rule = {"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]}
    path = f"{RBAC}/clusterroles"
    assert 403 == cluster.ask("POST", path, role("r", aggregationRule=rule), user="jo")[0]
    assert 201 == cluster.ask("POST", path, role("r", aggregationRule=rule))[0]
    assert 403 == cluster.ask("PUT", f"{path}/r", role("r"), user="jo")[0]


def test_an_aggregated_role_is_bound_with_all_that_it_gathers() -> None:
    cluster = managed()
    rule = {"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]}
    cluster.role("view", [], aggregationRule=rule)
    cluster.role("spy", [SECRETS], metadata={"labels": {"to": "view"}})
    where = f"{RBAC}/clusterrolebindings"
    assert 403 == cluster.ask("POST", where, binding("ClusterRole", "view"), user="jo")[0]


def test_aggregation_is_followed_to_its_end() -> None:
    """As the controller that gathers rules would; a circle ends."""
    cluster = RoleCluster()

    def aggregated(name: str, of: str, label: str) -> None:
        rule = {"clusterRoleSelectors": [{"matchLabels": {"to": of}}]}
        cluster.role(name, [], aggregationRule=rule, metadata={"labels": {"to": label}})

    aggregated("admin", "admin", "view")
    aggregated("edit", "view", "admin")
    cluster.role("pods", [READ_PODS], metadata={"labels": {"to": "view"}})
    cluster.bind("ClusterRole", "admin", JO)
    assert 200 == cluster.ask("GET", "/api/v1/pods", user="jo")[0]


def test_a_change_of_labels_grants_and_is_checked() -> None:
    cluster = managed()
    rule = {"clusterRoleSelectors": [{"matchLabels": {"to": "view"}}]}
    cluster.role("view", [], aggregationRule=rule)
    cluster.role("spy", [SECRETS])
    patch = {"metadata": {"labels": {"to": "view"}}}
    path = f"{RBAC}/clusterroles/spy"
    merge = "application/merge-patch+json"
    assert 403 == cluster.ask("PATCH", path, patch, "jo", (), merge)[0]
    assert 200 == cluster.ask("PATCH", path, patch, "", (), merge)[0]


def test_escalate_in_one_namespace_is_no_right_in_another() -> None:
    cluster = managed()
    rule = {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"]}
    cluster.role("escalator", [rule], "default")
    cluster.bind("Role", "escalator", JO, "default")
    for namespace, code in (("default", 201), ("kube-system", 403)):
        path = f"{RBAC}/namespaces/{namespace}/roles"
        assert code == cluster.ask("POST", path, role("r", EVERYTHING), user="jo")[0]


def test_a_rule_that_multiplies_out_is_refused_at_once() -> None:
    names = [f"n{i}" for i in range(300)]
    rule = {"verbs": names, "apiGroups": names, "resources": names}
    began = time.process_time()
    code, answer = managed().ask("POST", f"{RBAC}/clusterroles", role("r", rule), user="jo")
    assert (403, True) == (code, len(answer["message"]) < 50_000)
    held = managed({"verbs": ["*"], "apiGroups": ["*"], "resources": names})
    code, answer = held.ask("POST", f"{RBAC}/clusterroles", role("r", rule), user="jo")
    assert (403, True) == (code, "more than 10,000 single things" in answer["message"])
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        ("clusterroles", {"rules": [{"apiGroups": [""], "resources": ["pods"]}]}, "rules[0].verbs"),
        ("clusterroles", {"rules": [{"verbs": ["get"]}]}, "rules[0].apiGroups"),
        (
            "clusterroles",
            {"rules": [{**READ_PODS, "nonResourceURLs": ["/"]}]},
            "rules[0].nonResourceURLs",
        ),
        ("clusterroles", {"aggregationRule": {}}, "aggregationRule.clusterRoleSelectors"),
        (
            "clusterroles",
            {"aggregationRule": {"clusterRoleSelectors": [
                {"matchExpressions": [{"key": "a", "operator": "Foo"}]}
            ]}},
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator",
        ),
        (
            "namespaces/default/roles",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/"]}]},
            "rules[0].nonResourceURLs",
        ),
        ("clusterrolebindings", {"roleRef": {"kind": "Role", "name": "r"}}, "roleRef.kind"),
        ("clusterrolebindings", {"roleRef": {"kind": "ClusterRole"}}, "roleRef.name"),
        (
            "clusterrolebindings",
            {"roleRef": {"kind": "ClusterRole", "name": "r", "apiGroup": "foo"}},
            "roleRef.apiGroup",
        ),
        (
            "clusterrolebindings",
            {"roleRef": {"kind": "ClusterRole", "name": "a/b"}},
            "roleRef.name",
        ),
        (
            "clusterrolebindings",
            {"roleRef": {"kind": "ClusterRole", "name": "r"},
             "subjects": [{"kind": "ServiceAccount", "name": "a"}]},
            "subjects[0].namespace",
        ),
        (
            "namespaces/default/rolebindings",
            {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "Foo", "name": "a"}]},
            "subjects[0].kind",
        ),
        (
            "namespaces/default/rolebindings",
            {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User"}]},
            "subjects[0].name",
        ),
    ],
)  # fmt: skip
def test_a_role_or_binding_that_makes_no_sense_is_refused(
    kind: str, body: Object, field: str
) -> None:
    code, answer = RoleCluster().ask("POST", f"{RBAC}/{kind}", {"metadata": {"name": "x"}, **body})
    assert 422 == code
    assert field in {cause["field"] for cause in answer["details"]["causes"]}


def test_apply_is_checked_and_needs_the_verb_create_where_it_creates() -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    cluster = managed(
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]},
    )
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}}
    code, answer = cluster.ask("PATCH", f"{maps}/m?fieldManager=f", body, "jo", (), APPLY)
    assert 403 == code
    assert 'User "jo" cannot create resource "configmaps"' in answer["message"]
    assert 201 == cluster.ask("PATCH", f"{maps}/m?fieldManager=f", body, content_type=APPLY)[0]
    assert 200 == cluster.ask("PATCH", f"{maps}/m?fieldManager=g", body, "jo", (), APPLY)[0]
    spy = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", **role("r", SECRETS)}
    path = f"{RBAC}/clusterroles/r?fieldManager=f"
    assert 403 == cluster.ask("PATCH", path, spy, "jo", (), APPLY)[0]


def test_a_put_that_creates_needs_the_verb_create() -> None:
    cluster = RoleCluster()
    cluster.role("updater", [{**MANAGE, "verbs": ["update"]}])
    cluster.bind("ClusterRole", "updater", JO)
    assert 403 == cluster.ask("PUT", f"{RBAC}/clusterroles/r", role("r"), user="jo")[0]
    assert 201 == cluster.ask("PUT", f"{RBAC}/clusterroles/r", role("r"))[0]
    assert 200 == cluster.ask("PUT", f"{RBAC}/clusterroles/r", role("r"), user="jo")[0]


def test_without_roles_nothing_is_checked() -> None:
    cluster = RoleCluster()
    cluster.api.rbac = cluster.api.context.rbac = None
    assert 201 == cluster.ask("POST", f"{RBAC}/clusterroles", role("r", EVERYTHING), user="jo")[0]
