"""Workloads whose pods are ready when a test says so, and what is said about them."""

from typing import Any

from tests.unit.controllers.cluster import Cluster, Object

GATE = "test.example/up"
STRATEGIC = "application/strategic-merge-patch+json"


def template(image: str = "one", gated: bool = False, **spec: Any) -> Object:
    """A pod template of one container. `gated`: pods are ready while set_ready says so."""
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": "100m"}}}
    gates = {"readinessGates": [{"conditionType": GATE}]} if gated else {}
    return {"metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [container], **gates, **spec}}  # fmt: skip


def workload(name: str, image: str = "one", gated: bool = False, **spec: Any) -> Object:
    """Any kind of apps/v1; the selector is app=x."""
    return {"metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": "x"}},
                     "template": template(image, gated), **spec}}  # fmt: skip


def write_status(cluster: Cluster, pod: str, status: Object) -> None:
    """Merge into a pod's status, and let everybody act on it."""
    path = cluster.path_to("pods", "default", pod) + "/status"
    code, answer = cluster.ask("PATCH", path, {"status": status}, STRATEGIC)
    assert 200 == code, answer
    cluster.settle()


def set_ready(cluster: Cluster, pod: str, status: str = "True") -> None:
    """Open or shut the gate of a pod."""
    write_status(cluster, pod, {"conditions": [{"type": GATE, "status": status}]})


def images(cluster: Cluster) -> dict[str, str]:
    """The image of each pod."""
    return {
        name: pod["spec"]["containers"][0]["image"] for name, pod in cluster.all("pods").items()
    }


def labels(cluster: Cluster, label: str) -> dict[str, str]:
    """The value of a label of each pod."""
    return {name: pod["metadata"]["labels"][label] for name, pod in cluster.all("pods").items()}


def events(cluster: Cluster, kind: str, name: str) -> list[tuple[str, str]]:
    """Reasons and messages of what was said about an object, sorted."""
    items = cluster.get("/api/v1/namespaces/default/events")["items"]
    return sorted(
        (event["reason"], event["message"])
        for event in items
        if (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (kind, name)
    )


def revisions(cluster: Cluster) -> dict[int, str]:
    """Names of the ControllerRevisions by their numbers."""
    found = cluster.all("controllerrevisions")
    return {revision["revision"]: name for name, revision in found.items()}


def limit_pods(cluster: Cluster, pods: int) -> None:
    """A quota, for the namespace as it is without pods."""
    path, hard = "/api/v1/namespaces/default/resourcequotas", {"pods": str(pods)}
    quota = {"metadata": {"name": "few"}, "spec": {"hard": hard}}
    assert 201 == cluster.ask("POST", path, quota)[0]
    status = {"status": {"hard": hard, "used": {"pods": "0"}}}
    assert 200 == cluster.ask("PATCH", f"{path}/few/status", status, STRATEGIC)[0]


def lift_limit(cluster: Cluster) -> None:
    """The quota is gone."""
    assert 200 == cluster.ask("DELETE", "/api/v1/namespaces/default/resourcequotas/few")[0]
