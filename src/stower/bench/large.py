"""Measures what else grows with a cluster: shapes, heartbeats, evictions, gangs.

Called by scale.py with an engine that has taken in the cluster, and with its last moment.
"""

from time import perf_counter
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.bench.shown import shown_node, shown_pod
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, WatchType
from stower.framework.writes import Bind, PatchPodStatus
from stower.model.errors import InvariantError
from stower.model.kinds import Node, Pod, PodGroup
from stower.model.raw import decode

SHAPES: Final = 200
ROUNDS: Final = 8  # each shape is tried so often; the first two times are not counted
BEATS: Final = 2_000
BEATS_PER_S: Final = 500  # of 130,000 nodes
GANG: Final = 10_000
BLOCK_NODES: Final = 2_000
BLOCK: Final = "example.com/block"
SECOND_NS: Final = 1_000_000_000


def _pod(name: str, requests: dict[str, str], **spec: Any) -> Pod:
    pod: Pod = decode(shown_pod(name, requests, **spec), Pod)
    return pod


def shapes_per_s(engine: Engine, now_ns: int) -> float:
    """Decisions a second where pods of SHAPES different shapes take turns."""
    pods = [
        _pod(f"shape-{n}-{i}", {"cpu": f"{10 + i % 20}m", "memory": f"{16 + i // 20}Mi"})
        for n in range(ROUNDS)
        for i in range(SHAPES)
    ]
    for pod in pods[: 2 * SHAPES]:
        engine.step(Observed(WatchType.ADDED, pod), now_ns)
    began = perf_counter()
    for pod in pods[2 * SHAPES :]:
        engine.step(Observed(WatchType.ADDED, pod), now_ns)
    return (ROUNDS - 2) * SHAPES / (perf_counter() - began)


def heartbeats_percent(engine: Engine, nodes: int, now_ns: int) -> float:
    """The share of a core that BEATS_PER_S heartbeats take, from the watch's bytes on."""
    numbers = (i * max(1, nodes // BEATS) % nodes for i in range(BEATS))
    raw = [
        shown_node(number, 10**9 + i, f"2026-01-01T00:{i % 60:02}:00Z")
        for i, number in enumerate(numbers)
    ]
    began = perf_counter()
    for data in raw:
        engine.step(Observed(WatchType.MODIFIED, decode(data, Node)), now_ns)
    return (perf_counter() - began) / BEATS * BEATS_PER_S * 100


def preemption_ms(engine: Engine, now_ns: int) -> float:
    """How long it takes to find whom to evict for one pod, which needs a node to itself."""
    pod = _pod("evicts", {"cpu": "15995m"}, priority=1_000, topologySpreadConstraints=None)
    began = perf_counter()
    writes = engine.step(Observed(WatchType.ADDED, pod), now_ns)
    took = perf_counter() - began
    nominated = [w.nominated_node_name for w in writes if isinstance(w, PatchPodStatus)]
    if not any(nominated):
        raise InvariantError("nobody was evicted")
    engine.step(Observed(WatchType.DELETED, pod), now_ns)
    return took * 1000


def gang_s(nodes: int) -> float:
    """How long it takes to place a gang as a whole in one block of a cluster without pods."""
    found = [
        decode(shown_node(i, 1, labels={BLOCK: f"block-{i // BLOCK_NODES}"}), Node)
        for i in range(nodes)
    ]
    count = min(GANG, 8 * nodes)
    spec = {
        "schedulingPolicy": {"gang": {"minCount": count}},
        "schedulingConstraints": {"topology": [{"key": BLOCK}]},
    }
    meta = {"name": "gang", "namespace": "default", "uid": "gang"}
    group = msgspec.convert({"metadata": meta, "spec": spec}, PodGroup)
    member = {"schedulingGroup": {"podGroupName": "gang"}, "topologySpreadConstraints": None}
    *pods, last = [_pod(f"member-{i}", {"cpu": "1"}, **member) for i in range(count)]
    engine = build_engine(contains_errors=False)
    engine.step(Listed((*found, group, *pods)), 0)
    began = perf_counter()
    writes = engine.step(Observed(WatchType.ADDED, last), 1)
    took = perf_counter() - began
    bound = sum(isinstance(write, Bind) for write in writes)
    if bound != count:
        raise InvariantError(f"{bound} of {count} pods of the gang were bound")
    return took
