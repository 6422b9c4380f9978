"""Law `evictions`: nothing is evicted twice for one preemptor without a change in between."""

from stower.framework.events import Event
from stower.framework.writes import Write
from stower.sim.checkers.checker import Checker, Court
from stower.sim.checkers.preemption_log import PreemptionLog
from stower.sim.scheduler import SchedulerProcess


class Evictions(Checker):
    """Compares each preemption with the one before. What counts as a change: see PreemptionLog."""

    law = "evictions"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._log = PreemptionLog(court)

    def on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        """Look at each preemption of the step."""
        for earlier, new in self._log.read(process, event, writes):
            raise self.violation(
                f"for {new.who}, {', '.join(new.names)} on {new.node_name or 'several nodes'} are "
                f"evicted after {', '.join(earlier.names)} on "
                f"{earlier.node_name or 'several nodes'}, and nothing has changed between"
            )
