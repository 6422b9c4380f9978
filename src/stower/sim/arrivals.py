"""Arrival processes and lifetimes of generated pods, from one seed. Times are in seconds.

The number of pods and the length of the run are given; a process draws only when each pod arrives.
"""

import math
import random
from collections.abc import Callable
from typing import Final

from stower.model.errors import InvalidObject
from stower.model.times import SECOND_NS, duration_ns

DAY_S: Final = 86_400.0
# The busiest hour of a daily cycle, and how much busier than the mean it is.
PEAK_S: Final = 14 * 3600.0
SWING: Final = 0.8
BURST: Final = (5, 60)  # pods of one burst
# The spread of lifetimes that are lognormal: one in twenty lasts for 12 times the median.
SIGMA: Final = 1.5
LONGEST_S: Final = 1e9  # some thirty years

Process = Callable[[int, float, random.Random], list[float]]


def even(count: int, until_s: float, chance: random.Random) -> list[float]:
    """At equal distances."""
    return [until_s * i / count for i in range(count)]


def poisson(count: int, until_s: float, chance: random.Random) -> list[float]:
    """Each at any time, whatever the others do."""
    return sorted(chance.uniform(0, until_s) for _ in range(count))


def daily(count: int, until_s: float, chance: random.Random) -> list[float]:
    """As Poisson, at a rate that swings with the time of day."""
    times: list[float] = []
    while len(times) < count:
        at_s = chance.uniform(0, until_s)
        rate = 1 + SWING * math.cos(2 * math.pi * (at_s - PEAK_S) / DAY_S)
        if chance.uniform(0, 1 + SWING) < rate:
            times.append(at_s)
    return sorted(times)


def bursts(count: int, until_s: float, chance: random.Random) -> list[float]:
    """Many at once, as when a lecture begins or a job starts."""
    times: list[float] = []
    while len(times) < count:
        size = min(chance.randint(*BURST), count - len(times))
        times += [chance.uniform(0, until_s)] * size
    return sorted(times)


PROCESSES: Final[dict[str, Process]] = {
    "even": even, "poisson": poisson, "daily": daily, "bursts": bursts,
}  # fmt: skip
LIFETIMES: Final = ("fixed", "exponential", "lognormal")

Lifetime = Callable[[random.Random], float | None]


def read_lifetime(text: str) -> Lifetime:
    """How long pods last: `forever`, `fixed:30m`, `exponential:30m` (the mean) or `lognormal:30m`
    (the median). Raises InvalidObject."""
    if text == "forever":
        return lambda chance: None
    kind, _, duration = text.partition(":")
    ns = duration_ns(duration)
    if kind not in LIFETIMES or ns is None or not 0 < ns <= LONGEST_S * SECOND_NS:
        want = "forever, or fixed, exponential or lognormal and a duration, such as lognormal:30m"
        raise InvalidObject("lifetime", text, want)
    seconds = ns / SECOND_NS
    match kind:
        case "fixed":
            return lambda chance: seconds
        case "exponential":
            return lambda chance: min(chance.expovariate(1 / seconds), LONGEST_S)
    return lambda chance: min(chance.lognormvariate(math.log(seconds), SIGMA), LONGEST_S)
