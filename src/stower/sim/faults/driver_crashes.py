"""Fault `driver-crashes`: drivers that negotiate crash."""

from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault


class DriverCrashes(Fault):
    """Drivers that negotiate crash up to 12 times, and restart within 120 s."""

    name = "driver-crashes"

    def plan(self) -> None:
        """Any of them dies."""
        for at_ns in self.moments(12):
            self.stage.agenda.schedule_at(at_ns, self._crash)

    def _crash(self) -> None:
        drivers = self.stage.negotiators
        if drivers.processes:
            name = self.chance.choice([*drivers.processes])
            drivers.crash(name)
            for_ns = self.chance.randint(0, 120 * SECOND_NS)
            self.stage.agenda.schedule_after(for_ns, lambda: drivers.start(name))
