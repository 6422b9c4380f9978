"""Measures what else grows with a cluster: shapes, heartbeats, evictions, gangs.

Called by scale.py with an engine that has taken in the cluster, and with its last moment.
"""

import json
from time import perf_counter
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.bench.server import pod_body
from stower.bench.up import node_body
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


def _made(name: str, requests: dict[str, str], **spec: Any) -> Pod:
    item: dict[str, Any] = json.loads(pod_body(name))
    item["metadata"] |= {"uid": name, "namespace": "default", "resourceVersion": "1"}
    item["spec"] |= {"schedulerName": "default-scheduler", **spec}
    item["spec"]["containers"][0]["resources"] = {"requests": requests}
    pod: Pod = decode(json.dumps(item).encode(), Pod)
    return pod


def shapes_per_s(engine: Engine, now_ns: int) -> float:
    """Decisions a second where pods of SHAPES different shapes take turns."""
    pods = [
        _made(f"shape-{n}-{i}", {"cpu": f"{10 + i % 20}m", "memory": f"{16 + i // 20}Mi"})
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
    raw = []
    for i in range(BEATS):
        number = i * max(1, nodes // BEATS) % nodes
        item = json.loads(node_body(number))
        item["metadata"] |= {"uid": f"node-{number}", "resourceVersion": f"{10**9 + i}"}
        item["status"]["conditions"][0]["lastHeartbeatTime"] = f"2026-01-01T00:{i % 60:02}:00Z"
        raw.append(json.dumps(item).encode())
    began = perf_counter()
    for data in raw:
        engine.step(Observed(WatchType.MODIFIED, decode(data, Node)), now_ns)
    return (perf_counter() - began) / BEATS * BEATS_PER_S * 100


def preemption_ms(engine: Engine, now_ns: int) -> float:
    """How long it takes to find whom to evict for one pod, which needs a node to itself."""
    pod = _made("evicts", {"cpu": "15995m"}, priority=1_000, topologySpreadConstraints=None)
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
    found = []
    for i in range(nodes):
        item = json.loads(node_body(i))
        item["metadata"] |= {"uid": f"node-{i}", "resourceVersion": "1"}
        item["metadata"]["labels"][BLOCK] = f"block-{i // BLOCK_NODES}"
        found.append(decode(json.dumps(item).encode(), Node))
    count = min(GANG, 8 * nodes)
    spec = {
        "schedulingPolicy": {"gang": {"minCount": count}},
        "schedulingConstraints": {"topology": [{"key": BLOCK}]},
    }
    meta = {"name": "gang", "namespace": "default", "uid": "gang"}
    group = msgspec.convert({"metadata": meta, "spec": spec}, PodGroup)
    member = {"schedulingGroup": {"podGroupName": "gang"}, "topologySpreadConstraints": None}
    *pods, last = [_made(f"member-{i}", {"cpu": "1"}, **member) for i in range(count)]
    engine = build_engine(contains_errors=False)
    engine.step(Listed((*found, group, *pods)), 0)
    began = perf_counter()
    writes = engine.step(Observed(WatchType.ADDED, last), 1)
    took = perf_counter() - began
    bound = sum(isinstance(write, Bind) for write in writes)
    if bound != count:
        raise InvariantError(f"{bound} of {count} pods of the gang were bound")
    return took
