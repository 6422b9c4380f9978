"""Creates, changes and deletes objects of every kind that examples/campus has, at a rate.

Everything that is created fits at the same time, so at the end every pod runs.
"""

import heapq
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.contract.kills.client import Ledger, Object, Writer, key_of, resource_of

AFTER_SECONDS: Final = (8.0, 45.0)  # after which an object is changed or deleted
GPU: Final = "gpu.kills.example.com"
# How many of each there may be at a time for one writer. Three of them fit beside the campus.
LIMITS: Final = {
    "plain": 12, "deployment": 3, "job": 4, "gang": 2, "tree": 1, "share": 1, "device": 2,
    "attach": 1, "vm": 2, "user": 3,
}  # fmt: skip
WEIGHTS: Final = {
    "plain": 30, "deployment": 10, "job": 10, "gang": 8, "tree": 4, "share": 8, "device": 10,
    "attach": 6, "vm": 6, "user": 12,
}  # fmt: skip
Later = tuple[Callable[[], None], ...]


def setting() -> Iterator[Object]:
    """Yields what the load needs beside the campus: devices that one pod uses alone."""
    selector = {"cel": {"expression": f'device.driver == "{GPU}"'}}
    yield _made("resource.k8s.io/v1", "DeviceClass", GPU, "", {"selectors": [selector]})
    for node in ("gpu-3", "gpu-4"):
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{n}"} for n in range(4)]
        spec = {"driver": GPU, "nodeName": node, "pool": pool, "devices": devices}
        yield _made("resource.k8s.io/v1", "ResourceSlice", f"kills-{node}", "", spec)
    exactly = {"exactly": {"deviceClassName": GPU}, "name": "gpu"}
    spec = {"spec": {"devices": {"requests": [exactly]}}}
    yield _made("resource.k8s.io/v1", "ResourceClaimTemplate", "kills-gpu", "default", spec)


def _made(version: str, kind: str, name: str, namespace: str, spec: Object) -> Object:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def _pod_spec(cpu: str, **more: Any) -> Object:
    requests = {"cpu": cpu, "memory": "256Mi"}
    container = {"name": "c", "image": "example.com/i:1", "resources": {"requests": requests}}
    return {"containers": [container], **more}


def _pod(name: str, cpu: str, **more: Any) -> Object:
    return _made("v1", "Pod", name, "default", _pod_spec(cpu, **more))


def _claiming(name: str, source: Object) -> Object:
    pod = _pod(name, "100m", resourceClaims=[{"name": "d", **source}])
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "d"}]
    return pod


def _group(name: str, count: int, parent: str = "") -> Object:
    spec: Object = {
        "workloadRef": {"workloadName": parent or name, "templateName": name},
        "schedulingPolicy": {"gang": {"minCount": count}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
    }
    if parent:
        spec["parentCompositePodGroupName"] = parent
    return _made("scheduling.k8s.io/v1beta1", "PodGroup", name, "default", spec)


class Load:
    """One writer's stream of work. `run` is the body of a thread."""

    def __init__(self, writer: Writer, ledger: Ledger, name: str, seed: int, rate: float) -> None:
        self._writer = writer
        self._ledger = ledger
        self._name = name
        self._rng = random.Random(f"{name} {seed}")
        self._rate = rate
        self._count = 0
        self._pods = 0
        self._alive = dict.fromkeys(WEIGHTS, 0)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._own: list[tuple[str, str]] = []

    def run(self, stop: threading.Event) -> None:
        """Writes until `stop` is set; what was begun by then stays."""
        at = time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            while self._due and self._due[0][0] <= now and not stop.is_set():
                heapq.heappop(self._due)[2]()
            if now >= at:
                at = max(at + self._rng.expovariate(self._rate), now - 1.0)
                self._begin()
                self._look()
            stop.wait(0.05)

    def _look(self) -> None:
        alive = [of for of in self._own[-30:] if self._ledger.is_alive(*of)]
        if alive and self._rng.random() < 0.3:
            self._writer.look(*self._rng.choice(alive))

    def _begin(self) -> None:
        kinds = [kind for kind in WEIGHTS if self._alive[kind] < LIMITS[kind]]
        kind = self._rng.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
        self._count += 1
        self._alive[kind] += 1
        getattr(self, f"_{kind}")(kind, f"{kind}-{self._name}-{self._count}")

    def _create(self, kind: str, *objects: Object) -> None:
        """Creates objects, and deletes them later, the last first."""
        for obj in objects:
            self._writer.create(obj)
            self._own.append((resource_of(obj["kind"]), key_of(obj)))

        def delete() -> None:
            for obj in reversed(objects):
                self._writer.delete(resource_of(obj["kind"]), key_of(obj))
            self._alive[kind] -= 1

        self._later(delete)

    def _later(self, action: Callable[[], None], share: float = 1.0) -> None:
        self._count += 1
        after = self._rng.uniform(*AFTER_SECONDS) * share
        heapq.heappush(self._due, (time.monotonic() + after, self._count, action))

    def _plain(self, kind: str, name: str) -> None:
        self._create(kind, _pod(name, self._rng.choice(("100m", "500m", "1"))))

    def _deployment(self, kind: str, name: str) -> None:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": _pod_spec("100m")}
        replicas = self._rng.randint(1, 4)
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self._ledger.replicas_sent[f"default/{name}"] = [replicas]
        self._create(kind, _made("apps/v1", "Deployment", name, "default", spec))

        def scale() -> None:
            if self._ledger.is_alive("deployments", f"default/{name}"):
                wanted = {("spec", "replicas"): self._rng.randint(0, 5)}
                self._writer.patch("deployments", f"default/{name}", wanted)

        for _ in range(self._rng.randint(0, 3)):
            self._later(scale)

    def _job(self, kind: str, name: str) -> None:
        seconds = str(self._rng.randint(1, 8))
        meta = {"annotations": {"stower.dev/run-seconds": seconds}}
        template = {"metadata": meta, "spec": _pod_spec("200m", restartPolicy="Never")}
        spec = {"completions": self._rng.randint(1, 5), "parallelism": self._rng.randint(1, 3)}
        if self._rng.random() < 0.5:
            spec["completionMode"] = "Indexed"
        made = _made("batch/v1", "Job", name, "default", {**spec, "template": template})
        self._create(kind, made)

    def _gang(self, kind: str, name: str) -> None:
        count = self._rng.randint(2, 4)
        pods = [_pod(f"{name}-{n}", "500m", schedulingGroup={"podGroupName": name})
                for n in range(count)]  # fmt: skip
        self._create(kind, _group(name, count), *pods)

    def _tree(self, kind: str, name: str) -> None:
        spec = {
            "workloadRef": {"workloadName": name, "templateName": "tree"},
            "schedulingPolicy": {"gang": {"minGroupCount": 2}},
        }
        parts: list[Object] = [
            _made("scheduling.k8s.io/v1alpha3", "CompositePodGroup", name, "default", spec)
        ]
        for part in ("left", "right"):
            group = f"{name}-{part}"
            parts.append(_group(group, 2, name))
            parts += [_pod(f"{group}-{n}", "500m", schedulingGroup={"podGroupName": group})
                      for n in range(2)]  # fmt: skip
        self._create(kind, *parts)

    def _share(self, kind: str, name: str) -> None:
        exactly = {"deviceClassName": "vgpu.example.com"}
        capacity = {"capacity": {"requests": {"memory": "6Gi"}}}
        requests = [{"name": "vgpu", "exactly": {**exactly, **capacity}}]
        spec = {"devices": {"requests": requests}}
        claim = _made("resource.k8s.io/v1", "ResourceClaim", name, "default", spec)
        self._create(kind, claim, _claiming(name, {"resourceClaimName": name}))

    def _device(self, kind: str, name: str) -> None:
        self._create(kind, _claiming(name, {"resourceClaimTemplateName": "kills-gpu"}))

    def _attach(self, kind: str, name: str) -> None:
        self._create(kind, _claiming(name, {"resourceClaimTemplateName": "accelerator"}))

    def _vm(self, kind: str, name: str) -> None:
        guest = {
            "cpus": {"min": 0.25, "use": 0.25, "max": 2},
            "memorySlotSize": "1Gi",
            "memorySlots": {"min": 1, "use": 1, "max": 6},
            "rootDisk": {"image": "postgres:17", "size": "8Gi"},
        }
        select = {"purpose": "db"}
        tolerated = {"key": "purpose", "value": "db", "effect": "NoSchedule"}
        spec = {"schedulerName": "autoscale-scheduler", "nodeSelector": select, "guest": guest,
                "tolerations": [tolerated]}  # fmt: skip
        vm = _made("vm.neon.tech/v1", "VirtualMachine", name, "default", spec)
        vm["metadata"]["labels"] = {"autoscaling.neon.tech/enabled": "true"}
        vm["metadata"]["annotations"] = {"stower.dev/load": self._vm_load()}
        self._create(kind, vm)

        def change() -> None:
            if self._ledger.is_alive("virtualmachines", f"default/{name}"):
                path = ("metadata", "annotations", "stower.dev/load")
                self._writer.patch("virtualmachines", f"default/{name}", {path: self._vm_load()})

        for _ in range(2):
            self._later(change, 0.5)

    def _vm_load(self) -> str:
        low = self._rng.choice((0.1, 0.3, 0.6))
        return json.dumps({"low": low, "high": 1.0, "periodSeconds": 20})

    def _user(self, kind: str, name: str) -> None:
        tolerated = {"key": "hub.jupyter.org/dedicated", "value": "user", "effect": "NoSchedule"}
        pod = _pod(
            name, "1", schedulerName="jhub-user-scheduler", priorityClassName="jhub-user",
            nodeSelector={"purpose": "user"}, tolerations=[tolerated],
        )  # fmt: skip
        pod["metadata"] |= {"namespace": "jhub", "labels": {"component": "singleuser-server"}}
        self._create(kind, pod)
