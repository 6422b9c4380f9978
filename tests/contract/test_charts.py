"""What charts and installers of widely used projects hold is taken by `stower up`, and runs.

By a client of the tests' own, with the requests of `kubectl create` and of `kubectl apply
--server-side`. Fails with the text of the refusal, or with what a pod waits for.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.charts import FILES, Applier, documents, namespace
from tests.contract.servers import Client, until
from tests.contract.test_up import state, up

__all__ = ["state"]

Object = dict[str, Any]
NODES = 3
SECONDS = 120.0


def of_clients(client: Client) -> Applier:
    def send(method: str, path: str, body: Any, form: str) -> tuple[int, Any]:
        return client.call(method, path, body, form)

    return Applier(send)


def deployment_runs(item: Object) -> bool:
    wanted = item["spec"]["replicas"]
    found = item.get("status", {})
    return all(wanted == found.get(f"{name}Replicas", 0) for name in ("updated", "available"))


def set_runs(item: Object) -> bool:
    wanted, found = item["spec"]["replicas"], item.get("status", {})
    return bool(wanted == found.get("availableReplicas", 0) == found.get("readyReplicas", 0))


def daemons_run(item: Object) -> bool:
    found = item.get("status", {})
    is_everywhere = not set(item["spec"]["template"]["spec"].get("nodeSelector") or ()) - {
        "kubernetes.io/os"
    }
    wanted = NODES if is_everywhere else 0
    return bool(
        item["metadata"]["generation"] == found.get("observedGeneration")
        and wanted == found.get("desiredNumberScheduled") == found.get("numberAvailable", 0)
    )


def job_is_over(item: Object) -> bool:
    if item["spec"].get("suspend"):
        return "active" not in item.get("status", {})
    conditions = item.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Complete" and c["status"] == "True" for c in conditions)


def budget_is_met(item: Object) -> bool:
    found = item.get("status", {})
    return bool(found.get("currentHealthy", -1) >= found.get("desiredHealthy", 0))


# By the path of the list. Claims that no pod has used yet wait for one, as their class says.
GOOD: dict[str, Callable[[Object], bool]] = {
    "/apis/apps/v1/namespaces/{}/deployments": deployment_runs,
    "/apis/apps/v1/namespaces/{}/statefulsets": set_runs,
    "/apis/apps/v1/namespaces/{}/daemonsets": daemons_run,
    "/apis/batch/v1/namespaces/{}/jobs": job_is_over,
    "/api/v1/namespaces/{}/replicationcontrollers": lambda item: (
        item["spec"]["replicas"] == item.get("status", {}).get("availableReplicas")
    ),
    "/api/v1/namespaces/{}/persistentvolumeclaims": lambda item: (
        "Bound" == item.get("status", {}).get("phase")
    ),
    "/api/v1/namespaces/{}/pods": lambda item: (
        item.get("status", {}).get("phase") in ("Running", "Succeeded")
    ),
    "/apis/policy/v1/namespaces/{}/poddisruptionbudgets": budget_is_met,
}


def reasons(client: Client, name: str) -> Iterator[str]:
    """Why pods of a namespace do not run, and what was warned of."""
    for pod in client.call("GET", f"/api/v1/namespaces/{name}/pods")[1]["items"]:
        status = pod.get("status", {})
        if status.get("phase") in ("Running", "Succeeded"):
            continue
        waiting = [c["state"] for c in status.get("containerStatuses") or ()]
        unmet = [c for c in status.get("conditions") or () if c["status"] != "True"]
        yield f"pod {pod['metadata']['name']}: {json.dumps([status.get('phase'), unmet, waiting])}"
    for event in client.call("GET", f"/api/v1/namespaces/{name}/events")[1]["items"]:
        if event.get("type") == "Warning":
            told = event["involvedObject"]
            yield f"{told['kind']} {told['name']}: {event['reason']}: {event['message']}"


def name_of(item: Object) -> str:
    return str(item["metadata"]["name"])


def unused_claims(client: Client, namespace: str) -> set[str]:
    """Claims that no pod mounts, such as that of a CronJob before its first time."""
    path = f"/api/v1/namespaces/{namespace}"
    claims = client.call("GET", f"{path}/persistentvolumeclaims")[1]["items"]
    pods = client.call("GET", f"{path}/pods")[1]["items"]
    return set(map(name_of, claims)) - {
        (volume.get("persistentVolumeClaim") or {}).get("claimName")
        for pod in pods
        for volume in pod["spec"].get("volumes") or ()
    }


def await_all(client: Client, name: str) -> None:
    """Waits until all that a namespace holds runs, is over or is bound."""
    for path, is_good in GOOD.items():

        def good(
            found: dict[str, Object], path: str = path, is_good: Callable[[Object], bool] = is_good
        ) -> bool:
            unused = unused_claims(client, name) if path.endswith("claims") else ()
            return all(is_good(item) for item in found.values() if name_of(item) not in unused)

        try:
            until(client, path.format(name), good, SECONDS)
        except AssertionError as error:
            told = "\n".join(reasons(client, name))
            raise AssertionError(f"{path.format(name)}: {error}\n{told}") from None


def wanted_pods(file: Path) -> int:
    """How many pods a file wants at least: those of its workloads that have a count."""
    return sum(
        document["spec"].get("replicas", 1)
        for document in documents(file)
        if document["kind"] in ("Deployment", "StatefulSet", "ReplicationController", "Pod")
    )


@pytest.mark.more
@pytest.mark.behaviour("X2", "X8")
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_charts_are_taken_and_all_their_pods_run(state: Path, method: str) -> None:
    arguments = ("--nodes", str(NODES), "--zones", "a,b,c", "--node-cpu", "32")
    client = up(state, *arguments, "--node-memory", "128Gi", "--node-pods", "250")
    server = of_clients(client)
    for file in FILES:
        server.make(namespace(file.stem), "", method)
        for document in documents(file):
            server.make(document, file.stem, method)
    for file in FILES:
        await_all(client, file.stem)
        pods = client.call("GET", f"/api/v1/namespaces/{file.stem}/pods")[1]["items"]
        assert wanted_pods(file) <= len(pods), file.stem
    remove_all(client, server)


def remove_all(client: Client, server: Applier) -> None:
    """Deletes every object, the last first; then nothing is left in the namespaces."""
    for file in FILES:
        for document in reversed(documents(file)):
            path = f"{server.path(document, file.stem)}/{document['metadata']['name']}"
            status, answer = client.call("DELETE", path, {"propagationPolicy": "Background"})
            assert status in (200, 202, 404), f"{path}: {answer}"
    for file in FILES:
        status, answer = client.call("DELETE", f"/api/v1/namespaces/{file.stem}")
        assert 200 == status, answer
    names = {file.stem for file in FILES}
    until(client, "/api/v1/namespaces", lambda found: not names & found.keys(), SECONDS)
