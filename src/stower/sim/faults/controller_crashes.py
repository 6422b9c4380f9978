"""Fault `actor-crashes`: kubelets and controllers crash."""

from typing import Protocol

from stower.model.kinds import Node
from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault


class Stoppable(Protocol):
    """A process that may be down."""

    def stop(self) -> None:
        """It dies."""

    def start(self) -> None:
        """It is started again."""


class ControllerCrashes(Fault):
    """Kubelets and controllers crash up to 8 times, and restart within 60 s.

    Unlike a lost node, the node is not tainted.
    """

    name = "actor-crashes"

    def plan(self) -> None:
        """Any of them dies."""
        for at_ns in self.moments(8):
            self.stage.agenda.schedule_at(at_ns, self._crash)

    def _crash(self) -> None:
        agenda, for_ns = self.stage.agenda, self.chance.randint(0, 60 * SECOND_NS)
        names = [*self.stage.server.all(Node)]
        if names and self.chance.random() < 0.7:
            name = self.chance.choice(names)
            self.stage.kubelets.crash(name)
            agenda.schedule_after(for_ns, lambda: self.stage.kubelets.restart(name))
        else:
            stage = self.stage
            down: tuple[Stoppable, ...] = (stage.controller, stage.claims, *stage.actors)
            for controller in down:
                controller.stop()
                agenda.schedule_after(for_ns, controller.start)
