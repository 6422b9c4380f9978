"""Says of each node of a pool what it is for users, since when, and why its placeholders stay.

For the pool's status, `stower warm`, the dashboard and metrics. No decision depends on it.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from stower.model.times import SECOND_NS, short_duration
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.warm.headroom import PULLS, STATES, NodeState, free_slots
from stower.warm.nodes import CODES, OUTSIDE, PoolNodes
from stower.warm.pools import Pool

READY: Final = CODES[NodeState.READY]


class NodeReport(NamedTuple):
    """One node. `since_ns`: since when it pulls, 0 where it does not; `free`: users that it takes
    beside placeholders; `reason`: why its placeholders do not leave it, where they should."""

    row: int
    name: str
    state: NodeState
    since_ns: int
    free: int
    reason: str


class NodeReports:
    """Of all nodes of a pool, as they are now."""

    def __init__(
        self, state: ClusterState, pool: Pool, nodes: PoolNodes, pools: Iterable[Pool]
    ) -> None:
        """`pools`: those that share nodes with this one, itself among them."""
        self._state, self._pool, self._nodes = state, pool, nodes
        self._free: Ints = free_slots(state, typical_pod(state, pool))
        self._codes: Ints = nodes.codes[: state.row_limit].copy()
        is_ready: Bools = self._codes == READY
        if pool.users or pool.placeholders:
            held = np.zeros(len(is_ready), np.bool_)
            pods, like = state.pods, next(iter(pool.users.values()), None)
            priority = like.priority if like is not None else 0
            for one in pools:  # whoever makes way for users
                for uid in one.placeholders:
                    entry = pods.get(uid)
                    if entry is None or entry.row < 0:
                        continue
                    if one is pool or entry.pod.priority < priority:
                        held[entry.row] = True
            self._codes[is_ready & (self._free == 0) & ~held] = CODES[NodeState.FULL]
        drained = np.zeros(len(is_ready), np.bool_)
        drained[[row for name in pool.draining if (row := state.row_of(name)) >= 0]] = True
        self._codes[is_ready & drained] = CODES[NodeState.DRAINING]

    def counts(self) -> dict[NodeState, int]:
        """How many nodes are in each state."""
        counts = np.bincount(self._codes[self._codes != OUTSIDE], minlength=len(STATES))
        return dict(zip(STATES, counts.tolist(), strict=True))

    def all(self) -> list[NodeReport]:
        """The oldest first."""
        return self._reports(self._nodes.rows_by_age)

    def notable(self, count: int) -> list[NodeReport]:
        """Of nodes that are not just ready, the oldest first: at most so many."""
        told = (self._codes != OUTSIDE) & (self._codes != READY)
        told[[row for name in self._pool.kept if (row := self._state.row_of(name)) >= 0]] = True
        if not told.any():
            return []
        rows = [row for row in self._nodes.rows_by_age if told[row]]
        return self._reports(rows[:count])

    def _reports(self, rows: Iterable[int]) -> list[NodeReport]:
        names, kept, found = self._state.node_names, self._pool.kept, []
        for row in rows:
            state = STATES[self._codes[row]]
            pulls = state in PULLS
            since_ns = int(self._nodes.pulls_since_ns[row]) if pulls else 0
            name = names[row]
            reason = kept.get(name, "")
            found.append(NodeReport(row, name, state, since_ns, int(self._free[row]), reason))
        return found


def pull_text(since_ns: int, now_ns: int, expected_ns: int) -> str:
    """Since when a node pulls, and how long that should take; "" where it does not."""
    if not since_ns:
        return ""
    since, expected = (short_duration(n // SECOND_NS) for n in (now_ns - since_ns, expected_ns))
    return f"for {since}, expected: {expected}"


def typical_pod(state: ClusterState, pool: Pool) -> PodEntry | None:
    """A user, or else a placeholder: what a slot is."""
    for members in (pool.users, pool.placeholders):
        for uid in members:
            if uid in state.pods:
                return state.pods[uid]
    return None
