"""Benchmark driver for the workloads of kube-scheduler's scheduler_perf, and for volumes."""

from time import perf_counter_ns
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.bench.timing import Times, settle_memory
from stower.bench.workloads import BenchWorkload
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, WatchType, WriteOk
from stower.framework.writes import Bind, DeletePod, PatchObject, Write
from stower.model.errors import InvariantError
from stower.model.kinds import Background, Node, PersistentVolumeClaim, Pod, StorageClass
from stower.sim.volume_binder import Binder

Object = dict[str, Any]
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def _term(color: str, key: str) -> Object:
    return {
        "labelSelector": {"matchLabels": {"color": color}},
        "topologyKey": key,
        "namespaces": ["sched-1", "sched-0"],
    }


def _spread(action: str) -> Object:
    return {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }


# Labels' color and spec of each sort of pod; cpu in milli-CPU.
PODS: Final[dict[str, tuple[str, int, Object]]] = {
    "plain": ("", 100, {}),
    "low-priority": ("", 900, {}),
    "high-priority": ("", 3000, {"priority": 10}),
    "large-cpu": ("", 9000, {"priority": 10}),
    "anti-affinity": (
        "green", 100, {"affinity": {"podAntiAffinity": {REQUIRED: [_term("green", HOST)]}}},
    ),
    "affinity": ("blue", 100, {"affinity": {"podAffinity": {REQUIRED: [_term("blue", ZONE)]}}}),
    "preferred-affinity": (
        "red", 100,
        {"affinity": {"podAffinity": {PREFERRED: [
            {"weight": 1, "podAffinityTerm": _term("red", HOST)}]}}},
    ),
    "preferred-anti-affinity": (
        "yellow", 100,
        {"affinity": {"podAntiAffinity": {PREFERRED: [
            {"weight": 1, "podAffinityTerm": _term("yellow", HOST)}]}}},
    ),
    "spreading": ("blue", 100, {"topologySpreadConstraints": [_spread("DoNotSchedule")]}),
    "preferred-spreading": (
        "blue", 100, {"topologySpreadConstraints": [_spread("ScheduleAnyway")]},
    ),
    "claim": ("", 100, {"volumes": [{"name": "data", "ephemeral": {}}]}),
}  # fmt: skip


def node(i: int, workload: BenchWorkload) -> Node:
    """Upstream's: 4 cores, 32 GiB, 110 pods."""
    name = f"scheduler-perf-{i:05}"
    labels = {HOST: name}
    if workload.zones:
        labels[ZONE] = workload.zones[i % len(workload.zones)]
    data = {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "status": {"allocatable": {"pods": "110", "cpu": "4", "memory": "32Gi"}},
    }
    return msgspec.convert(data, Node)


def pod(i: int, sort: str, namespace: str) -> Pod:
    """Pod i of a sort."""
    color, milli, spec = PODS[sort]
    requests = {"cpu": f"{milli}m", "memory": "500Mi"}
    meta: Object = {"name": f"{sort}-{i:06}", "namespace": namespace, "uid": f"{sort}-{i:06}"}
    if color:
        meta["labels"] = {"color": color}
    container = {"name": "pause", "image": "pause", "resources": {"requests": requests}}
    return msgspec.convert({"metadata": meta, "spec": {"containers": [container], **spec}}, Pod)


def perf(workload: BenchWorkload) -> Times:
    """Pods of several sorts, one step after another."""
    nodes = tuple(node(i, workload) for i in range(workload.nodes))
    cluster = _Cluster(Listed(nodes))
    pieces = []
    number = 0
    for step in workload.steps:
        pods = [pod(number + i, step.pod, step.namespace) for i in range(step.count)]
        number += len(pods)
        if step.timed:
            settle_memory()
        for i, one in enumerate(pods):
            if step.every and i % step.every == 0:
                cluster.add(pod(number + i, step.beside, step.namespace))
            start = perf_counter_ns()
            placed = cluster.add(one)
            if step.timed:
                pieces.append(perf_counter_ns() - start)
            if not placed:
                raise InvariantError(f"a pod of {workload.name} was not placed")
    return Times(pieces, len(pieces))


def claims(workload: BenchWorkload) -> Times:
    """Every pod has a claim of its own, for which a volume is made; until its bind is answered."""
    storage_class = msgspec.convert(
        {
            "metadata": {"name": "fast", "uid": "fast"},
            "provisioner": "bench",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
        StorageClass,
    )
    pods = [pod(i, "claim", "default") for i in range(workload.arriving)]
    wanted = [_claim_of(one) for one in pods]
    nodes = tuple(node(i, workload) for i in range(workload.nodes))
    cluster = _Cluster(Listed((storage_class, *wanted, *nodes)), tuple(wanted))
    settle_memory()
    pieces = []
    for one in pods:
        start = perf_counter_ns()
        placed = cluster.add(one)
        pieces.append(perf_counter_ns() - start)
        if not placed:
            raise InvariantError("a pod of a benchmark was not placed")
    return Times(pieces, len(pieces))


def _claim_of(one: Pod) -> PersistentVolumeClaim:
    meta = one.metadata
    owner = {"kind": "Pod", "name": meta.name, "uid": meta.uid, "controller": True}
    return msgspec.convert(
        {
            "metadata": {
                "name": f"{meta.name}-data", "namespace": meta.namespace,
                "uid": f"claim-{meta.name}", "resourceVersion": "1", "ownerReferences": [owner],
            },
            "spec": {
                "storageClassName": "fast", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
        PersistentVolumeClaim,
    )  # fmt: skip


class _Cluster:
    """An engine, and an API server that agrees to everything."""

    def __init__(self, listed: Listed, related: tuple[Background, ...] = ()) -> None:
        self.engine: Engine = build_engine(contains_errors=False)
        self.engine.step(listed, 0)
        self._binder = Binder()
        self._binder.start(related)
        self._pods: dict[str, Pod] = {}

    def add(self, one: Pod) -> bool:
        """A pod comes; all that is written is done. Whether it was bound."""
        self._pods[one.metadata.uid] = one
        engine = self.engine
        todo = engine.step(Observed(WatchType.ADDED, one), 1)
        bound = False
        while todo:
            more: list[Write] = []
            for write in todo:
                bound |= isinstance(write, Bind) and write.uid == one.metadata.uid
                more += engine.step(WriteOk(write.id), 1)
                if isinstance(write, DeletePod):
                    gone = self._pods.pop(write.uid)
                    more += engine.step(Observed(WatchType.DELETED, gone), 1)
                elif isinstance(write, PatchObject):
                    for obj in self._binder.apply_patch(write):
                        more += engine.step(Observed(WatchType.MODIFIED, obj), 1)
            todo = more
        return bound
