"""Remembers which nodes drivers have refused after they were selected, so that a driver that calls
a node suitable and then refuses it is asked less and less often.

After the second time in a row such a node is selected again after 30 s at the earliest, twice as
long after each further time, up to ten minutes. A driver that has allocated to others meanwhile
refuses for want of devices, not always: it counts as the first time. All of it is lost in a
restart.
"""

from typing import Final, NamedTuple

from stower.model.times import SECOND_NS

REFUSED_NS: Final = 30 * SECOND_NS
REFUSED_NS_MAX: Final = 600 * SECOND_NS
PODS_MAX: Final = 10_000  # with more, the oldest are forgotten


class Refusal(NamedTuple):
    """times: how often in a row; selected_ns: when the node had been selected; until_ns: until when
    it is not; place: of the newest allocation (AllocationOrder) that was known then."""

    times: int
    selected_ns: int
    until_ns: int
    place: int


class Refusals:
    """The refused nodes by the uid of the pod."""

    def __init__(self) -> None:
        self._by_pod: dict[str, dict[str, Refusal]] = {}

    def add(
        self, uid: str, node: str, selected_ns: int, now_ns: int, last_place: int, newest: int
    ) -> None:
        """Adds a refusal of a node that was selected at `selected_ns`. last_place: of the newest
        allocation of the same driver for others; newest: of the newest of all."""
        known = self._by_pod.pop(uid, {})
        self._by_pod[uid] = known
        if len(self._by_pod) > PODS_MAX:
            del self._by_pod[next(iter(self._by_pod))]
        before = known.get(node)
        if before is not None and before.selected_ns == selected_ns:
            return
        is_again = before is not None and last_place <= before.place
        times = before.times + 1 if before is not None and is_again else 1
        delay_ns = min(REFUSED_NS << min(times - 2, 40), REFUSED_NS_MAX) if times > 1 else 0
        known[node] = Refusal(times, selected_ns, now_ns + delay_ns, newest)

    def until_ns(self, uid: str, node: str) -> int:
        """Returns until when the node is not selected for the pod, 0 for a node that may be."""
        known = self._by_pod.get(uid)
        refusal = known.get(node) if known is not None else None
        return refusal.until_ns if refusal is not None else 0
