"""What admission makes of PodGroups."""

import json
from typing import Any

from stower.api.requests import Request, Response
from stower.api.server import Api
from stower.apiserver.tables import load_registry

GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def post(api: Api, path: str, name: str, **fields: Any) -> tuple[int, Any]:
    body = json.dumps({"metadata": {"name": name}, **fields}).encode()
    answer = api.handle(Request("POST", path, 0, body=body, content_type="application/json"))
    assert isinstance(answer, Response)
    return answer.status, json.loads(answer.body)


def test_a_group_has_the_priority_of_its_class() -> None:
    api = Api(load_registry(), seed=1)
    assert 201 == post(api, "/api/v1/namespaces", "default")[0]
    assert 201 == post(api, CLASSES, "high", value=100)[0]
    spec: dict[str, Any] = {"schedulingPolicy": {"basic": {}}}
    status, made = post(api, GROUPS, "g", spec={**spec, "priorityClassName": "high"})
    assert (201, 100) == (status, made["spec"]["priority"])
    status, made = post(api, GROUPS, "h", spec=spec)
    assert (201, False) == (status, "priority" in made["spec"])
    wrong = {**spec, "priorityClassName": "high", "priority": 7}
    status, said = post(api, GROUPS, "i", spec=wrong)
    assert 403 == status
    assert (
        "priority set in the pod group (7) must match the priority computed (100)"
        in (said["message"])
    )
    status, said = post(api, GROUPS, "j", spec={**spec, "priorityClassName": "none"})
    assert (403, True) == (status, "no PriorityClass with name none was found" in said["message"])
