"""Manifests of the shape of charts and installers that are widely used, a YAML file each.

Each is applied, as `kubectl apply` does, into a namespace that has the name of its file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

Object = dict[str, Any]
# Method, path, body and content type of a request; the answer is its status and what it says.
Send = Callable[[str, str, Any, str], tuple[int, Any]]

FILES: Final = sorted(Path(__file__).parent.glob("*.yaml"))
APPLY: Final = "application/apply-patch+yaml"
JSON: Final = "application/json"


def documents(path: Path) -> list[Object]:
    """The objects of a file, in order."""
    with path.open() as file:
        return [document for document in yaml.safe_load_all(file) if document]


class Applier:
    """Sends objects to a server, whose kinds it asks for when it meets them."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}

    def make(self, obj: Object, namespace: str, method: str) -> Object:
        """Creates (POST) or applies (PATCH) an object; returns it. Fails with the refusal."""
        name = obj["metadata"]["name"]
        path = self.path(obj, namespace)
        if method == "POST":
            status, answer = self._send("POST", f"{path}?fieldValidation=Strict", obj, JSON)
        else:
            query = "fieldManager=kubectl&fieldValidation=Strict"
            status, answer = self._send("PATCH", f"{path}/{name}?{query}", obj, APPLY)
        assert status in (200, 201), f"{obj['kind']} {name}: {method} {path}: {status} {answer}"
        made: Object = answer
        return made

    def path(self, obj: Object, namespace: str) -> str:
        """The path of the collection that an object belongs to."""
        version, kind = obj["apiVersion"], obj["kind"]
        if (version, kind) not in self._kinds:
            self._discover(version)
        assert (version, kind) in self._kinds, f"the server has no {kind} of {version}"
        resource, is_namespaced = self._kinds[version, kind]
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if is_namespaced:
            prefix += f"/namespaces/{obj['metadata'].get('namespace', namespace)}"
        return f"{prefix}/{resource}"

    def _discover(self, version: str) -> None:
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        status, found = self._send("GET", path, None, "")
        assert 200 == status, f"{path}: {status} {found}"
        for resource in found["resources"]:
            if "/" not in resource["name"]:
                self._kinds[version, resource["kind"]] = resource["name"], resource["namespaced"]


def namespace(name: str) -> Object:
    """The namespace of a file."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
