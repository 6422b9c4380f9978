"""Evaluates every row for one shape under one profile, and keeps the result up to date row by row.

Equal to the reference cycle (engine/cycle/reference.py, which the property tests compare it with),
but after a placement only the changed row is evaluated again, by the plugins' scalar functions.

Layout: `base` is the weighted sum of the scores that need no normalising, INFEASIBLE where a filter
refuses. Scores that are normalised by their maximum over the feasible rows keep their raw column,
that maximum, and the number of rows that have it; `best` is `base` plus all of them, and is rebuilt
only when a maximum changes. Where no raw column varies, `best` is `base` itself. Must not know
pods.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stower.engine.cycle.reference import Verdict, normalize, pre_filter
from stower.engine.cycle.row_cells import INFEASIBLE, CellMaxima, Layout
from stower.framework.plugin import Normalize, Plugin, Scope
from stower.framework.profile import Profile
from stower.state.arrays import Bools, Ints, cells_of
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

# Up to this number, changed rows are refreshed one by one (2 to 3 µs each); beyond it a vectorised
# pass over the changed rows is cheaper (some 60 µs, rows nearly free).
SCALAR_ROWS_MAX: Final = 24


class _Normalized:
    """One normalised score: raw column, maximum over feasible rows, number of rows that have it."""

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
        """Returns the row's normalised, weighted score under the current maximum."""
        reverse = self.how is Normalize.BY_MAXIMUM_REVERSED
        if self.highest == 0:
            return 100 * self.weight if reverse else 0
        share = 100 * self.cells[row] // self.highest
        return (100 - share if reverse else share) * self.weight


class Evaluation:
    """Feasibility and scores of every row for one shape under one profile."""

    __slots__ = (
        "_base_cells", "_best_cells", "_cell_maxima", "_layout", "_node_cursor", "_node_generation",
        "_node_generational", "_normalized", "_profile", "_row_filters", "_row_scores", "_shape",
        "_state", "_static_cells", "_static_ok", "_static_score", "_static_score_cells",
        "_usage_cursor", "_usage_generation", "_usage_generational", "base", "best", "plugins",
        "refused", "skipped_cells",
    )  # fmt: skip

    def __init__(self, profile: Profile, state: ClusterState, shape: Shape) -> None:
        self._profile = profile
        self._state = state
        self._shape = shape
        self.plugins = profile.plugins_for(shape)
        generational = [p for p in profile.generation_plugins if p.has_generation(shape)]
        # What a plugin of scope NODE answers for other rows changes with some node alone.
        self._node_generational = [p for p in generational if p.scope is Scope.NODE]
        self._usage_generational = [p for p in generational if p.scope is not Scope.NODE]
        # Choices among all rows before cells are tried again, as they did not serve the last one.
        self.skipped_cells = 0
        # PreFilter refused the whole pod: no row is evaluated.
        self.refused = False
        self._node_cursor = self._usage_cursor = 0
        self._cell_maxima: CellMaxima | None = None  # those that were asked for last
        self._rebuild()

    def refresh(self) -> None:
        """Brings `best` up to date with the state."""
        state = self._state
        maxima = self._cell_maxima
        if maxima is not None and not maxima.layout.is_valid(state):
            self._cell_maxima = None  # before rows change that its layout does not know
        if self._layout != state.layout_generation or (
            self._usage_generational
            and self._usage_generation != self._generation(self._usage_generational)
        ):
            self._rebuild()
            return
        if self._node_cursor != state.node_log.position and not self._refresh_nodes():
            self._rebuild()
            return
        log = state.usage_log
        behind = log.position - self._usage_cursor
        if behind == 0:
            return
        if behind <= SCALAR_ROWS_MAX:
            for i in range(self._usage_cursor, log.position):
                self._refresh_row(log.ring[i & log.MASK])
        elif log.is_overrun(self._usage_cursor):
            self._rebuild()
            return
        else:
            rows = log.rows(self._usage_cursor)
            if len(rows) * 2 > state.row_limit:
                self._rebuild_usage()
            else:
                self._refresh_rows(rows)
        self._usage_cursor = log.position

    def _refresh_nodes(self) -> bool:
        """Refreshes rows whose node object changed. Returns False where all rows have to be."""
        log = self._state.node_log
        if self._node_generation != self._generation(self._node_generational):
            return False
        if log.is_overrun(self._node_cursor):
            return False
        rows = log.rows(self._node_cursor)
        if not self._refresh_static(rows):
            return False
        if len(rows) <= SCALAR_ROWS_MAX:
            for row in rows.tolist():
                self._refresh_row(row)
        else:
            self._refresh_rows(rows)
        self._node_cursor = log.position
        return True

    def _generation(self, plugins: list[Plugin]) -> tuple[int, ...]:
        return tuple(plugin.generation(self._shape, self._state) for plugin in plugins)

    @property
    def on_empty_nodes(self) -> Bools:
        """bool[rows]: which rows plugins of scope NODE accept, whatever pods are there."""
        return self._static_ok

    def cell_maxima(self, layout: Layout) -> CellMaxima:
        """Returns the highest scores of a layout's cells, up to date as `best` is."""
        known = self._cell_maxima
        if known is None or known.layout is not layout:
            known = self._cell_maxima = CellMaxima(layout, self.best)
        return known

    @property
    def is_normalized(self) -> bool:
        """Whether a row's score depends on which other rows are feasible."""
        return bool(self._normalized)

    def scores_among(self, feasible: Bools) -> Ints:
        """Returns int64[rows]: `best` if only these of the feasible rows were feasible."""
        count = len(feasible)
        total = self.base[:count].copy()
        for column in self._normalized:
            total += normalize(column.raw[:count], feasible, column.how) * column.weight
        return np.where(feasible, total, INFEASIBLE)

    # Whole columns

    def _rebuild(self) -> None:
        profile, state, shape = self._profile, self._state, self._shape
        self._layout = state.layout_generation
        self._node_generation = self._generation(self._node_generational)
        self._usage_generation = self._generation(self._usage_generational)
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
        self._rebuild_usage()

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

    def _rebuild_usage(self) -> None:
        """Evaluates all rows again, but for what depends on node objects alone."""
        state = self._state
        self._usage_cursor = state.usage_log.position
        self.base = self._base_of(slice(0, state.capacity))
        self._base_cells = cells_of(self.base)
        self._rebuild_best()

    def _base_of(self, rows: slice | NDArray[np.intp]) -> Ints:
        """Returns int64[rows]: `base`, evaluated again."""
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
        """Computes maxima and `best` from `base`."""
        self._cell_maxima = None
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
            best += normalize(column.raw, feasible, column.how) * column.weight
        self.best = np.where(feasible, best, INFEASIBLE)
        self._best_cells = cells_of(self.best)

    # Changed rows

    def _refresh_static(self, rows: NDArray[np.intp]) -> bool:
        """Evaluates changed node objects. Returns False where all rows have to be evaluated."""
        state, shape, profile = self._state, self._shape, self._profile
        verdict = Verdict(profile, shape, 0)
        self._static_ok[rows] = self._static_mask(rows, pre_filter(verdict, state))
        # A plugin that returns None scores the evaluated rows 0.
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
                # The number of rows that have the maximum is unknown: `best` is rebuilt below.
                column.raw[rows] = 0 if raw is None else raw
                column.count = 0
        if any(column.count == 0 for column in self._normalized):
            self.base[rows] = self._base_of(rows)
            self._rebuild_best()
        return True

    def _refresh_rows(self, rows: NDArray[np.intp]) -> None:
        base = self._base_of(rows)
        if self._normalized:
            # Few shapes have normalised scores; row by row keeps the counts of maxima exact.
            for row, value in zip(rows.tolist(), base.tolist(), strict=True):
                self._set(row, value)
        else:
            old = self.base[rows] if self._cell_maxima is not None else base
            self.base[rows] = base
            if self._cell_maxima is not None:
                self._cell_maxima.change_many(rows, old, base)

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
            old = self._base_cells[row]
            self._base_cells[row] = value
            if self._cell_maxima is not None and old != value:
                self._cell_maxima.change(row, old, value)

    def _set(self, row: int, value: int) -> None:
        """Writes one row's base and best, and updates the maxima."""
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
        old = self._best_cells[row]
        self._best_cells[row] = value
        if self._cell_maxima is not None and old != value:
            self._cell_maxima.change(row, old, value)


class EvaluationCache:
    """Evaluations by profile and shape; the least recently used is dropped.

    One takes 25 bytes a row (5,000 rows: 130 kB); a new one costs some 300 µs.
    """

    # 1,024 evaluations of 5,000 rows take some 130 MB at the most.
    ENTRIES_MAX: Final = 1_024

    __slots__ = ("_entries", "_state")

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._entries: dict[tuple[str, int], Evaluation] = {}

    def forget_shapes(self, serials: set[int]) -> None:
        """Drops what is kept of shapes that no pod has."""
        self._entries = {k: e for k, e in self._entries.items() if k[1] not in serials}

    def get(self, profile: Profile, shape: Shape) -> Evaluation:
        """Returns the evaluation, up to date."""
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
