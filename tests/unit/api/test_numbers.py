"""Numbers in requests that are long or odd: an error that says so, never an internal one."""

import base64
from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.api.role_cluster import RoleCluster

MAPS = "/api/v1/namespaces/default/configmaps"
ODD = ("0" * 5_000 + "x", "9" * 5_000, "1_0", "\u0663", "-1", "1e3", "18446744073709551616")
ZEROS = "0" * 5_000


@pytest.mark.parametrize("number", ODD)
@pytest.mark.parametrize("name", ["resourceVersion", "limit", "timeoutSeconds"])
def test_in_a_query(name: str, number: str) -> None:
    code, answer = RoleCluster().ask("GET", f"{MAPS}?{name}={number}")
    if (name, number) == ("limit", "-1") or (name, number) == ("timeoutSeconds", "-1"):
        assert 200 == code
    else:
        assert 400 == code
        assert len(answer["message"]) < 400


def test_zeros_before_a_number_are_no_digits_of_it() -> None:
    cluster = RoleCluster()
    assert 201 == cluster.ask("POST", MAPS, {"metadata": {"name": "m"}})[0]
    assert 200 == cluster.ask("GET", f"{MAPS}?resourceVersion={ZEROS}")[0]
    version = cluster.ask("GET", f"{MAPS}/m")[1]["metadata"]["resourceVersion"]
    meta = {"name": "m", "resourceVersion": f"{ZEROS}{version}"}
    assert 200 == cluster.ask("PUT", f"{MAPS}/m", {"metadata": meta})[0]
    assert 409 == cluster.ask("PUT", f"{MAPS}/m", {"metadata": {**meta, "resourceVersion":
                                                                f"{ZEROS}9999"}})[0]  # fmt: skip


@pytest.mark.parametrize("number", ["9" * 5_000, "\u0663", "1_0"])
def test_in_the_version_of_an_object(number: str) -> None:
    cluster = RoleCluster()
    assert 201 == cluster.ask("POST", MAPS, {"metadata": {"name": "m"}})[0]
    body = {"metadata": {"name": "m", "resourceVersion": number}}
    patched = cluster.ask("PATCH", f"{MAPS}/m", body, "", (), "application/merge-patch+json")
    assert 422 == patched[0]
    code, answer = cluster.ask("PUT", f"{MAPS}/m", body)
    assert 500 == code, "as upstream"
    assert answer["message"].startswith("metadata.resourceVersion: Invalid value")


@pytest.mark.parametrize("index", ["9" * 5_000, "-" + "9" * 5_000, "\u0663", "--1", "1_0"])
def test_in_the_path_of_a_patch(index: str) -> None:
    cluster = RoleCluster()
    body = {"metadata": {"name": "m", "finalizers": ["example.com/x"]}}
    assert 201 == cluster.ask("POST", MAPS, body)[0]
    patch: Any = [{"op": "remove", "path": f"/metadata/finalizers/{index}"}]
    code, _ = cluster.ask("PATCH", f"{MAPS}/m", patch, "", (), "application/json-patch+json")
    assert 422 == code


def test_in_a_percentage() -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    for share, want in (("9" * 5_000, 422), ("101", 422), ("0" * 5_000 + "50", 201)):
        body = {"metadata": {"name": "b"}, "spec": {"minAvailable": f"{share}%"}}
        assert want == RoleCluster().ask("POST", path, body)[0]


@pytest.mark.parametrize("number", [str(10**30), "1e300", "1.5", str(1 << 63), '"7"', "true"])
def test_in_a_continue_token(number: str) -> None:
    text = f'{{"v":"meta.k8s.io/v1","rv":{number},"start":"/m\\u0000"}}'
    token = base64.urlsafe_b64encode(text.encode()).decode()
    assert 400 == RoleCluster().ask("GET", f"{MAPS}?limit=1&continue={quote(token)}")[0]


@pytest.mark.parametrize(("number", "code"), [(10**30, 422), (1 << 63, 422), ((1 << 63) - 1, 201)])
def test_in_an_object_of_ones_own_kind(number: int, code: int) -> None:
    cluster = RoleCluster()
    kind = {"plural": "ones", "singular": "one", "kind": "One", "listKind": "OneList"}
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "example.com", "scope": "Cluster", "names": kind, "versions": [version]}
    definition = {"metadata": {"name": "ones.example.com"}, "spec": spec}
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert 201 == cluster.ask("POST", path, definition)[0]
    one = {"apiVersion": "example.com/v1", "kind": "One", "metadata": {"name": "a"}, "n": number}
    assert code == cluster.ask("POST", "/apis/example.com/v1/ones", one)[0]
