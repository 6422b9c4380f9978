"""Patches and server-side apply where they are refused, and who manages what afterwards."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stower.apiserver.server_process import Options
from tests.contract.servers import Client, in_thread

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
WEB = f"{DEPLOYMENTS}/web"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def deployment(replicas: Any = 2, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
            **spec,
        },
    }


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path, memory=True)) as (_, made):
        made.call("POST", DEPLOYMENTS, deployment())
        yield made


def managers(item: dict[str, Any]) -> list[tuple[str, str, str]]:
    fields = item["metadata"].get("managedFields", ())
    return [(f["manager"], f["operation"], f.get("subresource", "")) for f in fields]


@pytest.mark.parametrize(
    ("kind", "patch", "code", "text"),
    [
        (STRATEGIC, {"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}}, 500,
         "map: map[image:x] does not contain declared merge key: name"),
        (STRATEGIC, {"spec": {"$patch": "odd"}}, 500,
         "unknown patch type: odd in map: map[$patch:odd]"),
        (STRATEGIC, {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}}, 400,
         "invalid patch format of retainKeys"),
        (STRATEGIC, {"spec": {"$retainKeys": 1}}, 400, "invalid patch format of retainKeys"),
        (STRATEGIC, {"metadata": {"$deleteFromPrimitiveList/finalizers": "x"}}, 400,
         "invalid patch format of primitive list"),
        (STRATEGIC, {"metadata": {"$setElementOrder/finalizers": "x"}}, 400,
         "invalid patch format of setElementOrder list"),
        (STRATEGIC, {"spec": {"replicas": "x"}}, 422, "map[spec:map[replicas:x]]"),
        (MERGE, {"kind": "Pod"}, 422, 'no kind "Pod" is registered'),
        (JSON, [{"op": "copy", "from": 5, "path": "/a"}], 422, "the server rejected"),
        (JSON, {"op": "add"}, 400, "error decoding patch"),
    ],
)  # fmt: skip
def test_patches_that_are_refused(
    client: Client, kind: str, patch: Any, code: int, text: str
) -> None:
    status, answer = client.call("PATCH", WEB, patch, kind)
    assert (code, True) == (status, text in answer["message"]), answer


def test_strategic_patch_looks_at_no_kind(client: Client) -> None:
    status, made = client.call("PATCH", WEB, {"kind": "Pod", "spec": {"replicas": 4}}, STRATEGIC)
    assert (200, "Deployment", 4) == (status, made["kind"], made["spec"]["replicas"])


def test_strict_patches(client: Client) -> None:
    """What is unknown or there twice is refused, or warned of."""
    operation = {"op": "replace", "path": "/spec/replicas", "value": 1, "odd": 1}
    status, answer = client.call("PATCH", f"{WEB}?fieldValidation=Strict", [operation], JSON)
    assert (422, True) == (status, 'json patch unknown field "[0].odd"' in answer["message"])
    twice = b'{"spec":{"replicas":3,"replicas":4}}'
    status, headers, _ = client.raw("PATCH", WEB, twice, {"Content-Type": MERGE})
    assert (200, True) == (status, "duplicate field" in headers["warning"])
    status, _, body = client.raw(
        "PATCH", f"{WEB}?fieldValidation=Strict", twice, {"Content-Type": MERGE}
    )
    assert (422, True) == (status, 'duplicate field "spec.replicas"' in json.loads(body)["message"])


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (deployment(bogus=1), ".spec.bogus: field not declared in schema"),
        (deployment("many"), "replicas"),
    ],
)
def test_applied_configurations_have_their_types(
    client: Client, config: dict[str, Any], text: str
) -> None:
    status, answer = client.call("PATCH", f"{WEB}?fieldManager=m", config, APPLY)
    assert 500 == status
    head = "failed to create typed patch object (default/web; apps/v1, Kind=Deployment): "
    assert answer["message"].startswith(head)
    assert text in answer["message"]


def test_kubectl_takes_over_what_it_applied_from_the_client(client: Client) -> None:
    """Without conflict, and the annotation follows; what somebody else changed is in conflict."""
    sent = deployment()
    text = json.dumps(sent)
    annotated = {**sent, "metadata": {**sent["metadata"], "annotations": {ANNOTATION: text}}}
    client.call("DELETE", WEB)
    client.call("POST", f"{DEPLOYMENTS}?fieldManager=kubectl-client-side-apply", annotated)
    path = f"{WEB}?fieldManager=kubectl"
    assert 409 == client.call("PATCH", f"{WEB}?fieldManager=other", deployment(3), APPLY)[0]
    status, made = client.call("PATCH", path, deployment(3), APPLY)
    assert (200, 3) == (status, made["spec"]["replicas"])
    assert 3 == json.loads(made["metadata"]["annotations"][ANNOTATION])["spec"]["replicas"]
    client.call("PATCH", f"{WEB}/scale?fieldManager=scaler", {"spec": {"replicas": 5}}, MERGE)
    status, answer = client.call("PATCH", path, deployment(3), APPLY)
    assert 409 == status
    assert '"scaler" with subresource "scale"' in answer["message"]


def test_managers_that_are_reset_come_back_with_the_first_apply(client: Client) -> None:
    _, made = client.call("PATCH", WEB, {"metadata": {"managedFields": [{}]}}, MERGE)
    assert [] == managers(made)
    _, made = client.call("PATCH", WEB, {"spec": {"replicas": 7}}, MERGE)
    assert [] == managers(made)
    _, made = client.call("PATCH", f"{WEB}?fieldManager=m", deployment(7), APPLY)
    assert [("m", "Apply", ""), ("before-first-apply", "Update", "")] == managers(made)
