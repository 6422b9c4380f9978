"""Preemption for a pod group tree: which units of pods leave so that its minimum has room.

Uses trials of the tree cycle. First all units of the lowest priorities that are enough leave; then
only those on as few nodes as are enough; of these, units are reprieved while the tree's placement
stands, those that a disruption budget protects first, the more important before the less. Must not
know writes or the queue.

Source: KEP-5710 "Preemption algorithm"; that no more nodes than needed are emptied is our own.
"""

from typing import NamedTuple

from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.groups.tree_cycle import Plan, TreeCycle, place_in_any_order
from stower.engine.queue.entities import QueuedPod
from stower.framework.profile import Profile
from stower.groups.tree import Tree
from stower.groups.units import Unit, units
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

NONE_FOUND = "No preemption victims found for incoming preemptor"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


class VictimPlan(NamedTuple):
    """The rows of the tree's pods once the victims are deleted; empty if there is no plan:
    `why_not` has the reason. Without victims, the pods fit there now: the search that failed
    before this one was given up."""

    plan: Plan
    victims: list[PodEntry]
    why_not: str = ""


class TreePreemption:
    """Searches victims on one ClusterState."""

    def __init__(self, state: ClusterState, cycle: SchedulingCycle, tree_cycle: TreeCycle) -> None:
        self._state = state
        self._cycle = cycle
        self._tree_cycle = tree_cycle

    def find(
        self, profile: Profile, tree: Tree, pending: list[list[QueuedPod]], priority: int
    ) -> VictimPlan:
        """Returns the victims for a refused tree of this priority."""
        state = self._state
        placed = [e for e in state.placed_pods() if e.pod.metadata.deletion_timestamp is None]
        lower = [
            unit
            for unit in units(state.groups, (e for e in placed if not e.is_deletion_pending))
            if unit.priority < priority
        ]
        if not lower:
            return VictimPlan([], [], NONE_FOUND)
        evicted = [entry for unit in lower for entry in unit.pods]
        if not (
            self._tree_cycle.may_fit_without(profile, tree, pending, evicted)
            and self._is_sufficient(profile, tree, pending, lower)
        ):
            return VictimPlan([], [], NOT_HELPFUL)
        chosen = lower
        *levels, _ = sorted({unit.priority for unit in lower})
        for level in levels:
            some = [unit for unit in lower if unit.priority <= level]
            if self._is_sufficient(profile, tree, pending, some):
                chosen = some
                break
        chosen = self._on_fewer_nodes(profile, tree, pending, chosen)
        rows = {entry.uid: entry.row for unit in chosen for entry in unit.pods}
        with state.trial():
            _displace(state, chosen)
            plan = self._tree_cycle.attempt(profile, tree, pending, improves=False).plan
            for queued, row in plan:
                state.assume(queued.entry, row)
            victims = self._reprieve(profile, plan, chosen, rows)
        victims = self._with_lacking(profile, plan, chosen, victims)
        return VictimPlan(plan, [entry for unit in victims for entry in unit.pods])

    def _is_sufficient(
        self, profile: Profile, tree: Tree, pending: list[list[QueuedPod]], chosen: list[Unit]
    ) -> bool:
        with self._state.trial():
            _displace(self._state, chosen)
            return bool(self._tree_cycle.attempt(profile, tree, pending, improves=False).plan)

    def _on_fewer_nodes(
        self, profile: Profile, tree: Tree, pending: list[list[QueuedPod]], chosen: list[Unit]
    ) -> list[Unit]:
        """Returns the units on as few nodes as are enough, those with the least loss first."""
        by_row: dict[int, list[Unit]] = {}
        for unit in chosen:
            for row in {entry.row for entry in unit.pods}:
                by_row.setdefault(row, []).append(unit)
        rows = sorted(by_row, key=lambda row: (_loss(by_row[row]), self._state.node_names[row]))

        def take_units(count: int) -> list[Unit]:
            first = set(rows[:count])
            return [u for u in chosen if any(e.row in first for e in u.pods)]

        few, count = 0, 1  # `few` are too few; `count` are enough, once the loop ends
        while count < len(rows) and not self._is_sufficient(
            profile, tree, pending, take_units(count)
        ):
            few, count = count, count * 2
        count = min(count, len(rows))
        while count - few > 1:
            half = (few + count) // 2
            if self._is_sufficient(profile, tree, pending, take_units(half)):
                count = half
            else:
                few = half
        return take_units(count)

    def _reprieve(
        self, profile: Profile, plan: Plan, chosen: list[Unit], rows: dict[str, int]
    ) -> list[Unit]:
        """Returns the units that remain victims after all units that need not be evicted are
        reprieved."""
        state = self._state
        ordered = sorted(chosen, key=lambda unit: unit.importance)
        broken, _ = state.budgets.split_by_violation(
            entry for unit in ordered for entry in unit.pods
        )
        forbidden = {entry.uid for entry in broken}
        ordered.sort(key=lambda unit: not any(entry.uid in forbidden for entry in unit.pods))
        victims = []
        for unit in ordered:
            with state.trial() as trial:
                for entry in unit.pods:
                    state.assume(entry, rows[entry.uid])
                touched = {rows[entry.uid] for entry in unit.pods}
                if all(self._is_still_feasible(profile, q, row, touched) for q, row in plan):
                    trial.keep()
                    continue
            victims.append(unit)
        return victims

    def _with_lacking(
        self, profile: Profile, plan: Plan, chosen: list[Unit], victims: list[Unit]
    ) -> list[Unit]:
        """Returns the victims, and as many of the reprieved units, the least important first, as
        are needed for all of the plan together: devices and volumes were looked at pod by pod."""
        spared = sorted(
            (unit for unit in chosen if unit not in victims), key=lambda unit: unit.importance
        )
        count = 1
        while spared and not self._holds(profile, plan, victims):
            victims, spared = [*victims, *spared[-count:]], spared[:-count]
            count *= 2
        return victims

    def _holds(self, profile: Profile, plan: Plan, victims: list[Unit]) -> bool:
        """Returns whether all pods of the plan, with their reservations, fit on their rows once the
        victims are gone, in some order."""
        with self._state.trial():
            _displace(self._state, victims)
            return not place_in_any_order(self._state, self._cycle, profile, plan)[1]

    def _is_still_feasible(
        self, profile: Profile, queued: QueuedPod, row: int, touched: set[int]
    ) -> bool:
        """Returns whether a pod of the tree still fits on its row, with the units there now."""
        entry = queued.entry
        is_plain = not self._cycle.evaluation(profile, entry.shape).plugins.pod_filters
        if is_plain and row not in touched:
            return True
        with self._state.trial():
            self._state.displace(entry)
            return self._cycle.fits(profile, entry, row)


def _displace(state: ClusterState, chosen: list[Unit]) -> None:
    for unit in chosen:
        for entry in unit.pods:
            state.displace(entry)


def _loss(there: list[Unit]) -> tuple[int, int]:
    return max(unit.priority for unit in there), sum(len(unit.pods) for unit in there)
