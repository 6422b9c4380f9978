"""stower demo: starts a simulated cluster in a temporary folder, runs workloads, drains a node,
kills the scheduler, and prints the result of each step. Takes about half a minute.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from stower.cli.kube import Kube, KubeError
from stower.cli.output import console, failure
from stower.cli.state_folder import UpError
from stower.cli.supervisor import read_record
from stower.cli.verbs.get import pending_pods, print_waiting

NAME = "demo"
EPILOG = """
Examples:

  stower demo

  stower demo --nodes 500
"""
ZONE = "topology.kubernetes.io/zone"
NAMESPACE = "/api/v1/namespaces/default"
WORKLOADS = "/apis/apps/v1/namespaces/default"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
MERGE = "application/merge-patch+json"
SECONDS_MAX = 60.0
REPLICAS = 400
Object = dict[str, Any]


def run(
    nodes: Annotated[int, typer.Option(min=3, max=5_000, help="Number of nodes.")] = 100,
) -> None:
    """Run workloads, a drain and a scheduler crash on a simulated cluster, and delete it."""
    with tempfile.TemporaryDirectory(prefix="stower-demo-") as folder:
        state = Path(folder) / "state"
        try:
            _up(state, nodes)
            asyncio.run(_Demo(state).play())
        except (KubeError, TimeoutError) as error:
            raise failure(str(error) or "the demo timed out") from None
        finally:
            _stower("down", "--state", str(state))
    console().print("\nStopped; the cluster is deleted. Next: stower up, stower simulate --help")


def _stower(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "stower.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _up(state: Path, nodes: int) -> None:
    out = console()
    shown = f"stower up --nodes {nodes} --node-cpu 8 --zones a,b,c --detach"
    out.print(f"$ {shown}", style="bold")
    began = time.monotonic()
    done = _stower(*shown.split()[1:], "--port", "0", "--state", str(state))
    if done.returncode:
        raise KubeError(done.stderr.strip().removeprefix("stower: error: "))
    out.print(
        f"{done.stdout.splitlines()[0]} An API server, {nodes} simulated nodes, controllers and "
        f"the scheduler started in {time.monotonic() - began:.1f} s.",
        soft_wrap=True,
    )


class _Demo:
    """The scenes, one after the other."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.out = console()

    async def play(self) -> None:
        """All of them."""
        async with Kube.open(self.state / "kubeconfig") as kube:
            self.kube = kube
            # Half a CPU each, on nodes with eight: there is room for all.
            self.replicas = min(REPLICAS, await kube.count("/api/v1/nodes") * 12)
            self.zone_of = {
                node["metadata"]["name"]: node["metadata"]["labels"][ZONE]
                for node in await kube.items("/api/v1/nodes")
            }
            await self.workloads()
            await self.show_pending()
            await self.drain()
            await self.restart()
            await self.end()

    async def workloads(self) -> None:
        """A Deployment, a StatefulSet and a Job."""
        self.echo("kubectl create deployment web --image=web:1 --replicas=30")
        began = time.monotonic()
        await self.create(f"{WORKLOADS}/deployments", _workload("web", replicas=30))
        pods = await self.wait_for_pods("app=web", lambda pods: len(_list_running(pods)) == 30)
        self.report(
            f"30 pods run after {time.monotonic() - began:.1f} s; by zone: {self.zones(pods)}"
        )
        self.echo("kubectl apply -f database.yaml     # a StatefulSet: pods start one by one")
        spec = _workload("db", replicas=3, serviceName="db")
        spec["spec"]["template"]["metadata"]["annotations"] = {"stower.dev/start-seconds": "0.5"}
        await self.create(f"{WORKLOADS}/statefulsets", spec)
        pods = await self.wait_for_pods("app=db", lambda pods: len(_list_running(pods)) == 3)
        placed = ", ".join(f"{n} on {p['spec']['nodeName']}" for n, p in sorted(pods.items()))
        self.report(placed)
        self.echo("kubectl apply -f job.yaml          # 12 completions, 4 at a time, 1 s each")
        await self.create(JOBS, _job("import", 12, 4))
        self.report("The Job runs during the next steps.")

    async def show_pending(self) -> None:
        """Pods that cannot be placed, and why."""
        self.echo("kubectl apply -f impossible.yaml   # pods that fit on no node")
        wanted: tuple[tuple[str, Object, Object, int], ...] = (
            ("train", {"nvidia.com/gpu": "8"}, {}, 3),
            ("huge", {"cpu": "64"}, {}, 1),
            ("picky", {"cpu": "1"}, {"nodeSelector": {ZONE: "mars"}}, 2),
        )
        for name, asks, more, count in wanted:
            for number in range(count):
                pod = _pod(f"{name}-{number}", asks, **more)
                await self.create(f"{NAMESPACE}/pods", pod)
        self.echo("stower get pending")
        await self.wait_for_pods(
            "app=impossible",
            lambda pods: sum(_is_attempted(pod) for pod in pods.values()) == 6,
        )
        print_waiting(await pending_pods(self.state / "kubeconfig", ""), False)

    async def drain(self) -> None:
        """A node is emptied; its pods are placed elsewhere."""
        pods = await self.pods("app=web")
        node = Counter(p["spec"]["nodeName"] for p in pods.values()).most_common(1)[0][0]
        mine = sorted(n for n, p in pods.items() if p["spec"]["nodeName"] == node)
        self.echo(f"kubectl drain {node}")
        await self.change("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        for name in mine:
            body = {"metadata": {"name": name, "namespace": "default"}}
            await self.create(f"{NAMESPACE}/pods/{name}/eviction", body)
        after = await self.wait_for_pods(
            "app=web", lambda pods: len(_list_running(pods)) == 30 and not set(mine) & set(pods)
        )
        new = sorted({p["spec"]["nodeName"] for n, p in after.items() if n not in pods})
        self.report(
            f"{len(mine)} pods evicted from {node}; their replacements run on {', '.join(new)}."
        )

    async def restart(self) -> None:
        """The scheduler is killed in mid-flight."""
        self.echo(f"kubectl scale deployment web --replicas={self.replicas}; kill -9 the scheduler")
        try:
            record = read_record(self.state)
        except UpError as error:
            raise KubeError(str(error)) from None
        if record is None:
            raise KubeError("the cluster has stopped")
        path = f"{WORKLOADS}/deployments/web"
        began = time.monotonic()
        await self.change("PATCH", path, {"spec": {"replicas": self.replicas}})
        await self.wait_for_pods(
            "app=web", lambda pods: len(_map_bound(pods)) >= self.replicas // 5
        )
        os.kill(record.processes["scheduler"], signal.SIGKILL)
        at_kill = _map_bound(await self.pods("app=web"))
        self.report(f"The scheduler is killed with {len(at_kill)} of {self.replicas} pods bound.")
        pods = await self.wait_for_pods(
            "app=web", lambda pods: len(_list_running(pods)) == self.replicas
        )
        moved = sum(pods[n]["spec"]["nodeName"] != at for n, at in at_kill.items() if n in pods)
        self.report(
            f"The restarted scheduler read its state from the API server: all {self.replicas} run "
            f"{time.monotonic() - began:.1f} s after the command, {moved} moved. By zone: "
            f"{self.zones(pods)}"
        )

    async def end(self) -> None:
        """The Job is done; a last look."""
        self.echo("kubectl get job import")
        until = time.monotonic() + SECONDS_MAX
        while True:
            job = await self.kube.get(f"{JOBS}/import")
            done = job["status"].get("succeeded", 0)
            if done == 12 or time.monotonic() > until:
                break
            await asyncio.sleep(0.1)
        self.report(f"{done} of 12 completions.")
        self.echo("stower status")
        text = await asyncio.to_thread(_stower, "status", "--state", str(self.state))
        self.out.print(text.stdout.rstrip(), soft_wrap=True)

    # Output

    def echo(self, command: str) -> None:
        """Prints a command as a user would type it."""
        self.out.print(f"\n$ {command}", style="bold", soft_wrap=True)

    def report(self, what: str) -> None:
        """Prints the result of the last command."""
        self.out.print(what, soft_wrap=True)

    def zones(self, pods: dict[str, Object]) -> str:
        """How many pods run in each zone."""
        count = Counter(self.zone_of[p["spec"]["nodeName"]] for p in pods.values())
        return ", ".join(f"{zone} {number}" for zone, number in sorted(count.items()))

    # Asking

    async def create(self, path: str, body: Object) -> None:
        """Make an object."""
        await self.change("POST", path, body)

    async def change(self, method: str, path: str, body: Object) -> None:
        """One write that must succeed."""
        kind = MERGE if method == "PATCH" else "application/json"
        answer = await self.kube.ask(method, path, msgspec.json.encode(body), kind)
        if answer.status not in (200, 201):
            raise KubeError(f"{method} {path}: {answer.status} {answer.message}")

    async def pods(self, selector: str) -> dict[str, Object]:
        """Pods by name."""
        found = await self.kube.items(f"{NAMESPACE}/pods?labelSelector={selector}")
        return {pod["metadata"]["name"]: pod for pod in found}

    async def wait_for_pods(
        self, selector: str, good: Callable[[dict[str, Object]], bool]
    ) -> dict[str, Object]:
        """The pods, as soon as they are as wanted. Raises TimeoutError."""
        until = time.monotonic() + SECONDS_MAX
        while True:
            pods = await self.pods(selector)
            if good(pods):
                return pods
            if time.monotonic() > until:
                state = f"not in the expected state after {SECONDS_MAX:.0f} s"
                raise TimeoutError(f"pods {selector}: {state}")
            await asyncio.sleep(0.05)


def _list_running(pods: dict[str, Object]) -> list[str]:
    return [
        name
        for name, pod in pods.items()
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


def _map_bound(pods: dict[str, Object]) -> dict[str, str]:
    return {n: p["spec"]["nodeName"] for n, p in pods.items() if p["spec"].get("nodeName")}


def _is_attempted(pod: Object) -> bool:
    return any(c["type"] == "PodScheduled" for c in pod["status"].get("conditions") or ())


def _pod(name: str, asks: Object, **spec: Any) -> Object:
    container = {"name": "main", "image": "app:1", "resources": {"requests": asks, "limits": asks}}
    meta = {"name": name, "labels": {"app": "impossible"}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def _workload(name: str, **spec: Any) -> Object:
    labels = {"app": name}
    container = {"name": "main", "image": f"{name}:1", "resources": {"requests": {"cpu": "500m"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    selector = {"matchLabels": labels}
    return {
        "metadata": {"name": name},
        "spec": {"selector": selector, "template": template, **spec},
    }


def _job(name: str, completions: int, parallelism: int) -> Object:
    template = _workload(name)["spec"]["template"]
    template["metadata"]["annotations"] = {"stower.dev/run-seconds": "1"}
    template["spec"]["restartPolicy"] = "Never"
    spec = {"completions": completions, "parallelism": parallelism, "template": template}
    return {"metadata": {"name": name}, "spec": spec}
