"""Fault `clock-jumps`: clocks jump, and differ between processes."""

from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault


class ClockJumps(Fault):
    """The leader's clock jumps forward up to 4 times by 1 s to 5 min; wall clocks differ up to 1 h.

    The clock of one who waits for a lease to run out does not jump: leader election stands and
    falls with clocks that run equally fast (client-go leaderelection).
    """

    name = "clock-jumps"

    def plan(self) -> None:
        """A monotonic clock can only jump forward; what the Lease says is of the wall's."""
        for scheduler in self.stage.schedulers:
            scheduler.wall_skew_ns = self.chance.randint(-3600, 3600) * SECOND_NS
        for at_ns in self.moments(4):
            self.stage.agenda.schedule_at(at_ns, self._jump)

    def _jump(self) -> None:
        leading = [s for s in self.stage.schedulers if s.engine is not None]
        if not leading:
            return
        scheduler = self.chance.choice(leading)
        scheduler.skew_ns += self.chance.randint(SECOND_NS, 300 * SECOND_NS)
