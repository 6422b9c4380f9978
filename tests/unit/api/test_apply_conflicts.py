"""Refusals of server-side apply: which managers and fields they name."""

import json

from stower.api.requests import APPLY_PATCH, MERGE_PATCH
from tests.unit.api.one_client import PODS, Client, Object

PATH = "/apis/apps/v1/namespaces/default/deployments"


def deployment(**spec: object) -> Object:
    template = {"metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template, **spec},
    }  # fmt: skip


def test_fields_of_a_level_come_before_those_below_it() -> None:
    client = Client()
    client.send("POST", PATH, deployment(replicas=1, minReadySeconds=1))
    other = deployment(replicas=2, minReadySeconds=2)
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "j"
    status, answer = client.send("PATCH", f"{PATH}/d?fieldManager=m", other, APPLY_PATCH)
    assert 409 == status
    image = '.spec.template.spec.containers[name="c"].image'
    fields = [".spec.minReadySeconds", ".spec.replicas", image]
    assert fields == [cause["field"] for cause in answer["details"]["causes"]]
    manager = '"unknown" using apps/v1'
    listed = "\n".join(f"- {field}" for field in fields)
    assert (
        f"Apply failed with 3 conflicts: conflicts with {manager}:\n{listed}" == answer["message"]
    )


def test_a_manager_is_named_with_its_subresource() -> None:
    client = Client()
    client.send("POST", PODS, {"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "i"}]}})  # fmt: skip

    def status(reason: str, manager: str, operation: str) -> Object:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                "status": {"reason": reason}}  # fmt: skip
        path = f"{PODS}/p/status?fieldManager={manager}"
        return client.send("PATCH", path, body, operation)[1]

    status("A", "first", APPLY_PATCH)
    message = 'Apply failed with 1 conflict: conflict with "first" with subresource "status": '
    assert f"{message}.status.reason" == status("B", "second", APPLY_PATCH)["message"]
    status("C", "third", MERGE_PATCH)
    found = status("D", "second", APPLY_PATCH)["message"]
    assert '"third" with subresource "status" using v1: ' in found


def test_an_object_without_managers_is_that_of_before_the_first_apply() -> None:
    client = Client()
    maps = "/api/v1/namespaces/default/configmaps"
    client.send("POST", maps, {"metadata": {"name": "m"}, "data": {"a": "1"}})
    client.send("PATCH", f"{maps}/m", {"metadata": {"managedFields": [{}]}}, MERGE_PATCH)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "2"}}
    status, answer = client.send("PATCH", f"{maps}/m?fieldManager=t", body, APPLY_PATCH)
    assert 409 == status
    assert 'conflict with "before-first-apply" using v1' in json.dumps(answer["message"]).replace(
        '\\"', '"'
    )
