"""Which labels nodes are to have: ready for users of a pool, and the newest, to draw others."""

from collections.abc import Callable, Mapping

from stower.framework.writes import Write
from stower.state.cluster import ClusterState
from stower.warm.nodes import PoolNodes
from stower.warm.pools import Pool
from stower.warm.status import ATTRACTOR, StatusWriter

Pools = Mapping[str, Pool]
Nodes = Mapping[str, PoolNodes]


class NodeLabeler:
    """Of all pools. While pools stay as they are and all nodes have their labels, looks only at
    nodes that have changed."""

    def __init__(self, state: ClusterState, told: StatusWriter) -> None:
        self._state, self._told = state, told
        # What labels were last computed from: positions of logs, and the nodes of each pool.
        self._labeled: tuple[int, int, tuple[object, ...]] = (-1, -1, ())

    def write(self, pools: Pools, nodes: Nodes, next_id: Callable[[], int]) -> list[Write]:
        """Returns the writes of labels. `pools` and their `nodes` by key."""
        of_pools = tuple(
            (pool.key, pool.spec, nodes[key].rows_by_age, nodes[key].codes.tobytes())
            for key, pool in pools.items()
        )
        log, (position, *before) = self._state.node_log, self._labeled
        seen = (log.position, self._state.layout_generation, of_pools)
        changed: set[int] | None = None
        if (
            self._told.has_labeled
            and not self._told.has_stale_labels
            and not log.is_overrun(position)
            and [*seen[1:]] == before
        ):
            changed = set(log.row_list(position))
        writes = self._told.labels(_wanted(pools, nodes, changed), self._state, next_id)
        self._labeled = seen
        return writes


def labels_of(pool: Pool) -> list[str]:
    """Labels that the pool sets on nodes."""
    spread = pool.spec.placeholders.placement == "Spread"
    return [label for label in (pool.label, ATTRACTOR if spread else "") if label]


def _wanted(pools: Pools, nodes: Nodes, changed: set[int] | None) -> dict[int, dict[str, bool]]:
    """Which labels nodes are to have, and which not: by row. changed: only of these rows, None for
    all."""
    found: dict[int, dict[str, bool]] = {}
    for key, pool in pools.items():
        if not labels_of(pool):
            continue
        here, is_spread = nodes[key], pool.spec.placeholders.placement == "Spread"
        newest = here.newest_rows[-1:] if is_spread else ()
        for row in here.rows_by_age:
            if changed is not None and row not in changed:
                continue
            labels = found.setdefault(row, {})
            if pool.label:
                labels.setdefault(pool.label, bool(here.ready[row]))
            if is_spread:
                labels.setdefault(ATTRACTOR, row in newest)
    return found
