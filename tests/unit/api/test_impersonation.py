"""Impersonation: a request is carried out as another user, for those who may ask for it."""

import pytest

from tests.unit.api.role_cluster import JO, PODS, READ_PODS, Object, RoleCluster

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
MAY_I = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
Headers = tuple[tuple[str, str], ...]
NOBODY: Headers = (("impersonate-user", "nobody"),)


def whoami(cluster: RoleCluster, headers: Headers, user: str = "") -> Object:
    code, answer = cluster.ask("POST", REVIEW, {}, user=user, impersonation=headers)
    assert 201 == code, answer
    found: Object = answer["status"]["userInfo"]
    return found


def test_access_reviews_are_answered_about_the_impersonated_user() -> None:
    cluster = RoleCluster()
    spec = {"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}}

    def may(headers: Headers) -> bool:
        answer = cluster.ask("POST", MAY_I, {"spec": spec}, impersonation=headers)[1]
        return bool(answer["status"]["allowed"])

    assert may(())
    assert not may(NOBODY)
    assert may((*NOBODY, ("impersonate-group", "system:masters")))


def test_a_request_is_carried_out_with_the_rights_of_the_impersonated_user() -> None:
    cluster = RoleCluster()
    assert 403 == cluster.ask("GET", PODS, impersonation=NOBODY)[0]
    cluster.role("reader", [READ_PODS])
    cluster.bind("ClusterRole", "reader", {**JO, "name": "nobody"})
    assert 200 == cluster.ask("GET", PODS, impersonation=NOBODY)[0]


@pytest.mark.parametrize(
    ("headers", "want"),
    [
        (NOBODY, {"username": "nobody", "groups": ["system:authenticated"]}),
        (
            (("impersonate-user", "eve"), ("impersonate-group", "dev"),
             ("impersonate-group", "ops"), ("impersonate-uid", "7"),
             ("impersonate-extra-scopes", "view"), ("impersonate-extra-scopes", "edit"),
             ("impersonate-extra-a/b", "c")),
            {"username": "eve", "uid": "7", "groups": ["dev", "ops", "system:authenticated"],
             "extra": {"a/b": ["c"], "scopes": ["view", "edit"]}},
        ),
        (
            (("impersonate-user", "system:serviceaccount:x:robot"),),
            {"username": "system:serviceaccount:x:robot",
             "groups": ["system:serviceaccounts", "system:serviceaccounts:x",
                        "system:authenticated"]},
        ),
        (
            (("impersonate-user", "system:anonymous"),),
            {"username": "system:anonymous", "groups": ["system:unauthenticated"]},
        ),
        (
            (*NOBODY, ("impersonate-group", "system:unauthenticated")),
            {"username": "nobody", "groups": ["system:unauthenticated"]},
        ),
    ],
)  # fmt: skip
def test_the_user_has_the_groups_uid_and_extra_that_the_headers_name(
    headers: Headers, want: Object
) -> None:
    cluster = RoleCluster()
    cluster.bind("ClusterRole", "system:basic-user",
                 {**JO, "kind": "Group", "name": "system:unauthenticated"})  # fmt: skip
    assert want == whoami(cluster, headers)


def test_the_first_user_counts() -> None:
    headers = (*NOBODY, ("impersonate-user", "eve"))
    assert "nobody" == whoami(RoleCluster(), headers)["username"]


@pytest.mark.parametrize("name", ["system:serviceaccount:UPPER:x", "system:serviceaccount:x:a b"])
def test_what_is_no_service_account_is_a_user_of_that_name(name: str) -> None:
    user = whoami(RoleCluster(), (("impersonate-user", name),))
    assert (name, ["system:authenticated"]) == (user["username"], user["groups"])


def test_without_roles_everybody_may_impersonate() -> None:
    cluster = RoleCluster()
    cluster.api.rbac = cluster.api.context.rbac = None
    assert "nobody" == whoami(cluster, NOBODY, user="jo")["username"]


@pytest.mark.parametrize(
    "headers",
    [
        (("impersonate-group", "dev"),),
        (("impersonate-uid", "7"),),
        (("impersonate-extra-a", "b"),),
        (("impersonate-user", ""),),
        (*NOBODY, ("impersonate-users", "x")),
    ],
)
def test_headers_without_a_user_or_of_other_names_are_a_bad_request(headers: Headers) -> None:
    assert 400 == RoleCluster().ask("GET", PODS, impersonation=headers)[0]


@pytest.mark.parametrize(
    ("headers", "rule"),
    [
        (NOBODY, {"apiGroups": [""], "resources": ["users"]}),
        (NOBODY, {"apiGroups": [""], "resources": ["users"], "resourceNames": ["nobody"]}),
        (
            (("impersonate-user", "system:serviceaccount:x:robot"),),
            {"apiGroups": [""], "resources": ["serviceaccounts"]},
        ),
        (
            (*NOBODY, ("impersonate-group", "dev")),
            {"apiGroups": [""], "resources": ["users", "groups"]},
        ),
        (
            (*NOBODY, ("impersonate-uid", "7")),
            {"apiGroups": ["", "authentication.k8s.io"], "resources": ["users", "uids"]},
        ),
        (
            (*NOBODY, ("impersonate-extra-scopes", "view")),
            {"apiGroups": ["", "authentication.k8s.io"],
             "resources": ["users", "userextras/scopes"]},
        ),
    ],
)  # fmt: skip
def test_each_part_of_a_user_needs_the_right_to_impersonate_it(
    headers: Headers, rule: Object
) -> None:
    cluster = RoleCluster()
    code, answer = cluster.ask("POST", REVIEW, {}, user="jo", impersonation=headers)
    assert (403, "Forbidden") == (code, answer["reason"])
    assert 'User "jo" cannot impersonate resource' in answer["message"]
    part = {**rule, "verbs": ["impersonate"], "resources": rule["resources"][:1]}
    if part["resources"] == rule["resources"]:
        part["verbs"] = ["get", "list", "*/x"]
    cluster.role("some", [part])
    cluster.bind("ClusterRole", "some", JO)
    assert 403 == cluster.ask("POST", REVIEW, {}, user="jo", impersonation=headers)[0]
    cluster.role("all", [{**rule, "verbs": ["impersonate"]}])
    cluster.bind("ClusterRole", "all", JO)
    assert 201 == cluster.ask("POST", REVIEW, {}, user="jo", impersonation=headers)[0]
