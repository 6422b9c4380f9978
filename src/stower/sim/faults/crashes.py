"""Fault `crashes`: schedulers crash."""

from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault


class Crashes(Fault):
    """Schedulers crash up to 6 times, and restart within 20 s."""

    name = "crashes"

    def plan(self) -> None:
        """Any of them dies."""
        for at_ns in self.moments(6):
            self.stage.agenda.schedule_at(at_ns, self._crash)

    def _crash(self) -> None:
        up = [scheduler for scheduler in self.stage.schedulers if scheduler.is_up]
        if not up:
            return
        self.chance.choice(up).crash(self.chance.randint(0, 20 * SECOND_NS))
