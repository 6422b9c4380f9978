"""Growing arrays over node rows, and the logs that say which rows changed.

Must not know what the numbers mean.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
# All rows (a slice: views, no copies) or just some (an index array: gathers).
Rows = slice | NDArray[np.intp]

Cell = TypeVar("Cell", bound=np.generic)

# A table of numbers may be so many times as long as there are values.
SPAN_FACTOR: Final = 4
# First capacity of the arrays; doubled when full. Small, as most tests have a few nodes.
CAPACITY_FIRST: Final = 64


def cells_of(array: NDArray[Any]) -> "memoryview[int]":
    """Returns the array as a memoryview: faster than the array for single cells, as Python ints."""
    return memoryview(array)  # type: ignore[arg-type]


# Sums beyond this are kept outside the array: far from overflow when one more amount is added.
SUM_MAX: Final = 2**61


class ResourceColumn:
    """One resource over all rows: allocatable and requested, int64[capacity].

    `allocatable_cells` and `requested_cells` are memoryviews of the same memory: single cells are
    faster through them than through the arrays, and are Python ints.

    Until a row has some of the resource, both are one shared, read-only array of zeros, so that
    made-up names of resources cost little. `on_amounts` is called when that ends.
    """

    __slots__ = (
        "__weakref__",
        "_has_own_arrays",
        "_on_amounts",
        "_overflow",
        "allocatable",
        "allocatable_cells",
        "is_exact",
        "name",
        "requested",
        "requested_cells",
    )

    def __init__(
        self,
        name: str,
        capacity: int,
        on_amounts: "Callable[[ResourceColumn], None] | None" = None,
    ) -> None:
        self.name = name
        self._has_own_arrays = False
        self._on_amounts = on_amounts
        self._overflow: dict[int, int] | None = None  # most columns never have any
        # Whether amounts may be added to the cells without `add`: all sums are in own arrays.
        self.is_exact = False
        self.allocatable: Ints = zeros(capacity)
        self.requested: Ints = zeros(capacity)
        self._refresh_cells()

    @classmethod
    def from_arrays(cls, name: str, allocatable: Ints, requested: Ints) -> "ResourceColumn":
        """Returns a read-only column over these arrays."""
        column = cls(name, 0)
        column._has_own_arrays = True
        column.allocatable, column.requested = allocatable, requested
        column._refresh_cells()
        return column

    def set_allocatable(self, row: int, amount: int) -> None:
        """Sets what the row's node has to give."""
        if not self._has_own_arrays:
            self._allocate_arrays()
        self.allocatable_cells[row] = amount

    def add(self, row: int, amount: int) -> None:
        """Adds an amount, which may be negative, to the row's sum. A sum beyond SUM_MAX is kept
        outside the array, where it shows as SUM_MAX."""
        if self._overflow and row in self._overflow:
            total = self._overflow.pop(row) + amount
        else:
            if not self._has_own_arrays:
                self._allocate_arrays()
            total = self.requested_cells[row] + amount
        if total > SUM_MAX:
            self._overflow = {**(self._overflow or {}), row: total}
            total = SUM_MAX
        self.requested_cells[row] = total
        self.is_exact = not self._overflow

    def free(self, rows: slice) -> Ints:
        """Returns int64[rows]: what is left, below 0 where more is requested than there is."""
        left: Ints = self.allocatable[rows] - self.requested[rows]
        return left

    def grow(self, capacity: int) -> None:
        """Extends the arrays with zeros."""
        if self._has_own_arrays:
            self.allocatable = grow_array(self.allocatable, capacity)
            self.requested = grow_array(self.requested, capacity)
        else:
            self.allocatable = self.requested = zeros(capacity)
        self._refresh_cells()

    def shrink(self) -> None:
        """Returns to the shared zeros where no row has any of the resource."""
        if self._has_own_arrays and not self.allocatable.any() and not self.requested.any():
            self._has_own_arrays = self.is_exact = False
            self.allocatable = self.requested = zeros(len(self.allocatable))
            self._refresh_cells()

    @property
    def has_own_arrays(self) -> bool:
        """Whether the column has arrays of its own."""
        return self._has_own_arrays

    def _allocate_arrays(self) -> None:
        self._has_own_arrays = True
        self.allocatable = np.zeros(len(self.allocatable), np.int64)
        self.requested = np.zeros(len(self.requested), np.int64)
        self._refresh_cells()
        if self._on_amounts is not None:
            self._on_amounts(self)

    def _refresh_cells(self) -> None:
        if not self._has_own_arrays:
            self.allocatable_cells = self.requested_cells = zero_cells(len(self.allocatable))
            return
        self.allocatable_cells = cells_of(self.allocatable)
        self.requested_cells = cells_of(self.requested)


def add_usage(usage: Sequence[tuple[ResourceColumn, int]], row: int, sign: int) -> None:
    """Adds the amounts times `sign` to the row of each column, as `ResourceColumn.add` does.

    Written out because every placement runs it for five columns or more.
    """
    for column, amount in usage:
        if column.is_exact:
            cells = column.requested_cells
            total = cells[row] + sign * amount
            if total <= SUM_MAX:
                cells[row] = total
                continue
        column.add(row, sign * amount)


@lru_cache(maxsize=4)
def zeros(capacity: int) -> Ints:
    """Returns int64[capacity] of zeros, shared and read-only."""
    result = np.zeros(capacity, np.int64)
    result.flags.writeable = False
    return result


@lru_cache(maxsize=8)
def zero_cells(capacity: int) -> "memoryview[int]":
    """Returns the shared zeros as a memoryview; each view would take 200 bytes."""
    return cells_of(zeros(capacity))


def grow_array(array: NDArray[Cell], capacity: int) -> NDArray[Cell]:
    """Returns a copy with `capacity` rows, the new ones zero."""
    result = np.zeros(capacity, array.dtype)
    result[: len(array)] = array
    return result


def distinct(values: Ints) -> Ints:
    """Returns the distinct values, sorted. np.unique loads a module for 40 ms at its first call."""
    ordered = np.sort(values)
    keep = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered[keep]


def ranked(values: Ints) -> tuple[Ints, Ints]:
    """Returns the distinct values, sorted, and the place of each value among them."""
    if not len(values):
        return values, values
    lowest = values.min()
    span = int(values.max() - lowest) + 1
    if span > SPAN_FACTOR * len(values):
        found = distinct(values)
        return found, found.searchsorted(values)
    # By a table of all numbers in between: ten times as fast as a sort.
    offsets = values - lowest
    is_there = np.zeros(span, np.bool_)
    is_there[offsets] = True
    return is_there.nonzero()[0] + lowest, (is_there.cumsum() - 1)[offsets]


class DirtyLog:
    """Rows in the order in which they changed: a ring that each reader follows with a cursor.

    A reader that fell behind by more than the ring holds must refresh everything.
    """

    # A full refresh of 5,000 rows costs as much as reading back some thousands of entries.
    SIZE: Final = 4_096
    MASK: Final = SIZE - 1

    __slots__ = ("_ring", "position", "ring")

    def __init__(self) -> None:
        self._ring = np.zeros(self.SIZE, np.intp)
        self.ring = cells_of(self._ring)
        self.position = 0

    def add(self, row: int) -> None:
        """Records that the row changed."""
        self.ring[self.position & self.MASK] = row
        self.position += 1

    def add_many(self, rows: NDArray[np.intp]) -> None:
        """Records that these rows changed. More than the ring holds overruns every reader."""
        last = rows[-self.SIZE :]
        places = (self.position + len(rows) - len(last) + np.arange(len(last))) & self.MASK
        self._ring[places] = last
        self.position += len(rows)

    def is_overrun(self, cursor: int) -> bool:
        """Returns whether changes since the cursor are missing from the ring."""
        return self.position - cursor > self.SIZE

    def row_list(self, cursor: int) -> list[int]:
        """Returns the changed rows since the cursor, oldest first, with repeats."""
        cells, mask = self.ring, self.MASK
        return [cells[i & mask] for i in range(cursor, self.position)]

    def rows(self, cursor: int) -> NDArray[np.intp]:
        """Returns the changed rows since the cursor, oldest first, with repeats; a view where
        possible."""
        start, stop = cursor & self.MASK, self.position & self.MASK
        if start < stop or self.position == cursor:
            return self._ring[start:stop]
        return np.concatenate((self._ring[start:], self._ring[:stop]))
