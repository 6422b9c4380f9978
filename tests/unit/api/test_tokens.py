"""Tokens of service accounts: whom they stand for, where, and until when."""

import base64
import json
from typing import Any

import pytest

from tests.unit.api.role_cluster import Object, RoleCluster

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
AUDIENCE = "https://kubernetes.default.svc.cluster.local"
MINUTE_NS = 60 * 10**9


def with_account() -> RoleCluster:
    cluster = RoleCluster()
    assert 201 == cluster.ask("POST", ACCOUNTS, {"metadata": {"name": "robot"}})[0]
    return cluster


def issue(cluster: RoleCluster, **spec: Any) -> str:
    code, answer = cluster.ask("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})
    assert 201 == code, answer
    return str(answer["status"]["token"])


def review(cluster: RoleCluster, token: str, *audiences: str) -> Object:
    spec: Object = {"token": token, **({"audiences": [*audiences]} if audiences else {})}
    code, answer = cluster.ask("POST", REVIEWS, {"spec": spec})
    assert 201 == code, answer
    found: Object = answer["status"]
    return found


def is_valid(cluster: RoleCluster, token: str) -> bool:
    return cluster.api.token_user(token.encode(), cluster.now_ns) is not None


def test_a_token_stands_for_its_account_in_all_groups_of_accounts() -> None:
    cluster = with_account()
    status = review(cluster, issue(cluster))
    assert (True, [AUDIENCE]) == (status["authenticated"], status["audiences"])
    user = status["user"]
    assert "system:serviceaccount:default:robot" == user["username"]
    assert cluster.ask("GET", f"{ACCOUNTS}/robot")[1]["metadata"]["uid"] == user["uid"]
    assert user["groups"] == [
        "system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated",
    ]  # fmt: skip


def test_the_request_is_answered_with_its_audiences_and_its_end() -> None:
    cluster = with_account()
    spec = {"audiences": ["a", "b"], "expirationSeconds": 601}
    answer = cluster.ask("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})[1]
    assert spec == answer["spec"]
    assert "2027-01-15T08:10:01Z" == answer["status"]["expirationTimestamp"]
    answer = cluster.ask("POST", f"{ACCOUNTS}/robot/token", {})[1]
    assert {"audiences": [AUDIENCE], "expirationSeconds": 3600} == answer["spec"]


def test_a_token_is_valid_for_its_audiences_alone() -> None:
    cluster = with_account()
    own, other = issue(cluster), issue(cluster, audiences=["vault", "billing"])
    assert is_valid(cluster, own)
    assert not is_valid(cluster, other), "it opens this server only if it is meant for it"
    assert ["vault"] == review(cluster, other, "vault", "x")["audiences"]
    refused = review(cluster, other, "x")
    assert "authenticated" not in refused
    assert "is invalid for the target audiences" in refused["error"]
    assert "authenticated" not in review(cluster, other)
    assert "authenticated" not in review(cluster, own, "vault")


@pytest.mark.parametrize("kind", ["Pod", "Secret", "Node"])
def test_a_bound_token_ends_with_the_object(kind: str) -> None:
    cluster = with_account()
    space = "" if kind == "Node" else "/namespaces/default"
    path = f"/api/v1{space}/{kind.lower()}s"
    body: Object = {"metadata": {"name": "x"}}
    if kind == "Pod":
        body["spec"] = {
            "serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}],
        }  # fmt: skip

    def make() -> str:
        code, answer = cluster.ask("POST", path, body)
        assert 201 == code, answer
        return str(answer["metadata"]["uid"])

    reference = {"apiVersion": "v1", "kind": kind, "name": "x"}
    ask = {"spec": {"boundObjectRef": reference}}
    assert 404 == cluster.ask("POST", f"{ACCOUNTS}/robot/token", ask)[0], "never there"
    uid = make()
    token = issue(cluster, boundObjectRef={**reference, "uid": uid})
    user = review(cluster, token)["user"]
    if kind != "Secret":
        assert [uid] == user["extra"][f"authentication.kubernetes.io/{kind.lower()}-uid"]
    assert 200 == cluster.ask("DELETE", f"{path}/x?gracePeriodSeconds=0")[0]
    assert not is_valid(cluster, token)
    make()
    assert not is_valid(cluster, token), "another object has that name"
    wrong = {"spec": {"boundObjectRef": {**reference, "uid": uid}}}
    assert 409 == cluster.ask("POST", f"{ACCOUNTS}/robot/token", wrong)[0]


def test_a_bound_pod_that_is_being_deleted_counts_for_a_minute_after_its_time() -> None:
    cluster = with_account()
    meta = {"name": "x", "finalizers": ["example.com/x"]}
    assert 201 == cluster.ask("POST", "/api/v1/namespaces/default/secrets", {"metadata": meta})[0]
    token = issue(cluster, boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "x"})
    assert 200 == cluster.ask("DELETE", "/api/v1/namespaces/default/secrets/x")[0]
    assert is_valid(cluster, token)
    cluster.now_ns += 2 * MINUTE_NS
    assert not is_valid(cluster, token)


def test_a_token_is_bound_to_a_pod_of_its_account() -> None:
    cluster = with_account()
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert 201 == cluster.ask("POST", "/api/v1/namespaces/default/pods", pod)[0]
    for kind in ("Pod", "ConfigMap"):
        spec = {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": "x"}}
        code, answer = cluster.ask("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})
        assert 400 == code
        assert "cannot bind token" in answer["message"]


def test_a_token_ends_with_its_time_and_its_account() -> None:
    cluster = with_account()
    token = issue(cluster, expirationSeconds=600)
    cluster.now_ns += 10 * MINUTE_NS - 1
    assert is_valid(cluster, token)
    cluster.now_ns += 1
    assert not is_valid(cluster, token)
    assert "service account token has expired" == review(cluster, token)["error"]
    token = issue(cluster)
    assert 200 == cluster.ask("DELETE", f"{ACCOUNTS}/robot")[0]
    assert not is_valid(cluster, token)
    assert 201 == cluster.ask("POST", ACCOUNTS, {"metadata": {"name": "robot"}})[0]
    assert not is_valid(cluster, token)


@pytest.mark.parametrize("seconds", [-1, 0, 1, 599, 2**32 + 1, 10**18])
def test_the_time_of_a_token_is_bounded(seconds: int) -> None:
    body = {"spec": {"expirationSeconds": seconds}}
    code, answer = with_account().ask("POST", f"{ACCOUNTS}/robot/token", body)
    assert (422, "Invalid") == (code, answer["reason"])
    assert "spec.expirationSeconds" in answer["message"]


@pytest.mark.parametrize("seconds", [10**30, "600", 600.5, True])
def test_a_time_that_is_no_number_of_seconds_is_a_bad_request(seconds: Any) -> None:
    body = {"spec": {"expirationSeconds": seconds}}
    assert 400 == with_account().ask("POST", f"{ACCOUNTS}/robot/token", body)[0]


@pytest.mark.parametrize("audiences", [["a" * 2_000], ["a"] * 33])
def test_audiences_are_bounded(audiences: list[str]) -> None:
    body = {"spec": {"audiences": audiences}}
    assert 422 == with_account().ask("POST", f"{ACCOUNTS}/robot/token", body)[0]


@pytest.mark.parametrize("name", ["name", "namespace"])
def test_the_metadata_of_a_token_request_names_the_account(name: str) -> None:
    cluster = with_account()
    for value, code in (("other", 422), ({"name": "robot", "namespace": "default"}[name], 201)):
        body = {"metadata": {name: value}}
        assert code == cluster.ask("POST", f"{ACCOUNTS}/robot/token", body)[0]
    assert 409 == cluster.ask("POST", f"{ACCOUNTS}/robot/token", {"metadata": {"uid": "x"}})[0]


def damaged(token: str) -> list[str]:
    """Returns tokens that nobody has issued."""
    head, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    claims["sub"] = "system:serviceaccount:kube-system:admin"
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    return [
        "", ".", "..", "é", "\ufffd.\ufffd.\ufffd", f"{token}é", f"é{token}", token[:-1],
        f"{head}.{payload}", f"{head}.{payload}.", f"{head}.{forged}.{signature}",
        f"{none}.{forged}.", f"{none}.{payload}.{signature}", f"{token}.{signature}",
        token.upper(), "x" * 10_000,
    ]  # fmt: skip


def test_what_this_server_has_not_issued_is_no_token() -> None:
    cluster = with_account()
    token = issue(cluster)
    for other in damaged(token):
        assert not is_valid(cluster, other), other
        if other:
            assert "invalid bearer token" == review(cluster, other)["error"]
    assert is_valid(cluster, token)
    assert 400 == cluster.ask("POST", REVIEWS, {"spec": {}})[0]


def test_a_local_review_answers_about_its_own_namespace() -> None:
    cluster = RoleCluster()
    path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"

    def ask(spec: Object, **meta: str) -> int:
        return cluster.ask("POST", path, {"metadata": meta, "spec": {"user": "jo", **spec}})[0]

    asked = {"verb": "get", "resource": "pods"}
    assert 201 == ask({"resourceAttributes": {**asked, "namespace": "default"}})
    assert 422 == ask({"resourceAttributes": {**asked, "namespace": "kube-system"}})
    assert 422 == ask({"resourceAttributes": asked}), "of all namespaces"
    assert 422 == ask({"nonResourceAttributes": {"path": "/", "verb": "get"}})
    assert 400 == ask({"resourceAttributes": {**asked, "namespace": "x"}}, namespace="x")
    everywhere = path.replace("/namespaces/default", "")
    assert 405 == cluster.ask("POST", everywhere, {"spec": {}})[0]
    whole = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert 422 == cluster.ask("POST", whole, {"spec": {"resourceAttributes": asked}})[0], "whose?"
