"""The mix: counts the requests of the pods that have arrived so far, by class.

Counts are halved from time to time, so that recent pods outweigh old ones, and rare classes are not
forgotten. A window of the last arrivals would forget the rare pods that need whole nodes, and their
nodes with them: measured, at 90 % load, a window of 300 pods loses 3 % of all GPUs.
"""

from typing import Final, NamedTuple

# Weights are new after the first few pods, and then after each so many: half as often costs nothing
# that could be measured, but for the time in between.
REFRESH_FIRST: Final = (0, 1, 3, 10, 30)
REFRESH_EVERY: Final = 100
# Classes that count, the most frequent ones: the OpenB trace has 151, with models of GPUs 447.
CLASSES_MAX: Final = 512
# Classes that are counted: beyond it, the rarer half is forgotten.
COUNTED_MAX: Final = 16 * CLASSES_MAX
HALVED_EVERY: Final = 20_000  # arrivals: more than it takes to fill a cluster of 6,000 devices


class Room(NamedTuple):
    """What a pod takes, or what a node has or has left. Memory is 0 where it does not count."""

    cpu_milli: int
    memory_bytes: int


class Request(NamedTuple):
    """A pod: its room, and how many devices of each ask, by the ask's number."""

    room: Room
    asks: tuple[tuple[int, int], ...]

    @property
    def devices(self) -> int:
        """How many devices it asks for in all."""
        return sum(count for _, count in self.asks)


class Demand(NamedTuple):
    """A class of requests: one ask of a pod, -1 for none. A pod with several counts for each."""

    room: Room
    ask: int
    number: int


class Mix:
    """Counts of demands, and when weights by them are due again."""

    def __init__(self) -> None:
        self.counts: dict[Demand, int] = {}
        self.arrivals = 0
        self._used = 0

    def add(self, request: Request) -> None:
        """One more pod has arrived."""
        self.arrivals += 1
        for ask, count in request.asks or ((-1, 0),):
            demand = Demand(request.room, ask, count)
            self.counts[demand] = self.counts.get(demand, 0) + 1
        if self.arrivals % HALVED_EVERY == 0:
            self.counts = {demand: (count + 1) // 2 for demand, count in self.counts.items()}
        if len(self.counts) > COUNTED_MAX:
            self.counts = dict(self._ranked_demands()[: COUNTED_MAX // 2])

    def is_due(self) -> bool:
        """Whether enough have arrived since the last time that this was true."""
        mark = _mark(self.arrivals)
        is_due, self._used = mark != self._used, mark
        return is_due

    def most_frequent(self) -> list[tuple[Demand, int]]:
        """The classes that count, most frequent first."""
        return self._ranked_demands()[:CLASSES_MAX]

    def _ranked_demands(self) -> list[tuple[Demand, int]]:
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))


def _mark(arrivals: int) -> int:
    return max(arrivals - 1, 0) // REFRESH_EVERY + sum(arrivals > n for n in REFRESH_FIRST)
