"""Benchmark of VMs that request another size at a steady rate: each VM once in ten seconds.

Requests arrive at that rate whether the engine keeps up or not; a request that arrives during other
work waits. A timed piece is the time from then until the end of the step that writes the approval.
Engine time includes the work that a request and its approval cause (the VM changes, then its pod,
each time; the answer to the write) and ticks, and nothing else.
"""

from heapq import heappop, heappush
from time import perf_counter_ns
from typing import Any, Final, TypeVar

import msgspec

from stower.assembly import build_engine
from stower.bench.timing import Times, settle_memory
from stower.bench.workloads import BenchWorkload
from stower.framework.events import Event, Listed, Observed, Tick, WatchType, WriteOk
from stower.framework.writes import JsonPatchObject
from stower.model.errors import InvariantError
from stower.model.kinds import Node, Pod, VirtualMachine
from stower.model.times import SECOND_NS
from stower.vms.pods import APPROVED, AUTOSCALING, REQUESTED, RESOURCES, UNIT, VERSION

SCHEDULER: Final = "autoscale-scheduler"
EVERY_NS: Final = 10 * SECOND_NS
# Of the API server and of the VM's controller.
ANSWER_NS: Final = 5_000_000
SHOWN_NS: Final = 10_000_000
START_NS: Final = 1_000 * SECOND_NS
T = TypeVar("T", Pod, VirtualMachine)
SIZES: Final = ('{"vCPUs":"500m","mem":"2Gi"}', '{"vCPUs":1,"mem":"4Gi"}')
UNIT_SIZE: Final = '{"vCPUs":"250m","mem":"1Gi"}'
CONFIGURATION: Final[dict[str, Any]] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": SCHEDULER,
            "plugins": {"multiPoint": {"enabled": [{"name": "AutoscaleEnforcer"}]}},
        }
    ],
}


def _node(i: int) -> Node:
    room = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    meta = {"name": f"node-{i:05}", "uid": f"node-{i}"}
    return msgspec.convert({"metadata": meta, "status": {"allocatable": room}}, Node)


def _pod(i: int, nodes: int) -> Pod:
    use = {"cpus": {"min": "250m", "max": 4, "use": "500m"},
           "memorySlots": {"min": 1, "max": 16, "use": 2}, "memorySlotSize": "1Gi"}  # fmt: skip
    own = {"apiVersion": VERSION, "kind": "VirtualMachine", "name": f"vm-{i}", "uid": f"vm-{i}",
           "controller": True}  # fmt: skip
    notes = {UNIT: UNIT_SIZE, REQUESTED: SIZES[0], APPROVED: SIZES[0],
             RESOURCES: msgspec.json.encode(use).decode()}  # fmt: skip
    meta = {
        "name": f"vm-{i}-pod", "namespace": "default", "uid": f"pod-{i}",
        "labels": {AUTOSCALING: "true"}, "annotations": notes, "ownerReferences": [own],
    }  # fmt: skip
    container = {"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    spec = {"containers": [container], "nodeName": f"node-{i % nodes:05}",
            "schedulerName": SCHEDULER}  # fmt: skip
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"phase": "Running"}}, Pod)


def _vm(i: int) -> VirtualMachine:
    notes = {UNIT: UNIT_SIZE, REQUESTED: SIZES[0], APPROVED: SIZES[0]}
    meta = {"name": f"vm-{i}", "namespace": "default", "uid": f"vm-{i}", "annotations": notes}
    return msgspec.convert({"metadata": meta}, VirtualMachine)


def _annotate(obj: T, name: str, value: str) -> T:
    notes = {**(obj.metadata.annotations or {}), name: value}
    meta = msgspec.structs.replace(obj.metadata, annotations=notes)
    return msgspec.structs.replace(obj, metadata=meta)


def vms(workload: BenchWorkload) -> Times:
    """`existing` VMs, of which `arriving` ask; the engine must approve all of it."""
    engine = build_engine(CONFIGURATION, contains_errors=False)
    pods = [_pod(i, workload.nodes) for i in range(workload.existing)]
    machines = [_vm(i) for i in range(workload.existing)]
    nodes = [_node(i) for i in range(workload.nodes)]
    writes = engine.step(Listed((*nodes, *machines, *pods)), START_NS)
    while (due_ns := engine.next_wake_ns) is not None and due_ns <= START_NS:
        writes += engine.step(Tick(), START_NS)
    if any(isinstance(write, JsonPatchObject) for write in writes):
        raise InvariantError(f"{workload.name}: resources were approved without a request")
    settle_memory()
    happens: list[tuple[int, int, Event]] = []  # at what time what is told
    asked_ns: dict[str, int] = {}
    gap_ns = EVERY_NS // workload.existing
    pieces: list[int] = []
    clock_ns, turn, came = START_NS, 0, 0
    while len(pieces) < workload.arriving:
        due_ns = START_NS + came * gap_ns
        if came < workload.arriving and (not happens or due_ns <= happens[0][0]):
            i, size = came % workload.existing, SIZES[1 - came // workload.existing % 2]
            machines[i] = _annotate(machines[i], REQUESTED, size)
            pods[i] = _annotate(pods[i], REQUESTED, size)
            asked_ns[pods[i].metadata.uid] = due_ns
            turn += 1
            heappush(happens, (due_ns, turn, Observed(WatchType.MODIFIED, pods[i])))
            event: Event = Observed(WatchType.MODIFIED, machines[i])
            came += 1
        elif happens:
            due_ns, _, event = heappop(happens)
        else:
            raise InvariantError(f"{workload.name}: {len(pieces)} of {came} requests approved")
        clock_ns = max(clock_ns, due_ns)
        began = perf_counter_ns()
        writes = engine.step(event, clock_ns)
        took = perf_counter_ns() - began
        clock_ns += took
        for write in writes:
            if not isinstance(write, JsonPatchObject):
                continue
            pieces.append(clock_ns - asked_ns[write.uid])
            index = int(write.uid.removeprefix("pod-"))
            approved = write.operations[-1]["value"]
            pods[index] = _annotate(pods[index], APPROVED, approved)
            machines[index] = _annotate(machines[index], APPROVED, approved)
            then: tuple[tuple[int, Event], ...] = (
                (ANSWER_NS, WriteOk(write.id)),
                (ANSWER_NS, Observed(WatchType.MODIFIED, machines[index])),
                (SHOWN_NS, Observed(WatchType.MODIFIED, pods[index])),
            )
            for after_ns, one in then:
                turn += 1
                heappush(happens, (clock_ns + after_ns, turn, one))
        wake_ns = engine.next_wake_ns
        if wake_ns is not None and wake_ns <= clock_ns:
            turn += 1
            heappush(happens, (clock_ns, turn, Tick()))
    return Times(pieces, len(pieces))
