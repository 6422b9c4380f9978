"""Fault `timeouts`: requests end without a response, carried out or not."""

import random

from stower.sim.faults.fault import Fault, Stage


class Timeouts(Fault):
    """1 to 15 % of requests end without a response; half of them were carried out."""

    name = "timeouts"

    def __init__(self, chance: random.Random, stage: Stage) -> None:
        super().__init__(chance, stage)
        self._share = chance.uniform(0.01, 0.15)

    def request(self, chance: random.Random) -> tuple[bool, int | None]:
        """Whether a request reaches the server, and the status in place of its answer."""
        if self.draw_hit(self._share, chance):
            return chance.random() < 0.5, chance.choice((0, 504))
        return True, None
