"""Patches of JSON and of merging: missing values and places, kinds and versions taken away."""

from typing import Any

import pytest

from stower.api.patches import PatchError, json_patch
from tests.unit.api.one_client import Client

MAPS = "/api/v1/namespaces/default/configmaps"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


@pytest.fixture
def client() -> Client:
    made = Client()
    assert 201 == made.send("POST", MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})[0]
    return made


def test_operations_without_a_value_have_null() -> None:
    assert {"a": None} == json_patch({}, [{"op": "add", "path": "/a"}])
    assert {"a": None} == json_patch({"a": 1}, [{"op": "replace", "path": "/a"}])
    assert {} == json_patch({}, [{"op": "test", "path": "/a"}])


def test_copies_of_what_is_not_there_are_null() -> None:
    assert {"b": None} == json_patch({}, [{"op": "copy", "from": "/a", "path": "/b"}])


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "", "value": {}},
        {"op": "remove", "path": ""},
        {"op": "copy", "from": "", "path": "/b"},
        {"op": "move", "from": "/c", "path": "/b"},
        {"op": "replace", "path": "", "value": 1},
        {"op": "test", "path": "/c/d", "value": None},
        {"op": "test", "path": "/a", "value": None},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_places_that_cannot_be_patched(operation: dict[str, Any]) -> None:
    with pytest.raises(PatchError):
        json_patch({"a": 1}, [operation])


@pytest.mark.parametrize(("form", "patch"), [
    (MERGE_PATCH, {"apiVersion": None}),
    (JSON_PATCH, [{"op": "remove", "path": "/apiVersion"}]),
    (JSON_PATCH, [{"op": "replace", "path": "", "value": {}}]),
])  # fmt: skip
def test_without_a_version_nothing_is_read(client: Client, form: str, patch: Any) -> None:
    status, answer = client.send("PATCH", f"{MAPS}/m", patch, form)
    want = "the name of the object (m based on URL) was undeterminable: name must be provided"
    assert (400, want) == (status, answer["message"])


def test_the_kind_may_be_left_out(client: Client) -> None:
    status, answer = client.send("PATCH", f"{MAPS}/m", {"kind": None, "data": None}, MERGE_PATCH)
    assert (200, "ConfigMap", None) == (status, answer["kind"], answer.get("data"))


@pytest.mark.parametrize(("patch", "why"), [
    ({"kind": "Pod"}, "converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
    ({"kind": "Thing"}, 'no kind "Thing" is registered for version "v1" in scheme '),
])  # fmt: skip
def test_other_kinds_are_refused(client: Client, patch: Any, why: str) -> None:
    status, answer = client.send("PATCH", f"{MAPS}/m", patch, MERGE_PATCH)
    assert 422 == status
    assert why in answer["message"]


def test_rules_of_versions_hold_for_watches(client: Client) -> None:
    path = f"{MAPS}?watch=1&resourceVersionMatch=Other&continue=x"
    _, answer = client.send("GET", path)
    assert [
        "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is "
        "provided",
        'Unsupported value: "Other": supported values: "NotOlderThan"',
        "Forbidden: resourceVersionMatch is forbidden when continue is provided",
    ] == [c["message"] for c in answer["details"]["causes"]]
