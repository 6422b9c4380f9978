"""A client of one API in memory, for tests of what the API takes, keeps and refuses."""

import json
from typing import Any
from urllib.parse import parse_qsl

from stower.api.registry import Registry
from stower.api.requests import JSON, Request, Response
from stower.api.server import Api
from stower.apiserver.tables import load_registry

Object = dict[str, Any]
SECOND = 1_000_000_000
REGISTRY: Registry = load_registry()
PODS = "/api/v1/namespaces/default/pods"


class Client:
    """One API, asked one request a second."""

    def __init__(self) -> None:
        self.api = Api(REGISTRY, seed=1)
        self.api.bootstrap(0)
        self.now_s = 0

    def ask(
        self, method: str, path: str, body: bytes = b"", form: str = JSON, accept: str = JSON
    ) -> Response:
        self.now_s += 1
        where, _, query = path.partition("?")
        request = Request(
            method, where, self.now_s * SECOND, tuple(parse_qsl(query, keep_blank_values=True)),
            body=body, content_type=form, accept=accept,
        )  # fmt: skip
        response = self.api.handle(request)
        assert isinstance(response, Response)
        return response

    def send(
        self, method: str, path: str, body: Any = None, form: str = JSON
    ) -> tuple[int, Object]:
        raw = b"" if body is None else json.dumps(body).encode()
        response = self.ask(method, path, raw, form)
        return response.status, json.loads(response.body)

    def faults(self, method: str, path: str, body: Any, form: str = JSON) -> set[tuple[str, str]]:
        """Why a write is refused, by field; empty: it is not."""
        status, answer = self.send(method, path, body, form)
        if status in (200, 201):
            return set()
        assert 422 == status, answer
        return {
            (c["field"], c["reason"].removeprefix("FieldValue"))
            for c in answer["details"]["causes"]
        }


def pod(name: str = "p", **spec: Any) -> Object:
    """A pod of one container, unless the spec has others."""
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}
