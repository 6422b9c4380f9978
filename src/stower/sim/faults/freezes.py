"""Fault `freezes`: schedulers are paused and resumed."""

from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault


class Freezes(Fault):
    """Schedulers are paused up to 5 times, for 0.1 to 40 s: longer than a lease lasts."""

    name = "freezes"

    def plan(self) -> None:
        """One of them stands still."""
        for at_ns in self.moments(5):
            self.stage.agenda.schedule_at(at_ns, self._freeze)

    def _freeze(self) -> None:
        scheduler = self.chance.choice(self.stage.schedulers)
        scheduler.freeze(self.chance.randint(SECOND_NS // 10, 40 * SECOND_NS))
