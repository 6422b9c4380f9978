"""What strategic merge patches do with directives, orders and values that are new."""

from typing import Any

import pytest

from stower.api.patches import BadPatchError, strategic
from tests.unit.api.one_client import PODS, REGISTRY, Client, pod

POD = REGISTRY.type_of_kind("", "v1", "Pod")
STRATEGIC = "application/strategic-merge-patch+json"


def with_env(*env: Any, **more: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "env": list(env), **more}]}}


def test_nulls_and_directives_are_not_kept_in_what_is_new() -> None:
    patch = {"metadata": {"labels": {"a": None, "b": "1"}, "annotations": {"$patch": "replace"}}}
    metadata = strategic({}, patch, POD)["metadata"]
    assert {"b": "1"} == metadata["labels"]
    assert not metadata.get("annotations")


@pytest.mark.parametrize("directive", ["merge", "remove", ""])
def test_unknown_directives_are_refused(directive: str) -> None:
    patch = {"metadata": {"$patch": directive}}
    with pytest.raises(BadPatchError, match="unknown patch type") as raised:
        strategic({"metadata": {"name": "p"}}, patch, POD)
    assert 500 == raised.value.code


def test_patches_stand_in_the_order_they_name() -> None:
    a, b = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}
    order = {"$setElementOrder/env": [{"name": "B"}, {"name": "A"}]}
    assert [b, a] == strategic(with_env(a), with_env(b, a, **order), POD)["spec"]["containers"][0][
        "env"
    ]
    with pytest.raises(BadPatchError) as raised:
        strategic(with_env(a), with_env(a, b, **order), POD)
    assert (
        "The order in patch list:\n[map[name:A value:1] map[name:B value:2]]\n"
        " doesn't match $setElementOrder list:\n[map[name:B] map[name:A]]\n"
    ) == str(raised.value)


def test_items_without_their_key_are_refused() -> None:
    with pytest.raises(BadPatchError, match="does not contain declared merge key: name"):
        strategic(with_env({"name": "A"}), with_env({"value": "1"}), POD)


def test_lists_of_one_type() -> None:
    old = {"metadata": {"finalizers": ["x/y"]}}
    with pytest.raises(BadPatchError, match="list element types are not identical"):
        strategic(old, {"metadata": {"finalizers": ["a/b", 1]}}, POD)


def test_bad_patches_through_the_server() -> None:
    client = Client()
    assert 201 == client.send("POST", PODS, pod())[0]
    path = f"{PODS}/p"
    spec = {"$retainKeys": ["a"], "nodeName": "n"}
    status, answer = client.send("PATCH", path, {"spec": spec}, STRATEGIC)
    assert (400, "invalid patch format of retainKeys") == (status, answer["message"])
    bad = {"metadata": {"$patch": "other"}}
    assert 500 == client.send("PATCH", path, bad, STRATEGIC)[0]
