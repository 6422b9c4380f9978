"""Benchmarks of pod group trees: a large gang, a deep tree, a tight tree, thousands of small gangs.

The timed work is the step in which the last pod arrives: from the queue to the Bindings. For small
gangs the whole run is timed, from their arrival to their binding.
"""

import random
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.bench.timing import Times, settle_memory
from stower.bench.workloads import BenchWorkload
from stower.framework.events import Event, Hold, Listed, Observed, Tick, WatchType
from stower.framework.writes import Bind
from stower.model.errors import InvariantError
from stower.model.kinds import CompositePodGroup, Node, Pod, PodGroup

ZONE, BLOCK, RACK = "topology.kubernetes.io/zone", "example.com/block", "example.com/rack"
ZONES: Final = 5
RACK_NODES: Final = 8
BLOCK_RACKS: Final = 6
NODE_GPUS: Final = 8
SEED: Final = 1
GPU: Final = "example.com/gpu"


def _node(i: int) -> Node:
    rack = i // RACK_NODES
    block = rack // BLOCK_RACKS
    labels = {ZONE: f"z{block % ZONES}", BLOCK: f"b{block}", RACK: f"r{rack}"}
    room = {"cpu": "32", "memory": "256Gi", "pods": "110", GPU: f"{NODE_GPUS}"}
    meta = {"name": f"node-{i:05}", "uid": f"node-{i}", "labels": labels}
    return msgspec.convert({"metadata": meta, "status": {"allocatable": room}}, Node)


def _pod(name: str, group: str, asked: dict[str, str], node: str = "") -> Pod:
    container = {"name": "c", "resources": {"requests": asked}}
    spec: dict[str, Any] = {"containers": [container], "nodeName": node}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    meta = {"name": name, "namespace": "default", "uid": name}
    return msgspec.convert({"metadata": meta, "spec": spec}, Pod)


def _group(name: str, least: int, parent: str = "", key: str = "", of_pods: bool = True) -> Any:
    count, view = ("minCount", PodGroup) if of_pods else ("minGroupCount", CompositePodGroup)
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {count: least}}}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    if key:
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
    meta = {"name": name, "namespace": "default", "uid": f"group-{name}"}
    return msgspec.convert({"metadata": meta, "spec": spec}, view)


def _gang(workload: BenchWorkload) -> tuple[list[Any], list[Pod]]:
    """Equal pods in one block of one zone."""
    count = workload.arriving
    groups = [
        _group("zone", 1, key=ZONE, of_pods=False),
        _group("block", 1, "zone", BLOCK, of_pods=False),
        _group("gang", count, "block"),
    ]
    return groups, [_pod(f"p-{i}", "gang", {"cpu": "1"}) for i in range(count)]


def _tree(workload: BenchWorkload) -> tuple[list[Any], list[Pod]]:
    """Four levels: 3 zones' worth of 4 blocks' worth of 4 gangs in a rack each."""
    groups = [_group("root", 3, of_pods=False)]
    pods: list[Pod] = []
    leaves = 3 * 4 * 4
    share = workload.arriving // leaves
    for i in range(3):
        groups.append(_group(f"zone-{i}", 4, "root", ZONE, of_pods=False))
        for k in range(4):
            groups.append(_group(f"block-{i}-{k}", 4, f"zone-{i}", BLOCK, of_pods=False))
            for n in range(4):
                name = f"rack-{i}-{k}-{n}"
                groups.append(_group(name, share, f"block-{i}-{k}", RACK))
                pods += [_pod(f"{name}-{p}", name, {"cpu": "2", GPU: "1"}) for p in range(share)]
    return groups, pods


def _critical(workload: BenchWorkload) -> tuple[list[Any], list[Pod]]:
    """Gangs of odd sizes, planted in racks of which they take all but one GPU in forty; some of
    the room is taken already. 19 blocks' worth of 6 gangs."""
    chance = random.Random(SEED)
    groups = [_group("root", 19, of_pods=False)]
    pods: list[Pod] = []
    for block in range(19):
        groups.append(_group(f"block-{block}", BLOCK_RACKS, "root", BLOCK, of_pods=False))
        for rack in range(BLOCK_RACKS):
            name = f"rack-{block}-{rack}"
            sizes: list[int] = []
            for i in range(RACK_NODES):
                node = (block * BLOCK_RACKS + rack) * RACK_NODES + i
                taken = chance.choice((0, 0, 1, 2))
                if taken:
                    pods.append(_pod(f"old-{node}", "", {GPU: f"{taken}"}, f"node-{node:05}"))
                free = NODE_GPUS - taken - (chance.random() < 0.2)
                while free > 0:
                    sizes.append(min(free, chance.choice((1, 2, 3, 5))))
                    free -= sizes[-1]
            groups.append(_group(name, len(sizes), f"block-{block}", RACK))
            pods += [_pod(f"{name}-{i}", name, {GPU: f"{s}"}) for i, s in enumerate(sizes)]
    return groups, pods


SHAPES: Final[dict[str, Callable[[BenchWorkload], tuple[list[Any], list[Pod]]]]] = {
    "gang": _gang,
    "tree": _tree,
    "critical": _critical,
}


def trees(workload: BenchWorkload) -> Times:
    """One tree of the workload's shape; it is placed as a whole."""
    engine = build_engine(contains_errors=False)
    groups, pods = SHAPES[workload.shape](workload)
    nodes = [_node(i) for i in range(workload.nodes)]
    last = pods.pop()
    engine.step(Listed((*nodes, *groups, *pods)), 0)
    settle_memory()
    began = perf_counter_ns()
    writes = engine.step(Observed(WatchType.ADDED, last), 1)
    took = perf_counter_ns() - began
    bound = sum(isinstance(write, Bind) for write in writes)
    waiting = sum(1 for pod in pods if not pod.spec.node_name) + 1
    if bound != waiting:
        raise InvariantError(f"{workload.name}: {bound} of {waiting} pods bound")
    return Times([took], bound)


def small_gangs(workload: BenchWorkload) -> Times:
    """Gangs of four: all are queued while nothing is decided, and then placed. Timed is all of it,
    gang by gang as they come, and step by step as they are placed."""
    engine = build_engine(contains_errors=False)
    engine.step(Listed(tuple(_node(i) for i in range(workload.nodes))), 0)
    count = workload.arriving // 4
    todo = [
        (
            _group(f"g{i}", 4),
            [_pod(f"g{i}-{n}", f"g{i}", {"cpu": "250m", "memory": "1Gi"}) for n in range(4)],
        )
        for i in range(count)
    ]
    settle_memory()
    pieces: list[int] = []
    bound = 0

    def step(*events: Event) -> None:
        nonlocal bound
        began = perf_counter_ns()
        for event in events:
            writes = engine.step(event, len(pieces))
            bound += sum(isinstance(write, Bind) for write in writes)
        pieces.append(perf_counter_ns() - began)

    step(Hold(True))
    for group, pods in todo:
        step(*(Observed(WatchType.ADDED, obj) for obj in (group, *pods)))
    step(Hold(False))
    while bound < count * 4 and engine.next_wake_ns is not None:
        step(Tick())
    if bound != count * 4:
        raise InvariantError(f"{workload.name}: {bound} of {count * 4} pods bound")
    return Times(pieces, bound)
