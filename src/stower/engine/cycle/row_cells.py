"""Chooses the best row without looking at all rows: keeps the highest score of each cell of rows.

A cell has the rows of one topology domain whose places in the order of ties are near each other, so
that scores that are added to whole domains (topology spread) need no pass over the rows, and the
choice among ties looks at few cells. A choice costs by the number of cells, a changed row one cell.

Chooses as TieBreaker.pick does over all rows, which the property tests compare it with. Must not
know pods or plugins.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stower.state.arrays import Bools, Ints, cells_of, distinct
from stower.state.cluster import ClusterState
from stower.state.labels import LabelColumn
from stower.state.ties import HASH_BITS

# Below every sum of scores, and far from overflow when more is added.
INFEASIBLE: Final = -(1 << 60)
# Fewer rows are read faster at once than by cells (measured: the same at some 9,000).
ROWS_MIN: Final = 8_192
# Rows of a cell, where there are enough: reading one again costs as much as looking at all cells of
# 100,000 rows.
CELL_ROWS: Final = 256
# Keys with fewer rows per domain have no cells: domains tie by the hundred, and a choice would look
# at all of them.
ROWS_PER_DOMAIN_MIN: Final = CELL_ROWS
# More cells of one block that tie are read at once.
TIED_CELLS_MAX: Final = 8


class Layout:
    """The cells of all rows for one topology key ("": one domain). Valid while rows keep their
    names and their values of the key.

    order: int64[named rows], rows by cell, those of a cell by the hashes of their names; starts:
    for each cell, and after the last, the place in `order` where it begins. The cells of one block
    lie side by side, one for each value code: cell = block * code_count + code."""

    __slots__ = (
        "_column", "_generations", "_key", "block_count", "cell_of", "cells_of_rows", "code_count",
        "filled", "order", "starts", "ties",
    )  # fmt: skip

    def __init__(self, state: ClusterState, key: str) -> None:
        column = state.labels.columns.get(key) if key else None
        self._key, self._column = key, column
        self._generations = _generations(state, column)
        self.ties = state.tie_breaker
        by_hash = self.ties.ordered_rows()
        count = len(by_hash)
        codes = self.code_count = column.code_count if column is not None else 1
        # Code 0 is that of nodes without the key, which are few.
        blocks = self.block_count = max(1, count // (CELL_ROWS * max(1, codes - 1)))
        cells = np.arange(count) * blocks // max(1, count)
        if column is not None:
            cells = cells * codes + column.codes[by_hash]
        is_small = blocks * codes < 1 << 16  # sorted faster
        place = (cells.astype(np.uint16) if is_small else cells).argsort(kind="stable")
        self.order: Ints = by_hash[place]
        starts = cells[place].searchsorted(np.arange(blocks * codes + 1))
        self.starts: list[int] = starts.tolist()
        self.filled: Ints = np.flatnonzero(np.diff(starts))
        self.cell_of: Ints = np.zeros(state.capacity, np.int64)
        self.cell_of[by_hash] = cells
        self.cells_of_rows = cells_of(self.cell_of)

    def is_valid(self, state: ClusterState) -> bool:
        """Returns whether rows still have the names and values that the cells were made from."""
        key = self._key
        column = state.labels.columns.get(key) if key else None
        return column is self._column and self._generations == _generations(state, column)

    def release(self) -> None:
        """Lets go of the arrays, as maxima of shapes that are not in use may hold the layout."""
        self._column, self._generations = None, (-1, -1, -1)
        self.order = self.cell_of = self.filled = np.zeros(0, np.int64)
        self.starts, self.cells_of_rows = [], cells_of(self.cell_of)

    def rows_of(self, cell: int) -> Ints:
        """Returns the rows of a cell, in the order of ties."""
        return self.order[self.starts[cell] : self.starts[cell + 1]]


def _generations(state: ClusterState, column: LabelColumn | None) -> tuple[int, int, int]:
    of_column = column.generation if column is not None else 0
    return state.layout_generation, state.tie_breaker.generation, of_column


class Layouts:
    """The layouts of all keys that were asked for, made again where they are not valid."""

    __slots__ = ("_layouts", "_state")

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._layouts: dict[str, Layout] = {}

    def get(self, key: str) -> Layout | None:
        """Returns the layout of a key; None where its domains have too few rows."""
        state = self._state
        layout = self._layouts.get(key)
        if layout is not None:
            if layout.is_valid(state):
                return layout
            layout.release()
            del self._layouts[key]
        column = state.labels.columns.get(key) if key else None
        if column is None and key:
            return None  # a pod can name any key: nothing is kept for it
        if column is not None and column.code_count * ROWS_PER_DOMAIN_MIN > state.row_limit:
            return None
        layout = self._layouts[key] = Layout(state, key)
        return layout


class CellMaxima:
    """The highest score in each cell of a layout, and how many rows have it.

    `scores`: int64[capacity], kept by the owner, who tells of every change."""

    __slots__ = (
        "_count", "_count_cells", "_feasible", "_highest", "_highest_cells", "_scores", "layout",
    )  # fmt: skip

    def __init__(self, layout: Layout, scores: Ints) -> None:
        self.layout = layout
        self._scores = scores
        cells, filled = layout.block_count * layout.code_count, layout.filled
        self._highest: Ints = np.full(cells, INFEASIBLE, np.int64)
        self._count: Ints = np.zeros(cells, np.int64)
        self._highest_cells, self._count_cells = cells_of(self._highest), cells_of(self._count)
        self._feasible: Bools | None = None
        if len(filled):
            starts = np.array(layout.starts)
            values, sizes, starts = scores[layout.order], np.diff(starts)[filled], starts[filled]
            highest = self._highest[filled] = np.maximum.reduceat(values, starts)
            has_it = values == np.repeat(highest, sizes)
            self._count[filled] = np.add.reduceat(has_it, starts, dtype=np.int64)

    @property
    def feasible_codes(self) -> Bools:
        """bool[value codes]: the domains that have a feasible row. Read only."""
        found = self._feasible
        if found is None:
            highest = self._highest.reshape(self.layout.block_count, -1)
            found = self._feasible = highest.max(axis=0) >= 0
        return found

    def change(self, row: int, old: int, new: int) -> None:
        """Follows a changed score."""
        cell = self.layout.cells_of_rows[row]
        highest = self._highest_cells[cell]
        if new > highest:
            self._highest_cells[cell] = new
            self._count_cells[cell] = 1
            if highest < 0:
                self._feasible = None
        elif new == highest:
            self._count_cells[cell] += new != old
        elif old == highest:
            self._count_cells[cell] -= 1
            if not self._count_cells[cell]:
                self._read(cell)

    def change_many(self, rows: NDArray[np.intp], old: Ints, new: Ints) -> None:
        """Follows many changed scores; `rows` may have repeats."""
        cells = self.layout.cell_of[rows]
        highest = self._highest[cells]
        # Cells that gain or lose a row at the top.
        touched = (new != old) & ((new >= highest) | (old == highest))
        if touched.any():
            for cell in distinct(cells[touched]).tolist():
                self._read(cell)

    def _read(self, cell: int) -> None:
        """Reads all rows of a cell."""
        values = self._scores[self.layout.rows_of(cell)]
        old, highest = self._highest_cells[cell], values.item(values.argmax())
        self._highest_cells[cell] = highest
        self._count_cells[cell] = int(np.count_nonzero(values == highest))
        if (old < 0) != (highest < 0):
            self._feasible = None

    def _totals(self, points: Ints | None) -> Ints:
        """Returns int64[cells]: the highest scores with points for each value code."""
        if points is None:
            return self._highest
        shape = self.layout.block_count, self.layout.code_count
        totals: Ints = (self._highest.reshape(shape) + points).reshape(-1)
        return totals

    def top(self, points: Ints | None, count: int) -> tuple[Ints, Ints]:
        """Returns rows among which are the `count` best ones, and their scores with `points`; other
        rows may be better than those only by their names."""
        layout, totals = self.layout, self._totals(points)
        count = min(count, len(totals))
        cells = totals.argpartition(-count)[-count:].tolist()
        rows = np.concatenate([layout.rows_of(cell) for cell in cells])
        scores = self._scores[rows]
        if points is not None:
            scores = scores + points[layout.cell_of[rows] % layout.code_count]
        return rows, scores

    def pick(self, points: Ints | None, pod: int) -> int:
        """Returns the row with the highest score, -1 where none is feasible. `points`: int64[value
        codes], added to the scores of each domain; `pod`: the hash that chooses among ties."""
        layout, totals = self.layout, self._totals(points)
        highest = totals.item(totals.argmax())  # faster than max()
        if highest < 0:
            return -1
        tied = (totals == highest).nonzero()[0]  # cells
        sums = self._count[tied].cumsum()  # of rows
        number = pod * sums.item(-1) >> HASH_BITS
        place = int(sums.searchsorted(number, "right"))
        # The order of ties goes through the blocks; in a block, through all its tied cells.
        block = tied.item(place) // layout.code_count * layout.code_count
        first, last = place, place + 1
        while first > 0 and tied.item(first - 1) >= block:
            first -= 1
        while last < len(tied) and tied.item(last) < block + layout.code_count:
            last += 1
        if first:
            number -= sums.item(first - 1)
        if last - first > TIED_CELLS_MAX:
            start, stop = layout.starts[block], layout.starts[block + layout.code_count]
            rows = layout.order[start:stop]
            cells = layout.cell_of[rows]
            # Cells that do not tie have no row that would make them tie.
            is_best = (self._scores[rows] == self._highest[cells]) & (totals[cells] == highest)
            candidates = rows[is_best]
        else:
            found = []
            for cell in tied[first:last].tolist():
                rows = layout.rows_of(cell)
                found.append(rows[self._scores[rows] == self._highest_cells[cell]])
            if len(found) == 1:
                return found[0].item(number)  # type: ignore[no-any-return]
            candidates = np.concatenate(found)
        return layout.ties.nth(candidates, number)
