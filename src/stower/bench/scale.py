"""Measures how cost grows with the cluster: `python -m stower.bench.scale scale` prints JSON.

Runs the engine alone, with pods as Deployments create them (bench/server.py), spread over all
nodes. Each size runs in a process of its own. Rates are for one core.
"""

import gc
import subprocess
import sys
import time
from typing import Final

import msgspec

from stower.assembly import build_engine
from stower.bench import large
from stower.bench.family import Family, run_once, tell
from stower.bench.shown import shown_node, shown_pod
from stower.framework.events import Listed, Observed, WatchType
from stower.framework.writes import Bind
from stower.model.kinds import Node, Pod
from stower.model.raw import decode

SIZES: Final = (
    (1_000, 30_000), (5_000, 150_000), (15_000, 300_000), (130_000, 1_000_000),
)  # fmt: skip
COMING: Final = 3_000
WARM: Final = 500
EVENTS: Final = 10_000
SECOND_NS: Final = 1_000_000_000


class Size(msgspec.Struct, frozen=True):
    """One size. Memory in KiB for each object, as it is read and with what the engine keeps."""

    nodes: int
    pods: int
    list_s: float
    decisions_per_s: float
    p50_us: float
    p99_us: float
    events_per_s: float
    reads_per_s: float
    kib_per_node: float
    kib_per_pod: float
    rss_mib: float
    shapes_per_s: float
    heartbeats_percent: float
    preemption_ms: float
    gang_s: float


class ScaleResult(msgspec.Struct, frozen=True):
    """All sizes; `slowest_per_s`: decisions at the slowest; `growth`: a decision's median time at
    the largest size, as a multiple of that at the second."""

    name: str
    slowest_per_s: float
    growth: float
    sizes: dict[str, dict[str, float]]


FAMILY: Final = Family(
    result=ScaleResult,
    best="slowest_per_s",
    unit="decisions/s at the largest size",
    ratios={"ratio_slowest": "slowest_per_s"},
    about="decisions, events and memory at 1,000 to 130,000 nodes and up to 1,000,000 pods",
)


def _rss_kib() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4.0


def _pod(number: int, version: int, node: str = "") -> bytes:
    requests = {"cpu": "10m", "memory": "16Mi"}
    return shown_pod(f"pod-{number}", requests, version, nodeName=node)


def _node(number: int) -> Node:
    node: Node = decode(shown_node(number, number + 1), Node)
    return node


def measure_size(nodes: int, pods: int) -> Size:
    """In this process."""
    engine = build_engine(contains_errors=False)
    first = _rss_kib()
    known = tuple(_node(number) for number in range(nodes))
    engine.step(Listed(known), 0)
    before = _rss_kib()
    kib_per_node = (before - first) / nodes
    placed = tuple(
        decode(_pod(number, number + 1, f"node-{number % nodes}"), Pod) for number in range(pods)
    )
    gc.collect()
    gc.freeze()
    gc.disable()
    began = time.perf_counter()
    engine.step(Listed((*known, *placed)), 0)
    list_s = time.perf_counter() - began
    kib = (_rss_kib() - before) / pods
    coming = [decode(_pod(pods + i, pods + i), Pod) for i in range(COMING)]
    times, bound = [], 0
    for pod in coming:
        began = time.perf_counter()
        writes = engine.step(Observed(WatchType.ADDED, pod), SECOND_NS)
        times.append(time.perf_counter() - began)
        bound += sum(isinstance(write, Bind) for write in writes)
    if bound != COMING:
        raise RuntimeError(f"{bound} of {COMING} pods were bound")
    times = sorted(times[WARM:])
    count = min(EVENTS, pods)
    raw = [_pod(i, 10**9 + i, f"node-{i % nodes}") for i in range(count)]
    began = time.perf_counter()
    changed = [decode(data, Pod) for data in raw]
    read_s = time.perf_counter() - began
    began = time.perf_counter()
    for pod in changed:
        engine.step(Observed(WatchType.MODIFIED, pod), 2 * SECOND_NS)
    events_s = time.perf_counter() - began
    rss_mib = round(_rss_kib() / 1024)
    preemption_ms = large.preemption_ms(engine, 3 * SECOND_NS)
    shapes_per_s = large.shapes_per_s(engine, 4 * SECOND_NS)
    heartbeats_percent = large.heartbeats_percent(engine, nodes, 5 * SECOND_NS)
    del engine, known, placed, coming, changed
    return Size(
        nodes, pods, round(list_s, 2), len(times) / sum(times),
        times[len(times) // 2] * 1e6, times[int(len(times) * 0.99)] * 1e6,
        count / events_s, count / read_s, round(kib_per_node, 2), round(kib, 2),
        rss_mib, shapes_per_s, round(heartbeats_percent, 2), round(preemption_ms, 1),
        round(large.gang_s(nodes), 2),
    )  # fmt: skip


def measure() -> ScaleResult:
    """All sizes, each in a process of its own."""
    found = {}
    for nodes, pods in SIZES:
        tell("scale", f"{nodes:,} nodes, {pods:,} pods")
        command = [sys.executable, "-m", "stower.bench.scale", str(nodes), str(pods)]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        size = msgspec.json.decode(said, type=Size)
        found[f"{nodes}/{pods}"] = msgspec.structs.asdict(size)
    sizes = [*found.values()]
    growth = round(sizes[-1]["p50_us"] / sizes[min(1, len(sizes) - 1)]["p50_us"], 2)
    return ScaleResult("scale", min(size["decisions_per_s"] for size in sizes), growth, found)


if __name__ == "__main__":
    if len(sys.argv) == 3:  # one size, in this process
        size = measure_size(int(sys.argv[1]), int(sys.argv[2]))
        sys.stdout.buffer.write(msgspec.json.encode(size) + b"\n")
    else:
        run_once("scale", measure, sys.argv[1:])
