"""Keys that a body has twice: of YAML by their lines, of JSON by their paths."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from stower.apiserver.documents import read_yaml
from tests.unit.api.custom_cluster import DEFINITIONS, definition, version
from tests.unit.apiserver.memory_api import CONFIG_MAPS, MemoryApi

THINGS: Final = "/apis/example.com/v1/things"
APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
YAML: Final = {"Content-Type": "application/yaml"}
JSON: Final = {"Content-Type": "application/json"}
THING: Final = b"""
apiVersion: example.com/v1
kind: Thing
metadata:
  name: t
spec:
  foo: foo1
  list:
  - foo: [{a: 1}, {a: 2}]
  foo: foo2
"""
TWICE: Final = 'yaml: unmarshal errors:\n  line 10: key "foo" already set in map'


@pytest.fixture
def server() -> Iterator[MemoryApi]:
    made = MemoryApi()
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    body = json.dumps(definition(versions=[version("v1", {"spec": spec})])).encode()
    assert 201 == made.raw("POST", DEFINITIONS, body, JSON)[0]
    yield made
    made.end()


def test_keys_are_found_by_their_lines_in_nested_maps() -> None:
    found = read_yaml(b"a: {b: 1, b: 2}\nc:\n- a: 1\n- a: 1\n  a: 2\na: 3\n")
    assert {"a": 3, "c": [{"a": 1}, {"a": 2}]} == json.loads(found.json)
    assert [
        "yaml: unmarshal errors:",
        '  line 1: key "b" already set in map',
        '  line 5: key "a" already set in map',
        '  line 6: key "a" already set in map',
    ] == found.repeats.splitlines()
    assert "" == read_yaml(b"a: {a: a}\nb: a\n").repeats


@pytest.mark.parametrize(
    ("method", "path", "kind", "prefix"),
    [
        ("PATCH", f"{THINGS}/t?fieldManager=m&", APPLY, "error strict decoding YAML: error conv"),
        ("POST", f"{THINGS}?", YAML, 'Thing in version "v1" cannot be handled as a Thing: strict'),
    ],
)
def test_a_strict_server_refuses_them(
    server: MemoryApi, method: str, path: str, kind: Any, prefix: str
) -> None:
    status, _, body = server.raw(method, f"{path}fieldValidation=Strict", THING, kind)
    message = json.loads(body)["message"]
    assert (400, True, True) == (status, message.startswith(prefix), message.endswith(TWICE))
    status, headers, body = server.raw(method, f"{path}fieldValidation=Warn", THING, kind)
    assert (201, "foo2") == (status, json.loads(body)["spec"]["foo"])
    assert "already set in map" in headers["warning"]


def test_ignored_they_are_not_told(server: MemoryApi) -> None:
    status, headers, _ = server.raw("POST", f"{THINGS}?fieldValidation=Ignore", THING, YAML)
    assert (201, False) == (status, "warning" in headers)


def test_long_texts_are_looked_through_too(server: MemoryApi) -> None:
    data = b"".join(b"  k%d: '%s'\n" % (i, b"x" * 100) for i in range(300))
    text = b"metadata:\n  name: m\ndata:\n  k7: a\n" + data
    path = f"{CONFIG_MAPS}?fieldValidation=Strict"
    status, _, body = server.raw("POST", path, text, YAML)
    assert (400, True) == (status, 'line 12: key "k7" already' in json.loads(body)["message"])


def test_json_of_custom_resources_is_told_by_paths(server: MemoryApi) -> None:
    text = b'{"metadata": {"name": "t"}, "spec": {"a": 1, "b": {"c": 1, "c": 2}}}'
    status, _, body = server.raw("POST", f"{THINGS}?fieldValidation=Strict", text, JSON)
    told = 'strict decoding error: duplicate field "spec.b.c"'
    assert (400, True) == (status, told in json.loads(body)["message"])
    once = b'{"metadata": {"name": "t"}, "spec": {"a": 1, "b": {"c": "{\\"d\\":1}"}}}'
    assert 201 == server.raw("POST", f"{THINGS}?fieldValidation=Strict", once, JSON)[0]
