"""Remembers selected nodes on which drivers did not allocate, so that they are asked there less and
less often.

A node that was refused is selected again at once after the first time in a row, 30 s after the
second, and twice as long after each further time, up to ten minutes. A node on which nobody
allocated in time is selected again after 30 s already after the first time. Where the driver has
allocated or deallocated anything since, it did not refuse always: the count begins anew. All of it
is lost in a restart.
"""

from typing import Final, NamedTuple

from stower.model.times import SECOND_NS

REFUSED_NS: Final = 30 * SECOND_NS
REFUSED_NS_MAX: Final = 600 * SECOND_NS
PODS_MAX: Final = 10_000  # with more, the oldest are forgotten


class Failure(NamedTuple):
    """A selection that came to nothing. driver: who refused it; times: how often in a row; total:
    how often in all; selected_ns: when the node had been selected; until_ns: until when it is not
    selected again; change: the last one of the driver's
    allocations that was seen (AllocationOrder)."""

    driver: str
    times: int
    total: int
    selected_ns: int
    until_ns: int
    change: int


class PodFailures:
    """The failures of one pod by node. late_ns: when the nodes were selected on which drivers did
    not allocate in time."""

    def __init__(self) -> None:
        self.by_node: dict[str, Failure] = {}
        self.late_ns: dict[int, None] = {}


class Refusals:
    """The failed selections by the uid of the pod."""

    def __init__(self) -> None:
        self._pods: dict[str, PodFailures] = {}

    def add(
        self,
        uid: str,
        node: str,
        driver: str,
        selected_ns: int,
        now_ns: int,
        change: int,
        is_late: bool = False,
    ) -> bool:
        """Adds the failure of a node that was selected at `selected_ns`. change: the last one of
        the driver's allocations. Returns whether the node had failed before."""
        known = self._pods.pop(uid, None) or PodFailures()
        self._pods[uid] = known
        if len(self._pods) > PODS_MAX:
            del self._pods[next(iter(self._pods))]
        before = known.by_node.get(node)
        if before is not None and before.selected_ns == selected_ns:
            return before.total > 1
        if is_late:
            known.late_ns[selected_ns] = None
        is_again = before is not None and (before.driver, before.change) == (driver, change)
        times = before.times + 1 if before is not None and is_again else 1
        total = before.total + 1 if before is not None else 1
        doublings = times - 1 if is_late else times - 2
        delay_ns = min(REFUSED_NS << min(doublings, 40), REFUSED_NS_MAX) if doublings >= 0 else 0
        known.by_node[node] = Failure(driver, times, total, selected_ns, now_ns + delay_ns, change)
        return total > 1

    def get(self, uid: str, node: str) -> Failure | None:
        """Returns the last failure of the node for the pod."""
        known = self._pods.get(uid)
        return known.by_node.get(node) if known is not None else None

    def late_count(self, uid: str, but_ns: int = -1) -> int:
        """Returns how often a selection for the pod was late, without the one of this time."""
        known = self._pods.get(uid)
        return len(known.late_ns) - (but_ns in known.late_ns) if known is not None else 0
