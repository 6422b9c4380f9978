"""Fault `two-schedulers`: several schedulers compete for leadership."""

from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault


class TwoSchedulers(Fault):
    """One or two more candidates for leadership start within the first minute."""

    name = "two-schedulers"

    def plan(self) -> None:
        """They campaign as the first does."""
        for _ in range(self.chance.randint(1, 2)):
            scheduler = self.stage.add_scheduler()
            self.stage.agenda.schedule_at(self.chance.randint(0, 60) * SECOND_NS, scheduler.start)
