"""Fault `reorders`: changes of different objects arrive in another order."""

import random

from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault, Stage


class Reorders(Fault):
    """1 to 10 % of changes are overtaken by changes of other objects, for up to 2 s."""

    name = "reorders"

    def __init__(self, chance: random.Random, stage: Stage) -> None:
        super().__init__(chance, stage)
        self._share = chance.uniform(0.01, 0.1)

    def holds_ns(self, chance: random.Random) -> int:
        """For how long a change is held back while those of other objects overtake it."""
        return chance.randint(0, 2 * SECOND_NS) if self.draw_hit(self._share, chance) else 0
