"""Law `preemptions`: a preemptor gets a node within 60 s after its last victim is gone.

Unless something has changed since that may keep the preemptor from its node.
"""

from typing import Final

from stower.framework.events import Event
from stower.framework.writes import Write
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Checker, Court
from stower.sim.scheduler import SchedulerProcess

# Longer than the longest backoff, with messages that take 3 s each way.
PLACED_NS: Final = 60 * SECOND_NS


class Preemptions(Checker):
    """Looks at preemptions whose victims are gone. What counts as a change: see PreemptionLog."""

    law = "preemptions"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._log = court.preemption_log

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """Record evictions, and what happens after them."""
        self._log.read(process, event, writes)

    def check(self) -> None:
        """Of each preemption, how long its room has been there."""
        if not self._log.open:
            return
        now_ns = self.court.agenda.now_ns
        awake_ns = min(process.awake_since_ns for process in self.court.schedulers)
        for one in self._log.open.values():
            if one.gone_ns is not None and now_ns - max(one.gone_ns, awake_ns) > PLACED_NS:
                raise self.violation(
                    f"{one.who} has no node {(now_ns - one.gone_ns) // SECOND_NS} s after its "
                    f"victims {', '.join(one.names)} on {one.node_name or 'several nodes'} are "
                    f"gone, want at most {PLACED_NS // SECOND_NS} s, and nothing has changed since"
                )
