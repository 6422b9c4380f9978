"""Counts the conflicts of several schedulers that share a cluster, each with pods of its own.

`python -m stower.bench.shards shards` prints JSON. Each scheduler has its own profile, and sees the
decisions of the others only after a number of its own decisions, as with a delayed watch. Where two
schedulers fill a node beyond its capacity, the kubelet rejects the later pod (OutOfcpu): a
conflict. Pods arrive until the cluster has reached its target utilization. Engines and time are
those of a simulation.
"""

import random
import sys
from typing import Final

import msgspec

from stower.assembly import build_engine
from stower.bench.family import Family, run_once, tell
from stower.bench.hostile import make_node, make_pod
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, WatchType, WriteOk
from stower.framework.writes import Bind
from stower.model.kinds import Pod

NODES: Final = 500
NODE_MILLI_CPU: Final = 8_000
SIZES_MILLI_CPU: Final = (100, 250, 500, 1_000)
SHARDS: Final = (2, 4)
BEHIND: Final = (1, 10, 100)  # pods that each decides on before it sees those of the others
FULL: Final = 0.9


class ShardsResult(msgspec.Struct, frozen=True):
    """Conflicts for each 1,000 pods, by shards and how far each is behind."""

    name: str
    nodes: int
    most: float
    conflicts: dict[str, float]


FAMILY: Final = Family(
    result=ShardsResult,
    best="most",
    unit="conflicts per 1,000 pods at most",
    ratios={"ratio_most": "most"},
    about="conflicts between schedulers that share a cluster",
    is_least_best=True,
)


class _Cluster:
    def __init__(self, shards: int) -> None:
        self.engines: list[Engine] = []
        for shard in range(shards):
            document = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"schedulerName": f"shard-{shard}"}],
            }
            engine = build_engine(document, seed=shard, contains_errors=False)
            engine.step(Listed(tuple(make_node(i) for i in range(NODES))), 0)
            self.engines.append(engine)
        self.used = [0] * NODES
        self.conflicts = 0
        self.placed = 0

    def round(self, pods: list[list[Pod]], now_ns: int) -> None:
        """Each shard decides on its pods, then all see what came of it."""
        done: list[tuple[int, Pod, str]] = []
        for shard, own in enumerate(pods):
            engine = self.engines[shard]
            for pod in own:
                for write in engine.step(Observed(WatchType.ADDED, pod), now_ns):
                    if isinstance(write, Bind):
                        engine.step(WriteOk(write.id), now_ns)
                        done.append((shard, pod, write.node_name))
        for shard, pod, node in done:
            number, size = int(node[1:]), _milli_cpu(pod)
            bound = msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, node_name=node)
            )
            fits = self.used[number] + size <= NODE_MILLI_CPU
            for at, engine in enumerate(self.engines):
                kind = WatchType.MODIFIED if at == shard else WatchType.ADDED
                engine.step(Observed(kind, bound), now_ns)
                if not fits:
                    engine.step(Observed(WatchType.DELETED, bound), now_ns)
            if fits:
                self.used[number] += size
                self.placed += 1
            else:
                self.conflicts += 1
        for engine in self.engines:
            engine.drain()


def _milli_cpu(pod: Pod) -> int:
    return int(pod.metadata.labels["size"]) if pod.metadata.labels else 0


def conflicts_per_1000(shards: int, behind: int, seed: int = 1) -> float:
    """While the cluster fills up."""
    chance = random.Random(seed)
    cluster = _Cluster(shards)
    number = 0
    while sum(cluster.used) < FULL * NODES * NODE_MILLI_CPU:
        pods: list[list[Pod]] = []
        for shard in range(shards):
            own = []
            for _ in range(behind):
                size = chance.choice(SIZES_MILLI_CPU)
                labels = {"size": str(size)}
                pod = make_pod(f"p{number}", f"{size}m", labels, schedulerName=f"shard-{shard}")
                own.append(pod)
                number += 1
            pods.append(own)
        cluster.round(pods, number)
    return 1000 * cluster.conflicts / cluster.placed


def measure() -> ShardsResult:
    """The whole benchmark."""
    found = {}
    for shards in SHARDS:
        for behind in BEHIND:
            name = f"{shards} shards, {behind} behind"
            found[name] = round(conflicts_per_1000(shards, behind), 2)
            tell("shards", f"{name}: {found[name]} of 1,000")
    return ShardsResult("shards", NODES, max(found.values()), found)


if __name__ == "__main__":
    run_once("shards", measure, sys.argv[1:])
