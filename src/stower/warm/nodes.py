"""The nodes of a pool as arrays over rows: membership, readiness for users, creation time, and what
each is for users now (headroom.py).

Updated node by node, and all at once as time passes.
"""

from typing import Final

import numpy as np

from stower.model.kinds import Node
from stower.model.times import time_ns
from stower.state.arrays import Bools, Ints, grow_array
from stower.state.cluster import ClusterState
from stower.warm.headroom import USABLE, NodeState, node_state
from stower.warm.pools import Pool
from stower.warm.readiness import is_ready

TIME_MAX_NS: Final = 2**62  # a time after that is this one: an array has room for no more


class PoolNodes:
    """Of one pool. Arrays have at least `row_limit` cells; read only."""

    def __init__(self, pool: Pool, state: ClusterState) -> None:
        self.pool = pool
        self._state = state
        self.holds: Bools = np.zeros(state.capacity, np.bool_)
        self.ready: Bools = np.zeros(state.capacity, np.bool_)
        self.born_ns: Ints = np.zeros(state.capacity, np.int64)
        self.pulls_since_ns: Ints = np.zeros(state.capacity, np.int64)
        self.usable: Bools = np.zeros(state.capacity, np.bool_)  # now or soon
        self.states: dict[int, NodeState] = {}  # by row
        self._row_of: dict[str, int] = {}
        self._order: tuple[int, ...] | None = None
        for row in state.present_rows():
            self.refresh_node(state.node_names[row])

    def refresh_node(self, name: str) -> bool:
        """A node, or what pulls there, has come, changed or gone. Whether it has become ready."""
        state = self._state
        if len(self.holds) < state.capacity:
            self.holds = grow_array(self.holds, state.capacity)
            self.ready = grow_array(self.ready, state.capacity)
            self.born_ns = grow_array(self.born_ns, state.capacity)
            self.pulls_since_ns = grow_array(self.pulls_since_ns, state.capacity)
            self.usable = grow_array(self.usable, state.capacity)
        old = self._row_of.pop(name, -1)
        was_ready, before = False, (False, 0)
        if old >= 0:
            was_ready, before = bool(self.ready[old]), (bool(self.holds[old]), old)
            self.holds[old] = self.ready[old] = self.usable[old] = False
            self.states.pop(old, None)
        row = state.row_of(name)
        node = state.nodes[row] if row >= 0 else None
        if node is not None:
            self._row_of[name] = row
            self.born_ns[row] = min(time_ns(node.metadata.creation_timestamp) or 0, TIME_MAX_NS)
            self.holds[row] = self.pool.holds(node)
            self.ready[row] = self.holds[row] and is_ready(self.pool, node)
            self.pulls_since_ns[row] = min(self.pool.pulls_since_ns(node), TIME_MAX_NS)
            if self.holds[row]:
                self._look_at(row, node)
        if before != (node is not None and bool(self.holds[row]), row) or old != row:
            self._order = None
        return node is not None and bool(self.ready[row]) and not was_ready

    def look(self) -> bool:
        """Time has passed: nodes that pull may be stuck by now. Whether that is so of any."""
        before = dict(self.states)
        for row in self.rows_by_age:
            self._look_at(row, self._state.node_at(row))
        return before != self.states

    def _look_at(self, row: int, node: Node) -> None:
        found = self.states[row] = node_state(
            self.pool,
            node,
            bool(self.ready[row]),
            int(self.pulls_since_ns[row]),
            self._state.now_ns,
        )
        self.usable[row] = found in USABLE

    def has(self, name: str) -> bool:
        """Whether this node is one of the pool's."""
        row = self._row_of.get(name, -1)
        return row >= 0 and bool(self.holds[row])

    def rows_that_are(self, *states: NodeState) -> list[int]:
        """Rows of the nodes in these states, the oldest first."""
        return [row for row in self.rows_by_age if self.states.get(row) in states]

    @property
    def rows_by_age(self) -> tuple[int, ...]:
        """Rows of the pool's nodes."""
        if self._order is None:
            rows = np.flatnonzero(self.holds).tolist()
            born, names = self.born_ns, self._state.node_names
            self._order = tuple(sorted(rows, key=lambda row: (int(born[row]), names[row])))
        return self._order

    @property
    def newest_rows(self) -> tuple[int, ...]:
        """Rows of the nodes that were made last, in the same second."""
        rows = self.rows_by_age
        return tuple(row for row in rows if self.born_ns[row] == self.born_ns[rows[-1]])
