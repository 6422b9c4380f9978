"""Benchmark drivers for device claims with a selector: halves of GPUs, or partitions of a GPU.

The time covers everything that the engine does for a pod: claim and pod observed, three writes
answered, the changed claim and pod observed. Work of the API server is not counted.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.bench.objects import node_bytes
from stower.bench.timing import Times, settle_memory
from stower.bench.workloads import BenchWorkload
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, WatchType, WriteOk
from stower.framework.writes import Bind, PatchObject, Write
from stower.model.errors import InvariantError
from stower.model.kinds import DeviceClass, Node, Pod, ResourceClaim, ResourceSlice
from stower.model.raw import decode

DRIVER: Final = "gpu.example.com"
PER_NODE: Final = 8
HALF: Final = {"milli": "500", "memory": "40Gi"}


def _make_shared_slices(node: str) -> list[ResourceSlice]:
    """GPUs of which several claims may have a part."""
    device = {
        "allowMultipleAllocations": True,
        "attributes": {"model": {"string": "a100"}},
        "capacity": {"milli": {"value": "1000"}, "memory": {"value": "80Gi"}},
    }
    return [_slice(node, "gpu", 1, devices=_devices(device))]


def _partitions(node: str) -> list[ResourceSlice]:
    """A GPU's partitions, which draw on its counters (KEP-4815): these are in a slice of their
    own."""
    units = {"slices": {"value": "1"}, "memory": {"value": "10Gi"}}
    device = {
        "attributes": {"model": {"string": "a100"}},
        "consumesCounters": [{"counterSet": "gpu", "counters": units}],
    }
    whole = {"slices": {"value": f"{PER_NODE}"}, "memory": {"value": f"{10 * PER_NODE}Gi"}}
    counters = [{"name": "gpu", "counters": whole}]
    return [
        _slice(node, "counters", 2, sharedCounters=counters),
        _slice(node, "gpu", 2, devices=_devices(device)),
    ]


def _devices(device: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": f"gpu-{i}", **device} for i in range(PER_NODE)]


def _slice(node: str, part: str, count: int, **what: Any) -> ResourceSlice:
    """One of so many slices of a node's pool."""
    name = f"{part}-{node}"
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, **what}
    meta = {"name": name, "uid": name, "resourceVersion": "1"}
    return msgspec.convert({"metadata": meta, "spec": spec}, ResourceSlice)


def _class() -> DeviceClass:
    expression = f'device.driver == "{DRIVER}"'
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return msgspec.convert({"metadata": {"name": "gpu", "uid": "class"}, "spec": spec}, DeviceClass)


def _claim(number: int, **more: Any) -> ResourceClaim:
    model = {"cel": {"expression": f'device.attributes["{DRIVER}"].model == "a100"'}}
    exactly = {
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": [model],
        **more,
    }  # fmt: skip
    meta = {
        "name": f"claim-{number}", "namespace": "default", "uid": f"claim-{number}",
        "resourceVersion": "1",
    }  # fmt: skip
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return msgspec.convert({"metadata": meta, "spec": spec}, ResourceClaim)


def _pod(number: int) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    meta = {"name": f"pod-{number}", "namespace": "default", "uid": f"pod-{number}"}
    claims = [{"name": "gpu", "resourceClaimName": f"claim-{number}"}]
    spec = {"containers": [container], "resourceClaims": claims}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def devices(workload: BenchWorkload) -> Times:
    """Pods with a claim each come one after another, for half of a GPU."""
    return _measure_placement(workload, _make_shared_slices, {"capacity": {"requests": HALF}})


def partitions(workload: BenchWorkload) -> Times:
    """The same for partitions."""
    return _measure_placement(workload, _partitions, {})


def _measure_placement(
    workload: BenchWorkload, slices_of: Callable[[str], list[ResourceSlice]], wanted: dict[str, Any]
) -> Times:
    engine = _engine(workload, slices_of)
    count = workload.existing + workload.arriving
    todo = [(_claim(i, **wanted), _pod(i)) for i in range(count)]
    for claim, pod in todo[: workload.existing]:
        _place(engine, claim, pod)
    settle_memory()
    pieces = [_place(engine, claim, pod) for claim, pod in todo[workload.existing :]]
    return Times(pieces, len(pieces))


def half_gpus(workload: BenchWorkload) -> Engine:
    """Returns an engine that has listed the workload's nodes and their shared GPUs."""
    return _engine(workload, _make_shared_slices)


def place(engine: Engine, number: int, wanted: dict[str, Any]) -> int:
    """Places the pod of a number with its claim; returns the ns that the engine took."""
    return _place(engine, _claim(number, **wanted), _pod(number))


def _engine(workload: BenchWorkload, slices_of: Callable[[str], list[ResourceSlice]]) -> Engine:
    engine = build_engine(contains_errors=False)
    nodes = [decode(node_bytes(i, workload), Node) for i in range(workload.nodes)]
    slices = [part for node in nodes for part in slices_of(node.metadata.name)]
    engine.step(Listed((_class(), *nodes, *slices)), 0)
    return engine


def _place(engine: Engine, claim: ResourceClaim, pod: Pod) -> int:
    """Until the pod is bound and seen so; the ns that the engine took."""
    api = _Api(engine, claim, pod)
    api.tell(Observed(WatchType.ADDED, claim))
    api.tell(Observed(WatchType.ADDED, pod))
    if not api.is_bound:
        raise InvariantError(f"pod {pod.key} of a benchmark was not placed")
    return api.spent_ns


class _Api:
    """Carries out what is written for one pod and its claim."""

    def __init__(self, engine: Engine, claim: ResourceClaim, pod: Pod) -> None:
        self._engine = engine
        self._claim: Any = msgspec.to_builtins(claim)
        self._pod: Any = msgspec.to_builtins(pod)
        self._version = 1
        self.spent_ns = 0
        self.is_bound = False

    def tell(self, event: Any) -> None:
        """An event, and all that follows from it."""
        start = perf_counter_ns()
        writes = self._engine.step(event, 1)
        self.spent_ns += perf_counter_ns() - start
        for write in writes:
            for answer in self._carried_out(write):
                self.tell(answer)

    def _carried_out(self, write: Write) -> list[Any]:
        if isinstance(write, Bind):
            self.is_bound = True
            self._pod["spec"]["nodeName"] = write.node_name
            seen = msgspec.convert(self._pod, Pod)
            return [WriteOk(write.id), Observed(WatchType.MODIFIED, seen)]
        if not isinstance(write, PatchObject):
            return [WriteOk(write.id)]
        self._version += 1
        meta = self._claim["metadata"]
        meta |= write.patch.get("metadata", {}) | {"resourceVersion": str(self._version)}
        self._claim["status"] = self._claim.get("status", {}) | write.patch.get("status", {})
        claim = msgspec.convert(self._claim, ResourceClaim)
        return [WriteOk(write.id, str(self._version)), Observed(WatchType.MODIFIED, claim)]
