"""Computes the worth of a device's free share to requests for parts of a device.

The prices of shares are the dual of the linear program that packs the requests of a mix into as few
devices as possible: the highest prices at which no device full of requests is worth more than 1.
Found by column generation (Gilmore and Gomory, 1961): solve for the prices that the patterns so
far allow, look for a pattern worth more than 1 (a knapsack), exchange it for one of them.
"""

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Final, NamedTuple

import numpy as np

from stower.state.arrays import Floats, Ints

FULL: Final = 1000  # the share of a whole device
# Distinct shares that are priced, the most frequent ones: a trace of a large cluster has 30.
SIZES_MAX: Final = 48
# Patterns that are tried: some 60 for 30 sizes.
PATTERNS_MAX: Final = 1_000
TINY: Final = 1e-9


class Knapsack(NamedTuple):
    """best[f]: the highest worth of sizes that sum to at most f; last[f]: one of them, or -1."""

    best: list[float]
    last: list[int]


def phi(shared: Mapping[int, int]) -> Floats:
    """float64[1001]: the worth of 0 to 1000 free thousandths, 0 to 1, by how often each share is
    asked for."""
    worth = np.zeros(FULL + 1)
    most = sorted((-count, share) for share, count in shared.items() if 0 < share < FULL and count)
    sizes = sorted(share for _, share in most[:SIZES_MAX])
    if sizes:
        unit = gcd(FULL, *sizes)
        counts = np.array([shared[size] for size in sizes], np.float64)
        best = _prices([size // unit for size in sizes], counts, FULL // unit)
        worth = np.array(best)[np.arange(FULL + 1) // unit]
    worth[FULL] = 1.0
    return worth


def knapsack(sizes: Sequence[int], prices: Sequence[float], full: int) -> Knapsack:
    """For every room of 0 to `full`; sizes ascending, each as often as one likes."""
    best, last = [0.0] * (full + 1), [-1] * (full + 1)
    for room in range(1, full + 1):
        most, taken = best[room - 1], -1
        for i, size in enumerate(sizes):
            if size > room:
                break
            worth = best[room - size] + prices[i]
            if worth > most + 1e-12:
                most, taken = worth, i
        best[room], last[room] = most, taken
    return Knapsack(best, last)


def _prices(sizes: Sequence[int], counts: Floats, full: int) -> list[float]:
    """The worth of every room of 0 to `full` at the dual prices."""
    basis = np.diag([float(full // size) for size in sizes])  # a pattern in each column
    for _ in range(PATTERNS_MAX):
        prices = np.linalg.solve(basis.T, np.ones(len(sizes)))
        found = knapsack(sizes, prices.tolist(), full)
        if found.best[full] <= 1 + TINY:
            return found.best
        pattern = _pattern(found, sizes, full).astype(np.float64)
        amounts = np.linalg.solve(basis, counts)
        enters = np.linalg.solve(basis, pattern)
        ratios = np.full(len(sizes), np.inf)
        np.divide(amounts, enters, out=ratios, where=enters > TINY)
        basis[:, int(ratios.argmin())] = pattern
    # Prices that are too high, lowered until no pattern is worth more than 1.
    return [worth / found.best[full] for worth in found.best]


def _pattern(found: Knapsack, sizes: Sequence[int], full: int) -> Ints:
    """int64[sizes]: how many of each the best filling of a whole device has."""
    pattern = np.zeros(len(sizes), np.int64)
    room = full
    while room > 0:
        i = found.last[room]
        if i < 0:
            room -= 1
        else:
            pattern[i] += 1
            room -= sizes[i]
    return pattern
