"""Measures how soon `stower run` decides, from its start as a process to the first pod that it
binds: `python -m tests.contract.start_time`.

The cluster has 100 nodes and 1,000 pods that run, and one pod that waits. Schedulers are killed one
after another, as VMs wait for as long; none has a Lease (--no-leader-elect), which would be that
of the killed one for 15 s.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.contract.servers import Client, Process, audited

NODES: Final = 100
PODS: Final = 1_000
RUNS: Final = 7
SECONDS_MAX: Final = 30.0
CONFIGURATION: Final = Path(__file__).parents[2] / "examples" / "vms" / "scheduler.yaml"
CORE: Final = "/api/v1"
OF_PODS: Final = f"{CORE}/namespaces/default/pods"
ROOM: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}


def main() -> None:
    """Starts a server, fills it, and measures schedulers one after another."""
    with tempfile.TemporaryDirectory() as folder:
        server = Process(Path(folder))
        try:
            _fill(server.client)
            times = [_measure(server.client, f"waits-{i}") for i in range(RUNS)]
        finally:
            server.stop()
    shown = " ".join(f"{seconds:.2f}" for seconds in times)
    print(f"{shown} s; median {statistics.median(times):.2f} s from exec to the first pod bound")


def _fill(client: Client) -> None:
    for i in range(NODES):
        meta = {"name": f"node-{i}", "labels": {"kubernetes.io/hostname": f"node-{i}"}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": meta,
                "status": {"allocatable": ROOM, "capacity": ROOM}}  # fmt: skip
        _call(client, "POST", f"{CORE}/nodes", node)
    for i in range(PODS):
        _call(client, "POST", OF_PODS, _pod(f"runs-{i}", {"nodeName": f"node-{i % NODES}"}))


def _pod(name: str, more: dict[str, Any]) -> dict[str, Any]:
    requests = {"cpu": "100m", "memory": "128Mi"}
    container = {"name": "c", "image": "registry.k8s.io/pause", "resources": {"requests": requests}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
            "spec": {"containers": [container], **more}}  # fmt: skip


def _call(client: Client, method: str, path: str, body: Any = None) -> Any:
    code, answer = client.call(method, path, body)
    assert code < 300, (method, path, code, answer)
    return answer


def _measure(client: Client, name: str) -> float:
    _call(client, "POST", OF_PODS, _pod(name, {}))
    began = time.monotonic()
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "stower.cli.main", *audited("run"),
         "--kubeconfig", str(client.kubeconfig), "--config", str(CONFIGURATION),
         "--no-leader-elect"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while not _call(client, "GET", f"{OF_PODS}/{name}")["spec"].get("nodeName"):
            assert time.monotonic() < began + SECONDS_MAX, "the pod is not bound"
            time.sleep(0.005)
        return time.monotonic() - began
    finally:
        scheduler.kill()
        scheduler.wait()


if __name__ == "__main__":
    main()
