"""What a pool tells: its status, and labels on nodes for other tools."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from stower.framework.writes import PatchObject, Write, patch_of
from stower.model.kinds.warm_pool import WarmPoolStatus
from stower.state.arrays import Bools
from stower.state.cluster import ClusterState
from stower.warm.pools import Pool

ATTRACTOR: Final = "hub.jupyter.org/attract-placeholders"  # the seed's
TRUE: Final = "true"


class Told:
    """Writes that say something, where it is not said already."""

    def __init__(self) -> None:
        self._open: dict[int, str] = {}  # by id: the pool or node that it is about

    @property
    def is_open(self) -> bool:
        """Whether a write is not answered yet."""
        return bool(self._open)

    def answered(self, id: int) -> bool:
        """Whether it was one of these."""
        return self._open.pop(id, None) is not None

    def status(self, pool: Pool, status: WarmPoolStatus, next_id: Callable[[], int]) -> list[Write]:
        """Of a pool that is an object."""
        if pool.obj is None or pool.obj.status == status or pool.key in self._open.values():
            return []
        fields = msgspec.to_builtins(status)
        before = msgspec.to_builtins(pool.obj.status)
        fields |= {name: None for name in before if name not in fields}
        id = next_id()
        self._open[id] = pool.key
        return [patch_of(pool.obj, {"status": fields}, "status", id)]

    def labels(
        self,
        pool: Pool,
        state: ClusterState,
        rows: Sequence[int],
        ready: Bools,
        next_id: Callable[[], int],
    ) -> list[Write]:
        """On nodes: ready for users; and the newest, where placeholders are to be drawn to it."""
        writes: list[Write] = []
        if not pool.spec.images.label and pool.spec.placeholders.placement != "Spread":
            return writes
        newest = rows[-1] if rows else -1
        spread = pool.spec.placeholders.placement == "Spread"
        for row in rows:
            wanted: dict[str, bool] = {}
            if pool.spec.images.label:
                wanted[pool.spec.images.label] = bool(ready[row])
            if spread:
                wanted[ATTRACTOR] = row == newest
            node = state.node_at(row)
            labels = node.metadata.labels or {}
            patch = {
                name: TRUE if is_so else None
                for name, is_so in wanted.items()
                if is_so != (labels.get(name) == TRUE)
            }
            if patch and node.metadata.key not in self._open.values():
                id = next_id()
                self._open[id] = node.metadata.key
                writes.append(self._patched(id, state, row, patch))
        return writes

    def _patched(
        self, id: int, state: ClusterState, row: int, patch: dict[str, str | None]
    ) -> PatchObject:
        return patch_of(state.node_at(row), {"metadata": {"labels": patch}}, "", id)
