"""Answers that are not stored cannot be Tables."""

import json

import pytest

from stower.api.requests import Request, Response
from tests.unit.api.custom_cluster import CustomCluster

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(("accept", "code"), [(TABLE, 406), (f"{TABLE},application/json", 201)])
def test_a_review_is_no_table(accept: str, code: int) -> None:
    cluster = CustomCluster()
    spec = {"resourceAttributes": {"resource": "pods", "verb": "get"}}
    body = json.dumps({"spec": spec}).encode()
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    request = Request("POST", path, cluster.now_ns, (), body, "application/json", accept)
    response = cluster.api.handle(request)
    assert isinstance(response, Response)
    found = json.loads(response.body)
    assert (code, code == 406) == (response.status, found.get("reason") == "NotAcceptable")
