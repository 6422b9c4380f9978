"""CustomCluster: an API server in memory, for definitions of custom resources and their objects."""

import json
from typing import Any, Final

from stower.api.requests import Request, Response
from stower.api.server import Api
from stower.apiserver.tables import load_registry

Object = dict[str, Any]
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOW_NS: Final = 1_790_000_000 * 10**9


def version(name: str, properties: Object, storage: bool = True, **more: Any) -> Object:
    """Returns a served version whose objects have these fields. `more`: of the schema."""
    schema = {"type": "object", "properties": properties, **more}
    return {
        "name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema},
    }  # fmt: skip


def definition(
    plural: str = "things",
    kind: str = "Thing",
    versions: list[Object] | None = None,
    shortNames: list[str] | None = None,
    **spec: Any,
) -> Object:
    """Returns a definition in the group example.com, of objects of the cluster."""
    names: Object = {"plural": plural, "kind": kind}
    if shortNames:
        names["shortNames"] = shortNames
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": names,
            "versions": versions or [version("v1", {})],
            **spec,
        },
    }


class CustomCluster:
    """An API server and its only client, who may do everything."""

    def __init__(self) -> None:
        self.api = Api(load_registry(), seed=1)
        self.now_ns = NOW_NS
        self.api.bootstrap(self.now_ns)

    def respond(self, method: str, path: str, body: Any = None, kind: str = "") -> Response:
        target, _, text = path.partition("?")
        query = tuple((n, v) for n, _, v in (p.partition("=") for p in text.split("&")) if n)
        response = self.api.handle(
            Request(
                method,
                target,
                self.now_ns,
                query=query,
                body=b"" if body is None else json.dumps(body).encode(),
                content_type=kind or "application/json",
            )
        )
        assert isinstance(response, Response)
        return response

    def ask_with_warnings(
        self, method: str, path: str, body: Any = None, kind: str = ""
    ) -> tuple[int, Any, list[str]]:
        """Returns the status, the body and the warnings of an answer."""
        response = self.respond(method, path, body, kind)
        text = response.body
        found = json.loads(text) if text[:1] == b"{" else text.decode()
        return response.status, found, [*response.warnings]

    def ask(self, method: str, path: str, body: Any = None, kind: str = "") -> tuple[int, Any]:
        """Returns the status and the body of an answer."""
        return self.ask_with_warnings(method, path, body, kind)[:2]

    def get(self, path: str) -> Any:
        code, found = self.ask("GET", path)
        assert 200 == code, found
        return found

    def make(self, path: str, body: Object) -> Any:
        code, found = self.ask("POST", path, body)
        assert 201 == code, found
        return found

    def define(self, body: Object) -> Any:
        return self.make(DEFINITIONS, body)

    def redefine(self, name: str, **spec: Any) -> Any:
        """Changes fields of a definition's spec."""
        found = self.get(f"{DEFINITIONS}/{name}")
        found["spec"] |= spec
        code, found = self.ask("PUT", f"{DEFINITIONS}/{name}", found)
        assert 200 == code, found
        return found
