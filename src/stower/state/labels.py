"""Node labels as columns of value codes: a selector term becomes a vectorised comparison.

A topology domain is the value code of its key, so sums per domain are sums per code.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

import numpy as np

from stower.model.selectors import Requirement, parse_int64
from stower.state.arrays import Bools, Ints, Rows, grow_array

V = TypeVar("V", bound=Hashable)


class CodeColumn(Generic[V]):
    """One value per row as int64[capacity] codes, 0 where a row has none.

    int64 although codes are small: a gather with int32 indices takes twice as long. A code whose
    last row is gone is given to the next new value, so that values which come and go (hostnames,
    taints with a time in them) do not grow it for ever.
    """

    __slots__ = ("_free", "_row_counts", "_used_codes", "code_of", "codes", "row_count", "values")

    def __init__(self, capacity: int) -> None:
        self.codes: Ints = np.zeros(capacity, np.int64)
        self.code_of: dict[V, int] = {}
        self.values: list[V | None] = [None]
        self._row_counts = [0]
        self._used_codes: Bools | None = None
        self._free: list[int] = []
        self.row_count = 0  # rows that have a value

    @property
    def code_count(self) -> int:
        """One more than the highest code in use: the length of an array indexed by code."""
        return len(self.values)

    @property
    def used_codes(self) -> Bools:
        """bool[code_count]: codes that some row has. Read only."""
        known = self._used_codes
        if known is None:
            known = self._used_codes = np.array(self._row_counts) > 0
        return known

    def set(self, row: int, value: V | None) -> None:
        """Give the row a value, or none."""
        self._used_codes = None
        old = int(self.codes[row])
        new = 0 if value is None else self._take(value)
        self.codes[row] = new
        self.row_count += (new != 0) - (old != 0)
        if old:
            self._row_counts[old] -= 1
            if not self._row_counts[old]:
                released = self.values[old]
                assert released is not None
                del self.code_of[released]
                self.values[old] = None
                self._free.append(old)

    def grow(self, capacity: int) -> None:
        """Extend with rows that have no value."""
        self.codes = grow_array(self.codes, capacity)

    def _take(self, value: V) -> int:
        code = self.code_of.get(value)
        if code is None:
            if self._free:
                code = self._free.pop()
                self.values[code] = value
            else:
                code = len(self.values)
                self.values.append(value)
                self._row_counts.append(0)
            self.code_of[value] = code
        self._row_counts[code] += 1
        return code


LabelColumn = CodeColumn[str]


class LabelColumns:
    """All label keys that some node has."""

    __slots__ = ("_capacity", "_zeros", "columns", "listeners")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._zeros: Ints = np.zeros(capacity, np.int64)
        self.columns: dict[str, LabelColumn] = {}
        # Called as (key, row, old code, new code): whoever sums over a key's domains follows it.
        self.listeners: list[Callable[[str, int, int, int], None]] = []

    def column(self, key: str) -> LabelColumn:
        """The key's column, made if no node has the key."""
        column = self.columns.get(key)
        if column is None:
            column = self.columns[key] = CodeColumn(self._capacity)
        return column

    def codes(self, key: str, rows: slice) -> Ints:
        """int64[rows]: the value code of each, all 0 where no node has the key. Read only."""
        column = self.columns.get(key)
        return self._zeros[rows] if column is None else column.codes[rows]

    def code_count(self, key: str) -> int:
        """The length of an array indexed by the key's codes."""
        column = self.columns.get(key)
        return 1 if column is None else column.code_count

    def is_unique_per_node(self, key: str, node_count: int) -> bool:
        """Whether each of so many nodes has the key, with a value of its own (as hostnames are): a
        domain is a row."""
        column = self.columns.get(key)
        return column is not None and column.row_count == node_count == len(column.code_of)

    def set(self, row: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Replace the row's labels."""
        for key in old:
            if key not in new:
                self._set(key, row, None)
        for key, value in new.items():
            if old.get(key) != value:
                self._set(key, row, value)

    def _set(self, key: str, row: int, value: str | None) -> None:
        column = self.column(key)
        before = int(column.codes[row])
        column.set(row, value)
        for follow in self.listeners:
            follow(key, row, before, int(column.codes[row]))
        if not column.code_of:
            del self.columns[key]

    def grow(self, capacity: int) -> None:
        """Extend all columns."""
        self._capacity = capacity
        self._zeros = np.zeros(capacity, np.int64)
        for column in self.columns.values():
            column.grow(capacity)

    def match(self, requirement: Requirement, rows: Rows, count: int) -> Bools:
        """bool[count]: which rows meet the condition. A new array."""
        column = self.columns.get(requirement.key)
        if column is None:
            return np.full(count, requirement.operator in ("NotIn", "DoesNotExist"))
        codes = column.codes[rows]
        match requirement.operator:
            case "Exists":
                return codes > 0
            case "DoesNotExist":
                lacking: Bools = codes == 0
                return lacking
            case "In" | "NotIn":
                wanted = [
                    column.code_of[v] for v in requirement.values or () if v in column.code_of
                ]
                if len(wanted) == 1:
                    hit: Bools = codes == wanted[0]
                else:
                    hit = np.isin(codes, wanted) if wanted else np.zeros(count, np.bool_)
                return hit if requirement.operator == "In" else ~hit
        # Gt and Lt: decide each distinct value once, then look it up.
        table = np.zeros(column.code_count, np.bool_)
        for value, code in column.code_of.items():
            if parse_int64(value) is not None:
                table[code] = requirement.matches({requirement.key: value})
        matching: Bools = table[codes]
        return matching
