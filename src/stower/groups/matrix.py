"""Builds integer linear programs (variables, gains, linear conditions) and solves them with HiGHS.

The only file that knows the solver. Its limit is a number of interrupt callbacks, never seconds, so
that the same matrix gives the same answer on any machine. Must not know pods or groups.
"""

from enum import Enum, auto
from typing import Any, Final, NamedTuple

import numpy as np

from stower.state.arrays import Ints

INFINITE: Final = float("inf")


class Outcome(Enum):
    """The result of a call of the solver."""

    SOLVED = auto()
    """An optimal solution, within the allowed gap."""
    FOUND = auto()
    """A solution; the step limit was reached before it was proved optimal."""
    INFEASIBLE = auto()
    """There is no solution."""
    EXHAUSTED = auto()
    """The step limit was reached before any solution was found."""


class Solution(NamedTuple):
    """`values`: int64[variable], empty if there is no solution."""

    outcome: Outcome
    values: Ints


class Matrix:
    """An integer linear program: variables with bounds and gains, and rows of linear conditions."""

    def __init__(self) -> None:
        self._upper: list[Ints] = []
        self._lower: list[Ints] = []
        self._gain: list[Ints] = []
        self._row: list[Ints] = []
        self._column: list[Ints] = []
        self._factor: list[Ints] = []
        self._low: list[float] = []
        self._high: list[float] = []
        self.width = 0
        self.calls = 0  # back, of the last solution: what it has cost

    @property
    def height(self) -> int:
        """The number of rows."""
        return len(self._low)

    def variables(self, upper: Ints, lower: int = 0, gain: int = 0) -> Ints:
        """Adds a variable per upper bound; returns their columns."""
        first, count = self.width, len(upper)
        self.width += count
        self._upper.append(upper)
        self._lower.append(np.full(count, lower, np.int64))
        self._gain.append(np.full(count, gain, np.int64))
        return np.arange(first, self.width)

    def upper_bounds(self, columns: Ints) -> Ints:
        """Returns the upper bounds of variables."""
        if len(self._upper) > 1:
            self._upper = [np.concatenate(self._upper)]
        found: Ints = self._upper[0][columns]
        return found

    def row(self, low: float, high: float, *terms: tuple[Ints, Ints | int]) -> None:
        """Adds the condition low <= sum of factor times variable <= high."""
        height = len(self._low)
        for columns, factors in terms:
            self._column.append(columns)
            self._factor.append(np.broadcast_to(np.asarray(factors, np.int64), columns.shape))
            self._row.append(np.full(len(columns), height, np.int64))
        self._low.append(low)
        self._high.append(high)

    def solve(self, steps: int, gap: float = 0.0, without_gain: bool = False) -> Solution:
        """Returns the solution with the most gain, or any solution. `gap`: the allowed distance
        from the optimum, as a share of it."""
        import highspy  # takes long to load, and few placements need it

        highs = _solver(highspy, gap)
        lp = self._lp(highspy)
        if without_gain:
            lp.col_cost_ = np.zeros(self.width)
        highs.passModel(lp)
        calls = 0

        def interrupt(event: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > steps:
                event.data_in.user_interrupt = True

        highs.cbMipInterrupt += interrupt
        highs.run()
        self.calls = calls
        status = highs.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return Solution(Outcome.INFEASIBLE, np.zeros(0, np.int64))
        has_some = highs.getInfo().primal_solution_status == highspy.kSolutionStatusFeasible
        if not has_some:
            return Solution(Outcome.EXHAUSTED, np.zeros(0, np.int64))
        values = np.rint(np.array(highs.getSolution().col_value)).astype(np.int64)
        solved = status == highspy.HighsModelStatus.kOptimal
        return Solution(Outcome.SOLVED if solved else Outcome.FOUND, values)

    def solve_relaxed(self) -> float | None:
        """Returns the most gain if variables may be fractions; None if even then there is no
        solution."""
        import highspy

        highs = _solver(highspy, 0.0)
        lp = self._lp(highspy)
        lp.integrality_ = []
        highs.passModel(lp)
        highs.run()
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        return float(highs.getInfo().objective_function_value)

    def _lp(self, highspy: Any) -> Any:
        rows, columns = _joined(self._row), _joined(self._column)
        order = np.argsort(rows, kind="stable")
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.width, self.height
        lp.col_cost_ = _joined(self._gain).astype(np.float64)
        lp.col_lower_ = _joined(self._lower).astype(np.float64)
        lp.col_upper_ = _joined(self._upper).astype(np.float64)
        lp.row_lower_ = np.array(self._low, np.float64)
        lp.row_upper_ = np.array(self._high, np.float64)
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.integrality_ = [highspy.HighsVarType.kInteger] * self.width
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.searchsorted(rows[order], np.arange(self.height + 1))
        lp.a_matrix_.index_ = columns[order]
        lp.a_matrix_.value_ = _joined(self._factor)[order].astype(np.float64)
        return lp


def _solver(highspy: Any, gap: float) -> Any:
    highs = highspy.Highs()
    for name, value in (
        ("output_flag", False),
        ("threads", 1),
        ("random_seed", 0),
        ("parallel", "off"),
        ("mip_rel_gap", gap),
    ):
        highs.setOptionValue(name, value)
    return highs


def _joined(arrays: list[Ints]) -> Ints:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
