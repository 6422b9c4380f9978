"""The nodes of a pool as arrays over rows: membership, readiness for users, creation time.

Updated node by node.
"""

import numpy as np

from stower.model.times import time_ns
from stower.state.arrays import Bools, Ints, grow_array
from stower.state.cluster import ClusterState
from stower.warm.pools import Pool
from stower.warm.readiness import is_ready


class PoolNodes:
    """Of one pool. Arrays have at least `row_limit` cells; read only."""

    def __init__(self, pool: Pool, state: ClusterState) -> None:
        self.pool = pool
        self._state = state
        self.holds: Bools = np.zeros(state.capacity, np.bool_)
        self.ready: Bools = np.zeros(state.capacity, np.bool_)
        self.born_ns: Ints = np.zeros(state.capacity, np.int64)
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
        old = self._row_of.pop(name, -1)
        was_ready, before = False, (False, 0)
        if old >= 0:
            was_ready, before = bool(self.ready[old]), (bool(self.holds[old]), old)
            self.holds[old] = self.ready[old] = False
        row = state.row_of(name)
        node = state.nodes[row] if row >= 0 else None
        if node is not None:
            self._row_of[name] = row
            self.born_ns[row] = time_ns(node.metadata.creation_timestamp) or 0
            self.holds[row] = self.pool.holds(node)
            self.ready[row] = self.holds[row] and is_ready(self.pool, node)
        if before != (node is not None and bool(self.holds[row]), row) or old != row:
            self._order = None
        return node is not None and bool(self.ready[row]) and not was_ready

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
