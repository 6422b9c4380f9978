"""The suite `api` against any cluster that a kubeconfig names.

The scripts suppose an API server without controllers, and nothing in it: they make and delete
whatever they like. So a cluster that holds anything of its own is refused, and between two scripts
everything is deleted.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import kubernetes

from tests.golden.api_suite import Answer, Object

SYSTEM_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease")
BUILT_IN: Final = ("default", "kubernetes", "kube-root-ca.crt", *SYSTEM_NAMESPACES)
MERGE: Final = {"Content-Type": "application/merge-patch+json"}
GROUPS: Final = (
    "api/v1", "apis/apps/v1", "apis/batch/v1", "apis/policy/v1", "apis/coordination.k8s.io/v1",
    "apis/storage.k8s.io/v1", "apis/scheduling.k8s.io/v1", "apis/scheduling.k8s.io/v1alpha2",
    "apis/resource.k8s.io/v1", "apis/node.k8s.io/v1",
)  # fmt: skip


class NotEmpty(Exception):
    """The cluster has objects of its own."""


class ClusterClient:
    """A server somewhere else; see `Client` in api_suite."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = kubernetes.config.new_client_from_config(config_file=str(kubeconfig))
        configuration = self._api.configuration
        self._host: str = configuration.host
        self._headers: dict[str, str] = {}
        self._api.update_params_for_auth(self._headers, [], ["BearerToken"], "", "GET", None)
        self.day = "|".join(
            (datetime.now(UTC) + timedelta(days=d)).strftime("%Y-%m-%d") for d in (-1, 0, 1)
        )
        self._collections = list(self._listable())
        found = list(self._objects())
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise NotEmpty(f"the cluster has {found[0]}{more}: these scripts want an empty one")

    def _ask(self, method: str, path: str, body: bytes | None, headers: Object) -> Any:
        return self._api.rest_client.pool_manager.request(
            method,
            self._host + path,
            body=body,
            headers={**self._headers, **headers},
            preload_content=False,
            redirect=False,
            retries=False,
        )

    def _json(self, method: str, path: str, body: Any = None, headers: Object | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if body is not None else {}
        response = self._ask(method, path, data, {**kind, **(headers or {})})
        found = json.loads(response.read() or b"null")
        return found if response.status < 300 else None

    def _listable(self) -> Iterator[str]:
        """Paths of collections that the scripts may use; namespaces last."""
        for group in GROUPS:
            for resource in (self._json("GET", f"/{group}") or {}).get("resources", ()):
                if {"list", "delete"} <= set(resource["verbs"]) and resource[
                    "name"
                ] != "namespaces":
                    yield f"/{group}/{resource['name']}"
        yield "/api/v1/namespaces"

    def _objects(self) -> Iterator[str]:
        for collection in self._collections:
            base, _, plural = collection.rpartition("/")
            for item in (self._json("GET", collection) or {}).get("items", ()):
                name, namespace = item["metadata"]["name"], item["metadata"].get("namespace")
                ours = name.startswith("system-") or namespace in SYSTEM_NAMESPACES
                if not ours and name not in BUILT_IN:
                    place = f"{base}/namespaces/{namespace}/{plural}" if namespace else collection
                    yield f"{place}/{name}"

    def clear(self) -> None:
        """Delete all that scripts have made, finalizers or not."""
        for path in list(self._objects()):
            self._json("DELETE", f"{path}?gracePeriodSeconds=0")
            left = self._json("GET", path)
            if left is not None and left["metadata"].get("finalizers"):
                self._json("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
            if path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
                left = self._json("GET", path)
                if left is not None:
                    left["spec"]["finalizers"] = []
                    self._json("PUT", f"{path}/finalize", left)

    def send(self, step: Object, path: str, body: bytes) -> Answer:
        """Carry out one request; a watch to its end."""
        headers = {"Accept": "application/json", **(step.get("headers") or {})}
        if "body" in step:
            headers.setdefault("Content-Type", "application/json")
        response = self._ask(step["method"], path, body if "body" in step else None, headers)
        return self.join(response)

    def open(self, step: Object, path: str) -> Any:
        """Start a watch; it is open when its headers have come."""
        return self._ask(step["method"], path, None, {"Accept": "application/json"})

    def join(self, opened: Any) -> Answer:
        """All of an answer."""
        host = self._host.partition("://")[2].encode()
        body = opened.read().replace(host, b"<server>")
        opened.release_conn()
        headers = {name.lower(): value for name, value in opened.headers.iteritems()}
        return Answer(opened.status, headers, body)

    def expire(self) -> None:
        """Cannot be asked of a cluster: such scripts are left out."""
        raise NotImplementedError
