"""The interface of a fault, and what a fault can act on."""

import random
from typing import ClassVar, Protocol

from stower.sim.link import Weather
from stower.sim.script import Stage as ScriptStage


class Stage(ScriptStage, Protocol):
    """What faults have their hands on."""

    active_ns: int  # faults happen before this


class Fault(Weather):
    """One sort of trouble. Draws its own strength; the docstring of each says from what range."""

    name: ClassVar[str]

    def __init__(self, chance: random.Random, stage: Stage) -> None:
        self.chance = chance
        self.stage = stage

    @property
    def is_over(self) -> bool:
        """Nothing goes wrong any more, so that the world can come to rest."""
        return self.stage.agenda.now_ns >= self.stage.active_ns

    def moments(self, most: int) -> list[int]:
        """Between 1 and so many points in time at which something happens."""
        return sorted(
            self.chance.randrange(self.stage.active_ns) for _ in range(self.chance.randint(1, most))
        )

    def plan(self) -> None:
        """Plan what is to happen at set times."""

    def draw_hit(self, share: float, chance: random.Random) -> bool:
        """Whether this message is one of a share of them."""
        return chance.random() < share and not self.is_over
