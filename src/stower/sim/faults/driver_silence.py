"""Fault `driver-silence`: all drivers are down for a while."""

from functools import partial

from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault


class DriverSilence(Fault):
    """All drivers are down up to 4 times, for up to 5 min: no volumes are created, and no driver
    negotiates."""

    name = "driver-silence"

    def plan(self) -> None:
        """It dies, and is started again."""
        for at_ns in self.moments(4):
            self.stage.agenda.schedule_at(at_ns, self._silence)

    def _silence(self) -> None:
        self.stage.driver.stop()
        for_ns = self.chance.randint(SECOND_NS, 300 * SECOND_NS)
        self.stage.agenda.schedule_after(for_ns, self.stage.driver.start)
        drivers = self.stage.negotiators
        for name in drivers.processes:
            drivers.crash(name)
            self.stage.agenda.schedule_after(for_ns, partial(drivers.start, name))
