"""Sums up a pool for its status: how many nodes, users and placeholders, and what is expected."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from stower.model.kinds.warm_pool import WarmNodeStatus, WarmPoolStatus
from stower.model.times import time_text
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.warm.headroom import NodeState
from stower.warm.node_reports import NodeReport, NodeReports
from stower.warm.nodes import PoolNodes
from stower.warm.pools import Pool

NAMED_MAX: Final = 5  # nodes in a text
STATES_MAX: Final = 100  # nodes in a status


class PodCounts(NamedTuple):
    """Numbers of a pool's pods: users with and without a node; placeholders on nodes that users can
    use, without a node, and on other nodes."""

    users: int
    waiting: int
    placed: int
    pending: int
    unusable: int


def pool_status(
    pool: Pool,
    nodes: PoolNodes,
    entries: Sequence[PodEntry],
    state: ClusterState,
    pools: Iterable[Pool],
) -> WarmPoolStatus:
    """`entries`: its placeholders; `pools`: those that share nodes with it, itself among them."""
    reports, counts = (
        NodeReports(state, pool, nodes, pools),
        pod_counts(pool, nodes, entries, state),
    )
    ready = len(nodes.rows_that_are(NodeState.READY))
    return WarmPoolStatus(
        nodes=len(nodes.rows_by_age), ready_nodes=ready,
        users=counts.users, waiting_users=counts.waiting, wanted=pool.wanted,
        placed=counts.placed, pending=counts.pending, unusable=counts.unusable,
        node_states=tuple(map(_node_status, reports.notable(STATES_MAX))) or None,
        expected=expected_text(pool, nodes, state, counts),
        problem=pool.problem or pool.fault,
        draining=pool.draining or None, moves=tuple(pool.moves) or None,
        profile=pool.arrivals.profile if pool.arrivals is not None else None,
    )  # fmt: skip


def pod_counts(
    pool: Pool, nodes: PoolNodes, entries: Sequence[PodEntry], state: ClusterState
) -> PodCounts:
    """Returns the numbers of the pool's pods. `entries`: its placeholders."""
    pods = state.pods
    waiting = sum(uid in pods and pods[uid].row < 0 for uid in pool.users)
    placed = sum(entry.row >= 0 and bool(nodes.usable[entry.row]) for entry in entries)
    pending = sum(entry.row < 0 for entry in entries)
    unusable = len(entries) - placed - pending
    return PodCounts(len(pool.users) - waiting, waiting, placed, pending, unusable)


def _node_status(report: NodeReport) -> WarmNodeStatus:
    since = time_text(report.since_ns) if report.since_ns else ""
    return WarmNodeStatus(report.name, str(report.state), since, report.reason)


def expected_text(pool: Pool, nodes: PoolNodes, state: ClusterState, counts: PodCounts) -> str:
    """What those wait for that have no node, or else which nodes are to go."""
    parts, waiting, pending = [], counts.waiting, counts.pending
    pulling = NodeState.PULLING
    late = [row for row in nodes.rows_by_age if nodes.state_of(row) is pulling] if waiting else []
    pulls = 0
    like = next((e for uid in pool.users if (e := state.pods.get(uid))), None)
    requests = like.shape.requests if like is not None else ()
    for row in late:
        rooms = ((c.allocatable_cells[row] - c.requested_cells[row]) // n for c, n in requests)
        pulls += max(0, int(min(rooms, default=0)))
    if here := min(waiting, pulls):
        names = ", ".join(state.node_names[row] for row in late[:NAMED_MAX])
        parts.append(f"images on {names} for {here} users")
    if pending or waiting > here:
        parts.append(f"scale-up for {waiting - here} users and {pending} placeholders")
    if not parts and pool.draining:
        parts.append(f"scale-down of {', '.join(pool.draining)}")
    return "; ".join(parts)
