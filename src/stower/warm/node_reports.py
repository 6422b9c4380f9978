"""Says of each node of a pool what it is for users, since when, and why its placeholders stay.

For the pool's status, `stower warm`, the dashboard and metrics. No decision depends on it.
"""

from typing import NamedTuple

from stower.model.times import SECOND_NS, short_duration
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.warm.headroom import NodeState, free_slots
from stower.warm.nodes import PoolNodes
from stower.warm.pools import Pool


class NodeReport(NamedTuple):
    """One node. `since_ns`: since when it pulls, 0 where it does not; `free`: users that it takes
    beside placeholders; `reason`: why its placeholders do not leave it, where they should."""

    row: int
    name: str
    state: NodeState
    since_ns: int
    free: int
    reason: str


def node_reports(state: ClusterState, pool: Pool, nodes: PoolNodes) -> list[NodeReport]:
    """The oldest first."""
    free = free_slots(state, typical_pod(state, pool))
    pods = state.pods
    held = {pods[uid].row for uid in pool.placeholders if uid in pods}
    found, draining = [], frozenset(pool.draining)
    for row in nodes.rows_by_age:
        name, what = state.node_names[row], nodes.states[row]
        since_ns = int(nodes.pulls_since_ns[row])
        if what is NodeState.READY:
            if name in draining:
                what = NodeState.DRAINING
            elif not free[row] and row not in held and (pool.users or pool.placeholders):
                what = NodeState.FULL
        if what not in (NodeState.PULLING, NodeState.STUCK):
            since_ns = 0
        found.append(NodeReport(row, name, what, since_ns, int(free[row]), pool.kept.get(name, "")))
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
