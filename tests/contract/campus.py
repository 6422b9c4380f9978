"""The example cluster that has everything, as `stower up` runs it."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stower.vms.pods import APPROVED
from tests.contract.servers import Client, until
from tests.contract.test_up import stower

FOLDER = Path(__file__).parents[2] / "examples" / "campus"
WAITING = {"default/attach", "default/huge", *(f"default/wide-ring-{n}" for n in range(7))}
PODS = "/api/v1/pods"
TALKS = "/apis/stower.dev/v1/namespaces/default/podschedulings"
PLACED = 67


@contextlib.contextmanager
def campus(state: Path, *arguments: str) -> Iterator[tuple[Client, str]]:
    """All of it, placed as far as it can be; a client, and the dashboard's link."""
    files = "--cluster", str(FOLDER / "cluster.yaml"), "--config", str(FOLDER / "scheduler.yaml")
    at = "--state", str(state)
    code, _, error = stower("up", *at, "--port", "0", *files, *arguments, "--detach")
    assert 0 == code, error
    client = Client(state / "kubeconfig")
    try:
        load = "load", str(FOLDER / "campus.yaml"), "--kubeconfig", str(state / "kubeconfig")
        code, _, error = stower(*load)
        assert 0 == code, error
        until(client, PODS, _is_settled)
        until(client, TALKS, _is_selected)
        _, said, _ = stower("status", *at, "--output", "json")
        yield client, json.loads(said)["dashboard"]
    finally:
        client.close()
        stower("down", *at)


def _is_selected(talks: dict[str, Any]) -> bool:
    """Whether drivers are told where to allocate."""
    spec = talks.get("attach", {}).get("spec", {})
    return bool(spec.get("selectedNode"))


def _is_settled(pods: dict[str, Any]) -> bool:
    """Whoever can be is placed, and VMs were granted what they ask for."""
    vms = [pod for name, pod in pods.items() if name.startswith("pg-")]
    granted = all(APPROVED in pod["metadata"].get("annotations", {}) for pod in vms)
    placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods.values())
    return placed == PLACED and granted
