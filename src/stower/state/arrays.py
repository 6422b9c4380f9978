"""Growing arrays over node rows, and the logs that say which rows changed."""

from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
# All rows (a slice: views, no copies) or just some (an index array: gathers).
Rows = slice | NDArray[np.intp]

Cell = TypeVar("Cell", bound=np.generic)

# First capacity of the arrays; doubled when full. Small, as most tests have a few nodes.
CAPACITY_FIRST: Final = 64


def cells_of(array: NDArray[Any]) -> "memoryview[int]":
    """Single cells of an array: faster than through the array, and as Python ints."""
    return memoryview(array)  # type: ignore[arg-type]


class ResourceColumn:
    """One resource over all rows: allocatable and requested, int64[capacity].

    `alloc` and `used` are memoryviews of the same memory: single cells through them are faster than
    through the arrays, and come as Python ints.
    """

    __slots__ = ("alloc", "allocatable", "name", "requested", "used")

    def __init__(self, name: str, capacity: int) -> None:
        self.name = name
        self.allocatable: Ints = np.zeros(capacity, np.int64)
        self.requested: Ints = np.zeros(capacity, np.int64)
        self.alloc = cells_of(self.allocatable)
        self.used = cells_of(self.requested)

    def grow(self, capacity: int) -> None:
        """Extend with zeros."""
        self.allocatable = grown(self.allocatable, capacity)
        self.requested = grown(self.requested, capacity)
        self.alloc = cells_of(self.allocatable)
        self.used = cells_of(self.requested)


def grown(array: NDArray[Cell], capacity: int) -> NDArray[Cell]:
    """A copy with room for `capacity` rows, the new ones zero."""
    result = np.zeros(capacity, array.dtype)
    result[: len(array)] = array
    return result


class DirtyLog:
    """Rows in the order in which they changed: a ring that each reader follows with a cursor.

    A reader that fell behind by more than the ring holds must refresh everything.
    """

    # A full refresh of 5,000 rows costs as much as reading back some thousands of entries.
    SIZE: Final = 4_096
    MASK: Final = SIZE - 1

    __slots__ = ("_cells", "_ring", "position")

    def __init__(self) -> None:
        self._ring = np.zeros(self.SIZE, np.intp)
        self._cells = cells_of(self._ring)
        self.position = 0

    def add(self, row: int) -> None:
        """Say that the row changed."""
        self._cells[self.position & 4_095] = row
        self.position += 1

    def add_many(self, rows: NDArray[np.intp]) -> None:
        """Say that all these rows changed. More than the ring holds overruns every reader."""
        last = rows[-self.SIZE :]
        places = (self.position + len(rows) - len(last) + np.arange(len(last))) & self.MASK
        self._ring[places] = last
        self.position += len(rows)

    def overrun(self, cursor: int) -> bool:
        """Whether changes since the cursor are no longer all in the ring."""
        return self.position - cursor > self.SIZE

    def cells(self, cursor: int) -> list[int]:
        """The changed rows since the cursor, oldest first, repeats included."""
        cells = self._cells
        return [cells[i & 4_095] for i in range(cursor, self.position)]

    def rows(self, cursor: int) -> NDArray[np.intp]:
        """The changed rows since the cursor, oldest first, repeats included. A view where it can
        be.
        """
        start, stop = cursor & self.MASK, self.position & self.MASK
        if start < stop or self.position == cursor:
            return self._ring[start:stop]
        return np.concatenate((self._ring[start:], self._ring[:stop]))
