"""Fault `throttling`: the server rejects requests because it is overloaded."""

import random

from stower.model.times import SECOND_NS
from stower.sim.faults.fault import Fault, Stage


class Throttling(Fault):
    """Up to 5 times, for up to 20 s, 50 to 100 % of requests are answered 429."""

    name = "throttling"

    def __init__(self, chance: random.Random, stage: Stage) -> None:
        super().__init__(chance, stage)
        self._share = chance.uniform(0.5, 1.0)
        self._times = [(at, at + chance.randint(SECOND_NS, 20 * SECOND_NS))
                       for at in self.moments(5)]  # fmt: skip

    def request(self, chance: random.Random) -> tuple[bool, int | None]:
        """Whether a request reaches the server, and the status in place of its answer."""
        now_ns = self.stage.agenda.now_ns
        if any(start <= now_ns < end for start, end in self._times) and self.draw_hit(
            self._share, chance
        ):
            return False, 429
        return True, None
