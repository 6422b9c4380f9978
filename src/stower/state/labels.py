"""Node labels as columns of value codes: a selector term becomes a vectorised comparison.

A topology domain is a value code of its key, so that sums per domain are sums per code. Must not
know what the labels are compared for.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

import numpy as np

from stower.model.selectors import Requirement, parse_int64
from stower.state.arrays import Bools, Ints, Rows, grow_array

V = TypeVar("V", bound=Hashable)


class CodeColumn(Generic[V]):
    """One value per row as int64[capacity] of codes, 0 where a row has no value.

    int64 although codes are small: a gather with int32 indices takes twice as long. The code of a
    value that no row has any more is reused for the next new value, so that changing values
    (hostnames, taints with a time in them) do not grow the column for ever.
    """

    __slots__ = (
        "_free_codes", "_row_counts", "_used_codes", "code_of", "codes", "generation",
        "row_count", "values",
    )  # fmt: skip

    def __init__(self, capacity: int) -> None:
        self.codes: Ints = np.zeros(capacity, np.int64)
        self.code_of: dict[V, int] = {}
        self.values: list[V | None] = [None]  # by code
        self._row_counts = [0]  # by code
        self._used_codes: Bools | None = None
        self._free_codes: list[int] = []
        self.row_count = 0  # the number of rows that have a value
        self.generation = 0  # changes with the value of any row

    @property
    def code_count(self) -> int:
        """The length of an array indexed by code: one more than the highest code ever used."""
        return len(self.values)

    @property
    def used_codes(self) -> Bools:
        """bool[code_count]: the codes that some row has. Read only."""
        used = self._used_codes
        if used is None:
            used = self._used_codes = np.array(self._row_counts) > 0
        return used

    def set(self, row: int, value: V | None) -> None:
        """Sets the value of a row; None removes it."""
        self._used_codes = None
        self.generation += 1
        old = int(self.codes[row])
        new = 0 if value is None else self._acquire_code(value)
        self.codes[row] = new
        self.row_count += (new != 0) - (old != 0)
        if old:
            self._row_counts[old] -= 1
            if not self._row_counts[old]:
                released = self.values[old]
                assert released is not None
                del self.code_of[released]
                self.values[old] = None
                self._free_codes.append(old)

    def grow(self, capacity: int) -> None:
        """Extends the column with rows that have no value."""
        self.codes = grow_array(self.codes, capacity)

    def _acquire_code(self, value: V) -> int:
        code = self.code_of.get(value)
        if code is None:
            if self._free_codes:
                code = self._free_codes.pop()
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
    """The columns of all label keys that some node has."""

    __slots__ = ("_capacity", "_zeros", "columns", "listeners")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._zeros: Ints = np.zeros(capacity, np.int64)
        self.columns: dict[str, LabelColumn] = {}
        # Called as (key, row, old code, new code) after a row's value of a key was set, for
        # counters that keep sums per topology domain.
        self.listeners: list[Callable[[str, int, int, int], None]] = []

    def column(self, key: str) -> LabelColumn:
        """Returns the key's column, and creates it where no node has the key."""
        column = self.columns.get(key)
        if column is None:
            column = self.columns[key] = CodeColumn(self._capacity)
        return column

    def codes(self, key: str, rows: slice) -> Ints:
        """Returns int64[rows]: the value code of each row, all 0 where no node has the key. Read
        only."""
        column = self.columns.get(key)
        return self._zeros[rows] if column is None else column.codes[rows]

    def code_count(self, key: str) -> int:
        """Returns the length of an array indexed by the key's codes."""
        column = self.columns.get(key)
        return 1 if column is None else column.code_count

    def is_unique_per_node(self, key: str, node_count: int) -> bool:
        """Returns whether each of `node_count` nodes has the key with a value that no other node
        has, as with hostnames: each domain is one row then."""
        column = self.columns.get(key)
        return column is not None and column.row_count == node_count == len(column.code_of)

    def set(self, row: int, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        """Replaces the labels of a row."""
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
        for listener in self.listeners:
            listener(key, row, before, int(column.codes[row]))
        if not column.code_of:
            del self.columns[key]

    def grow(self, capacity: int) -> None:
        """Extends all columns to more rows."""
        self._capacity = capacity
        self._zeros = np.zeros(capacity, np.int64)
        for column in self.columns.values():
            column.grow(capacity)

    def match(self, requirement: Requirement, rows: Rows, count: int) -> Bools:
        """Returns bool[count]: which of `rows`, `count` in number, meet the requirement. A new
        array."""
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
                    has_value: Bools = codes == wanted[0]
                else:
                    has_value = np.isin(codes, wanted) if wanted else np.zeros(count, np.bool_)
                return has_value if requirement.operator == "In" else ~has_value
        # Gt and Lt: evaluate each distinct value once, then look up the result by code.
        table = np.zeros(column.code_count, np.bool_)
        for value, code in column.code_of.items():
            if parse_int64(value) is not None:
                table[code] = requirement.matches({requirement.key: value})
        matching: Bools = table[codes]
        return matching
