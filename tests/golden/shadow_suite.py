"""Recorded sequences as another scheduler's decisions on an API server, with ours in its shadow."""

import asyncio
import hashlib
import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stower.apiserver.server_process import Options as Serving
from stower.assembly import build_engine
from stower.engine.explain.agreement import Judgement
from stower.framework.plugin import Features
from stower.live.scheduler import Options
from stower.live.shadow import ShadowComparer
from stower.live.shell_runner import KubeconfigFlags, RunOptions, run
from tests.contract.servers import Client, in_thread

Case = dict[str, Any]
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Node": "/api/v1/nodes",
    "Service": "/api/v1/namespaces/{}/services",
    "Pod": "/api/v1/namespaces/{}/pods",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/namespaces/{}/csistoragecapacities",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
}
WITH_STATUS = ("Pod", "PersistentVolumeClaim", "PersistentVolume", "PodDisruptionBudget")
STRATEGIC = "application/strategic-merge-patch+json"
SECONDS = 30.0


class Shadowing:
    """Our scheduler in the shadow, in a thread of its own."""

    def __init__(self, kubeconfig: Path, config: Any) -> None:
        self.found: list[Judgement] = []
        self._more = threading.Condition()
        self._begun = threading.Event()
        self._kubeconfig, self._config = kubeconfig, config
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> "Shadowing":
        self._thread.start()
        assert self._begun.wait(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(SECONDS)

    def wait(self, count: int) -> bool:
        """Until so many decisions were judged."""
        with self._more:
            return self._more.wait_for(lambda: len(self.found) >= count, SECONDS)

    def _told(self, judgement: Judgement) -> None:
        with self._more:
            self.found.append(judgement)
            self._more.notify_all()

    def _run(self) -> None:
        def stop() -> asyncio.Event:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            return self._stop

        def build() -> Any:
            engine = build_engine(self._config, features=Features())
            # All there is has been listed: from here on, what is decided is judged.
            assert self._loop is not None
            self._loop.call_soon(self._begun.set)
            return engine

        options = Options("shadow", shadow=ShadowComparer(self._told))
        asyncio.run(
            run(
                KubeconfigFlags(self._kubeconfig),
                build,
                options,
                RunOptions(),
                lambda *_: None,
                stop,
            )
        )


def shadow(case: Case) -> Iterator[str]:
    """Where ours does not agree with what was recorded."""
    with (
        tempfile.TemporaryDirectory() as folder,
        in_thread(Serving(Path(folder), memory=True)) as (_, client),
    ):
        for item in (*_namespaces(case), *case["objects"]):
            _create(client, item)
        with Shadowing(client.kubeconfig, case["config"]) as shadowing:
            expected = [*_played(client, case["steps"])]
            shadowing.wait(len(expected))
    if len(shadowing.found) != len(expected):
        yield f"{len(shadowing.found)} decisions were judged, want {len(expected)}"
    for found, (key, node, best) in zip(shadowing.found, expected):
        if (found.pod, found.node) != (key, node):
            yield f"judged {found.pod} on {found.node}, want {key} on {node}"
        elif found.verdict != "agrees":
            yield f"{key} on {node}: {found}"
        elif [*found.best] != sorted(best)[: len(found.best)] or found.best_count != len(best):
            yield f"{key}: the best are {found.best}, want {best}"


def _namespaces(case: Case) -> Iterator[Case]:
    """Those that nobody says."""
    items = [*case["objects"], *(step["pod"] for step in case["steps"] if "pod" in step)]
    names = {item["metadata"].get("namespace", "") for item in items}
    there = {i["metadata"]["name"] for i in case["objects"] if i["kind"] == "Namespace"}
    for name in sorted(names - there - {"", "default"}):
        yield {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}


def _complete(client: Client, item: Case) -> Case:
    """With what an API server asks for and no scheduler does."""
    spec = dict(item.get("spec") or {})
    if item["kind"] == "ReplicaSet":
        template = dict(spec["template"])
        template.setdefault("spec", {"containers": [{"name": "c", "image": "i"}]})
        return {**item, "spec": {**spec, "template": template}}
    if item["kind"] == "Pod" and spec.get("overhead"):
        # One for each overhead: it must be that of the pod's class.
        data = json.dumps(spec["overhead"], sort_keys=True)
        name = f"kata-{hashlib.sha256(data.encode()).hexdigest()[:8]}"
        overhead = {"podFixed": spec["overhead"]}
        made = {"kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1", "handler": "kata",
                "metadata": {"name": name}, "overhead": overhead}  # fmt: skip
        assert client.call("POST", PATHS["RuntimeClass"], made)[0] in (201, 409)
        return {**item, "spec": {**spec, "runtimeClassName": name}}
    return item


def _unmerged(item: Any) -> Any:
    """A stored pod as it was sent: what servers merge from label keys stands there yet."""
    if isinstance(item, list):
        return [_unmerged(v) for v in item]
    if not isinstance(item, dict):
        return item
    made = {k: _unmerged(v) for k, v in item.items()}
    keys = {*(item.get("matchLabelKeys") or ()), *(item.get("mismatchLabelKeys") or ())}
    rules = (item.get("labelSelector") or {}).get("matchExpressions")
    if keys and rules:
        kept = [r for r in rules if r["key"] not in keys]
        made["labelSelector"] = {**item["labelSelector"], "matchExpressions": kept}
    return made


def _create(client: Client, item: Case) -> None:
    item = _complete(client, item)
    meta = {k: v for k, v in item["metadata"].items() if k not in ("resourceVersion", "uid")}
    namespace = meta.get("namespace") or "default"
    path = PATHS[item["kind"]].format(namespace)
    code, told = client.call("POST", path, {**_unmerged(item), "metadata": meta})
    if code == 409 and item["kind"] in ("Namespace", "PriorityClass"):
        name = f"{path}/{meta['name']}"
        known = client.call("GET", name)[1]
        labels = {**(known["metadata"].get("labels") or {}), **(meta.get("labels") or {})}
        patch = {"metadata": {"labels": labels}}
        code, told = client.call("PATCH", name, patch, "application/merge-patch+json")
    assert code in (200, 201), (code, told, item)
    if item["kind"] in WITH_STATUS and item.get("status"):
        status = {**told, "status": item["status"]}
        code, told = client.call("PUT", f"{path}/{meta['name']}/status", status)
        assert 200 == code, told


def _played(client: Client, steps: list[Case]) -> Iterator[tuple[str, str, list[str]]]:
    """Do it as another scheduler would; what is to be judged, and the best nodes."""
    messages: dict[str, str] = {}
    for step in steps:
        if "delete" in step:
            namespace, name = step["delete"].split("/")
            path = PATHS["Pod"].format(namespace)
            assert 200 == client.call("DELETE", f"{path}/{name}?gracePeriodSeconds=0")[0]
            messages.pop(step["delete"], None)
            continue
        if "addNode" in step:
            _create(client, step["addNode"])
            continue
        pod = step["pod"]
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        key, path = f"{namespace}/{name}", PATHS["Pod"].format(namespace)
        if key not in messages:
            _create(client, pod)
            messages[key] = ""
        if "chosen" in step:
            target = {"target": {"kind": "Node", "apiVersion": "v1", "name": step["chosen"]}}
            body = {"metadata": {"name": name, "namespace": namespace}, **target}
            code, told = client.call("POST", f"{path}/{name}/binding", body)
            assert 201 == code, told
            yield key, step["chosen"], step["best"]
        elif messages[key] != step["unschedulable"]:
            messages[key] = step["unschedulable"]
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                         "message": messages[key]}  # fmt: skip
            data = {"status": {"conditions": [condition]}}
            code, told = client.call("PATCH", f"{path}/{name}/status", data, STRATEGIC)
            assert 200 == code, json.dumps(told)
            yield key, "", []
