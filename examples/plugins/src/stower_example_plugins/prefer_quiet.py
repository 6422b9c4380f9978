"""PreferQuiet: prefer nodes with few pods. All nodes at once."""

from collections.abc import Callable

import numpy as np

from stower.framework.plugin import MAX_NODE_SCORE, Plugin, Scope
from stower.model.resources import PODS
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape


class PreferQuiet(Plugin):
    """Score by the share of a node's pod slots that are free.

    scope USE: what it says of a node changes with the pods there, so it is asked about these rows
    alone; `score` answers for many rows, `score_row` for one.
    """

    name = "PreferQuiet"
    scope = Scope.USAGE

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """0 to 100 for each row."""
        column = state.columns[PODS]
        slots = np.maximum(column.allocatable[rows], 1)
        free = np.maximum(slots - column.requested[rows], 0)
        scores: Ints = MAX_NODE_SCORE * free // slots
        return scores

    def score_row(self, shape: Shape, state: ClusterState) -> Callable[[int], int] | None:
        """The same for one row."""
        column = state.columns[PODS]

        def score(row: int) -> int:
            slots = max(column.allocatable_cells[row], 1)
            return MAX_NODE_SCORE * max(slots - column.requested_cells[row], 0) // slots

        return score
