"""Which pools share nodes, and what all of them have there: users of one are users for the others.

Source: seed 001; hubs that share nodes work against each other otherwise.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.warm.nodes import PoolNodes
from stower.warm.pools import Pool

Pools = tuple[Pool, ...]


class Sharing:
    """Groups of pools that share nodes, directly or through others. Finds them anew only where the
    nodes of a pool are others."""

    def __init__(self) -> None:
        self._seen: list[tuple[Pool, tuple[int, ...]]] = []
        self._groups: dict[str, Pools] = {}

    def groups(self, pools: Mapping[str, Pool], nodes: Mapping[str, PoolNodes]) -> dict[str, Pools]:
        """Returns by pool's key the pools of its group, itself among them, by key."""
        seen = [(pool, nodes[key].rows_by_age) for key, pool in pools.items()]
        if seen != self._seen:
            self._seen, self._groups = seen, _find_groups(seen)
        return self._groups


def _find_groups(seen: Iterable[tuple[Pool, tuple[int, ...]]]) -> dict[str, Pools]:
    found: list[tuple[frozenset[int], list[Pool]]] = []
    for pool, rows in seen:
        beside = [one for one in found if not one[0].isdisjoint(rows)]
        joined = frozenset(rows).union(*(theirs for theirs, _ in beside))
        members = [pool, *(member for _, theirs in beside for member in theirs)]
        found = [*(one for one in found if one not in beside), (joined, members)]
    groups = (tuple(sorted(members, key=lambda pool: pool.key)) for _, members in found)
    return {pool.key: group for group in groups for pool in group}


def users_of(state: ClusterState, pool: Pool) -> Ints:
    """int64[capacity]: users of one pool by row. Read only."""
    counts = state.tally((frozenset((pool.namespace,)), pool.spec.users)).counts
    others = [e.row for uid in pool.overlapping if (e := state.pods.get(uid)) and e.row >= 0]
    if others:
        counts = counts.copy()
        np.subtract.at(counts, others, 1)
    return counts


def users_on(state: ClusterState, pools: Iterable[Pool]) -> Ints:
    """int64[capacity]: users of these pools by row. Read only."""
    counts = [users_of(state, pool) for pool in pools]
    return counts[0] if len(counts) == 1 else np.sum(counts, axis=0, dtype=np.int64)


def placeholders_on(state: ClusterState, pools: Iterable[Pool]) -> Ints:
    """int64[row_limit]: placeholders of these pools by row."""
    counts = np.zeros(state.row_limit, np.int64)
    for pool in pools:
        for uid in pool.placeholders:
            entry = state.pods.get(uid)
            if entry is not None and entry.row >= 0:
                counts[entry.row] += 1
    return counts
