"""DGF, the demand-weighted gradient of fill: keeps the devices that are requested most and are
scarcest.

The worth of a state is, summed over the classes of requests, the part of the node that copies of
the request could fill (with diminishing returns), weighted by the frequency of the class and by the
scarcity of nodes in the cluster that could serve it; plus, for each device, the worth of its free
share to requests for parts of a device.

FGD differs: it counts only whether one more pod fits, so that CPU runs out while devices are free,
and scarce kinds of devices are used up by pods that could run anywhere.
"""

from collections.abc import Mapping
from math import ceil, sqrt
from typing import ClassVar, Final

import numpy as np

from stower.devices.packing.fill import Column, Columns, fills
from stower.devices.packing.mix import Demand, Mix, Request
from stower.devices.packing.modes import NO_WORTH, Features, Supply, Weights
from stower.devices.packing.phi import FULL, phi
from stower.state.arrays import Bools, Floats, Ints

# All found by trial on the four OpenB workloads, where each could be changed by half at no cost
# that exceeds 0.1 % of the GPUs, and none could be left out.
FILL_POWER: Final = 0.7  # of the fill in devices: linear loses 0.5 % of all GPUs
SIZE_POWER: Final = 0.3  # of what a class asks for, in devices
DEVICE_WORTH: Final = 10_000.0  # of a device that is free, in the thousandths that fills count
SUPPLY_LEAST: Final = 0.001  # what is scarcer than that is not scarcer still
PRESSURE_MOST: Final = 3.0
# How much finer than thousandths fills are kept, and how much finer than whole numbers weights are:
# the sums of whole numbers stay below 2**53, and are exact.
FILL_STEPS: Final = 16
WEIGHT_STEPS: Final = 1 << 16

# The guard: nodes that could take a pod for a whole node are kept for such pods, while there are
# not many more than will be asked for. How many come before the devices run out is a matter of
# chance, and matters most when few are left: their mean, and so many times the mean's root, the
# deviation if they come independently (20 % more of all kept no node for the last ones).
DEVIATIONS: Final = 2.0
QUANTILE: Final = 0.9  # of such pods, by CPU and by memory
# Such pods are rare, and once the first comes it is too late: one is taken for granted, with most
# of a node's CPU and memory, until so many have come that they speak for themselves.
PRIOR_PART: Final = 0.9
PRIOR_UNTIL: Final = 50
PRIOR_WEIGHT: Final = 200 * FULL  # what is asked for by all others at the least


class Dgf:
    """The worth of a state by fills and free shares."""

    counts_memory: ClassVar[bool] = True

    def __init__(self) -> None:
        self.weights: Weights = ()
        self._device_worth: list[Floats] = []
        self._guard = Guard()

    def column(self, demand: Demand, shares: tuple[int, ...]) -> Column | None:
        """Classes that no device is for fill nothing."""
        return Column(*demand.room, demand.number, shares) if any(shares) else None

    def features(self, cpu: Ints, memory: Ints, free: Ints, columns: Columns) -> Features:
        """What the fills are worth."""
        filled = fills(cpu, memory, free, columns) / FULL
        return np.rint(FILL_STEPS * FULL * filled**FILL_POWER).astype(np.float32)

    def device_worth(self, kind: int) -> Floats:
        """By the requests for parts of devices of that kind."""
        return self._device_worth[kind] if kind < len(self._device_worth) else NO_WORTH

    def gain(self, difference: Floats) -> Floats:
        """As it is."""
        return difference

    def set_aside(self, request: Request, supply: Supply) -> Bools | None:
        """Nodes for pods that need a whole one."""
        return self._guard.rows(request, supply)

    def weigh(self, mix: Mix, supply: Supply) -> None:
        """Weights by demand and by what is there, worths of shares by demand alone."""
        largest = largest_shares(supply)
        counted = [
            (demand, count)
            for demand, count in mix.most_frequent()
            if demand.ask >= 0 and largest[demand.ask] > 0
        ]
        self._weigh_classes(counted, largest, supply)
        self._device_worth = self._worths(counted, largest, supply)
        self._guard.update(mix, largest, supply)

    def _weigh_classes(
        self, counted: list[tuple[Demand, int]], largest: list[int], supply: Supply
    ) -> None:
        if not counted:
            self.weights = ()
            return
        demands = [demand for demand, _ in counted]
        often = np.array([count for _, count in counted], np.float64)
        often /= often.sum()
        asked = np.array([d.number * largest[d.ask] for d in demands], np.float64)
        available = supply.available(demands)
        free = max(int(supply.rows.free.sum()), 1)
        share = np.maximum(available / free, SUPPLY_LEAST)
        # Of what is asked for, how much comes from classes that can be served no better: what of
        # it could go to them, should all others take what is left.
        order = np.argsort(available, kind="stable")
        demand = often * asked
        scarcer = np.empty(len(demands))
        scarcer[order] = np.cumsum(demand[order]) / demand.sum()
        pressure = np.minimum(scarcer / share, PRESSURE_MOST)
        size = often * (asked / FULL) ** SIZE_POWER
        weights = size / share * (1 + 2 * pressure**2) / size.sum()
        exact = np.rint(weights * WEIGHT_STEPS).astype(np.int64)
        self.weights = tuple(zip(demands, exact.tolist()))

    def _worths(
        self, counted: list[tuple[Demand, int]], largest: list[int], supply: Supply
    ) -> list[Floats]:
        """One for each kind; a request that is not for that kind counts as if it were."""
        known: dict[tuple[tuple[int, int], ...], Floats] = {}
        found = []
        for shares in supply.shares:
            parts: dict[int, int] = {}
            for demand, count in counted:
                share = shares[demand.ask] or largest[demand.ask]
                if share < FULL:
                    parts[share] = parts.get(share, 0) + count * demand.number
            key = tuple(sorted(parts.items()))
            if key not in known:
                scale = DEVICE_WORTH * FILL_STEPS * WEIGHT_STEPS
                known[key] = np.rint(scale * phi(parts))
            found.append(known[key])
        return found


class Guard:
    """Which nodes are kept for pods that need a whole one, and while how many there are."""

    def __init__(self) -> None:
        self._devices = 0
        self._cpu = self._memory = 0
        self._share = 0.0

    def update(self, mix: Mix, largest: list[int], supply: Supply) -> None:
        """See from the mix what such pods ask for, and how much of all."""
        self._devices, most = supply.largest
        total = 0
        cpus = {int(PRIOR_PART * most.cpu_milli): 1}
        memories = {int(PRIOR_PART * most.memory_bytes): 1}
        for demand, count in mix.counts.items():
            if demand.ask >= 0:
                total += count * demand.number * largest[demand.ask]
                if demand.number == self._devices and largest[demand.ask] == FULL:
                    for counts, asked in zip((cpus, memories), demand.room):
                        counts[asked] = counts.get(asked, 0) + count
        pods = sum(cpus.values())
        point = ceil(QUANTILE * pods) if pods > PRIOR_UNTIL else pods
        self._cpu, self._memory = _point(cpus, point), _point(memories, point)
        self._share = pods * self._devices * FULL / (total + PRIOR_WEIGHT)

    def rows(self, request: Request, supply: Supply) -> Bools | None:
        """bool[rows]: those that this pod should leave alone."""
        if self._devices < 2 or request.devices >= self._devices:
            return None
        cpu, memory, full, free = supply.rows
        ready: Bools = full >= self._devices
        ready &= (cpu >= self._cpu) & (memory >= self._memory)
        mean = self._share * int(free.sum()) / (FULL * self._devices)
        if int(np.count_nonzero(ready)) > mean + DEVIATIONS * sqrt(mean):
            return None
        return ready


def largest_shares(supply: Supply) -> list[int]:
    """For each ask, the largest share that it takes of any kind of device."""
    return [max(of_kinds) for of_kinds in zip(*supply.shares)]


def _point(counts: Mapping[int, int], at: int) -> int:
    """The value at this place, from 1, of all values in order."""
    for value, count in sorted(counts.items()):
        at -= count
        if at <= 0:
            return value
    return max(counts)
