"""Types of applied configurations, and lists that have an item twice.

The messages are a real server's, 1.36.
"""

import json
from typing import Any

import pytest

from stower.api.requests import APPLY_PATCH
from tests.unit.api.custom_cluster import DEFINITIONS, definition, version
from tests.unit.api.one_client import PODS, Client, Object

MAPS = "/api/v1/namespaces/default/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
OF_POD, OF_MAP = "(/p; /v1, Kind=Pod)", "(/m; /v1, Kind=ConfigMap)"
BAD_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


def pod(meta: Object | None = None, **spec: Any) -> Object:
    containers = [{"name": "c", "image": "i"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **(meta or {})},
            "spec": {"containers": containers, **spec}}  # fmt: skip


def of_one(**container: Any) -> Object:
    return pod(containers=[{"name": "c", "image": "i", **container}])


def config_map(**fields: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, **fields}


def apply(client: Client, path: str, body: Any, manager: str = "t") -> tuple[int, Object]:
    return client.send("PATCH", f"{path}?fieldManager={manager}", body, APPLY_PATCH)


POD_CASES: list[tuple[Object, str]] = [
    (of_one(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
     '.spec.containers[name="c"].env: duplicate entries for key [name="A"]'),
    (of_one(ports=[{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP"}]),
     '.spec.containers[name="c"].ports: duplicate entries for key [containerPort=80,'
     'protocol="TCP"]'),
    (pod({"finalizers": ["a.b/c", "a.b/c"]}),
     '.metadata.finalizers: duplicate entries for key [="a.b/c"]'),
    (pod({"finalizers": [1, 1]}),
     "errors:\n"
     "  .metadata.finalizers[=1]: expected string, got &value.valueUnstructured{Value:1}\n"
     "  .metadata.finalizers: duplicate entries for key [=1]\n"
     "  .metadata.finalizers[=1]: expected string, got &value.valueUnstructured{Value:1}"),
    (pod({"finalizers": [{}]}), ".metadata.finalizers: element 0: associative list without keys "
     "has an element that's a map type"),
    (pod({"finalizers": [[]]}), ".metadata.finalizers: element 0: not supported: associative list "
     "with lists as elements"),
    (pod({"finalizers": [None]}), ".metadata.finalizers: element 0: associative list without keys "
     "has an element that's an explicit null"),
    (pod(containers=[{"image": "i"}, {"image": "j"}]),
     '.spec.containers: duplicate entries for key [name=""]'),
    (pod(containers=[None]), ".spec.containers: element 0: associative list with keys may not "
     "have a null element"),
    (pod(containers=["x"]), ".spec.containers: element 0: associative list with keys may not have "
     "non-map elements"),
    (of_one(foo=1), '.spec.containers[name="c"].foo: field not declared in schema'),
    (pod(tolerations=[{"foo": 1}]), ".spec.tolerations[0].foo: field not declared in schema"),
    (pod(foo=1, bar=2), ".spec.foo: field not declared in schema"),  # and no other of the same map
    (of_one(ports=[{"containerPort": "80"}]),
     '.spec.containers[name="c"].ports[containerPort="80",protocol="TCP"].containerPort: expected '
     "numeric (int or float), got string"),
    (of_one(resources={"requests": {"cpu": ["x"]}}),
     '.spec.containers[name="c"].resources.requests.cpu: expected any scalar, got &{[x]}'),
    (pod(containers={"a": 1}), ".spec.containers: expected list, got &{map[a:1]}"),
    ({**pod(), "spec": []}, ".spec: expected map, got &{[]}"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "fault"), POD_CASES)
def test_pods(body: Object, fault: str) -> None:
    client = Client()
    wanted = (500, f"failed to create typed patch object {OF_POD}: {fault}")
    for _ in range(2):  # of no pod, and of one
        status, answer = apply(client, f"{PODS}/p", body)
        assert wanted == (status, answer["message"])
        assert "reason" not in answer
        client.send("POST", PODS, pod())


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"data": {"a": 1}}, ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
        ({"data": {"a": 1234567.5}},
         ".data.a: expected string, got &value.valueUnstructured{Value:1.2345675e+06}"),
        ({"data": {"a": 12345678901234567890}},
         ".data.a: expected string, got &value.valueUnstructured{Value:1.2345678901234567e+19}"),
        ({"data": {"a": {"b": 1, "a": ["x", None, True]}}},
         ".data.a: expected string, got &value.valueUnstructured{Value:map[string]interface {}"
         '{"a":[]interface {}{"x", interface {}(nil), true}, "b":1}}'),
        ({"data": ["a"]}, ".data: expected map, got &{[a]}"),
        ({"data": True}, ".data: expected map, got &{true}"),
        ({"immutable": "x"}, ".immutable: expected boolean, got &{x}"),
    ],
)  # fmt: skip
def test_config_maps(fields: Object, fault: str) -> None:
    status, answer = apply(Client(), f"{MAPS}/m", config_map(**fields))
    assert 500 == status
    assert f"failed to create typed patch object {OF_MAP}: {fault}" == answer["message"]


@pytest.mark.parametrize(
    ("meta", "name"),
    [
        ({}, "/"),
        ({"name": "m", "namespace": "default"}, "default/m"),
        ([], "/"),
        ({"name": 1}, "/"),
    ],
)
def test_a_configuration_is_named_by_what_it_says_itself(meta: Any, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"a": 1}}
    status, answer = apply(Client(), f"{MAPS}/m", body)
    assert 500 == status
    assert f"typed patch object ({name}; /v1, Kind=ConfigMap): " in answer["message"]


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (of_one(resources={"requests": {"cpu": "x"}}), BAD_QUANTITY),
        (of_one(resources={"requests": {"cpu": True}}), BAD_QUANTITY),
        (of_one(ports=[{"containerPort": 80.5}]), "cannot convert float64 to int32"),
        (pod({"creationTimestamp": 1}),
         "json: cannot unmarshal number into Go value of type string"),
        (of_one(livenessProbe={"tcpSocket": {"port": {"a": 1}}}),
         "json: cannot unmarshal object into Go value of type int32"),
    ],
)  # fmt: skip
def test_values_that_only_the_reader_of_their_type_refuses(body: Object, fault: str) -> None:
    status, answer = apply(Client(), f"{PODS}/p", body)
    assert 500 == status
    assert answer["message"] == (
        f"failed to convert new object {OF_POD} to proper version: unable to convert unstructured "
        f"object to /v1, Kind=Pod: {fault}"
    )


def test_a_conflict_comes_before_a_value_that_cannot_be_read() -> None:
    client = Client()
    client.send("POST", MAPS, config_map(binaryData={"a": "YQ=="}))
    assert 409 == apply(client, f"{MAPS}/m", config_map(binaryData={"a": "*"}))[0]
    status, answer = apply(client, f"{MAPS}/m", config_map(binaryData={"b": "*"}))
    assert 500 == status
    assert answer["message"].endswith(
        "error decoding from json: illegal base64 data at input byte 0"
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
         "unmarshal array into Go value of type map[string]interface {}"),
        (None, "invalid object type: /, Kind="),
        (config_map(kind=1), "invalid object type: /v1, Kind="),
        (config_map(metadata={"name": "m", "managedFields": []}),
         "metadata.managedFields must be nil"),
    ],
)  # fmt: skip
def test_what_is_no_configuration(body: Any, message: str) -> None:
    raw = b"" if body is None else json.dumps(body).encode()
    response = Client().ask("PATCH", f"{MAPS}/m?fieldManager=t", raw, APPLY_PATCH)
    assert (400, message) == (response.status, json.loads(response.body)["message"])


# Custom resources

SPEC = {"type": "object", "properties": {
    "count": {"type": "integer"}, "text": {"type": "string"}, "is": {"type": "boolean"},
    "at": {"type": "string", "format": "date-time"}, "free": {"type": "object"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "either": {"x-kubernetes-int-or-string": True},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
    "named": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"],
                  "properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}},
    "ports": {
        "type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": {"type": "object", "required": ["port"], "properties": {
            "port": {"type": "integer"}, "protocol": {"type": "string", "default": "X"}}}},
}}  # fmt: skip
NUMBER = "expected numeric (int or float), got string"


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"count": "x"}, f".spec.count: {NUMBER}"),
        ({"text": 1}, ".spec.text: expected string, got &value.valueUnstructured{Value:1}"),
        ({"is": "x"}, ".spec.is: expected boolean, got &{x}"),
        ({"at": ["x"]}, ".spec.at: expected any scalar, got &{[x]}"),
        ({"free": []}, ".spec.free: expected map, got &{[]}"),
        ({"set": ["a", "a"]}, '.spec.set: duplicate entries for key [="a"]'),
        ({"named": [{"name": "a"}, {"name": "a"}]},
         '.spec.named: duplicate entries for key [name="a"]'),
        ({"named": [{"name": "a", "count": "x"}]}, f'.spec.named[name="a"].count: {NUMBER}'),
        ({"named": [{"count": 1}]},
         ".spec.named: element 0: associative list with keys has an element that omits all key "
         'fields ["name"] (and doesn\'t have default values for any key fields)'),
        ({"ports": [{"port": 1}, {"port": 1, "protocol": "X"}]},
         '.spec.ports: duplicate entries for key [port=1,protocol="X"]'),
        ({"any": [{"a": 1}, {"a": 1}], "either": "x", "free": {"a": []}}, ""),
    ],
)  # fmt: skip
def test_custom_resources(spec: Object, fault: str) -> None:
    client = Client()
    client.send("POST", DEFINITIONS, definition(versions=[version("v1", {"spec": SPEC})]))
    body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"},
            "spec": spec}  # fmt: skip
    status, answer = apply(client, "/apis/example.com/v1/things/t", body)
    if not fault:
        assert 201 == status, answer
        return
    wanted = "failed to create typed patch object (/t; example.com/v1, Kind=Thing)"
    assert (500, f"{wanted}: {fault}") == (status, answer["message"])


# What a stored object has twice


def deployment(environment: list[Object]) -> Object:
    container = {"name": "c", "image": "i", "env": environment}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}},
                 "template": {"metadata": {"labels": {"a": "b"}},
                              "spec": {"containers": [container]}}},
    }  # fmt: skip


def variables(*given: str) -> list[Object]:
    return [{"name": text[0], "value": text[1]} for text in given]


def environment(item: Object) -> list[str]:
    found = item["spec"]["template"]["spec"]["containers"][0]["env"]
    return [variable["name"] + variable["value"] for variable in found]


def managed_environment(item: Object, manager: str) -> Object:
    (entry,) = (m for m in item["metadata"]["managedFields"] if m["manager"] == manager)
    containers = entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    found: Object = containers['k:{"name":"c"}']["f:env"]
    return found


A, B = 'k:{"name":"A"}', 'k:{"name":"B"}'
FIELDS: Object = {".": {}, "f:name": {}, "f:value": {}}


@pytest.fixture
def client() -> Client:
    client = Client()
    body = deployment(variables("A1", "B1", "A2"))
    status, item = client.send("POST", f"{DEPLOYMENTS}?fieldManager=first", body)
    assert 201 == status
    assert {".": {}, A: {}, B: FIELDS} == managed_environment(item, "first")
    return client


def test_an_apply_keeps_what_it_says_nothing_of(client: Client) -> None:
    status, item = apply(client, f"{DEPLOYMENTS}/d", deployment(variables("B1", "C1")))
    assert (200, ["A1", "B1", "A2", "C1"]) == (status, environment(item))
    status, item = apply(client, f"{DEPLOYMENTS}/d", deployment(variables("B1")))
    assert (200, ["A1", "B1", "A2"]) == (status, environment(item))


@pytest.mark.parametrize("value", ["A1", "A2", "A3"])
def test_an_apply_takes_the_place_of_all_with_its_key(client: Client, value: str) -> None:
    body = deployment(variables(value))
    status, answer = apply(client, f"{DEPLOYMENTS}/d", body)
    assert 409 == status
    assert answer["message"] == (
        'Apply failed with 1 conflict: conflict with "first" using apps/v1: '
        '.spec.template.spec.containers[name="c"].env[name="A"]'
    )
    status, item = apply(client, f"{DEPLOYMENTS}/d", body, "t&force=true")
    assert (200, [value, "B1"]) == (status, environment(item))
    assert {".": {}, B: FIELDS} == managed_environment(item, "first")


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (("A7", "B1", "A2"), {A: {}}),
        (("A1", "B1", "A7"), {A: {}}),
        (("A1", "B1"), {A: FIELDS}),
    ],
)
def test_an_update_of_one_of_them_is_one_of_all(
    client: Client, given: tuple[str, ...], fields: Object
) -> None:
    body = deployment(variables(*given))
    status, item = client.send("PUT", f"{DEPLOYMENTS}/d?fieldManager=second", body)
    assert (200, [*given]) == (status, environment(item))
    assert {".": {}, B: FIELDS} == managed_environment(item, "first")
    assert fields == managed_environment(item, "second")
