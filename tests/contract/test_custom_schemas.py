"""Schemas of custom resources as kubectl sees them: what it explains, accepts and refuses.

The cases are those of Kubernetes' conformance tests (test/e2e/apimachinery/crd_publish_openapi.go).
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.contract.kubectl import Kubectl
from tests.contract.test_kubectl import kubectl, pytestmark

__all__ = ["kubectl", "pytestmark"]
TEXT = {"type": "string"}
FOO: dict[str, Any] = {
    "type": "object",
    "description": "Foo CRD for Testing",
    "properties": {
        "spec": {
            "type": "object",
            "description": "Specification of Foo",
            "properties": {
                "bars": {
                    "type": "array",
                    "description": "List of Bars and their specs.",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {**TEXT, "description": "Name of Bar."},
                            "age": TEXT,
                            "feeling": {**TEXT, "enum": ["Great", "Down"]},
                            "bazs": {
                                "type": "array",
                                "description": "List of Bazs.",
                                "items": TEXT,
                            },
                        },
                    },
                }
            },
        }
    },
}
KEEPS = {"x-kubernetes-preserve-unknown-fields": True}


def define(kubectl: Kubectl, schema: dict[str, Any]) -> None:
    version = {"name": "v1", "served": True, "storage": True,
               "schema": {"openAPIV3Schema": schema}}  # fmt: skip
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": [version],
        },
    }
    kubectl("create", "-f", kubectl.file(body))


def foo(**fields: Any) -> str:
    head = {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "t"}}
    return json.dumps({**head, **fields})


def explains(kubectl: Kubectl, path: str, *parts: str) -> bool:
    return re.search(".*".join(parts), kubectl("explain", path), re.DOTALL) is not None


def test_a_schema_is_explained_and_checked(kubectl: Kubectl) -> None:
    define(kubectl, FOO)
    for verb in ("create", "apply"):
        kubectl(verb, "-f", "-", stdin=foo(spec={"bars": [{"name": "b"}]}))
        kubectl("delete", "foos", "t")
        for spec, told in (
            ({"foo": True}, 'unknown field "spec.foo"'),
            ({"bars": [{"age": "10"}]}, "spec.bars[0].name: Required value"),
            ({"bars": [{"name": "b", "feeling": "No"}]}, 'Unsupported value: "No"'),
        ):
            assert told in kubectl.run(verb, "-f", "-", stdin=foo(spec=spec)).stderr
    assert explains(
        kubectl, "foos", "DESCRIPTION:", "Foo CRD for Testing", "FIELDS:", "apiVersion", "<string>",
        "APIVersion defines", "spec", "<Object>", "Specification of Foo",
    )  # fmt: skip
    assert explains(
        kubectl, "foos.metadata", "DESCRIPTION:", "Standard object's metadata", "FIELDS:",
        "creationTimestamp", "<string>", "CreationTimestamp is a timestamp",
    )  # fmt: skip
    assert explains(kubectl, "foos.spec", "Specification of Foo", "bars", r"<\[\]Object>", "List")
    assert explains(
        kubectl, "foos.spec.bars", "bars", r"<\[\]Object>", "List of Bars and their specs",
        "FIELDS:", "bazs", r"<\[\]string>", "List of Bazs", "name", "<string>", "Name of Bar",
    )  # fmt: skip
    assert 'field "bars2" does not exist' in kubectl.run("explain", "foos.spec.bars2").stderr


@pytest.mark.parametrize(
    ("schema", "explained"),
    [
        ({"type": "object", **KEEPS}, r"DESCRIPTION:\s+<empty>"),
        ({**FOO, **KEEPS}, "KIND: +Foo"),
    ],
)
def test_an_object_that_keeps_unknown_fields_is_accepted(
    kubectl: Kubectl, tmp_path: Path, schema: dict[str, Any], explained: str
) -> None:
    define(kubectl, schema)
    for verb in ("create", "apply"):
        kubectl(verb, "-f", "-", stdin=foo(a={"b": [{"c": "d"}]}))
        kubectl("delete", "foos", "t")
    assert explains(kubectl, "foos", explained)


def test_a_part_that_keeps_unknown_fields_is_accepted(kubectl: Kubectl) -> None:
    spec = {"type": "object", "properties": {"dummy": {"type": "object"}}, **KEEPS}
    define(kubectl, {"type": "object", "description": "nested", "properties": {"spec": spec}})
    for verb in ("create", "apply"):
        kubectl(verb, "-f", "-", stdin=foo(spec={"a": None, "b": [{"c": "d"}]}))
        kubectl("delete", "foos", "t")
    assert explains(kubectl, "foos", "DESCRIPTION:", "nested")
