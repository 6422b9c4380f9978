"""Evaluation: what a profile thinks of every row for one shape, kept up to date row by row.

Exactly the answer of the reference cycle (engine/cycle/reference.py, which the property tests
compare it with), but after a placement only the changed row is evaluated again, by the plugins'
scalar functions.

Layout: `base` is the weighted sum of the scores that need no normalising, INFEASIBLE where a
filter refuses. Scores that are normalised by their maximum over the feasible rows keep their raw
column, that maximum, and how many rows have it; `best` holds base plus all of them, and is
rebuilt only when a maximum changes. Where no raw column varies, `best` is `base` itself.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stower.engine.cycle.reference import Verdict, normalized, pre_filter
from stower.framework.plugin import Normalize, Plugin
from stower.framework.profile import Profile
from stower.state.arrays import Bools, Ints, cells_of
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

# Below every sum of scores, and far from overflow when more is added.
INFEASIBLE: Final = -(1 << 60)
# Up to so many changed rows are refreshed one by one (2 to 3 µs each); beyond it a vectorised pass
# over the changed rows is cheaper (some 60 µs, rows nearly free).
SCALAR_ROWS_MAX: Final = 24


class _Normalized:
    """One normalised score: raw column, maximum over feasible rows, how many rows have it."""

    __slots__ = ("cells", "count", "highest", "how", "plugin", "raw", "weight")

    def __init__(self, plugin: Plugin, weight: int, raw: Ints) -> None:
        self.plugin = plugin
        self.how = plugin.normalize
        self.weight = weight
        self.raw = raw
        self.cells = cells_of(raw)
        self.highest = 0
        self.count = 0

    def points(self, row: int) -> int:
        """The row's normalised, weighted score under the current maximum."""
        reverse = self.how is Normalize.BY_MAXIMUM_REVERSED
        if self.highest == 0:
            return 100 * self.weight if reverse else 0
        share = 100 * self.cells[row] // self.highest
        return (100 - share if reverse else share) * self.weight


class Evaluation:
    """One shape under one profile."""

    __slots__ = (
        "_base_cells", "_best_cells", "_generation", "_layout", "_node_cursor", "_normalized",
        "_profile", "_row_filters", "_row_scores", "_shape", "_state", "_static_cells",
        "_static_ok", "_static_score", "_static_score_cells", "_use_cursor", "base", "best",
        "pod_filters", "pod_pre_filters", "pod_scores", "refused",
    )  # fmt: skip

    def __init__(self, profile: Profile, state: ClusterState, shape: Shape) -> None:
        self._profile = profile
        self._state = state
        self._shape = shape
        # The plugins of scope PODS to which pods of this shape can matter.
        self.pod_pre_filters = tuple(p for p in profile.pod_pre_filters if p.is_relevant(shape))
        self.pod_filters = tuple(p for p in profile.pod_filters if p.is_relevant(shape))
        self.pod_scores = tuple((p, w) for p, w in profile.pod_scores if p.is_relevant(shape))
        # The whole pod is refused by PreFilter: no row is looked at.
        self.refused = False
        self._node_cursor = self._use_cursor = 0
        self._rebuild()

    def refresh(self) -> None:
        """Bring `best` up to date with the state."""
        state = self._state
        generation = self._profile.generation(self._shape, state)
        if self._layout != state.layout_generation or self._generation != generation:
            self._rebuild()
            return
        if self._node_cursor != state.node_log.position:
            if state.node_log.is_overrun(self._node_cursor):
                self._rebuild()
                return
            rows = state.node_log.rows(self._node_cursor)
            if not self._refresh_static(rows):
                self._rebuild()
                return
            if len(rows) <= SCALAR_ROWS_MAX:
                for row in rows.tolist():
                    self._refresh_row(row)
            else:
                self._refresh_rows(rows)
            self._node_cursor = state.node_log.position
        log = state.usage_log
        behind = log.position - self._use_cursor
        if behind == 0:
            return
        if behind <= SCALAR_ROWS_MAX:
            for row in log.row_list(self._use_cursor):
                self._refresh_row(row)
        elif log.is_overrun(self._use_cursor):
            self._rebuild()
            return
        else:
            rows = log.rows(self._use_cursor)
            if len(rows) * 2 > state.row_limit:
                self._rebuild_use()
            else:
                self._refresh_rows(rows)
        self._use_cursor = log.position

    @property
    def is_normalized(self) -> bool:
        """Whether a row's score depends on which other rows are feasible."""
        return bool(self._normalized)

    def among(self, feasible: Bools) -> Ints:
        """int64[rows]: `best` were only these of the feasible rows feasible."""
        count = len(feasible)
        total = self.base[:count].copy()
        for column in self._normalized:
            total += normalized(column.raw[:count], feasible, column.how) * column.weight
        return np.where(feasible, total, INFEASIBLE)

    # Whole columns

    def _rebuild(self) -> None:
        profile, state, shape = self._profile, self._state, self._shape
        self._layout = state.layout_generation
        self._generation = profile.generation(shape, state)
        self._node_cursor = state.node_log.position
        everything = slice(0, state.capacity)
        verdict = Verdict(profile, shape, 0)
        allowed = pre_filter(verdict, state)
        self.refused = verdict.pre_filter is not None
        self._static_ok = self._static_mask(everything, allowed)
        self._static_cells = cells_of(self._static_ok)
        self._static_score = self._static_scores(everything)
        cells = None if self._static_score is None else cells_of(self._static_score)
        self._static_score_cells = cells
        self._normalized: list[_Normalized] = []
        for plugin, weight in profile.normalized_scores:
            raw = plugin.score(shape, state, everything)
            if raw is not None:
                self._normalized.append(_Normalized(plugin, weight, raw))
        self._row_filters = tuple(
            f for p in profile.usage_filters if (f := p.filter_row(shape, state)) is not None
        )
        self._row_scores = tuple(
            (f, w) for p, w in profile.usage_scores if (f := p.score_row(shape, state)) is not None
        )
        self._rebuild_use()

    def _static_mask(self, rows: slice | NDArray[np.intp], allowed: frozenset[str] | None) -> Bools:
        state, shape = self._state, self._shape
        ok = state.present[rows].copy()
        if allowed is not None:
            inside = np.zeros(state.capacity, np.bool_)
            inside[state.rows_of(allowed)] = True
            ok &= inside[rows]
        for plugin in self._profile.node_filters:
            passes = plugin.passes(shape, state, rows)
            if passes is not None:
                ok &= passes
        if self.refused:
            ok[:] = False
        return ok

    def _static_scores(self, rows: slice | NDArray[np.intp]) -> Ints | None:
        result: Ints | None = None
        for plugin, weight in self._profile.node_scores:
            raw = plugin.score(self._shape, self._state, rows)
            if raw is not None:
                result = raw * weight if result is None else result + raw * weight
        return result

    def _rebuild_use(self) -> None:
        """All rows anew, what the nodes themselves say being up to date."""
        state = self._state
        self._use_cursor = state.usage_log.position
        self.base = self._base_of(slice(0, state.capacity))
        self._base_cells = cells_of(self.base)
        self._rebuild_best()

    def _base_of(self, rows: slice | NDArray[np.intp]) -> Ints:
        """int64[rows]: base from scratch."""
        state, shape, profile = self._state, self._shape, self._profile
        ok = self._static_ok[rows]
        score = None if self._static_score is None else self._static_score[rows]
        for plugin in profile.usage_filters:
            passes = plugin.passes(shape, state, rows)
            if passes is not None:
                ok = ok & passes
        for plugin, weight in profile.usage_scores:
            raw = plugin.score(shape, state, rows)
            if raw is not None:
                part = raw if weight == 1 else raw * weight
                score = part if score is None else score + part
        return np.where(ok, 0 if score is None else score, INFEASIBLE)

    def _rebuild_best(self) -> None:
        """Maxima and `best` from `base`."""
        if not self._normalized:
            self.best = self.base
            self._best_cells = self._base_cells
            return
        feasible = self.base >= 0
        best = self.base.copy()
        for column in self._normalized:
            raw = column.raw[feasible]
            column.highest = int(raw.max(initial=0))
            column.count = int(np.count_nonzero(raw == column.highest))
            best += normalized(column.raw, feasible, column.how) * column.weight
        self.best = np.where(feasible, best, INFEASIBLE)
        self._best_cells = cells_of(self.best)

    # Changed rows

    def _refresh_static(self, rows: NDArray[np.intp]) -> bool:
        """Ask the plugins about changed node objects. False where everything must be asked anew."""
        state, shape, profile = self._state, self._shape, self._profile
        verdict = Verdict(profile, shape, 0)
        self._static_ok[rows] = self._static_mask(rows, pre_filter(verdict, state))
        # A plugin that says None gives 0 to the rows that it was asked about.
        score = self._static_scores(rows)
        if self._static_score is not None:
            self._static_score[rows] = 0 if score is None else score
        elif score is not None and score.any():
            return False
        known = {column.plugin.name: column for column in self._normalized}
        for plugin, _ in profile.normalized_scores:
            raw = plugin.score(shape, state, rows)
            column = known.get(plugin.name)
            if column is None:
                if raw is not None and raw.any():
                    return False
            elif (column.raw[rows] != (0 if raw is None else raw)).any():
                # Which rows have the maximum is no longer known; `best` is made anew below.
                column.raw[rows] = 0 if raw is None else raw
                column.count = 0
        if any(column.count == 0 for column in self._normalized):
            self.base[rows] = self._base_of(rows)
            self._rebuild_best()
        return True

    def _refresh_rows(self, rows: NDArray[np.intp]) -> None:
        base = self._base_of(rows)
        if self._normalized:
            # Few shapes have them; row by row keeps the counts of the maxima exact.
            for row, value in zip(rows.tolist(), base.tolist(), strict=True):
                self._set(row, value)
        else:
            self.base[rows] = base

    def _refresh_row(self, row: int) -> None:
        value = INFEASIBLE
        if self._static_cells[row]:
            for check in self._row_filters:
                if check(row):
                    break
            else:
                cells = self._static_score_cells
                value = 0 if cells is None else cells[row]
                for score, weight in self._row_scores:
                    value += score(row) * weight
        if self._normalized:
            self._set(row, value)
        else:
            self._base_cells[row] = value

    def _set(self, row: int, value: int) -> None:
        """Write one row's base and best, following the maxima."""
        was, now = self._base_cells[row] >= 0, value >= 0
        self._base_cells[row] = value
        if was != now:
            for column in self._normalized:
                raw = column.cells[row]
                if now and raw > column.highest:
                    self._rebuild_best()
                    return
                if raw == column.highest:
                    column.count += 1 if now else -1
                    if column.count == 0 and column.highest:
                        self._rebuild_best()
                        return
        if now:
            for column in self._normalized:
                value += column.points(row)
        self._best_cells[row] = value


class EvaluationCache:
    """Evaluations by profile and shape, the least recently used dropped.

    One takes 25 bytes a row (5,000 rows: 130 kB); making one anew costs some 300 µs.
    """

    # 1,024 evaluations of 5,000 rows take some 130 MB at the most.
    ENTRIES_MAX: Final = 1_024

    __slots__ = ("_entries", "_state")

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._entries: dict[tuple[str, int], Evaluation] = {}

    def get(self, profile: Profile, shape: Shape) -> Evaluation:
        """The evaluation, up to date."""
        key = (profile.scheduler_name, shape.serial)
        entries = self._entries
        evaluation = entries.pop(key, None)
        if evaluation is None:
            evaluation = Evaluation(profile, self._state, shape)
            if len(entries) >= self.ENTRIES_MAX:
                del entries[next(iter(entries))]
        else:
            evaluation.refresh()
        entries[key] = evaluation
        return evaluation
