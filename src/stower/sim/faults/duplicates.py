"""Fault `duplicates`: changes are delivered twice."""

import random

from stower.sim.faults.fault import Fault, Stage


class Duplicates(Fault):
    """1 to 20 % of changes are delivered twice."""

    name = "duplicates"

    def __init__(self, chance: random.Random, stage: Stage) -> None:
        super().__init__(chance, stage)
        self._share = chance.uniform(0.01, 0.2)

    def doubles(self, chance: random.Random) -> bool:
        """Whether a change is delivered twice."""
        return self.draw_hit(self._share, chance)
