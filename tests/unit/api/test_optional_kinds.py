"""Kinds that are served only where the server is told to."""

import pytest

from stower.api.optional_kinds import SERVE
from stower.api.requests import Request, Response
from stower.api.server import Api
from stower.apiserver.tables import load_registry


@pytest.mark.parametrize(
    "path", ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/resource.k8s.io/v1beta2"]
)
def test_their_schemas_are_published(path: str) -> None:
    api = Api(load_registry("1.36", SERVE), seed=1)
    answer = api.handle(Request("GET", path, 0))
    assert isinstance(answer, Response)
    assert 200 == answer.status
    assert b"v1beta2" in answer.body
