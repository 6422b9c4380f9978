"""Resources within custom resources (x-kubernetes-embedded-resource): apiextensions-apiserver
pkg/apiserver/schema/objectmeta, as a real server of 1.36 has answered."""

from typing import Any, Final

import pytest

from tests.unit.api.custom_cluster import CustomCluster, Object, definition, version

THINGS: Final = "/apis/example.com/v1/things"
HEAD: Final = {"kind": "Pod", "apiVersion": "v1"}
FREE: Final = {
    "type": "object", "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}  # fmt: skip
TEXT: Final = {"type": "string"}
# A resource with fields of its own, and a constraint of its name.
KNOWN: Final = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "properties": {
        "spec": {"type": "object", "properties": {"a": {**TEXT, "default": "A"}}},
        "metadata": {"type": "object", "properties": {"name": {**TEXT, "minLength": 2}}},
    },
}


@pytest.fixture
def cluster() -> CustomCluster:
    made = CustomCluster()
    schemas = {
        "one": FREE,
        "list": {"type": "array", "items": FREE},
        "map": {"type": "object", "additionalProperties": FREE},
        "known": KNOWN,
    }
    spec = {"type": "object", "properties": schemas}
    made.define(definition(versions=[version("v1", {"spec": spec})]))
    return made


def post(cluster: CustomCluster, query: str = "", **spec: Any) -> tuple[int, Any, list[str]]:
    body = {"metadata": {"name": "t"}, "spec": spec}
    return cluster.ask_with_warnings("POST", THINGS + query, body)


def causes(answer: tuple[int, Any, list[str]]) -> list[tuple[str, str]]:
    code, body, _ = answer
    assert 422 == code, body
    return [(cause["field"], cause["message"]) for cause in body["details"]["causes"]]


MIXED: Final = "may have mixed case, but should otherwise match: a DNS-1035 label must consist of"


@pytest.mark.parametrize(
    ("resource", "expected"),
    [
        ({"kind": "Pod"}, [("apiVersion", "Required value")]),
        ({}, [("apiVersion", "Required value"), ("kind", "Required value")]),
        ({"kind": "p d", "apiVersion": "v1"}, [("kind", f'Invalid value: "p d": {MIXED}')]),
        ({"kind": "Pod", "apiVersion": "a/b/c"},
         [("apiVersion", 'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c')]),
        ({"kind": "", "apiVersion": ""},
         [("apiVersion", 'Invalid value: "": must not be empty'),
          ("kind", 'Invalid value: "": must not be empty')]),
        ({**HEAD, "metadata": {"name": "A/b"}},
         [("metadata.name", "Invalid value: \"A/b\": may not contain '/'")]),
        ({**HEAD, "metadata": {"namespace": "A b", "labels": {"a": "c d"}}},
         [("metadata.namespace", 'Invalid value: "A b": a lowercase RFC 1123 label must'),
          ("metadata.labels", 'Invalid value: "c d": a valid label must be an empty string')]),
        ({**HEAD, "metadata": {"managedFields": [{"manager": "x"}]}},
         [("metadata.managedFields[0].operation",
           'Invalid value: "": must be `Apply` or `Update`')]),
    ],
)  # fmt: skip
def test_a_resource_that_is_none_is_refused(
    cluster: CustomCluster, resource: Object, expected: list[tuple[str, str]]
) -> None:
    found = causes(post(cluster, one=resource))
    assert [f"spec.one.{field}" for field, _ in expected] == [field for field, _ in found]
    assert all(text.startswith(start) for (_, text), (_, start) in zip(found, expected))


def test_resources_are_looked_for_in_lists_and_maps(cluster: CustomCluster) -> None:
    found = causes(post(cluster, list=[HEAD, {"kind": "Pod"}], map={"k": {"apiVersion": "v1"}}))
    assert ["spec.list[1].apiVersion", "spec.map[k].kind"] == [field for field, _ in found]


def test_metadata_is_read_as_metadata(cluster: CustomCluster) -> None:
    meta = {"foo": 1, "name": "x", "labels": {"a": "b"}, "creationTimestamp": None}
    code, made, warnings = post(cluster, one={**HEAD, "metadata": meta, "other": 1})
    assert (201, ['unknown field "spec.one.metadata.foo"']) == (code, warnings)
    assert {**HEAD, "metadata": {"name": "x", "labels": {"a": "b"}}, "other": 1} == (
        made["spec"]["one"]
    )
    code, body, _ = post(cluster, "?fieldValidation=Strict", one={**HEAD, "metadata": {"foo": 1}})
    assert 400 == code
    assert body["message"].endswith('strict decoding error: unknown field "spec.one.metadata.foo"')
    code, made, warnings = cluster.ask_with_warnings(
        "POST", f"{THINGS}?fieldValidation=Ignore",
        {"metadata": {"name": "u"}, "spec": {"one": {**HEAD, "metadata": {"foo": 1}}}},
    )  # fmt: skip
    assert (201, {}, []) == (code, made["spec"]["one"]["metadata"], warnings)


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        ({**HEAD, "metadata": {"name": 5}},
         'metadata: Invalid value: {"name":5}: json: cannot unmarshal number into Go struct field '
         "ObjectMeta.name of type string"),
        ({**HEAD, "kind": 5}, "kind: Invalid value: 5: must be a string"),
        ({**HEAD, "kind": None}, "kind: Invalid value: null: must be a string"),
    ],
)  # fmt: skip
def test_a_head_of_the_wrong_type_is_no_resource(
    cluster: CustomCluster, resource: Object, text: str
) -> None:
    code, body, _ = post(cluster, list=[resource])
    prefix = 'Thing in version "v1" cannot be handled as a Thing: spec.list[0].'
    assert (400, prefix + text) == (code, body["message"])


def test_metadata_is_whole_whatever_the_schema_names(cluster: CustomCluster) -> None:
    meta = {"name": "xy", "labels": {"a": "b"}}
    code, made, warnings = post(cluster, known={**HEAD, "metadata": meta, "x": 1, "spec": {}})
    assert (201, ['unknown field "spec.known.x"']) == (code, warnings)
    assert {**HEAD, "metadata": meta, "spec": {"a": "A"}} == made["spec"]["known"]
    found = causes(post(cluster, known={**HEAD, "metadata": {"name": "x"}}))
    assert ["spec.known.metadata.name"] == [field for field, _ in found]
