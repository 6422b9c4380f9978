"""Fault `expired`: the server has forgotten the revision of a watch (410 Gone)."""

import random

from stower.model.kinds import Node, Pod
from stower.sim.faults.fault import Fault, Stage


class ExpiredRevisions(Fault):
    """Watches break up to 10 times, and 30 to 100 % of broken watches must list again."""

    name = "expired"

    def __init__(self, chance: random.Random, stage: Stage) -> None:
        super().__init__(chance, stage)
        self._share = chance.uniform(0.3, 1.0)

    def expires(self, chance: random.Random) -> bool:
        """Whether the server has forgotten where a watch that is taken up again had been."""
        return self.draw_hit(self._share, chance)

    def plan(self) -> None:
        """Watches of nodes and pods break."""
        for at_ns in self.moments(10):
            view = self.chance.choice((Node, Pod))
            self.stage.agenda.schedule_at(at_ns, lambda v=view: self._break(v))  # type: ignore[misc]

    def _break(self, view: type) -> None:
        for scheduler in self.stage.schedulers:
            scheduler.cut(view)
