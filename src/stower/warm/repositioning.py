"""Moves placeholders as the pool's mode plans, within the limits of the pool.

Counts the recent moves in the pool's status, so that the limits hold across restarts.
Source: seed 001 (60 deletions a second are the failing case).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from stower.framework.companion import EntityFailed, TrialScheduler
from stower.framework.writes import Write
from stower.model.kinds.warm_pool import Move
from stower.model.times import SECOND_NS, time_ns, time_text
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.warm.headroom import CLOSED
from stower.warm.moves import NO_PLAN, Part, Plan, Planner
from stower.warm.nodes import PoolNodes
from stower.warm.placeholders import PlaceholderManager
from stower.warm.pools import Pool, is_recent

MINUTE_NS: Final = 60 * SECOND_NS


def part_of(
    pool: Pool,
    nodes: PoolNodes,
    entries: Sequence[PodEntry],
    keeping: PlaceholderManager,
) -> Part:
    """What of the pool drains are planned for. Nodes that users cannot use are nobody's refuge,
    and are not drained."""
    here = [e for e in entries if not e.is_assumed and not keeping.is_leaving(e)]
    free = tuple(e for e in here if e.row < 0 or nodes.usable[e.row])
    others = (e for e in here if e.row >= 0 and not nodes.usable[e.row])
    stranded = tuple(e for e in others if not pool.is_own(e.pod))
    how = pool.spec.repositioning
    draws = how.mode == "Newest" or pool.spec.placeholders.placement == "Spread"
    closed = frozenset(nodes.rows_that_are(*CLOSED).tolist() if stranded else ())
    newest = frozenset(nodes.newest_rows if draws else ())
    return Part(pool, nodes, nodes.usable_rows, free, newest, stranded, closed)


class Repositioner:
    """Of all pools."""

    def __init__(self, state: ClusterState, placing: TrialScheduler) -> None:
        self._state = state
        self._planner = Planner(state, placing)
        # Who begins does not know what was moved in the last minute: not all of it may be told.
        self.not_before_ns = 0

    def plan_drains(self, parts: Iterable[Part], users: Ints, failed: EntityFailed) -> Plan:
        """What is drained of nodes that these pools share. `failed`: takes an error that a pool's
        placeholder has caused: the others are planned for without it."""
        left = {part.pool.key: part for part in parts}
        while True:
            for part in left.values():
                part.pool.draining = ()
            moving = [p for p in left.values() if p.pool.spec.repositioning.mode != "Off"]
            try:
                return self._planner.plan_drain(moving, users)
            except Exception as error:
                tried = self._planner.tried
                pool = next((p.pool for p in moving if tried in p.pool.placeholders), None)
                if pool is None:
                    raise
                failed(pool.obj or pool.key, error)
                left.pop(pool.key).pool.draining = ()

    def plan(self, part: Part, drain: Plan) -> Plan:
        """What the pool's mode would do, were there no limits. Placeholders that others keep leave
        nodes that users cannot use first, and those of the pool are made anew elsewhere
        (placeholders.py)."""
        pool, nodes, rows, free = part.pool, part.nodes, part.rows, part.placeholders
        state, how = self._state, pool.spec.repositioning
        if how.mode == "Off":
            return NO_PLAN
        own = {entry.uid for entry in free}
        moves = tuple(move for move in drain.moves if move[0].uid in own)
        kept = {name: why for name, why in drain.kept.items() if nodes.has(name)}
        plan = Plan(pool.draining, moves, kept)
        if how.mode == "Newest":
            moves = self._planner.plan_newest_node(rows, nodes.newest_rows, free).moves
            drawn = {entry.uid for entry, _ in moves}
            rest = (move for move in plan.moves if move[0].uid not in drawn)
            plan = plan._replace(moves=(*moves, *rest))
        elif how.mode == "Lifetime":
            since_ns = state.now_ns - how.lifetime_seconds * SECOND_NS
            old = [e for e in free if (time_ns(e.pod.metadata.creation_timestamp) or 0) <= since_ns]
            drained = {entry.uid for entry, _ in plan.moves}
            old = [e for e in old if e.uid not in drained]
            anew = self._planner.plan_replacement(rows, old, pool.draining).moves
            plan = plan._replace(moves=(*plan.moves, *anew))
        theirs = {entry.uid for entry in part.stranded}
        exits = (move for move in drain.exits if move[0].uid in theirs)
        return plan._replace(moves=(*exits, *plan.moves))

    def make_moves(
        self,
        pool: Pool,
        plan: Plan,
        now_ns: int,
        pools: Iterable[Pool],
        keeping: PlaceholderManager,
        next_id: Callable[[], int],
    ) -> list[Write]:
        """The first of the plan's moves, as many as may be made now. `pools`: all there are, and
        were lately: what is moved for one counts for each, as nodes are the same."""
        how = pool.spec.repositioning
        keep_ns = now_ns - max(MINUTE_NS, how.rest_seconds * SECOND_NS)
        pool.moves = [move for move in pool.moves if is_recent(move, keep_ns, now_ns)]
        lately, under_way = self._recent_moves([*pools], now_ns)
        left = min(how.burst, how.per_minute - len(lately), how.in_flight - len(under_way))
        if now_ns < self.not_before_ns:
            left = 0
        rested_ns = now_ns - how.rest_seconds * SECOND_NS
        resting = {move.pod for move in pool.moves if is_recent(move, rested_ns, now_ns)}
        from_node = Counter(move.from_node for move in under_way)
        writes: list[Write] = []
        for entry, to in plan.moves:
            if left <= 0:
                break
            here = self._state.node_names[entry.row]
            if entry.pod.key in resting or from_node[here] >= how.per_node:
                continue
            from_node[here] += 1
            key, more = keeping.replace(pool, entry, to, next_id)
            writes += more
            # The next whole second: what the API keeps of it must not make a minute shorter.
            at_ns = -(-now_ns // SECOND_NS) * SECOND_NS
            pool.moves.append(Move(key, time_text(at_ns), to, here))
            left -= 1
        return writes

    def _recent_moves(self, pools: Sequence[Pool], now_ns: int) -> tuple[list[Move], list[Move]]:
        """What was moved in the last minute; and of that, whose pods are not on their new nodes."""
        lately: list[Move] = []
        under_way: list[Move] = []
        for pool in pools:
            since = [m for m in pool.moves if is_recent(m, now_ns - MINUTE_NS, now_ns)]
            if not since:
                continue
            pods = self._state.pods
            placed = {e.pod.key for uid in pool.placeholders if (e := pods.get(uid)) and e.row >= 0}
            lately += since
            under_way += [move for move in since if move.pod not in placed]
        return lately, under_way
