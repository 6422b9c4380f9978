"""Benchmark drivers: how a workload is fed to the engine, and what is timed.

Every driver returns the time of each timed piece of work in ns; work of the API server (such as
creating the bound pod) is not counted.
"""

from collections.abc import Callable
from time import perf_counter_ns

import msgspec
import numpy as np

from stower.assembly import build_engine
from stower.bench.devices import devices, partitions
from stower.bench.groups import small_gangs, trees
from stower.bench.negotiation import negotiation
from stower.bench.objects import node_bytes, pod_bytes, scheduler_name
from stower.bench.perf import claims, perf
from stower.bench.timing import Times, settle_memory
from stower.bench.vms import vms
from stower.bench.workloads import BenchWorkload
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteOk
from stower.framework.writes import Bind, DeletePod, PatchPodStatus, Write
from stower.model.errors import InvariantError
from stower.model.kinds import Node, Pod, Service
from stower.model.kinds.service import ServiceSpec
from stower.model.meta import ObjectMeta
from stower.model.raw import decode, edit

SECOND_NS = 1_000_000_000


def _nodes(workload: BenchWorkload) -> tuple[Node, ...]:
    return tuple(decode(node_bytes(i, workload), Node) for i in range(workload.nodes))


def _make_existing_pods(workload: BenchWorkload) -> list[Pod]:
    """Pods that lie evenly on the nodes already; numbered after the arriving ones."""
    first = workload.arriving
    return [
        decode(pod_bytes(first + i, workload, f"node-{i % workload.nodes:05}"), Pod)
        for i in range(workload.existing)
    ]


def build_ready_engine(workload: BenchWorkload) -> Engine:
    """Returns an engine that has listed the workload's nodes and existing pods."""
    profiles = [{"schedulerName": scheduler_name(i)} for i in range(workload.profiles)]
    engine = build_engine({"profiles": profiles}, contains_errors=False)
    engine.step(
        Listed((*_list_services(workload), *_nodes(workload), *_make_existing_pods(workload))), 0
    )
    settle_memory()
    return engine


def _list_services(workload: BenchWorkload) -> tuple[Service, ...]:
    """A service that selects all pods, where there is one."""
    if not workload.service:
        return ()
    meta = ObjectMeta(name="bench", namespace="default", uid="service")
    return (Service(metadata=meta, spec=ServiceSpec(selector={"app": "bench"})),)


def _one_bind(writes: list[Write]) -> Bind:
    for write in writes:
        if isinstance(write, Bind):
            return write
    raise InvariantError("a pod of a benchmark was not placed")


def arrive(workload: BenchWorkload) -> Times:
    """Pods come one after another: from the decoded object to the emitted bind."""
    return _measure_arrivals(build_ready_engine(workload), workload)


def _measure_arrivals(engine: Engine, workload: BenchWorkload) -> Times:
    pods = [decode(pod_bytes(i, workload), Pod) for i in range(workload.arriving)]
    drift = _Drift(engine, workload)
    pieces = []
    for pod in pods:
        event = Observed(WatchType.ADDED, pod)
        drift.happen()
        start = perf_counter_ns()
        writes = engine.step(event, 1)
        pieces.append(perf_counter_ns() - start)
        _one_bind(writes)
    return Times(pieces, len(pods))


class _Drift:
    """Other rows that change between two pods, as if as many pods had come and gone there.

    Written into the column and the dirty log directly: what is measured is the refresh of the rows,
    not hundreds of events for every pod. churn-5000 measures events.
    """

    def __init__(self, engine: Engine, workload: BenchWorkload) -> None:
        self._state = engine.state
        self._count = int(workload.drift * workload.nodes)
        self._draw = np.random.default_rng(0)
        self._sign = 1

    def happen(self) -> None:
        """Change them; not timed, unlike the refresh that it causes."""
        if self._count:
            rows = self._draw.choice(self._state.row_limit, self._count, replace=False)
            column = self._state.columns["cpu"]
            column.requested[rows] = np.maximum(column.requested[rows] + 10 * self._sign, 0)
            self._state.usage_log.add_many(rows)
            self._sign = -self._sign


def bytes_to_confirmed(workload: BenchWorkload) -> Times:
    """From a pod's JSON to its confirmed bind: both objects decoded, every write answered."""
    engine = build_ready_engine(workload)
    sent = [pod_bytes(i, workload) for i in range(workload.arriving)]
    pieces = []
    for data in sent:
        start = perf_counter_ns()
        writes = engine.step(Observed(WatchType.ADDED, decode(data, Pod)), 1)
        half = perf_counter_ns() - start
        bind = _one_bind(writes)
        bound = edit(data, {"spec": {"nodeName": bind.node_name}})
        start = perf_counter_ns()
        for write in engine.step(WriteOk(bind.id), 1):
            engine.step(WriteOk(write.id), 1)
        engine.step(Observed(WatchType.MODIFIED, decode(bound, Pod)), 1)
        pieces.append(half + perf_counter_ns() - start)
    return Times(pieces, len(sent))


def restart(workload: BenchWorkload) -> Times:
    """A fresh engine: decode everything, list it, decide the first pod."""
    nodes = [node_bytes(i, workload) for i in range(workload.nodes)]
    first = workload.arriving
    pods = [
        pod_bytes(first + i, workload, f"node-{i % workload.nodes:05}")
        for i in range(workload.existing)
    ]
    pending = pod_bytes(0, workload)
    settle_memory()
    start = perf_counter_ns()
    engine = build_engine(contains_errors=False)
    objects: list[Node | Pod] = [decode(data, Node) for data in nodes]
    objects += [decode(data, Pod) for data in (*pods, pending)]
    writes = engine.step(Listed(tuple(objects)), 0)
    spent = perf_counter_ns() - start
    _one_bind(writes)
    return Times([spent], len(pods))


def hold(workload: BenchWorkload) -> Times:
    """Place many pods and keep them: peak memory is what counts. The bytes are not kept."""
    engine = build_engine(contains_errors=False)
    engine.step(Listed(_nodes(workload)), 0)
    pieces = []
    first = workload.arriving
    for i in range(workload.existing):
        data = pod_bytes(first + i, workload, f"node-{i % workload.nodes:05}")
        start = perf_counter_ns()
        engine.step(Observed(WatchType.ADDED, decode(data, Pod)), 0)
        pieces.append(perf_counter_ns() - start)
    return Times(pieces, workload.existing)


def wake(workload: BenchWorkload) -> Times:
    """Equal pods that fit nowhere wait; one event wakes all, and all are refused again."""
    engine = build_ready_engine(workload)
    too_large_milli = 40_000
    for i in range(workload.arriving):
        pod = decode(pod_bytes(i, workload, cpu_milli=too_large_milli), Pod)
        engine.step(Observed(WatchType.ADDED, pod), 0)
    _drain(engine, 0)
    # A node on which they would fit, but for a taint: the resource plugin wakes them, in vain.
    larger = msgspec.json.decode(node_bytes(workload.nodes, workload))
    larger["status"]["allocatable"]["cpu"] = "64"
    larger["spec"] = {"taints": [{"key": "bench", "value": "hard", "effect": "NoSchedule"}]}
    node = msgspec.convert(larger, Node)
    later_ns = 20 * SECOND_NS
    engine.drain()
    start = perf_counter_ns()
    engine.step(Observed(WatchType.ADDED, node), later_ns)
    _drain(engine, later_ns)
    spent = perf_counter_ns() - start
    attempts = len(engine.drain())
    if attempts != workload.arriving:
        raise InvariantError(f"woke {attempts} pods instead of {workload.arriving}")
    return Times([spent], workload.arriving)


def _drain(engine: Engine, now_ns: int) -> None:
    """Ticks until nothing can be tried at this time."""
    while (due := engine.next_wake_ns) is not None and due <= now_ns:
        engine.step(Tick(), now_ns)


def churn(workload: BenchWorkload) -> Times:
    """For every pod that comes, a node goes and a new one comes, and a running pod ends."""
    engine = build_ready_engine(workload)
    running = _make_existing_pods(workload)
    pods = [decode(pod_bytes(i, workload), Pod) for i in range(workload.arriving)]
    fresh = [
        decode(node_bytes(workload.nodes + i, workload), Node) for i in range(workload.arriving)
    ]
    old = list(_nodes(workload)) + fresh
    pieces = []
    for i, pod in enumerate(pods):
        ending = running[i % len(running)] if i < len(running) else None
        start = perf_counter_ns()
        if ending is not None:
            engine.step(Observed(WatchType.DELETED, ending), 1)
        engine.step(Observed(WatchType.DELETED, old[i]), 1)
        engine.step(Observed(WatchType.ADDED, fresh[i]), 1)
        writes = engine.step(Observed(WatchType.ADDED, pod), 1)
        pieces.append(perf_counter_ns() - start)
        _one_bind(writes)
    return Times(pieces, len(pods))


def preempt(workload: BenchWorkload) -> Times:
    """Every pod that comes must evict others: until it is bound, all answers and deletions."""
    engine = build_ready_engine(workload)
    there = {pod.metadata.uid: pod for pod in _make_existing_pods(workload)}
    pods = [decode(pod_bytes(i, workload), Pod) for i in range(workload.arriving)]
    pieces = []
    for pod in pods:
        start = perf_counter_ns()
        todo = engine.step(Observed(WatchType.ADDED, pod), 1)
        bound = False
        while todo:
            more: list[Write] = []
            for write in todo:
                bound |= isinstance(write, Bind)
                more += engine.step(WriteOk(write.id), 1)
                if isinstance(write, DeletePod):
                    more += engine.step(Observed(WatchType.DELETED, there.pop(write.uid)), 1)
            todo = more
        pieces.append(perf_counter_ns() - start)
        if not bound:
            raise InvariantError("a pod of a benchmark was not placed")
    return Times(pieces, len(pods))


def preempt_one(workload: BenchWorkload) -> Times:
    """One decision at a time, each by an engine that has never made one."""
    engine = build_ready_engine(workload)
    pieces = []
    for i in range(workload.arriving):
        # Requests of their own, so that nothing is known of them.
        pod = decode(pod_bytes(i, workload, cpu_milli=workload.arriving_milli + i), Pod)
        start = perf_counter_ns()
        writes = engine.step(Observed(WatchType.ADDED, pod), 1)
        pieces.append(perf_counter_ns() - start)
        if not any(isinstance(write, PatchPodStatus) and write.uid != pod.metadata.uid
                   for write in writes):  # fmt: skip
            raise InvariantError("a pod of a benchmark evicted no other pod")
    return Times(pieces, len(pieces))


def relabel(workload: BenchWorkload) -> Times:
    """What a node's changed label adds where many shapes are known, each of which has to look.

    One pod of each shape comes, once after the change and once without: the difference.
    """
    engine = build_ready_engine(workload)
    count = workload.shapes
    for i in range(count):
        _one_bind(engine.step(Observed(WatchType.ADDED, decode(pod_bytes(i, workload), Pod)), 1))
    spent = []
    for turn in range(1, workload.arriving // count):
        data = msgspec.json.decode(node_bytes(turn, workload))
        data["metadata"]["labels"]["bench/turn"] = str(turn)
        node = msgspec.convert(data, Node)
        pods = [decode(pod_bytes(turn * count + i, workload), Pod) for i in range(count)]
        start = perf_counter_ns()
        if turn % 2:
            engine.step(Observed(WatchType.MODIFIED, node), 1)
        for pod in pods:
            engine.step(Observed(WatchType.ADDED, pod), 1)
        spent.append(perf_counter_ns() - start)
    pieces = [
        max(with_it - without, 0) for with_it, without in zip(spent[::2], spent[1::2], strict=False)
    ]
    return Times(pieces, len(pieces))


def waiting(workload: BenchWorkload) -> Times:
    """Pods that fit nowhere wait while others come that do (upstream's Unschedulable)."""
    engine = build_ready_engine(workload)
    for i in range(workload.existing_waiting):
        pod = decode(pod_bytes(workload.arriving + i, workload, cpu_milli=99_000), Pod)
        engine.step(Observed(WatchType.ADDED, pod), 1)
    return _measure_arrivals(engine, workload)


DRIVE: dict[str, Callable[[BenchWorkload], Times]] = {
    "arrive": arrive,
    "bytes": bytes_to_confirmed,
    "restart": restart,
    "hold": hold,
    "wake": wake,
    "churn": churn,
    "preempt": preempt,
    "preempt-one": preempt_one,
    "relabel": relabel,
    "waiting": waiting,
    "perf": perf,
    "claims": claims,
    "devices": devices,
    "negotiation": negotiation,
    "vms": vms,
    "partitions": partitions,
    "small_gangs": small_gangs,
    "trees": trees,
}
