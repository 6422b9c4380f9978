"""Benchmark of a whole cluster: `python -m stower.bench.up up` prints JSON.

Server and scheduler are processes as users run them, durable. This process creates the pods and
stands in for the kubelets; its work is not counted. Each pod is created, bound, reported by one
Event, and patched once to Running.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import deque
from typing import Final

import msgspec

from stower.bench.family import Family, run_once, tell
from stower.bench.server import NAMESPACE, Reply, Target, cpu_s, pod_body, run_server
from stower.bench.watch_client import PodWatch, WatchedPod, watch_pods

PODS: Final = 10_000
NODES: Final = 1_000
CREATES_IN_FLIGHT: Final = 32
STATUS_IN_FLIGHT: Final = 32
SECONDS_MAX: Final = 300
PATCH: Final = "application/strategic-merge-patch+json"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events?limit=1"


class UpResult(msgspec.Struct, frozen=True):
    """What a run measured.

    Rates are from the first create to the last pod that was seen created, bound, running, or told
    of. CPU in seconds per 1,000 pods; scheduler: engine and live shell together.
    """

    name: str
    pods: int
    nodes: int
    created_per_s: float
    bound_per_s: float
    running_per_s: float
    events_per_s: float
    bound_p50_ms: float
    bound_p99_ms: float
    server_cpu_s: float
    scheduler_cpu_s: float
    load_cpu_s: float


FAMILY: Final = Family(
    result=UpResult,
    best="bound_per_s",
    unit="pods bound/s",
    ratios={
        "ratio_bound_per_s": "bound_per_s",
        "ratio_running_per_s": "running_per_s",
        "ratio_server_cpu": "server_cpu_s",
        "ratio_scheduler_cpu": "scheduler_cpu_s",
    },
    about="server and scheduler over HTTP, durable: 10,000 pods on 1,000 nodes until all run",
)


class Pods(PodWatch):
    """What was bound, and what runs."""

    def __init__(self, bound: deque[str], awake: asyncio.Event) -> None:
        super().__init__()
        self.bound_at: dict[str, float] = {}
        self.running_at: dict[str, float] = {}
        self._bound = bound
        self._awake = awake

    def on_pod(self, kind: str, pod: WatchedPod) -> None:
        """See PodWatch."""
        now, name = time.perf_counter(), pod.metadata.name
        if pod.status.phase == "Running":
            self.running_at.setdefault(name, now)
        elif pod.spec.nodeName and name not in self.bound_at:
            self.bound_at[name] = now
            self._bound.append(name)
        self._awake.set()


def node_body(number: int) -> bytes:
    """A node."""
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    labels = {"topology.kubernetes.io/zone": f"zone-{number % 3}"}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return json.dumps(
        {"metadata": {"name": f"node-{number}", "labels": labels}, "status": status}
    ).encode()


def running_body() -> bytes:
    """What a kubelet says of a pod that runs."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    types = ("Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers")
    container = {
        "name": "app", "image": "registry.example/team/app:1.2.3", "imageID": "x", "ready": True,
        "started": True, "restartCount": 0, "state": {"running": {"startedAt": now}},
    }  # fmt: skip
    status = {
        "phase": "Running",
        "startTime": now,
        "conditions": [{"type": t, "status": "True", "lastTransitionTime": now} for t in types],
        "containerStatuses": [container],
        "hostIP": "10.0.0.1",
        "podIP": "10.1.0.1",
        "podIPs": [{"ip": "10.1.0.1"}],
    }
    return json.dumps({"status": status}).encode()


async def create(target: Target, requests: list[bytes], in_flight: int) -> float:
    """Send them all; when the last was answered."""
    connections = [await target.connect() for _ in range(in_flight)]
    waiting = iter(requests)

    async def work(connection: Reply) -> None:
        for request in waiting:
            status, body = await connection.ask(request)
            if status != 201:
                raise RuntimeError(f"status {status}: {body[:300]!r}")

    await asyncio.gather(*(work(c) for c in connections))
    for connection in connections:
        connection.close()
    return time.perf_counter()


async def kubelets(target: Target, bound: deque[str], awake: asyncio.Event, count: int) -> None:
    """Patch each pod that was bound, once."""
    connections = [await target.connect() for _ in range(STATUS_IN_FLIGHT)]
    body, done = running_body(), 0

    async def patch(connection: Reply) -> None:
        nonlocal done
        while done < count:
            if not bound:
                awake.clear()
                await awake.wait()
                continue
            name = bound.popleft()
            request = target.request("PATCH", f"{NAMESPACE}/pods/{name}/status", body, PATCH)
            status, answer = await connection.ask(request)
            if status != 200:
                raise RuntimeError(f"status {status}: {answer[:300]!r}")
            done += 1
        awake.set()

    await asyncio.gather(*(patch(c) for c in connections))
    for connection in connections:
        connection.close()


async def measure(pods: int, nodes: int) -> UpResult:
    """The whole benchmark."""
    async with run_server() as (kubeconfig, server):
        target = Target(kubeconfig)
        tell("up", f"{nodes:,} nodes")
        bodies = (node_body(i) for i in range(nodes))
        await create(target, [target.request("POST", "/api/v1/nodes", b) for b in bodies], 16)
        command = [sys.executable, "-m", "stower.cli.main", "run", "--no-leader-elect"]
        process = subprocess.Popen(
            [*command, "--kubeconfig", str(kubeconfig)], stdout=subprocess.PIPE
        )
        try:
            assert process.stdout is not None
            if not await asyncio.to_thread(process.stdout.readline):
                raise RuntimeError("the scheduler did not start")
            tell("up", f"{pods:,} pods")
            return await asyncio.wait_for(
                _measure(target, server, process.pid, pods, nodes), SECONDS_MAX
            )
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            if process.stdout is not None:
                process.stdout.close()


async def _measure(target: Target, server: int, scheduler: int, pods: int, nodes: int) -> UpResult:
    bound: deque[str] = deque()
    awake = asyncio.Event()
    asker = await target.connect()
    seen = await watch_pods(target, Pods(bound, awake), 600)
    requests = [
        target.request("POST", f"{NAMESPACE}/pods", pod_body(f"pod-{i}")) for i in range(pods)
    ]
    used = {pid: cpu_s(pid) for pid in (server, scheduler)}
    load_s, began = time.process_time(), time.perf_counter()
    created, _ = await asyncio.gather(
        create(target, requests, CREATES_IN_FLIGHT), kubelets(target, bound, awake, pods)
    )
    while len(seen.running_at) < pods:
        awake.clear()
        await awake.wait()
    load_s = time.process_time() - load_s
    told = await _events(target, asker, pods)
    asker.close()

    def rate(at: float) -> float:
        return pods / (at - began)

    def cpu(pid: int) -> float:
        return (cpu_s(pid) - used[pid]) / pods * 1000

    waits = sorted(at - began for at in seen.bound_at.values())
    return UpResult(
        "up",
        pods,
        nodes,
        rate(created),
        rate(max(seen.bound_at.values())),
        rate(max(seen.running_at.values())),
        rate(told),
        waits[len(waits) // 2] * 1000,
        waits[int(len(waits) * 0.99)] * 1000,
        cpu(server),
        cpu(scheduler),
        load_s / pods * 1000,
    )


async def _events(target: Target, asker: Reply, count: int) -> float:
    """When an Event for each pod is there."""
    while True:
        _, body = await asker.ask(target.request("GET", EVENTS))
        answer = json.loads(body)
        left = answer["metadata"].get("remainingItemCount") or 0
        if len(answer["items"]) + left >= count:
            return time.perf_counter()
        await asyncio.sleep(0.02)


if __name__ == "__main__":
    run_once("up", lambda: asyncio.run(measure(PODS, NODES)), sys.argv[1:])
