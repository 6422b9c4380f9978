"""FGD: places a pod where the fragments that the mix cannot use grow least.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent" (USENIX ATC '23), and its scheduler's plugin, of which three things matter: the
typical pods are the most frequent classes that make up 95 % of all, those without devices among
them; a score is a whole number of 0 to 100; of equal scores the lowest node and device is taken.
"""

from typing import ClassVar, Final

import numpy as np

from stower.devices.packing.fill import Column, Columns, fragments
from stower.devices.packing.mix import Demand, Mix, Request
from stower.devices.packing.modes import NO_WORTH, Features, Supply, Weights
from stower.state.arrays import Bools, Floats, Ints

TYPICAL_PERCENT: Final = 95
# The scale of the sigmoid that makes a score of a difference, in thousandths of a device.
SPREAD: Final = 1000


class Fgd:
    """A state is worth what is lost to fragments, times -1: pods x thousandths of a device."""

    counts_memory: ClassVar[bool] = False  # as published

    def __init__(self) -> None:
        self.weights: Weights = ()
        self._pods = 1

    def column(self, demand: Demand, shares: tuple[int, ...]) -> Column | None:
        """Classes that no device is for lose all that is free, whatever CPU they ask for."""
        if not any(shares):
            return Column(0, 0, 0, shares)
        return Column(*demand.room, demand.number, shares)

    def features(self, cpu: Ints, memory: Ints, free: Ints, columns: Columns) -> Features:
        """The fragments."""
        return fragments(cpu, free, columns).astype(np.float32)

    def device_worth(self, kind: int) -> Floats:
        """Devices count through their fragments alone."""
        return NO_WORTH

    def weigh(self, mix: Mix, supply: Supply) -> None:
        """The counts of the typical pods."""
        total = sum(mix.counts.values())
        typical, pods = [], 0
        for demand, count in mix.most_frequent():
            if 100 * pods >= TYPICAL_PERCENT * total:
                break
            typical.append((demand, -count))
            pods += count
        self.weights, self._pods = typical, max(pods, 1)

    def gain(self, difference: Floats) -> Floats:
        """0 to 100, cut to whole numbers as published."""
        scaled = np.clip(difference / (SPREAD * self._pods), -500, 500)
        result: Floats = np.floor(100 / (1 + np.exp(-scaled)))
        return result

    def set_aside(self, request: Request, supply: Supply) -> Bools | None:
        """Nothing."""
        return None
