"""Says which nodes of a pool have room that users can use, now or soon, and why others have not.

Usable now: schedulable, Ready, with the pool's images. Usable soon: the same, but that it pulls,
and not for longer than the pool says. All else is no headroom: what holds room there holds it for
nobody. Source: seed 001.
"""

from enum import StrEnum
from typing import Final

import numpy as np

from stower.model.kinds import Node
from stower.model.resources import PODS
from stower.model.taints import NO_EXECUTE, NO_SCHEDULE, is_tolerated
from stower.model.times import SECOND_NS
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.warm.pools import Pool

# Taints that the node controller sets.
LOST: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class NodeState(StrEnum):
    """What a node is for users of a pool."""

    READY = "ready"
    PULLING = "pulling"
    STUCK = "stuck"  # it pulls for longer than it should
    CORDONED = "cordoned"  # or has a taint that users do not tolerate
    NOT_READY = "not ready"  # nobody hears of it
    # Of ready nodes, for people (node_reports.py):
    DRAINING = "draining"  # its placeholders leave, so that it can go away
    FULL = "full"


STATES: Final = tuple(NodeState)
USABLE: Final = (NodeState.READY, NodeState.PULLING)
CLOSED: Final = (NodeState.CORDONED, NodeState.NOT_READY)
PULLS: Final = (NodeState.PULLING, NodeState.STUCK)


def free_slots(state: ClusterState, like: PodEntry | None) -> Ints:
    """int64[row_limit]: how many more such pods nodes take; 0 where none is known."""
    free = np.zeros(state.row_limit, np.int64)
    for i, (column, amount) in enumerate(
        (*like.shape.requests, (state.column(PODS), 1)) if like is not None else ()
    ):
        room = (column.allocatable - column.requested)[: len(free)] // amount
        free = np.minimum(free, room) if i else room
    return np.maximum(free, 0)


def node_state(
    pool: Pool, node: Node, has_images: bool, pulls_since_ns: int, now_ns: int
) -> NodeState:
    """`has_images`: whether the pool's images are there; `pulls_since_ns`: else, since when it
    pulls them."""
    hard = [t for t in node.spec.taints or () if t.effect in (NO_SCHEDULE, NO_EXECUTE)]
    if any(taint.key in LOST for taint in hard):
        return NodeState.NOT_READY
    known = pool.tolerations
    is_open = not (hard and known) or any(
        all(is_tolerated(one, taint) for taint in hard) for one in known
    )
    if node.spec.unschedulable or not is_open:
        return NodeState.CORDONED
    if has_images:
        return NodeState.READY
    limit_ns = pool.spec.placeholders.stuck_after_seconds * SECOND_NS
    return NodeState.STUCK if now_ns - pulls_since_ns > limit_ns else NodeState.PULLING
