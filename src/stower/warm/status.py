"""Writes the status of pools, and readiness labels on nodes for other tools.

If several pools set the same label, the first pool by name decides. A label with a value other than
"true" belongs to another tool and is not changed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from stower.framework.retries import CONFLICT, TOO_MANY_REQUESTS
from stower.framework.writes import Write, patch_of
from stower.model.kinds.warm_pool import WarmPoolStatus
from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState
from stower.warm.pools import Pool

ATTRACTOR: Final = "hub.jupyter.org/attract-placeholders"  # the seed's
TRUE: Final = "true"
NOT_FOUND: Final = 404
REFUSED_NS: Final = 300 * SECOND_NS


class StatusWriter:
    """Writes that say something, where it is not said already."""

    def __init__(self) -> None:
        self._open: dict[int, str] = {}  # by id: the pool or node that it is about
        self._open_stale: dict[int, list[str]] = {}  # by id: labels that are to be gone
        self._refused_ns: dict[str, int] = {}  # what the API refused is tried again then
        self._notes: list[tuple[str, str, str]] = []
        self._stale: dict[str, None] = {}  # labels that no pool sets any more
        self.has_labeled = False  # whether all nodes had the labels that were wanted the last time

    @property
    def is_open(self) -> bool:
        """Whether a write is not answered yet."""
        return bool(self._open)

    @property
    def has_stale_labels(self) -> bool:
        """Whether nodes may have labels that no pool sets any more."""
        return bool(self._stale)

    def handle_answer(self, id: int, code: int, message: str, now_ns: int) -> bool:
        """Whether it was one of these."""
        about = self._open.pop(id, None)
        stale = self._open_stale.pop(id, ())
        if code:
            self._stale |= dict.fromkeys(stale)  # the node may have them still
        if (
            about is not None
            and 400 <= code < 500
            and code not in (CONFLICT, NOT_FOUND, TOO_MANY_REQUESTS)
        ):
            over = [one for one, due_ns in self._refused_ns.items() if due_ns <= now_ns]
            for one in over:
                del self._refused_ns[one]
            self._refused_ns[about] = now_ns + REFUSED_NS
            self._notes.append(("error", f"cannot write status or labels: {message}", about))
        return about is not None

    def notes(self) -> list[tuple[str, str, str]]:
        """See Companion."""
        found, self._notes = self._notes, []
        return found

    def forget(self, labels: Iterable[str]) -> None:
        """These are not set any more, unless another pool does: nodes that have them lose them."""
        self._stale |= dict.fromkeys(labels)

    def _can_write(self, about: str, now_ns: int) -> bool:
        return about not in self._open.values() and now_ns >= self._refused_ns.get(about, 0)

    def status(
        self, pool: Pool, status: WarmPoolStatus, now_ns: int, next_id: Callable[[], int]
    ) -> list[Write]:
        """Of a pool that is an object."""
        if pool.obj is None or pool.obj.status == status or not self._can_write(pool.key, now_ns):
            return []
        fields = msgspec.to_builtins(status)
        before = msgspec.to_builtins(pool.obj.status)
        fields |= {name: None for name in before if name not in fields}
        id = next_id()
        self._open[id] = pool.key
        return [patch_of(pool.obj, {"status": fields}, "status", id)]

    def labels(
        self,
        wanted: Mapping[int, Mapping[str, bool]],
        state: ClusterState,
        next_id: Callable[[], int],
    ) -> list[Write]:
        """On nodes. `wanted`: by row, which labels are to be "true", and which are to be gone."""
        writes: list[Write] = []
        stale, self._stale = self._stale, {}
        self.has_labeled = True
        rows = [*state.present_rows()] if stale else sorted(wanted)
        for row in rows:
            node = state.node_at(row)
            labels = node.metadata.labels or {}
            here = {**dict.fromkeys(stale, False), **wanted.get(row, {})}
            patch = {
                name: TRUE if is_so else None
                for name, is_so in here.items()
                if labels.get(name, TRUE) == TRUE and is_so != (name in labels)
            }
            if not patch:
                continue
            self.has_labeled = False
            if self._can_write(node.metadata.key, state.now_ns):
                id = next_id()
                self._open[id] = node.metadata.key
                self._open_stale[id] = [name for name in patch if name in stale]
                writes.append(patch_of(node, {"metadata": {"labels": patch}}, "", id))
            else:
                self._stale |= {name: None for name in patch if name in stale}
        return writes
