"""Words of refusals: values of wrong types in patches, options of deletions, representations.

The messages are a real server's, 1.36.
"""

import json
from typing import Any

import pytest

from stower.api.requests import MERGE_PATCH, STRATEGIC_PATCH
from tests.unit.api.one_client import Client, Object

MAPS = "/api/v1/namespaces/default/configmaps"
SECRETS = "/api/v1/namespaces/default/secrets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
def client() -> Client:
    client = Client()
    client.send("POST", MAPS, {"metadata": {"name": "o"}, "data": {"a": "1"}})
    client.send("POST", SECRETS, {"metadata": {"name": "o"}, "data": {"a": "YQ=="}})
    template = {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}  # fmt: skip
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    client.send("POST", DEPLOYMENTS, {"metadata": {"name": "o"}, "spec": spec})
    return client


def refusal(client: Client, path: str, patch: Object, form: str) -> str:
    """The end of the message about a patch."""
    status, answer = client.send("PATCH", f"{path}/o", patch, form)
    assert 422 == status, answer
    (cause,) = answer["details"]["causes"]
    assert "patch" == cause["field"]
    message: str = cause["message"]
    return message.rpartition('": ')[2]


def of_pods(**spec: Any) -> Object:
    return {"spec": {"template": {"spec": spec}}}


def of_container(**fields: Any) -> Object:
    return of_pods(containers=[{"name": "c", **fields}])


@pytest.mark.parametrize(
    ("path", "patch", "why"),
    [
        (MAPS, {"data": ["a"]}, "cannot restore map from slice"),
        (MAPS, {"data": 1}, "cannot restore map from int64"),
        (MAPS, {"data": {"a": 1}}, "cannot convert int64 to string"),
        (MAPS, {"data": {"a": ["x"]}}, "unrecognized type: string"),
        (MAPS, {"immutable": "x"}, "unrecognized type: bool"),
        (MAPS, {"metadata": []}, "cannot restore struct from: slice"),
        (MAPS, {"metadata": {"finalizers": {"a": 1}}}, "cannot restore slice from map"),
        (MAPS, {"metadata": {"creationTimestamp": 1}},
         "json: cannot unmarshal number into Go value of type string"),
        (MAPS, {"kind": 1}, "cannot convert int64 to string"),
        (MAPS, {"binaryData": {"a": "*"}},
         "error decoding from json: illegal base64 data at input byte 0"),
        (SECRETS, {"data": {"a": 1}}, "cannot restore slice from int64"),
        (DEPLOYMENTS, {"spec": {"replicas": "x"}}, "unrecognized type: int32"),
        (DEPLOYMENTS, {"spec": {"replicas": 1.5}}, "cannot convert float64 to int32"),
        (DEPLOYMENTS, {"spec": {"replicas": []}}, "unrecognized type: int32"),
        (DEPLOYMENTS, {"spec": "x"}, "cannot restore struct from: string"),
        (DEPLOYMENTS, of_pods(containers={"a": 1}), "cannot restore slice from map"),
        (DEPLOYMENTS, of_pods(tolerations=["a"]), "cannot restore struct from: string"),
        (DEPLOYMENTS, of_container(ports="x"), "cannot restore slice from string"),
        (DEPLOYMENTS, {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1.5}}}},
         "json: cannot unmarshal number 1.5 into Go value of type int32"),
    ],
)  # fmt: skip
def test_types_of_strategic_patches(client: Client, path: str, patch: Object, why: str) -> None:
    assert why == refusal(client, path, patch, STRATEGIC_PATCH)


@pytest.mark.parametrize(
    ("path", "patch", "why"),
    [
        (MAPS, {"data": {"a": 1}},
         "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        (SECRETS, {"data": {"a": 1}},
         "json: cannot unmarshal number into Go struct field Secret.data of type []uint8"),
        (MAPS, {"kind": "Secret"}, "illegal base64 data at input byte 0"),
        (SECRETS, {"kind": "ConfigMap"},
         "converting (v1.ConfigMap) to (core.Secret): unknown conversion"),
        (MAPS, {"kind": 1}, "couldn't get version/kind; json parse error: json: cannot unmarshal "
         "number into Go struct field .kind of type string"),
        (DEPLOYMENTS, {"spec": {"strategy": {"rollingUpdate": {"maxSurge": True}}}},
         "json: cannot unmarshal bool into Go struct field RollingUpdateDeployment.spec.strategy."
         "rollingUpdate.maxSurge of type int32"),
    ],
)  # fmt: skip
def test_types_of_merge_patches(client: Client, path: str, patch: Object, why: str) -> None:
    assert why == refusal(client, path, patch, MERGE_PATCH)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ({"propagationPolicy": "Foo"}, 422,
         'DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "Foo": '
         'supported values: "Foreground", "Background", "Orphan", "nil"'),
        ({"kind": "Pod", "apiVersion": "v1"}, 400,
         'no kind "Pod" is registered for version "v1" in scheme '
         '"pkg/apis/meta/internalversion/scheme/register.go:27"'),
        ({"gracePeriodSeconds": "x"}, 400,
         "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of "
         "type int64"),
    ],
)  # fmt: skip
def test_options_of_deletions(client: Client, options: Object, status: int, message: str) -> None:
    found, answer = client.send("DELETE", f"{MAPS}/o", options)
    assert (status, message) == (found, answer["message"])


@pytest.mark.parametrize(
    ("path", "forms"),
    [
        (MAPS, "application/json, application/yaml"),
        ("/api", "application/json, application/yaml"),
        (f"{MAPS}?watch=true", "application/json;stream=watch"),
    ],
)
def test_protobuf_is_not_among_what_a_client_of_it_can_have(path: str, forms: str) -> None:
    accept = "application/vnd.kubernetes.protobuf"
    response = Client().ask("GET", path, accept=accept)
    text = f"only the following media types are accepted: {forms}"
    assert (406, text) == (response.status, json.loads(response.body)["message"])
