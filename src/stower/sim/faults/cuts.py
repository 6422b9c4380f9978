"""Fault `cuts`: watches break and lose changes."""

import random

from stower.sim.faults.fault import Fault, Stage


class Cuts(Fault):
    """0.1 to 3 % of changes are lost with the watch that carried them."""

    name = "cuts"

    def __init__(self, chance: random.Random, stage: Stage) -> None:
        super().__init__(chance, stage)
        self._share = chance.uniform(0.001, 0.03)

    def cuts(self, chance: random.Random) -> bool:
        """Whether the watch breaks instead of delivering a change."""
        return self.draw_hit(self._share, chance)
