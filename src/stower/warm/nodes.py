"""The nodes of a pool as arrays over rows: membership, readiness for users, creation time, and what
each is for users now (headroom.py).

Updated node by node, and all at once as time passes.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from stower.model.kinds import Node
from stower.model.times import time_ns
from stower.state.arrays import Bools, Ints, grow_array
from stower.state.cluster import ClusterState
from stower.warm.headroom import CLOSED, PULLS, STATES, USABLE, NodeState, node_state
from stower.warm.pools import Pool, kept_ns
from stower.warm.readiness import is_ready

CODES: Final = {state: code for code, state in enumerate(STATES)}
OUTSIDE: Final = -1  # no node of the pool


class PoolNodes:
    """Of one pool. Arrays have at least `row_limit` cells; read only."""

    def __init__(self, pool: Pool, state: ClusterState, before: "PoolNodes | None" = None) -> None:
        """`before`: those of the pool as it was: what it wants of nodes is another now."""
        self.pool = pool
        self._state = state
        self.holds: Bools = np.zeros(state.capacity, np.bool_)
        self.ready: Bools = np.zeros(state.capacity, np.bool_)
        self.born_ns: Ints = np.zeros(state.capacity, np.int64)
        self.pulls_since_ns: Ints = np.zeros(state.capacity, np.int64)
        self.usable: Bools = np.zeros(state.capacity, np.bool_)  # now or soon
        self.codes: Ints = np.full(state.capacity, OUTSIDE, np.int64)  # of states, see CODES
        self.pulled_since_ns = 0  # of the last node that has become ready, where that is known
        self._row_of: dict[str, int] = {}
        self._order: tuple[int, ...] | None = None
        self._seen_tolerations = frozenset(pool.tolerations)  # with these all were looked at
        # By name: since when a node pulls that has lost its images, or has come into the pool.
        self._from_ns: dict[str, int] = {}
        # Nodes that pull since when is not known: they were there when the program began.
        self._begun_before: set[str] = set()
        if before is None:
            self._from_ns |= _reported_pulls(pool, state.now_ns)
        else:
            self._from_ns |= before._from_ns
            self._begun_before |= before._begun_before
            names = [state.node_names[row] for row in np.flatnonzero(before.ready)]
            self._from_ns |= dict.fromkeys(names, state.now_ns)
        for row in state.present_rows():
            self.refresh_node(state.node_names[row])
        if before is None:
            names = [state.node_names[row] for row in np.flatnonzero(self.holds & ~self.ready)]
            self._begun_before |= {name for name in names if name not in self._from_ns}

    def refresh_node(self, name: str) -> bool:
        """A node, or what pulls there, has come, changed or gone. Returns whether it has become
        ready, or open to users again."""
        state = self._state
        if len(self.holds) < state.capacity:
            self.holds = grow_array(self.holds, state.capacity)
            self.ready = grow_array(self.ready, state.capacity)
            self.born_ns = grow_array(self.born_ns, state.capacity)
            self.pulls_since_ns = grow_array(self.pulls_since_ns, state.capacity)
            self.usable = grow_array(self.usable, state.capacity)
            fresh = np.full(state.capacity - len(self.codes), OUTSIDE, np.int64)
            self.codes = np.concatenate((self.codes, fresh))
        old = self._row_of.pop(name, -1)
        was_ready, was_closed, before = False, False, (False, 0)
        if old >= 0:
            was_closed = self.state_of(old) in CLOSED
            was_ready, before = bool(self.ready[old]), (bool(self.holds[old]), old)
            self.holds[old] = self.ready[old] = self.usable[old] = False
            self.codes[old] = OUTSIDE
        row = state.row_of(name)
        node = state.nodes[row] if row >= 0 else None
        if node is not None:
            self._row_of[name] = row
            self.born_ns[row] = kept_ns(time_ns(node.metadata.creation_timestamp) or 0)
            self.holds[row] = self.pool.holds(node)
            self.ready[row] = self.holds[row] and is_ready(self.pool, node)
            has_begun = old >= 0 and (was_ready or not before[0]) and not self.ready[row]
            if has_begun and self.holds[row]:
                self._from_ns[name] = state.now_ns
                self._begun_before.discard(name)
            since_ns = max(self.pool.pulls_since_ns(node), self._from_ns.get(name, 0))
            self.pulls_since_ns[row] = kept_ns(since_ns)
            if self.holds[row]:
                self._look_at(row, node)
        else:
            self._from_ns.pop(name, None)
            self._begun_before.discard(name)
        was_pulling = before[0] and not was_ready and name not in self._begun_before
        has_pulled = was_pulling and row >= 0 and self.ready[row]
        self.pulled_since_ns = int(self.pulls_since_ns[row]) if has_pulled else 0
        if before != (node is not None and bool(self.holds[row]), row) or old != row:
            self._order = None
        if node is None:
            return False
        is_open = was_closed and self.state_of(row) not in (*CLOSED, None)
        return is_open or (bool(self.ready[row]) and not was_ready)

    def look(self) -> bool:
        """Time has passed: nodes that pull may be stuck by now; or users tolerate other taints than
        before. Whether any node is something else than before."""
        rows: Iterable[int] = self.rows_by_age
        if self._seen_tolerations == frozenset(self.pool.tolerations):
            rows = self.rows_that_are(NodeState.PULLING).tolist()
        self._seen_tolerations = frozenset(self.pool.tolerations)
        before = self.codes.copy()
        for row in rows:
            self._look_at(row, self._state.node_at(row))
        return not np.array_equal(before, self.codes)

    def _look_at(self, row: int, node: Node) -> None:
        found = node_state(
            self.pool,
            node,
            bool(self.ready[row]),
            int(self.pulls_since_ns[row]),
            self._state.now_ns,
        )
        self.codes[row] = CODES[found]
        self.usable[row] = found in USABLE

    def state_of(self, row: int) -> NodeState | None:
        """What a node is; None where it is none of the pool's."""
        code = int(self.codes[row])
        return None if code == OUTSIDE else STATES[code]

    def has(self, name: str) -> bool:
        """Whether this node is one of the pool's."""
        row = self._row_of.get(name, -1)
        return row >= 0 and bool(self.holds[row])

    def rows_that_are(self, *states: NodeState) -> Ints:
        """Rows of the nodes in these states."""
        return np.flatnonzero(np.isin(self.codes, [CODES[state] for state in states]))

    @property
    def rows_by_age(self) -> tuple[int, ...]:
        """Rows of the pool's nodes."""
        if self._order is None:
            rows = np.flatnonzero(self.holds).tolist()
            born, names = self.born_ns, self._state.node_names
            self._order = tuple(sorted(rows, key=lambda row: (int(born[row]), names[row])))
        return self._order

    @property
    def usable_rows(self) -> tuple[int, ...]:
        """Rows of the nodes that users can use, now or soon, the oldest first."""
        order = np.array(self.rows_by_age, np.int64)
        return tuple(order[self.usable[order]].tolist())

    @property
    def newest_rows(self) -> tuple[int, ...]:
        """Rows of the usable nodes that were made last, in the same second."""
        rows = self.usable_rows
        return tuple(row for row in rows if self.born_ns[row] == self.born_ns[rows[-1]])


def _reported_pulls(pool: Pool, now_ns: int) -> dict[str, int]:
    """Returns since when nodes pull by the pool's status, by name: what a scheduler before this one
    has observed."""
    known = (pool.obj.status.node_states if pool.obj is not None else None) or ()
    since = {one.name: time_ns(one.since) or 0 for one in known if one.state in PULLS}
    return {name: at_ns for name, at_ns in since.items() if 0 < at_ns <= now_ns}
