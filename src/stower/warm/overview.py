"""Summarizes a pool for `stower warm`: slots of its nodes, the next user's node, planned moves.

No decision depends on it. The drawing is that of seed 001.
"""

from collections.abc import Callable

import msgspec

from stower.model.kinds import Pod
from stower.warm.controller import WarmCapacity
from stower.warm.node_reports import NodeReports, pull_text
from stower.warm.pool_status import expected_text, pod_counts
from stower.warm.pools import Pool, Role
from stower.warm.sharing import placeholders_on, users_of

SLOTS_MAX = 200  # that are drawn of a node
LETTERS = "UuPp+"  # users and placeholders, of this pool and of others, and what is free


class NodeState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One node. `drawn`: a letter for each user, placeholder and slot that is free, small ones for
    users and placeholders of other pools; `state`: what it is for users: ready, full, draining,
    pulling, stuck, cordoned or not ready; `reason`: since when, and how long that should take; why
    it is not emptied."""

    node: str
    drawn: str
    users: int
    placeholders: int
    free: int
    ready: bool
    draining: bool = False
    state: str = ""
    reason: str = ""


class PoolState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One pool. `placed`: placeholders that users can use, `unusable`: those on other nodes;
    `next_user`: where one would go now, and who makes way; `moves`: what would move,
    were there no limits; `then`: what else is expected."""

    pool: str
    nodes: list[NodeState]
    users: int
    waiting: int
    wanted: int
    placed: int
    pending: int
    unusable: int = 0
    next_user: str = ""
    moves: list[str] = []
    then: str = ""


# The node that a pod would be given, and who leaves it.
Chooses = Callable[[Pod], tuple[str, list[str]] | None]


def overview(warm: WarmCapacity, chooses: Chooses, which: str = "") -> list[PoolState] | None:
    """All pools, or one by namespace/name or name. None where there is no such pool."""
    found = [pool for pool in warm.pools.values() if not which or which in (pool.key, pool.name)]
    if which and not found:
        return None
    return [_pool(warm, chooses, pool) for pool in found]


def _pool(warm: WarmCapacity, chooses: Chooses, pool: Pool) -> PoolState:
    state, entries = warm.state, warm.entries(pool)
    warm.nodes_of(pool).look()
    plan = warm.plan_of(pool)
    nodes_of = warm.nodes_of(pool)
    users, held = users_of(state, pool), placeholders_on(state, (pool,))
    other_users = warm.users_on(pool) - users
    other_held = warm.placeholders_on(pool) - held
    nodes = []
    reports = NodeReports(state, pool, nodes_of, warm.sharing(pool)).all()
    for report in sorted(reports, key=lambda one: one.name):
        row = report.row
        counts = (users[row], other_users[row], held[row], other_held[row], report.free)
        drawn = "".join(letter * int(n) for letter, n in zip(LETTERS, counts, strict=True))
        pulls = pull_text(report.since_ns, state.now_ns, warm.figures.expected_pull_ns)
        why = f"not emptied: {report.reason}" if report.reason else ""
        nodes.append(
            NodeState(
                report.name, drawn[:SLOTS_MAX], int(users[row]), int(held[row]), report.free,
                bool(nodes_of.ready[row] and nodes_of.usable[row]),
                report.name in plan.draining, str(report.state),
                "; ".join(text for text in (pulls, why) if text),
            )
        )  # fmt: skip
    counts = pod_counts(pool, nodes_of, entries, state)
    is_expected = counts.waiting or counts.pending
    return PoolState(
        pool=pool.key, nodes=nodes, users=counts.users, waiting=counts.waiting,
        wanted=warm.wanted_count(pool), placed=counts.placed, pending=counts.pending,
        unusable=counts.unusable,
        next_user=_next_user(warm, chooses, pool),
        moves=[_move_text(e.pod.key, state.node_names[e.row], to) for e, to in plan.moves],
        then=expected_text(pool, nodes_of, state, counts) if is_expected else "",
    )  # fmt: skip


def _move_text(key: str, here: str, to: str) -> str:
    return f"{key} from {here} to {to}" if to else f"{key} leaves {here}, and waits for a node"


def _next_user(warm: WarmCapacity, chooses: Chooses, pool: Pool) -> str:
    """Of a user like the one who came last."""
    last = max(pool.users.values(), key=lambda p: pool.came_ns[p.metadata.uid], default=None)
    if last is None:
        return ""
    meta = msgspec.structs.replace(last.metadata, name="next", uid="next user", annotations=None)
    spec = msgspec.structs.replace(last.spec, node_name="")
    status = msgspec.structs.replace(last.status, phase="Pending", conditions=None, start_time=None)
    probe = Pod(meta, spec, status)
    if pool.role_of(probe) is not Role.USER:
        return ""
    found = chooses(probe)
    if found is None:
        return "waits"
    node, leaving = found
    return f"{node}, displacing {', '.join(leaving)}" if leaving else node
