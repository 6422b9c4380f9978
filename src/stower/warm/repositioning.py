"""Moves of placeholders, never more than the pool allows: by what was moved lately, as its status
says. Source: seed 001 (60 deletions a second are the failing case)."""

from collections.abc import Callable, Sequence
from typing import Final

from stower.framework.companion import Placing
from stower.framework.writes import Write
from stower.model.kinds.warm_pool import Move
from stower.model.times import SECOND_NS, time_ns, time_text
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState, PodEntry
from stower.warm.keeping import Keeping
from stower.warm.moves import Plan, Planner
from stower.warm.pools import Pool

MINUTE_NS: Final = 60 * SECOND_NS


class Repositioner:
    """Of all pools."""

    def __init__(self, state: ClusterState, placing: Placing) -> None:
        self._state = state
        self._planner = Planner(state, placing)

    def plan(
        self, pool: Pool, rows: Sequence[int], users: Ints, entries: Sequence[PodEntry]
    ) -> Plan:
        """What the pool's mode would do, were there no limits. `rows`: the oldest first."""
        free = [entry for entry in entries if not entry.assumed and not _is_leaving(entry)]
        state, how = self._state, pool.spec.repositioning
        if how.mode == "Off":
            pool.draining = ()
            return Plan((), ())

        def mark(names: tuple[str, ...]) -> None:
            pool.draining = names

        draws = how.mode == "Newest" or pool.spec.placeholders.placement == "Spread"
        newest = rows[-1] if rows and draws else -1
        plan = self._planner.drained(rows, lambda row: int(users[row]), free, mark, newest)
        if how.mode == "Newest":
            plan = plan._replace(moves=self._planner.onto_newest(rows, free).moves)
        elif how.mode == "Lifetime":
            since_ns = state.now_ns - how.lifetime_seconds * SECOND_NS
            old = [e for e in free if (time_ns(e.pod.metadata.creation_timestamp) or 0) <= since_ns]
            plan = plan._replace(moves=self._planner.anew(old).moves)
        return plan

    def moved(
        self,
        pool: Pool,
        plan: Plan,
        now_ns: int,
        keeping: Keeping,
        next_id: Callable[[], int],
    ) -> list[Write]:
        """The first of the plan's moves, as many as may be made now."""
        how = pool.spec.repositioning
        keep_ns = now_ns - max(MINUTE_NS, how.rest_seconds * SECOND_NS)
        pool.moves = [move for move in pool.moves if (time_ns(move.at) or 0) > keep_ns]
        left = self._left(pool, now_ns)
        rested_ns = now_ns - how.rest_seconds * SECOND_NS
        resting = {move.pod for move in pool.moves if (time_ns(move.at) or 0) > rested_ns}
        from_node: dict[int, int] = {}
        writes: list[Write] = []
        for entry, to in plan.moves:
            if left <= 0:
                break
            here = from_node.get(entry.row, 0)
            if entry.pod.key in resting or here >= how.per_node:
                continue
            from_node[entry.row] = here + 1
            key, more = keeping.replace(pool, entry, to, next_id)
            writes += more
            pool.moves.append(Move(key, time_text(now_ns), to))
            left -= 1
        return writes

    def _left(self, pool: Pool, now_ns: int) -> int:
        """How many may be moved now."""
        how = pool.spec.repositioning
        lately = sum((time_ns(move.at) or 0) > now_ns - MINUTE_NS for move in pool.moves)
        placed = {e.pod.key for uid in pool.placeholders if (e := self._state.pods.get(uid)) and
                  e.row >= 0}  # fmt: skip
        under_way = sum(move.pod not in placed for move in pool.moves)
        return min(how.burst, how.per_minute - lately, how.in_flight - under_way)


def _is_leaving(entry: PodEntry) -> bool:
    return entry.is_leaving or entry.pod.metadata.deletion_timestamp is not None
