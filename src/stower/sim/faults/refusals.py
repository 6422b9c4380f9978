"""Fault `refusals`: requests are rejected."""

import random

from stower.sim.faults.fault import Fault, Stage


class Refusals(Fault):
    """1 to 15 % of requests are answered 409, 500 or 503 and not carried out."""

    name = "refusals"

    def __init__(self, chance: random.Random, stage: Stage) -> None:
        super().__init__(chance, stage)
        self._share = chance.uniform(0.01, 0.15)

    def request(self, chance: random.Random) -> tuple[bool, int | None]:
        """Whether a request reaches the server, and the status in place of its answer."""
        if self.draw_hit(self._share, chance):
            return False, chance.choice((409, 500, 503))
        return True, None
