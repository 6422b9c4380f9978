"""Reads the OpenB trace with its GPUs as shared DRA devices: one slice per node, claims for pods.

A GPU is a device of 1,000 milli that allows multiple allocations (KEP-5075). A pod's claim requests
a number of GPUs and a number of milli of each; a `gpu_spec` becomes a selector by model. CPU and
memory are resources of the node. GPU memory is left out: the trace has none.
"""

import csv
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from stower.model.defaults import with_node_defaults, with_pod_defaults
from stower.model.errors import InvalidObject
from stower.model.kinds import DeviceClass, Node, Pod, ResourceClaim, ResourceSlice
from stower.sim.openb import PODS_PER_NODE, number_in, whole_rows

Json = dict[str, Any]

DRIVER: Final = "gpu.stower.dev"
CLASS: Final = "gpu"
MILLI: Final = "milli"
MODEL: Final = "model"
GPU_MILLI: Final = 1000  # what each GPU has
NAMESPACE: Final = "openb"
# Of a pod list, what says what a pod needs; one of the published lists has no more columns.
TASK_FIELDS: Final = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
MACHINE_FIELDS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
GPUS_MAX: Final = 128  # devices of one slice (ResourceSliceMaxDevices)


class Machine(msgspec.Struct, frozen=True):
    """A node of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class Task(msgspec.Struct, frozen=True):
    """What a pod of the trace needs; equal pods are equal. `models`: any, where it is empty."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()

    @property
    def milli(self) -> int:
        """Of all its GPUs together."""
        return self.gpus * self.gpu_milli


class Trace(msgspec.Struct, frozen=True):
    """Nodes with GPUs, and the pods that came to them."""

    machines: tuple[Machine, ...]
    tasks: tuple[Task, ...]

    @property
    def capacity_milli(self) -> int:
        """Of all GPUs together."""
        return sum(machine.gpus for machine in self.machines) * GPU_MILLI


def read_list(lines: Iterable[str]) -> tuple[list[Machine], list[Task]]:
    """The nodes that have GPUs, or the pods, of one list. Raises InvalidObject with line and
    column."""
    reader = csv.DictReader(lines)
    fields = tuple(reader.fieldnames or ())
    machines, tasks = [], []
    is_nodes = set(MACHINE_FIELDS) <= set(fields)
    if not is_nodes and not set(TASK_FIELDS) <= set(fields):
        want = "the header of an OpenB node or pod list"
        raise InvalidObject("line 1", ",".join(fields), want)
    for row in whole_rows(reader, len(fields)):
        try:
            if not is_nodes:
                tasks.append(_task(row))
                continue
            machine = _machine(row)
            if machine.gpus:
                machines.append(machine)
        except InvalidObject as error:
            at = f"line {reader.line_num}, {error.path}"
            raise InvalidObject(at, error.got, error.want) from None
    return machines, tasks


def _machine(row: Any) -> Machine:
    gpus = number_in(row, "gpu")
    if gpus > GPUS_MAX:
        raise InvalidObject("gpu", gpus, f"at most {GPUS_MAX}")
    cpu, memory = number_in(row, "cpu_milli"), number_in(row, "memory_mib")
    return Machine(row["sn"], cpu, memory, gpus, row["model"])


def _task(row: Any) -> Task:
    cpu, memory, gpus, milli = (number_in(row, field) for field in TASK_FIELDS)
    if gpus and not 1 <= milli <= GPU_MILLI:
        raise InvalidObject("gpu_milli", milli, f"1 to {GPU_MILLI}")
    if gpus > GPUS_MAX:
        raise InvalidObject("num_gpu", gpus, f"at most {GPUS_MAX}")
    models = sorted({*filter(None, (row.get("gpu_spec") or "").split("|"))})
    return Task(cpu, memory, gpus, milli if gpus else 0, tuple(models) if gpus else ())


def node_of(machine: Machine) -> Node:
    """The node, without its GPUs."""
    room = {
        "cpu": f"{machine.cpu_milli}m",
        "memory": f"{machine.memory_mib}Mi",
        "pods": str(PODS_PER_NODE),
    }
    labels = {"kubernetes.io/hostname": machine.name}
    made = {"metadata": {"name": machine.name, "labels": labels}, "status": {"capacity": room}}
    return with_node_defaults(msgspec.convert(made, Node), machine.name)


def device_class() -> DeviceClass:
    """All of the driver's devices."""
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    meta = {"name": CLASS, "uid": CLASS}
    return msgspec.convert({"metadata": meta, "spec": {"selectors": [selector]}}, DeviceClass)


def slice_of(machine: Machine) -> ResourceSlice:
    """The node's GPUs: a pool of the node's name."""
    device = {
        "allowMultipleAllocations": True,
        "attributes": {MODEL: {"string": machine.model}},
        "capacity": {MILLI: {"value": str(GPU_MILLI)}},
    }
    # The order of names is the order of numbers.
    devices = [{"name": f"gpu-{i:03}", **device} for i in range(machine.gpus)]
    pool = {"name": machine.name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": machine.name, "pool": pool, "devices": devices}
    meta = {"name": machine.name, "uid": f"slice/{machine.name}", "resourceVersion": "1"}
    return msgspec.convert({"metadata": meta, "spec": spec}, ResourceSlice)


class Maker:
    """Makes the pods of tasks, and their claims. Equal tasks share all but names."""

    def __init__(self) -> None:
        self._known: dict[Task, tuple[Pod, ResourceClaim | None]] = {}

    def make(self, task: Task, name: str) -> tuple[Pod, ResourceClaim | None]:
        """The pod of that name, and the claim that goes when it goes."""
        if task not in self._known:
            self._known[task] = (_pod(task), _claim(task) if task.gpus else None)
        pod, claim = self._known[task]
        meta = msgspec.structs.replace(pod.metadata, name=name, uid=name)
        pod = msgspec.structs.replace(pod, metadata=meta)
        if claim is None:
            return pod, None
        entries = tuple(
            msgspec.structs.replace(entry, resource_claim_name=name)
            for entry in pod.spec.resource_claims or ()
        )
        spec = msgspec.structs.replace(pod.spec, resource_claims=entries)
        owners = tuple(
            msgspec.structs.replace(owner, name=name, uid=name)
            for owner in claim.metadata.owner_references or ()
        )
        meta = msgspec.structs.replace(
            claim.metadata, name=name, uid=f"claim/{name}", owner_references=owners
        )
        claim = msgspec.structs.replace(claim, metadata=meta)
        return msgspec.structs.replace(pod, spec=spec), claim


def _pod(task: Task) -> Pod:
    requests = {"cpu": f"{task.cpu_milli}m", "memory": f"{task.memory_mib}Mi"}
    spec: Json = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    if task.gpus:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": ""}]
    made = {"metadata": {"name": "", "namespace": NAMESPACE}, "spec": spec}
    return with_pod_defaults(msgspec.convert(made, Pod), {}, "")


def _claim(task: Task) -> ResourceClaim:
    exactly: Json = {
        "deviceClassName": CLASS, "allocationMode": "ExactCount", "count": task.gpus,
        "capacity": {"requests": {MILLI: str(task.gpu_milli)}},
    }  # fmt: skip
    if task.models:
        exactly["selectors"] = [{"cel": {"expression": selector(task.models)}}]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "", "controller": True}
    meta = {"name": "", "namespace": NAMESPACE, "resourceVersion": "1", "ownerReferences": [owner]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return msgspec.convert({"metadata": meta, "spec": spec}, ResourceClaim)


def selector(models: Sequence[str]) -> str:
    """CEL that chooses GPUs of these models."""
    listed = ", ".join(msgspec.json.encode(model).decode() for model in models)
    return f'device.attributes["{DRIVER}"].{MODEL} in [{listed}]'
