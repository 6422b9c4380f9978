"""Preemption for a pod group tree: which units of pods leave so that its minimum has room.

Uses trials of the tree cycle. First all units of the lowest priorities that are enough leave. Where
these are few, all sets of them are tried (fewest_victims.py). Else only those on as few nodes as
are enough leave; of these, units are reprieved while the tree's placement stands, those that a
disruption budget protects first, the more important before the less; then while there is any other
placement. Must not know writes or the queue.

Source: KEP-5710 "Preemption algorithm"; that no more nodes than needed are emptied is our own.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.groups.eviction_pauses import ONGOING, awaits_victims, why_not_now
from stower.engine.groups.fewest_victims import UNITS_MAX, FewestVictims
from stower.engine.groups.tree_cycle import TreeCycle
from stower.engine.groups.tree_plan import Plan, TreeResult, pending_of, place_in_any_order
from stower.engine.queue.entities import QueuedPod, QueuedTree
from stower.framework.profile import Profile
from stower.groups.bounds import bounds_of
from stower.groups.feasibility import Feasibility, feasibility
from stower.groups.problem_builder import DomainConflictError, admitted_groups, placed_pods
from stower.groups.tree import Tree, completed_groups
from stower.groups.units import Unit, units
from stower.model.kinds.pod import PREEMPT_NEVER
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

# Searches for another placement that spares one more unit.
RESOLVED_MAX: Final = 8
NONE_FOUND = "No preemption victims found for incoming preemptor"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


GIVEN_UP = "whether victims would help was not found yet"


AWAITS_VICTIMS = "waits for pods of lower priority to leave"
SHOWN: Final = 5


class VictimPlan(NamedTuple):
    """The rows of the tree's pods once the victims are deleted; empty if there is no plan:
    `why_not` has the reason. Without victims, the pods fit there now: the search that failed
    before this one was given up. `is_futile`: a complete search has found no placement without all
    pods of lower priority; `is_proved`: so there is none whichever of them are evicted;
    `exhausted`: the search was given up."""

    plan: Plan
    victims: list[PodEntry]
    why_not: str = ""
    is_futile: bool = False
    is_proved: bool = False
    exhausted: bool = False

    def text(self) -> str:
        """Returns who leaves, in words."""
        names = [entry.key for entry in self.victims]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return f"{AWAITS_VICTIMS}: {', '.join(names[:SHOWN])}{more}; then it is placed"


class TreePreemption:
    """Searches victims on one ClusterState."""

    def __init__(self, state: ClusterState, cycle: SchedulingCycle, tree_cycle: TreeCycle) -> None:
        self._state = state
        self._cycle = cycle
        self._tree_cycle = tree_cycle

    def victims_for(
        self, queued: QueuedTree, tree: Tree, found: TreeResult, *, looks_only: bool = False
    ) -> VictimPlan | None:
        """Returns where a refused tree would go and its victims; None where preemption is not tried
        (KEP-6012 "Preemption triggering rules"). `looks_only`: whether nothing comes of it."""
        state = self._state
        if not found.resolvable or not any(p.is_preemption for p in queued.profile.post_filters):
            return None
        pending = pending_of(tree, queued.ungated_members())
        if feasibility_of(state, tree, pending) is Feasibility.UNRESOLVABLE:
            return None
        own = tree.groups[0].obj.spec.preemption_policy
        if (own or queued.pod.spec.preemption_policy) == PREEMPT_NEVER:
            return VictimPlan([], [], "not eligible due to preemptionPolicy=Never.")
        if looks_only and awaits_victims(state, queued):
            return VictimPlan([], [], ONGOING)
        if not looks_only and (why_not := why_not_now(state, queued)):
            return VictimPlan([], [], why_not)
        minimums = None
        if not admitted_groups(state, tree)[0]:
            # No pod is evicted for more than the minimum.
            minimums = [
                max(group.obj.minimum - len(placed_pods(state, tree, g)), 0)
                for g, group in enumerate(tree.groups)
            ]
        return self.find(queued.profile, tree, pending, queued.priority, minimums)

    def find(
        self,
        profile: Profile,
        tree: Tree,
        pending: list[list[QueuedPod]],
        priority: int,
        minimums: list[int] | None = None,
    ) -> VictimPlan:
        """Returns the victims for a refused tree of this priority. minimums: by group, how many of
        its pods may have others evicted; None for all."""
        state = self._state
        may_leave = (
            entry
            for entry in state.placed_pods()
            if (entry.group_name or entry.pod.priority < priority)
            and entry.pod.metadata.deletion_timestamp is None
            and not entry.is_deletion_pending
        )
        lower = [unit for unit in units(state.groups, may_leave) if unit.priority < priority]
        if not lower:
            return VictimPlan([], [], NONE_FOUND)
        evicted = [entry for unit in lower for entry in unit.pods]
        if not self._may_be_sufficient(profile, tree, pending, evicted):
            return VictimPlan([], [], NOT_HELPFUL)
        needs_others = self._needs_others(profile, pending)
        if len(lower) <= UNITS_MAX and needs_others:
            return self._fewest(profile, tree, pending, lower)  # all of them may be too many
        if not needs_others:  # where all of them are not enough, no set of them is
            found = self._find_without(profile, tree, pending, lower)
            if not found.plan and not found.exhausted:
                return VictimPlan([], [], NOT_HELPFUL, True, True)
        chosen, is_known = None, True
        for some in self._by_level(profile, pending, lower, needs_others):
            found = self._find_without(profile, tree, pending, some)
            is_known &= not found.exhausted
            if found.plan:
                chosen = some
                break
        if chosen is None:
            return VictimPlan([], [], NOT_HELPFUL if is_known else GIVEN_UP, exhausted=not is_known)
        if len(chosen) > UNITS_MAX:
            chosen = self._on_fewer_nodes(profile, tree, pending, chosen)
        if len(chosen) <= UNITS_MAX:
            return self._fewest(profile, tree, pending, chosen)
        if minimums is not None:
            pending = _within(pending, self._find_without(profile, tree, pending, chosen).plan,
                              minimums)  # fmt: skip
        rows = {entry.uid: entry.row for unit in chosen for entry in unit.pods}
        searches = self._tree_cycle.searches
        with searches.without(frozenset(rows)), state.trial():
            _displace(state, chosen)
            plan = self._tree_cycle.attempt(
                profile, tree, pending, improves=False, explains=False
            ).plan
            if not plan:  # there was one for more pods
                return VictimPlan([], [], GIVEN_UP, exhausted=True)
            for queued, row in plan:
                state.assume(queued.entry, row)
            victims = searches.computed(
                ("reprieve", frozenset(rows), tuple((queued.uid, row) for queued, row in plan)),
                lambda: self._reprieve(profile, plan, chosen, rows),
            )
        lacking = self._lacking(profile, plan, chosen, victims)
        if lacking is None:
            return VictimPlan([], [], NOT_HELPFUL)
        if lacking:  # which may spare some of the others
            order = sorted(victims, key=lambda unit: unit.importance, reverse=True)
            victims = [*self._needed(profile, plan, lacking, order), *lacking]
        plan, victims = self._spare_more(profile, tree, pending, plan, victims)
        return VictimPlan(plan, [entry for unit in victims for entry in unit.pods])

    def _by_level(
        self,
        profile: Profile,
        pending: list[list[QueuedPod]],
        lower: list[Unit],
        needs_others: bool,
    ) -> Iterator[list[Unit]]:
        """Yields the units of the lowest priorities, then more; first without those of which the
        tree's pods may have to be near one."""
        needed = set()
        if needs_others:
            pods = {queued.class_key: queued.pod for members in pending for queued in members}
            needed = {
                i
                for i, unit in enumerate(lower)
                if any(
                    plugin.needs_other(pod, entry.pod)
                    for plugin in profile.filters
                    for pod in pods.values()
                    for entry in unit.pods
                )
            }
        for level in sorted({unit.priority for unit in lower}):
            some = [i for i, unit in enumerate(lower) if unit.priority <= level]
            if needed.intersection(some):
                yield [lower[i] for i in some if i not in needed]
            yield [lower[i] for i in some]

    def _fewest(
        self, profile: Profile, tree: Tree, pending: list[list[QueuedPod]], chosen: list[Unit]
    ) -> VictimPlan:
        """Returns the best set of these, which are few."""

        refused = self._tree_cycle.searches.refused

        def place_without(leaving: Sequence[Unit]) -> Plan:
            evicted = [entry for unit in leaving for entry in unit.pods]
            uids = frozenset(entry.uid for entry in evicted)
            if uids in refused:
                return []
            if not self._may_be_sufficient(profile, tree, pending, evicted):
                refused[uids] = False  # which is counted in a tenth of the time
                return []
            return self._find_without(profile, tree, pending, leaving).plan

        is_monotonic = not self._needs_others(profile, pending)
        found = FewestVictims(self._state.budgets, place_without, is_monotonic).find(chosen)
        if found is None and any(refused.values()):
            return VictimPlan([], [], GIVEN_UP, exhausted=True)
        if found is None:
            return VictimPlan([], [], NOT_HELPFUL, is_futile=True)
        plan, victims = found
        return VictimPlan(plan, [entry for unit in victims for entry in unit.pods])

    def _spare_more(
        self,
        profile: Profile,
        tree: Tree,
        pending: list[list[QueuedPod]],
        plan: Plan,
        victims: list[Unit],
    ) -> tuple[Plan, list[Unit]]:
        """Returns another plan that spares some of the victims, the more important first, if one is
        found in a few searches."""
        for unit in sorted(victims, key=lambda unit: unit.importance)[:RESOLVED_MAX]:
            others = [other for other in victims if other is not unit]
            found = self._find_without(profile, tree, pending, others).plan
            if found:
                plan, victims = found, others
        return plan, victims

    @staticmethod
    def _needs_others(profile: Profile, pending: list[list[QueuedPod]]) -> bool:
        """Returns whether an eviction may also take away what a pod needs."""
        return any(
            plugin.may_need_others(queued.pod)
            for plugin in profile.filters
            for members in pending
            for queued in members
        )

    def _may_be_sufficient(
        self,
        profile: Profile,
        tree: Tree,
        pending: list[list[QueuedPod]],
        evicted: list[PodEntry],
    ) -> bool:
        """Returns whether the tree might have a place without these, by what can be counted."""
        try:
            built, _ = self._tree_cycle.problem_without(profile, tree, pending, evicted)
        except DomainConflictError:
            return False
        bounds = bounds_of(built.problem)
        return bounds.lacking < 0 and bounds.pods_max > 0

    def _is_sufficient(
        self, profile: Profile, tree: Tree, pending: list[list[QueuedPod]], chosen: list[Unit]
    ) -> bool:
        return bool(self._find_without(profile, tree, pending, chosen).plan)

    def _find_without(
        self, profile: Profile, tree: Tree, pending: list[list[QueuedPod]], chosen: Sequence[Unit]
    ) -> TreeResult:
        searches = self._tree_cycle.searches
        uids = frozenset(entry.uid for unit in chosen for entry in unit.pods)
        if (exhausted := searches.refused.get(uids)) is not None:
            return TreeResult([], exhausted=exhausted)
        with searches.without(uids), self._state.trial():
            _displace(self._state, chosen)
            found = self._tree_cycle.attempt(profile, tree, pending, improves=False, explains=False)
        if not found.plan:
            searches.refused[uids] = found.exhausted
        return found

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
        self,
        profile: Profile,
        plan: Plan,
        chosen: list[Unit],
        rows: dict[str, int],
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
        by_row: dict[int, Plan] = {}
        alike: dict[tuple[int, bytes], Plan] = {}
        for queued, row in plan:
            by_row.setdefault(row, []).append((queued, row))
            alike.setdefault(queued.class_key, []).append((queued, row))
        victims = []
        for unit in ordered:
            with state.trial() as trial:
                for entry in unit.pods:
                    state.assume(entry, rows[entry.uid])
                touched = dict.fromkeys(rows[entry.uid] for entry in unit.pods)
                concerned = [pod for row in touched for pod in by_row.get(row, ())]
                for pods in alike.values():
                    if self._minds_elsewhere(profile, pods[0][0], unit):
                        concerned += pods
                if all(self._is_still_feasible(profile, *pod) for pod in concerned):
                    trial.keep()
                    continue
            victims.append(unit)
        return victims

    def _minds_elsewhere(self, profile: Profile, queued: QueuedPod, unit: Unit) -> bool:
        """Returns whether it may matter to a pod that a unit is on other nodes."""
        plugins = self._cycle.evaluation(profile, queued.entry.shape).plugins.pod_filters
        return any(
            plugin.minds_elsewhere(queued.pod, entry.pod)
            for plugin in plugins
            for entry in unit.pods
        )

    def _lacking(
        self, profile: Profile, plan: Plan, chosen: list[Unit], victims: list[Unit]
    ) -> list[Unit] | None:
        """Returns the reprieved units that have to leave for all of the plan together, None
        where it does not hold without all of them: devices and volumes were looked at pod by pod.
        Units on the plan's nodes come first, and the least important."""
        if self._holds(profile, plan, victims):
            return []
        rows = {row for _, row in plan}
        spared = sorted(
            (unit for unit in chosen if unit not in victims),
            key=lambda unit: (any(e.row in rows for e in unit.pods), unit.importance),
            reverse=True,
        )
        count = 1
        while not self._holds(profile, plan, victims + spared[:count]):
            if count >= len(spared):
                return None
            count *= 2
        return self._needed(profile, plan, victims, spared[:count])

    def _needed(
        self, profile: Profile, plan: Plan, victims: list[Unit], more: list[Unit]
    ) -> list[Unit]:
        """Returns those of `more` without which the plan does not hold, in addition to the victims;
        with all of them, it does."""
        if not more or self._holds(profile, plan, victims):
            return []
        if len(more) == 1:
            return more
        half = len(more) // 2
        last = self._needed(profile, plan, victims + more[:half], more[half:])
        return self._needed(profile, plan, victims + last, more[:half]) + last

    def _holds(self, profile: Profile, plan: Plan, victims: list[Unit]) -> bool:
        """Returns whether all pods of the plan, with their reservations, fit on their rows once the
        victims are gone, in some order."""
        with self._state.trial():
            _displace(self._state, victims)
            return not place_in_any_order(self._state, self._cycle, profile, plan)[1]

    def _is_still_feasible(self, profile: Profile, queued: QueuedPod, row: int) -> bool:
        """Returns whether a pod of the tree still fits on its row, with the units there now."""
        entry = queued.entry
        with self._state.trial():
            self._state.displace(entry)
            return self._cycle.fits(profile, entry, row)


def feasibility_of(state: ClusterState, tree: Tree, pending: list[list[QueuedPod]]) -> Feasibility:
    """Returns the root's feasibility with all unplaced pods refused: whether there are enough
    pods at all. A pod that fits on no empty node counts as refused, as upstream."""
    said: list[Feasibility] = []
    ended = completed_groups(tree, state.groups)
    for g in range(len(tree.groups) - 1, -1, -1):
        group = tree.groups[g]
        if group.which.is_composite:
            children = [said[len(tree.groups) - 1 - c] for c in group.children]
            have = children.count(Feasibility.SUCCESS)
            refused = children.count(Feasibility.UNSCHEDULABLE)
        else:
            have, refused = len(placed_pods(state, tree, g)), len(pending[g])
        minimum = 0 if g in ended else group.obj.minimum
        said.append(feasibility(minimum, have, 0, refused))
    # A tree that has its minimum needs room for its other pods.
    return Feasibility.UNSCHEDULABLE if said[-1] is Feasibility.SUCCESS else said[-1]


def _within(
    pending: list[list[QueuedPod]], plan: Plan, minimums: list[int]
) -> list[list[QueuedPod]]:
    """Returns the pods of a plan by group, no more of each than its minimum."""
    planned = {queued.uid for queued, _ in plan}
    return [
        [queued for queued in pods if queued.uid in planned][:minimum]
        for pods, minimum in zip(pending, minimums, strict=True)
    ]


def _displace(state: ClusterState, chosen: Sequence[Unit]) -> None:
    for unit in chosen:
        for entry in unit.pods:
            state.displace(entry)


def _loss(there: list[Unit]) -> tuple[int, int]:
    return max(unit.priority for unit in there), sum(len(unit.pods) for unit in there)
