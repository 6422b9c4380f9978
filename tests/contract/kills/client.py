"""Sends requests to the API server and records what the server has acknowledged.

The server may be away at any time: a write is repeated until it is answered.
"""

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final

import yaml

Object = dict[str, Any]
Report = Callable[[str, str], None]  # takes a law and a text
AWAY: Final = (OSError, HTTPException, json.JSONDecodeError)
# Seconds for which a write is repeated. `stower up` starts within 120 s or fails.
ANSWER_SECONDS_MAX: Final = 180.0
PAUSE_SECONDS: Final = 0.2
GROUPS: Final = {
    "namespaces": "/api/v1",
    "nodes": "/api/v1",
    "pods": "/api/v1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "priorityclasses": "/apis/scheduling.k8s.io/v1",
    "podgroups": "/apis/scheduling.k8s.io/v1beta1",
    "compositepodgroups": "/apis/scheduling.k8s.io/v1alpha3",
    "deviceclasses": "/apis/resource.k8s.io/v1",
    "resourceslices": "/apis/resource.k8s.io/v1",
    "resourceclaims": "/apis/resource.k8s.io/v1",
    "resourceclaimtemplates": "/apis/resource.k8s.io/v1",
    "resourceclasses": "/apis/stower.dev/v1",
    "podschedulings": "/apis/stower.dev/v1",
    "warmpools": "/apis/stower.dev/v1",
    "virtualmachines": "/apis/vm.neon.tech/v1",
    "virtualmachinemigrations": "/apis/vm.neon.tech/v1",
}
CLUSTER_WIDE: Final = (
    "namespaces nodes priorityclasses deviceclasses resourceslices resourceclasses".split()
)


def resource_of(kind: str) -> str:
    """Returns the name of a kind in paths."""
    return kind.lower() + ("es" if kind.endswith("s") else "s")


def path_of(resource: str, namespace: str = "", name: str = "") -> str:
    """Returns the path of an object, or of a collection if no name is given."""
    path = GROUPS[resource]
    if namespace and resource not in CLUSTER_WIDE:
        path += f"/namespaces/{namespace}"
    return f"{path}/{resource}" + (f"/{name}" if name else "")


def key_of(obj: Object) -> str:
    """Returns `namespace/name`, or the name of an object of the whole cluster."""
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def version_of(obj: Object) -> int:
    """Returns the resource version of an object or a list."""
    return int(obj["metadata"]["resourceVersion"])


class Api:
    """A connection to the API server, opened again after each failure. Used by one thread."""

    def __init__(self, kubeconfig: Path, timeout: float = 20, token: str = "") -> None:
        """Uses the kubeconfig's token if none is given."""
        self._kubeconfig = kubeconfig
        self._timeout = timeout
        self._connection: HTTPSConnection | None = None
        self._given = token
        self._token = ""

    def _open(self) -> HTTPSConnection:
        """Reads the kubeconfig anew, as every command of a user does."""
        try:
            config = yaml.safe_load(self._kubeconfig.read_text())
            cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        except (yaml.YAMLError, TypeError, KeyError, ValueError) as error:
            raise OSError(f"{self._kubeconfig}: {error}") from None
        self._token = self._given or user["token"]
        host, port = cluster["server"].removeprefix("https://").rsplit(":", 1)
        context = ssl.create_default_context(cadata=authority)
        return HTTPSConnection(host, int(port), context=context, timeout=self._timeout)

    def send(self, method: str, path: str, body: Any = None, content: str = "") -> HTTPResponse:
        """Returns the response, to be read by the caller. Raises one of AWAY."""
        try:
            if self._connection is None:
                self._connection = self._open()
            headers = {"Authorization": f"Bearer {self._token}", "User-Agent": "watcher"}
            data = None
            if body is not None:
                headers["Content-Type"] = content or "application/json"
                data = json.dumps(body).encode()
            self._connection.request(method, path, data, headers)
            return self._connection.getresponse()
        except BaseException:
            self.close()
            raise

    def call(self, method: str, path: str, body: Any = None, content: str = "") -> tuple[int, Any]:
        """Returns the status and the JSON of the answer. Raises one of AWAY."""
        response = self.send(method, path, body, content)
        try:
            data = response.read()
            return response.status, json.loads(data) if data else None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@dataclass
class Ledger:
    """What the server has acknowledged, for all threads."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    created: dict[tuple[str, str], str] = field(default_factory=dict)  # (resource, key) -> uid
    versions: dict[str, int] = field(default_factory=dict)  # by uid: the highest acknowledged
    fields: dict[tuple[str, str], dict[tuple[str, ...], Any]] = field(default_factory=dict)
    deletions_sent: set[tuple[str, str]] = field(default_factory=set)
    deletions: set[tuple[str, str]] = field(default_factory=set)  # acknowledged
    replicas_sent: dict[str, list[int]] = field(default_factory=dict)  # by key of Deployment
    version: int = 0  # the highest of all
    writes: int = 0
    longest_wait_s: float = 0.0

    def acknowledge(self, obj: Object) -> None:
        """Records the version of an answered write."""
        with self.lock:
            self.writes += 1
            version = version_of(obj)
            uid = obj["metadata"]["uid"]
            self.versions[uid] = max(version, self.versions.get(uid, 0))
            self.version = max(version, self.version)

    def is_alive(self, resource: str, key: str) -> bool:
        """Whether the object was acknowledged and nobody was asked to delete it."""
        of = (resource, key)
        return of in self.created and of not in self.deletions_sent


class Writer:
    """Writes objects and records the acknowledgements. Used by one thread."""

    def __init__(
        self, kubeconfig: Path, ledger: Ledger, report: Report, stop: threading.Event
    ) -> None:
        self._api = Api(kubeconfig)
        self._ledger = ledger
        self._report = report
        self._stop = stop

    def create(self, obj: Object) -> None:
        """Creates an object; an object that is there after an unanswered request counts."""
        meta = obj["metadata"]
        resource = resource_of(obj["kind"])
        collection = path_of(resource, meta.get("namespace", ""))
        status, answer, repeated = self._ask("POST", collection, obj)
        if status == 409 and repeated:
            path = path_of(resource, meta.get("namespace", ""), meta["name"])
            status, answer, _ = self._ask("GET", path)
        if status not in (200, 201):
            self._refused("POST", f"{collection} {meta['name']}", status, answer)
            return
        with self._ledger.lock:
            self._ledger.created[resource, key_of(answer)] = answer["metadata"]["uid"]
            self._ledger.acknowledge(answer)

    def patch(self, resource: str, key: str, values: dict[tuple[str, ...], Any]) -> None:
        """Sets fields that only this client writes, by their paths in the object."""
        namespace, name = key.split("/")
        body: Object = {}
        for path, value in values.items():
            at = body
            for part in path[:-1]:
                at = at.setdefault(part, {})
            at[path[-1]] = value
            if path == ("spec", "replicas"):
                with self._ledger.lock:
                    self._ledger.replicas_sent.setdefault(key, []).append(value)
        where = path_of(resource, namespace, name)
        status, answer, _ = self._ask("PATCH", where, body, "application/merge-patch+json")
        if status != 200:
            self._refused("PATCH", where, status, answer)
            return
        with self._ledger.lock:
            self._ledger.fields.setdefault((resource, key), {}).update(values)
            self._ledger.acknowledge(answer)

    def delete(self, resource: str, key: str) -> None:
        """Deletes an object and in the background what it owns."""
        namespace, name = key.split("/")
        with self._ledger.lock:
            self._ledger.deletions_sent.add((resource, key))
        where = path_of(resource, namespace, name)
        status, answer, repeated = self._ask("DELETE", f"{where}?propagationPolicy=Background")
        if status in (200, 202) or (status == 404 and repeated):
            with self._ledger.lock:
                self._ledger.deletions.add((resource, key))
                self._ledger.writes += 1
            return
        self._refused("DELETE", where, status, answer)

    def look(self, resource: str, key: str) -> None:
        """Reads an acknowledged object back."""
        namespace, name = key.split("/")
        with self._ledger.lock:
            uid = self._ledger.created[resource, key]
            least = self._ledger.versions[uid]
        where = path_of(resource, namespace, name)
        status, answer, _ = self._ask("GET", where)
        if status != 200:
            self._report("acknowledged", f"GET {where}: status {status} for an acknowledged object")
        elif answer["metadata"]["uid"] != uid or version_of(answer) < least:
            self._report("acknowledged", f"GET {where}: older than the acknowledged {least}")

    def _refused(self, method: str, what: str, status: int, answer: Any) -> None:
        if not self._stop.is_set():
            message = answer.get("message") if isinstance(answer, dict) else answer
            self._report("refused", f"{method} {what}: status {status}: {message}")

    def _ask(
        self, method: str, path: str, body: Any = None, content: str = ""
    ) -> tuple[int, Any, bool]:
        """Returns status, answer, and whether an earlier request was left without an answer."""
        began, repeated = time.monotonic(), False
        status, answer = 0, None
        while not self._stop.is_set() and time.monotonic() < began + ANSWER_SECONDS_MAX:
            try:
                status, answer = self._api.call(method, path, body, content)
            except AWAY as error:
                repeated = True
                answer = {"message": repr(error)}
            else:
                if not _is_passing(status, answer):
                    break
            self._stop.wait(PAUSE_SECONDS)
        with self._ledger.lock:
            waited = time.monotonic() - began
            self._ledger.longest_wait_s = max(self._ledger.longest_wait_s, waited)
        return status, answer, repeated


def _is_passing(status: int, answer: Any) -> bool:
    """Whether a refusal is one that a client repeats.

    A namespace has its service account only after the controllers have seen the namespace.
    """
    if status in (429, 503, 504):
        return True
    return status == 403 and "serviceaccount" in json.dumps(answer).lower().replace(" ", "")
