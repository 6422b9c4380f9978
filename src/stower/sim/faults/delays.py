"""Fault `delays`: messages are slow."""

import random

from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault, Stage


class Delays(Fault):
    """1 to 20 % of messages take up to 3 s longer: less than a lease outlives its holder."""

    name = "delays"

    def __init__(self, chance: random.Random, stage: Stage) -> None:
        super().__init__(chance, stage)
        self._share = chance.uniform(0.01, 0.2)
        self._most_ns = chance.randint(SECOND_NS // 10, 3 * SECOND_NS)

    def delay_ns(self, chance: random.Random) -> int:
        """How much longer a message takes than usual."""
        return chance.randint(0, self._most_ns) if self.draw_hit(self._share, chance) else 0
