"""The preemption evaluator: finds the nodes where a pod fits without pods of lower priority, and
the victims on each. A row is a node's place in the arrays of the state.

Rules as in kube-scheduler's SelectVictimsOnNode: all pods of lower priority leave; if the pod fits
then, they are reprieved one after another as long as it still fits, those that a disruption budget
protects first, the more important before the less. A pod that is not reprieved is a victim, with
the rest of a group that is disrupted as a whole, on whatever nodes that is (KEP-5710).

For one row, dry runs of the filters are exact (`_OneRow`). Where only the amounts of the pods on a
row matter (`Room`), all rows are computed at once; for the next pod with the same spec and
priority, only the changed ones. Must not know writes.
"""

from collections.abc import Callable, Collection
from functools import cached_property
from operator import sub
from typing import Final

import numpy as np

from stower.engine.cycle.reference import Verdict, filter_codes, nominated_pods_on
from stower.engine.preemption.candidates import (
    PRIORITY_SHIFT,
    ROWS_ONE_BY_ONE_MAX,
    BestRows,
    Columns,
    RowVictims,
    leaving_victims,
)
from stower.framework.dry_run import CapacityConstraint, DryRun
from stower.framework.post_filter import Candidates, best_candidates
from stower.framework.profile import Profile
from stower.framework.reasons import Rejection, RejectionCount, count_reasons
from stower.groups.units import Unit, group_of, members_of, unit_of, whole_rows
from stower.model.kinds import Pod
from stower.state.arrays import Bools, Ints, ranked
from stower.state.cluster import ClusterState
from stower.state.groups import GroupKey
from stower.state.pod_entry import PodEntry
from stower.state.pod_table import NOT_STARTED, importance
from stower.state.shapes import Shape
from stower.state.ties import pod_hash

NO_VICTIMS: Final = Rejection(("No preemption victims found for incoming pod",))
NOT_HELPFUL: Final = Rejection(("Preemption is not helpful for scheduling",))
KEPT_MAX: Final = 64


class _CachedCandidates:
    """Columns for one shape and priority, and the positions in logs that they are valid for."""

    __slots__ = (
        "budgets", "changed", "columns", "front", "groups", "layout", "node_cursor", "pod_cursor",
        "units_on", "use_cursor",
    )  # fmt: skip

    def __init__(self, state: ClusterState) -> None:
        self.columns = Columns(state.capacity)
        self.front = BestRows(self.columns)
        self.changed: list[int] | None = None  # rows that `front` has not seen; None: unknown
        self.layout = state.layout_generation
        self.use_cursor = state.usage_log.position
        self.node_cursor = state.node_log.position
        self.pod_cursor = state.pod_table.rank_log.position
        self.budgets = state.budgets.generation
        self.groups = state.groups.disruption_units_generation
        self.units_on: dict[int, list[GroupKey]] = {}  # by row: groups disrupted as a whole


class Evaluator:
    """Searches victims on one ClusterState, with a cache of candidates."""

    def __init__(self, state: ClusterState, seed: bytes) -> None:
        self._state = state
        self._seed = seed
        self._cache: dict[tuple[str, int, int], _CachedCandidates] = {}

    def failure(
        self, profile: Profile, entry: PodEntry, verdict: Verdict, victims: Collection[str] = ()
    ) -> "Search":
        """Returns the search for a pod that fits on no node. victims: uids of the pods that were
        evicted for it before."""
        return Search(self, self._state, profile, entry, verdict, victims)

    def hash_of(self, entry: PodEntry) -> int:
        """Returns the hash that breaks ties for this pod."""
        return pod_hash(self._seed, entry.uid)

    def forget_shapes(self, serials: set[int]) -> None:
        """Drops what is kept of shapes that no pod has."""
        self._cache = {k: c for k, c in self._cache.items() if k[1] not in serials}

    def cached_candidates(
        self, search: "Search", capacity_constraints: tuple[CapacityConstraint, ...]
    ) -> _CachedCandidates:
        """Returns cached candidates by capacity constraints alone, updated for changed rows."""
        state, cache = self._state, self._cache
        if search.is_nominated:
            # Its own nomination does not count for it, but for other pods of its shape.
            fresh = _CachedCandidates(state)
            search.compute_candidates(fresh.columns, capacity_constraints, None)
            return fresh
        use, pods = state.usage_log, state.pod_table.rank_log
        key = (search.profile.scheduler_name, search.shape.serial, search.pod.priority)
        cached = cache.pop(key, None)
        if cached is not None and (
            cached.layout != state.layout_generation
            or cached.budgets != state.budgets.generation
            or cached.groups != state.groups.disruption_units_generation
            or cached.node_cursor != state.node_log.position
            or use.is_overrun(cached.use_cursor)
            or pods.is_overrun(cached.pod_cursor)
        ):
            cached = None
        if cached is None:
            cached = _CachedCandidates(state)
            search.compute_candidates(cached.columns, capacity_constraints, None)
            for row in whole_rows(state.groups):
                cached.units_on[row] = search.whole_groups_on(row)
            if len(cache) >= KEPT_MAX:
                del cache[next(iter(cache))]
        elif cached.use_cursor != use.position or cached.pod_cursor != pods.position:
            rows = sorted({*use.row_list(cached.use_cursor), *pods.row_list(cached.pod_cursor)})
            if state.groups.disruption_units:
                rows = self._add_unit_rows(cached, search, rows)
            if len(rows) <= ROWS_ONE_BY_ONE_MAX:
                for row in rows:
                    cached.columns.set(row, search.victims_by_capacity(row, capacity_constraints))
                if cached.changed is not None:
                    cached.changed += rows
            else:
                search.compute_candidates(
                    cached.columns, capacity_constraints, np.array(rows, np.intp)
                )
                cached.changed = None
            cached.use_cursor, cached.pod_cursor = use.position, pods.position
        cache[key] = cached
        return cached

    def _add_unit_rows(
        self, cached: _CachedCandidates, search: "Search", changed: list[int]
    ) -> list[int]:
        """Returns these rows, and those of pods that are disrupted with pods there."""
        groups = self._state.groups
        touched: dict[GroupKey, None] = {}
        for row in changed:
            touched.update(dict.fromkeys(cached.units_on.pop(row, ())))
            if found := search.whole_groups_on(row):
                cached.units_on[row] = found
                touched.update(dict.fromkeys(found))
        elsewhere = {e.row for which in touched for e in members_of(groups, which) if e.row >= 0}
        return sorted(elsewhere.union(changed))


class Search:
    """The search for one pod; see framework.post_filter.PreemptionEvaluator."""

    def __init__(
        self,
        preemption: Evaluator,
        state: ClusterState,
        profile: Profile,
        entry: PodEntry,
        verdict: Verdict,
        victims: Collection[str] = (),
    ) -> None:
        self.state = state
        self.profile = profile
        self.pod: Pod = entry.pod
        self.shape: Shape = entry.shape
        self.nominated_node_name = entry.nominated_node_name or entry.pod.status.nominated_node_name
        self.is_nominated = bool(entry.nominated_node_name)
        self._entry = entry
        self._verdict = verdict
        self._evicted = victims
        self._preemption = preemption
        self._runs: list[tuple[int, Callable[[int], DryRun]]] = []
        self._fixed: list[tuple[int, Ints]] = []
        self._constraints: tuple[CapacityConstraint, ...] | None = ()
        self._found: dict[int, RowVictims] = {}

    @cached_property
    def _possible_rows(self) -> Bools:
        """bool[row_limit]: rows that evictions may help. Prepares the dry runs."""
        possible = self._verdict.resolvable()
        if possible.any():
            self._prepare()
        return possible

    def whole_groups_on(self, row: int) -> list[GroupKey]:
        """Returns the groups with pods on a row that are disrupted as a whole."""
        groups = self.state.groups
        if not groups.disruption_units:
            return []
        found = (group_of(groups, entry) for entry in self.state.pods_by_row[row].values())
        return [*dict.fromkeys(which for which in found if which is not None)]

    def _prepare(self) -> None:
        """Separates filters to which the pods of a row matter from those to which they do not."""
        state, pod, shape = self.state, self.pod, self.shape
        capacity_constraints: list[CapacityConstraint] = []
        for i, plugin in enumerate(self.profile.filters):
            runs = plugin.dry_runs(pod, shape, state) if plugin.is_relevant(shape) else None
            if runs is None:
                # A pod that PreFilter refused was shown to no filter.
                codes = (
                    self._verdict.answers[i]
                    if i in self._verdict.answers
                    else filter_codes(plugin, pod, shape, state, state.all_rows)
                )
                if codes is not None:
                    self._fixed.append((i, codes))
                continue
            self._runs.append((i, runs))
            own = plugin.capacity_constraints(shape, state)
            if own is None:
                self._constraints = None
            else:
                capacity_constraints += own
        if self._constraints is not None:
            self._constraints = tuple(capacity_constraints)

    # Questions of PostFilter plugins

    def is_unresolvable(self, node_name: str) -> bool:
        """Returns whether no eviction makes the pod fit on the node."""
        row = self.state.row_of(node_name)
        if row < 0 or self._verdict.pre_filter is not None:
            return row >= 0 and not self._possible_rows[row]
        refusal = self._verdict.rejection(row)
        return refusal is not None and not refusal[1].may_evict

    def leaving_victims(self) -> list[PodEntry]:
        """Returns the pods that were evicted for this one and are still on their nodes."""
        return leaving_victims(self.state, self._evicted)

    def candidates(self) -> Candidates:
        """Returns all rows that evictions make feasible."""
        state, possible = self.state, self._possible_rows
        if not possible.any():
            return Columns(0).candidates(possible[:0])
        if self._constraints is not None:
            cached = self._preemption.cached_candidates(self, self._constraints)
            return cached.columns.candidates(possible & self._passes_fixed_filters())
        columns = Columns(state.capacity)
        for row in np.flatnonzero(possible & self._lower_priority_rows()).tolist():
            columns.set(row, self.find_row_victims(row))
        return columns.candidates(possible)

    def victims(self, row: int) -> tuple[PodEntry, ...]:
        """Returns the victims on a candidate row, most important first."""
        capacity_constraints = self._constraints
        return (
            self.find_row_victims(row)
            if capacity_constraints is None
            else self.victims_by_capacity(row, capacity_constraints)
        ).victims

    def select_candidate(self) -> int:
        """Returns the best candidate row, -1 where there is none."""
        possible = self._possible_rows
        if self._constraints is None or not possible.any():
            rows = best_candidates(self.candidates())
            return self.pick(rows) if len(rows) else -1
        cached = self._preemption.cached_candidates(self, self._constraints)
        tied = cached.front.tied_rows(possible & self._passes_fixed_filters(), cached.changed)
        cached.changed = []
        return self._pick(tied) if tied.any() else -1

    def pick(self, rows: Ints) -> int:
        """Returns one of several equally good rows."""
        tied = np.zeros(self.state.row_limit, np.bool_)
        tied[rows] = True
        return self._pick(tied)

    def _pick(self, tied: Bools) -> int:
        return self.state.tie_breaker.pick(tied, self._preemption.hash_of(self._entry))

    def no_candidate_reason(self) -> str:
        """Returns why there is no candidate, in upstream's words."""
        state = self.state
        lower = self._lower_priority_rows() if self._possible_rows.any() else self._possible_rows
        refusals: dict[Rejection, int] = {}
        without = int(np.count_nonzero(self._possible_rows & ~lower))
        if without:
            refusals[NO_VICTIMS] = without
        for row in np.flatnonzero(self._possible_rows & lower).tolist():
            refusal = self.find_row_victims(row).refusal
            if refusal is not None:
                refusals[refusal] = refusals.get(refusal, 0) + 1
        rest = state.node_count - sum(refusals.values())
        if rest:
            refusals[NOT_HELPFUL] = rest
        counts = count_reasons(RejectionCount("", why, n) for why, n in refusals.items())
        reasons = ", ".join(sorted(f"{n} {reason}" for reason, n in counts.items()))
        return f"0/{state.node_count} nodes are available: {reasons}."

    # One row

    def find_row_victims(self, row: int) -> RowVictims:
        """Returns the victims of one row, or why there are none."""
        found = self._found.get(row)
        if found is None:
            found = self._found[row] = self._compute_row_victims(row)
        return found

    def victims_by_capacity(
        self, row: int, capacity_constraints: tuple[CapacityConstraint, ...]
    ) -> RowVictims:
        """Returns the victims of one row by capacity alone; none if they are not enough. Holds for
        all pods of the shape and priority, whatever else refuses one of them."""
        state, priority = self.state, self.pod.priority
        if self.nominated_pods_on_row(row) or self.whole_groups_on(row):
            return self._compute_row_victims(row, by_capacity=True)
        lower = [e for e in state.pods_by_row[row].values() if e.pod.priority < priority]
        if not lower or not capacity_constraints or state.nodes[row] is None:
            return RowVictims()
        here = slice(row, row + 1)
        spare = [
            int(constraint.free(here)[0]) - constraint.need for constraint in capacity_constraints
        ]
        of_shape: dict[int, list[int]] = {}
        held = []
        for entry in lower:
            shape = entry.shape
            amounts = of_shape.get(shape.serial)
            if amounts is None:
                amounts = of_shape[shape.serial] = [
                    constraint.usage(shape) for constraint in capacity_constraints
                ]
            held.append(amounts)
        spare = list(map(sum, zip(spare, *held)))
        if min(spare) < 0:
            return RowVictims()

        def fits_again(entry: PodEntry) -> bool:
            nonlocal spare
            left = list(map(sub, spare, of_shape[entry.shape.serial]))
            if min(left) < 0:
                return False
            spare = left
            return True

        return self._reprieve(lower, fits_again)

    def _reprieve(
        self, lower: list[PodEntry], fits_again: Callable[[PodEntry], bool]
    ) -> RowVictims:
        """Returns the victims on one row: reprieves the pods, most important first, while the
        preemptor fits. `fits_again` adds a pod back and returns whether it still does."""
        lower.sort(key=importance)
        violating, others = self.state.budgets.split_by_violation(lower)
        victims = [entry for entry in violating if not fits_again(entry)]
        violations = len(victims)
        victims += [entry for entry in others if not fits_again(entry)]
        if violations:
            victims.sort(key=importance)
        return RowVictims(tuple(victims), violations)

    def _units(self, lower: list[PodEntry]) -> list[Unit]:
        """Returns the disruption units of these pods whose priority is lower than the pod's."""
        found: dict[GroupKey | str, Unit] = {}
        for entry in lower:
            unit = unit_of(self.state.groups, entry)
            found.setdefault(unit.group or entry.uid, unit)
        return [unit for unit in found.values() if unit.priority < self.pod.priority]

    def _reprieve_units(self, units: list[Unit], fits_again: Callable[[Unit], bool]) -> RowVictims:
        """Does the same as `_reprieve` for groups that are disrupted as a whole, on all their
        nodes."""
        units.sort(key=lambda unit: unit.importance)
        violating, _ = self.state.budgets.split_by_violation(e for unit in units for e in unit.pods)
        forbidden = {entry.uid for entry in violating}
        units.sort(key=lambda unit: not any(entry.uid in forbidden for entry in unit.pods))
        victims = [e for unit in units if not fits_again(unit) for e in unit.pods]
        victims.sort(key=importance)
        return RowVictims(tuple(victims), sum(entry.uid in forbidden for entry in victims))

    def _compute_row_victims(self, row: int, by_capacity: bool = False) -> RowVictims:
        state, pod = self.state, self.pod
        if state.nodes[row] is None:
            return RowVictims(refusal=NOT_HELPFUL)
        lower = [e for e in state.pods_by_row[row].values() if e.pod.priority < pod.priority]
        whole = bool(self.whole_groups_on(row))
        units = self._units(lower) if whole else []
        if whole:
            lower = [e for unit in units for e in unit.pods if e.row == row]
        if not lower:
            return RowVictims(refusal=NO_VICTIMS)
        one = _OneRow(self, row, by_capacity)
        for entry in lower:
            one.remove(entry)
        refused = one.find_refusal()
        if refused is not None:
            i, code = refused
            return RowVictims(refusal=self.profile.filters[i].rejection(self.shape, code))

        def fits_again(*entries: PodEntry) -> bool:
            for entry in entries:
                one.add(entry)
            if one.find_refusal() is None:
                return True
            for entry in entries:
                one.remove(entry)
            return False

        if whole:
            found = self._reprieve_units(
                units, lambda unit: fits_again(*(e for e in unit.pods if e.row == row))
            )
        else:
            found = self._reprieve(lower, fits_again)
        # Without victims, it is not pods that keep the pod off.
        return found if found.victims else RowVictims(refusal=NO_VICTIMS)

    def _lower_priority_rows(self) -> Bools:
        """Returns bool[row_limit]: rows with pods of lower priority."""
        table = self.state.pod_table
        slots = (table.rows >= 0) & (table.priorities < self.pod.priority)
        lower = np.zeros(self.state.row_limit, np.bool_)
        lower[table.rows[slots]] = True
        return lower

    def _passes_fixed_filters(self) -> Bools:
        """Returns bool[row_limit]: rows that pass the filters for which the pods on a row do not
        matter."""
        ok = np.ones(self.state.row_limit, np.bool_)
        for _, codes in self._fixed:
            ok &= codes == 0
        return ok

    def dry_runs_on_row(self, row: int) -> list[tuple[int, DryRun]]:
        """Returns the dry runs of one row, in the order of the filters."""
        return [(i, runs(row)) for i, runs in self._runs]

    def fixed_rejections_on_row(self, row: int) -> list[tuple[int, int]]:
        """Returns refusals by filters to which pods do not matter: (filter index, code)."""
        return [(i, int(codes[row])) for i, codes in self._fixed if codes[row]]

    def nominated_pods_on_row(self, row: int) -> list[PodEntry]:
        """Returns the pods of this priority or above that are nominated to the row."""
        if not self.state.nominated_pods:
            return []
        name = self.state.node_names[row]
        return nominated_pods_on(self.state, name, self.pod.priority, self.pod.metadata.uid)

    # All rows at once

    def compute_candidates(
        self,
        columns: Columns,
        capacity_constraints: tuple[CapacityConstraint, ...],
        rows: Ints | None,
    ) -> None:
        """Computes these rows (None: all) by amounts."""
        state, table = self.state, self.state.pod_table
        limit = state.row_limit
        wanted = np.zeros(limit, np.bool_)
        wanted[slice(None) if rows is None else rows] = True
        columns.count[:limit][wanted] = 0
        # Rows with budgets or nominated pods are computed one by one.
        alone = state.budgets.rows_over_budget(limit) & wanted
        for name in state.nominated_pods:
            row = state.row_by_name.get(name, -1)
            if row >= 0 and wanted[row]:
                alone[row] = True
        for row in whole_rows(state.groups):
            alone[row] |= wanted[row]
        slots = table.sorted_slots()
        here = table.rows[slots]
        if self.pod.priority <= table.priorities.max() or not wanted.all() or alone.any():
            some = (table.priorities[slots] < self.pod.priority) & (wanted & ~alone)[here]
            slots, here = slots[some], here[some]
        if len(slots):
            _ManyRows(self, capacity_constraints, slots, here).write_candidates(columns)
        if alone.any():
            for row in np.flatnonzero(alone & self._lower_priority_rows()).tolist():
                columns.set(row, self.victims_by_capacity(row, capacity_constraints))


class _OneRow:
    """The filters' dry runs of one row, with the pods nominated there and without."""

    def __init__(self, search: Search, row: int, by_capacity: bool) -> None:
        self._fixed = [] if by_capacity else search.fixed_rejections_on_row(row)
        self._variants = [search.dry_runs_on_row(row)]
        nominated = self._nominated = search.nominated_pods_on_row(row)
        self._with: list[tuple[int, DryRun]] = []
        if nominated:
            with_them = self._with = search.dry_runs_on_row(row)
            for entry in nominated:
                for _, run in with_them:
                    run.add(entry)
            self._variants.insert(0, with_them)

    def add(self, entry: PodEntry) -> None:
        for runs in self._variants:
            for _, run in runs:
                run.add(entry)

    def remove(self, entry: PodEntry) -> None:
        # Nominated pods are added after removals: what leaves must not free what they hold.
        for _, run in self._with:
            for other in self._nominated:
                run.remove(other)
        for runs in self._variants:
            for _, run in runs:
                run.remove(entry)
        for _, run in self._with:
            for other in self._nominated:
                run.add(other)

    def find_refusal(self) -> tuple[int, int] | None:
        """Returns (filter index, code) of the first filter that refuses; None if the pod fits."""
        fixed = self._fixed[0] if self._fixed else None
        for runs in self._variants:
            for i, run in runs:
                if fixed is not None and fixed[0] < i:
                    return fixed
                code = run.code()
                if code:
                    return i, code
        return fixed


class _ManyRows:
    """Reprieves pods on many rows at once, one pod of each row after another."""

    def __init__(
        self, search: Search, constraints: tuple[CapacityConstraint, ...], slots: Ints, rows: Ints
    ) -> None:
        """`slots`: of the pod table, in its order; `rows`: those of these slots."""
        table = search.state.pod_table
        kinds, kind = ranked(table.shapes[slots])
        one = np.zeros(len(kinds), np.intp)
        one[kind] = slots  # of each kind, any
        entries = [table.entries[s] for s in one.tolist()]
        shapes = [entry.shape for entry in entries if entry is not None]
        self._held = [
            np.array([constraint.usage(s) for s in shapes], np.int64)[kind]
            for constraint in constraints
        ]
        self._slots = slots
        self._rows = rows
        self._constraints = constraints
        self._all_rows = search.state.all_rows
        self._table = table

    def write_candidates(self, columns: Columns) -> None:
        """Writes the candidates into the columns."""
        rows = self._rows
        starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
        here = rows[starts]
        lengths = np.diff(np.concatenate((starts, [len(rows)])))
        free = [
            constraint.free(self._all_rows)[here] + np.add.reduceat(held, starts)
            for constraint, held in zip(self._constraints, self._held, strict=True)
        ]
        fits = np.ones(len(here), np.bool_)
        for constraint, amount in zip(self._constraints, free, strict=True):
            fits &= constraint.need <= amount
        starts, lengths, here = starts[fits], lengths[fits], here[fits]
        spare = [
            f[fits] - constraint.need for f, constraint in zip(free, self._constraints, strict=True)
        ]
        count = np.zeros(len(here), np.int64)
        total = np.zeros(len(here), np.int64)
        highest = np.zeros(len(here), np.int64)
        start = np.full(len(here), NOT_STARTED, np.int64)
        priorities, start_times = self._table.priorities, self._table.starts
        for k in range(int(lengths.max(initial=0))):
            live = np.flatnonzero(lengths > k)
            at = starts[live] + k
            ok = np.ones(len(live), np.bool_)
            taken = [held[at] for held in self._held]
            for amount, left in zip(taken, spare, strict=True):
                ok &= amount <= left[live]
            back = live[ok]
            for amount, left in zip(taken, spare, strict=True):
                left[back] -= amount[ok]
            out = live[~ok]
            slots = self._slots[at[~ok]]
            priority = priorities[slots]
            first = count[out] == 0
            highest[out[first]] = priority[first]
            tops = priority == highest[out]
            start[out[tops]] = np.minimum(start[out[tops]], start_times[slots[tops]])
            total[out] += priority + PRIORITY_SHIFT
            count[out] += 1
        columns.count[here] = count
        columns.violations[here] = 0
        columns.highest[here] = highest
        columns.total[here] = total
        columns.start[here] = start
