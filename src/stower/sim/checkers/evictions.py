"""Law `evictions`: nothing is evicted twice for one preemptor without a change in between, and
nobody evicts again and again without being placed, whatever changes.
"""

from collections import deque
from typing import Final

from stower.framework.events import Event
from stower.framework.writes import Write
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court, count_recent
from stower.sim.scheduler import SchedulerProcess

# Of one preemptor that is not placed between: so many evictions in so long.
WINDOW_NS: Final = 600 * SECOND_NS
IN_VAIN_MAX: Final = 8


class Evictions(Checker):
    """Compares each preemption with the one before. What counts as a change: see PreemptionLog."""

    law = "evictions"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._log = court.preemption_log
        self._times: dict[str, deque[int]] = {}  # of evictions, by the preemptor's uid

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """Look at each preemption of the step."""
        for earlier, new in self._log.read(process, event, writes):
            raise self.violation(
                f"for {new.who}, {', '.join(new.names)} on {new.node_name or 'several nodes'} are "
                f"evicted after {', '.join(earlier.names)} on "
                f"{earlier.node_name or 'several nodes'}, and nothing has changed between"
            )
        now_ns = self.court.agenda.now_ns
        for new in self._log.begun:
            times = self._times.setdefault(new.uid, deque())
            if count_recent(times, now_ns, WINDOW_NS) > IN_VAIN_MAX:
                raise self.violation(
                    f"for {new.who}, pods are evicted {len(times)} times within "
                    f"{WINDOW_NS // SECOND_NS} s, at last {', '.join(new.names)}, want at most "
                    f"{IN_VAIN_MAX} evictions without a placement"
                )
        for uid in self._log.placed:
            self._times.pop(uid, None)
