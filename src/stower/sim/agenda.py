"""Virtual time: a queue of planned callbacks. Only running the next callback moves the clock."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from stower.model.errors import InvariantError

Moment = Callable[[], None]
# More than that at one point in time, and it would never pass.
MOMENTS_MAX: Final = 200_000


class Agenda:
    """Moments in order of time, and of being planned where times are equal."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._moments: list[tuple[int, int, Moment]] = []
        self._planned = 0

    def schedule_at(self, at_ns: int, moment: Moment) -> None:
        """Plan it; what is in the past happens next."""
        self._planned += 1
        heappush(self._moments, (max(at_ns, self.now_ns), self._planned, moment))

    def schedule_after(self, delay_ns: int, moment: Moment) -> None:
        """Plan it for so much later."""
        self.schedule_at(self.now_ns + delay_ns, moment)

    def run(self, until_ns: int) -> None:
        """Let time pass."""
        moments = self._moments
        at_once = 0
        while moments and moments[0][0] <= until_ns:
            at_ns, _, moment = heappop(moments)
            at_once = at_once + 1 if at_ns == self.now_ns else 0
            if at_once > MOMENTS_MAX:
                raise InvariantError(
                    f"more than {MOMENTS_MAX} callbacks at {at_ns} ns of virtual time"
                )
            self.now_ns = at_ns
            moment()
        self.now_ns = max(self.now_ns, until_ns)
