"""Metrics of warm capacity, and the recent times that nodes took to pull their images."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from stower.framework.companion import Metric, Sample
from stower.model.kinds import Pod
from stower.model.times import SECOND_NS, time_ns
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.warm.headroom import NodeState
from stower.warm.node_reports import NodeReports
from stower.warm.nodes import PoolNodes
from stower.warm.pool_status import pod_counts
from stower.warm.pools import Pool

BOUNDS_S: Final = (1, 10, 30, 60, 120, 300, 600)
PULLS_MAX: Final = 64
PULL_NS: Final = 180 * SECOND_NS  # as long as nothing is known, and one more of a few
FEW: Final = 4


class Figures:
    """Of all pools."""

    def __init__(self) -> None:
        self.waits = [0] * (len(BOUNDS_S) + 1)
        self.wait_s = 0.0
        self.moved = 0  # placeholders, to other nodes
        self.lowered = 0  # that were wanted no more
        self.displaced = 0  # that made way, or that others have deleted
        self.cold = 0  # users who were given a node without their images
        self._pulls_ns: list[int] = []

    def record_user(self, pod: Pod, now_ns: int) -> None:
        """A user was seen on a node."""
        made_ns = time_ns(pod.metadata.creation_timestamp)
        if made_ns is None:
            return
        wait_s = max(0, now_ns - made_ns) / SECOND_NS
        self.wait_s += wait_s
        self.waits[next((i for i, b in enumerate(BOUNDS_S) if wait_s <= b), len(BOUNDS_S))] += 1

    def record_pull(self, took_ns: int) -> None:
        """A node has its images so long after it began to pull them."""
        if took_ns > 0:
            self._pulls_ns = [*self._pulls_ns[1 - PULLS_MAX :], took_ns]

    @property
    def expected_pull_ns(self) -> int:
        """How long all but the slowest of the last pulls took: one that hung says nothing, also as
        one of a few."""
        known = sorted(self._pulls_ns if len(self._pulls_ns) > FEW else (*self._pulls_ns, PULL_NS))
        return known[(len(known) - 1) * 9 // 10]

    def sort_by_readiness(self, rows: Sequence[int], since_ns: Ints, now_ns: int) -> list[int]:
        """Of these, the oldest first: which is ready first. One that should be ready by now is
        taken for stuck."""
        expected_ns = self.expected_pull_ns
        return sorted(rows, key=lambda row: now_ns - int(since_ns[row]) > expected_ns)

    def metrics(
        self,
        state: ClusterState,
        pools: Iterable[Pool],
        nodes: Mapping[str, PoolNodes],
        sharing: Callable[[Pool], Iterable[Pool]],
    ) -> list[Metric]:
        """See Companion."""
        buckets, total = [], 0
        for bound, count in zip((*BOUNDS_S, "+Inf"), self.waits, strict=True):
            total += count
            buckets.append(
                Sample("stower_warm_user_wait_seconds_bucket", {"le": str(bound)}, total)
            )
        buckets.append(Sample("stower_warm_user_wait_seconds_sum", {}, self.wait_s))
        buckets.append(Sample("stower_warm_user_wait_seconds_count", {}, total))
        found = [
            Metric(
                "stower_warm_user_wait_seconds", "histogram",
                "Seconds from the arrival of a user pod until it was seen on a node.", buckets,
            )
        ]  # fmt: skip
        counters = (
            ("moves", "Placeholders moved to other nodes.", self.moved),
            ("lowerings", "Placeholders deleted because fewer were wanted.", self.lowered),
            (
                "displaced",
                "Placeholders displaced by users, or deleted by other clients.",
                self.displaced,
            ),
            ("cold_starts", "Users placed on nodes without their images.", self.cold),
        )
        for name, help, number in counters:
            full = f"stower_warm_{name}"
            found.append(Metric(full, "counter", help, [Sample(f"{full}_total", {}, number)]))
        gauges = (
            ("wanted", "Wanted number of placeholders.", lambda p: p.wanted),
            ("placeholders", "Existing placeholders.", lambda p: len(p.placeholders)),
            (
                "unusable_placeholders",
                "Placeholders on nodes that users cannot use, now or soon.",
                lambda p: count_unusable(state, p, nodes.get(p.key)),
            ),
            ("users", "Existing users.", lambda p: len(p.users)),
            (
                "draining_nodes",
                "Nodes that are being emptied of placeholders.",
                lambda p: len(p.draining),
            ),
        )
        known = sorted(pools, key=lambda pool: pool.key)
        for name, help, value in gauges:
            full = f"stower_warm_{name}"
            samples = [Sample(full, {"pool": pool.key}, value(pool)) for pool in known]
            found.append(Metric(full, "gauge", help, samples))
        states = []
        for pool in known:
            here = nodes.get(pool.key)
            counts: dict[NodeState, int] = {}
            if here is not None:
                counts = NodeReports(state, pool, here, sharing(pool)).counts()
            for one in NodeState:
                labels = {"pool": pool.key, "state": str(one)}
                states.append(Sample("stower_warm_nodes", labels, counts.get(one, 0)))
        help = "Nodes of a pool by what they are for its users."
        found.append(Metric("stower_warm_nodes", "gauge", help, states))
        return found


def count_unusable(state: ClusterState, pool: Pool, nodes: PoolNodes | None) -> int:
    """Returns the number of the pool's placeholders on nodes that users cannot use."""
    entries = [entry for uid in pool.placeholders if (entry := state.pods.get(uid)) is not None]
    return 0 if nodes is None else pod_counts(pool, nodes, entries, state).unusable
