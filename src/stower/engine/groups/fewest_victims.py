"""Which of a few units leave for a tree: by trying sets of them, the best first.

Must not know how a placement is found.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Final

from stower.engine.groups.tree_plan import Plan
from stower.groups.units import Unit
from stower.state.budgets import Budgets
from stower.state.pod_entry import PodEntry

LOWEST: Final = -(1 << 31)  # no priority is lower
# So many units have 256 sets, most of which need not be tried.
UNITS_MAX: Final = 8

# Returns where the tree goes without these units; an empty plan if it has no place.
PlaceWithout = Callable[[Sequence[Unit]], Plan]


class FewestVictims:
    """The search for one tree. Of sets that are enough, the best has the lowest priorities, then
    the fewest pods whose budget forbids it, then the fewest units, then the least important ones.
    """

    def __init__(self, budgets: Budgets, place_without: PlaceWithout, is_monotonic: bool) -> None:
        """is_monotonic: whether a set is not enough if a larger one is not."""
        self._budgets = budgets
        self._place_without = place_without
        self._is_monotonic = is_monotonic
        self._too_few: list[frozenset[int]] = []

    def find(self, units: Sequence[Unit]) -> tuple[Plan, list[Unit]] | None:
        """Returns the plan and the units that leave; None where all of them are not enough."""
        ranked = sorted(units, key=lambda unit: unit.importance)
        everyone = frozenset(range(len(ranked)))
        if self._is_monotonic:  # those without whom the others are not enough leave in any case
            needed = frozenset(
                i for i in everyone if not self._place_without(self._those(ranked, everyone - {i}))
            )
        else:
            needed = frozenset()
        for chosen in self._sets(ranked, everyone, needed):
            if any(chosen <= few for few in self._too_few):
                continue
            leaving = self._those(ranked, chosen)
            plan = self._place_without(leaving)
            if plan:
                return plan, leaving
            if self._is_monotonic:
                self._too_few.append(chosen)
        return None

    def _sets(
        self, ranked: Sequence[Unit], everyone: frozenset[int], needed: frozenset[int]
    ) -> Iterator[frozenset[int]]:
        rest = sorted(everyone - needed)
        every = [needed | set(more) for k in range(len(rest) + 1) for more in combinations(rest, k)]

        def key(chosen: frozenset[int]) -> tuple[int, int, int, list[int]]:
            leaving = self._those(ranked, chosen)
            top = max((unit.priority for unit in leaving), default=LOWEST)
            return top, self._violations(leaving), len(chosen), [-i for i in sorted(chosen)]

        return iter(sorted(every, key=key))

    def _violations(self, leaving: Sequence[Unit]) -> int:
        pods: list[PodEntry] = [entry for unit in leaving for entry in unit.pods]
        return len(self._budgets.split_by_violation(pods)[0])

    @staticmethod
    def _those(ranked: Sequence[Unit], chosen: frozenset[int]) -> list[Unit]:
        return [ranked[i] for i in sorted(chosen)]
