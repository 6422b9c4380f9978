"""Numbers in requests that are long or odd: an error that says so, never an internal one."""

from typing import Any

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
