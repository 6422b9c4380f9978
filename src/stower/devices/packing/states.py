"""States of nodes, each stored once, and the worth of each state by the current weights.

A state is a node's free CPU and memory and the sorted codes of its devices (kind and free share).
States of one layout, that is with the same kinds of devices, share a table with their features for
the classes of the mix on these kinds.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from stower.devices.packing.fill import Column, columns_of, fills
from stower.devices.packing.mix import CLASSES_MAX, Demand
from stower.devices.packing.modes import Features, Mode
from stower.state.arrays import Floats, Ints, grow_array

State = tuple[int, int, tuple[int, ...]]  # free CPU and memory, not below 0, and codes
# A device of a kind with a free share, as one number: kind << KIND_SHIFT | share.
KIND_SHIFT: Final = 10
SHARE_MASK: Final = (1 << KIND_SHIFT) - 1
# Rows of features that are turned into numbers of 64 bits at a time.
CHUNK: Final = 4_096
FIRST: Final = 64
# Columns of a table, those of classes that count no more included; then they are made anew.
COLUMNS_MAX: Final = 2 * CLASSES_MAX


class States:
    """All states, by number; worth: float64, by number."""

    def __init__(self, mode: Mode, shares: Sequence[Sequence[int]]) -> None:
        self._mode = mode
        self._shares = shares
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        self._numbers: dict[State, int] = {}
        self._waiting: list[State] = []
        self._tables: dict[tuple[int, ...], Table] = {}
        self._worth: Floats = np.zeros(FIRST)

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, state: State) -> int:
        """The state's number, a new one where it was never seen."""
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._numbers)
            self._waiting.append(state)
        return number

    def worth(self) -> Floats:
        """float64: what each state is worth, by its number. Read only, until the next state."""
        if self._waiting:
            self._settle()
        return self._worth

    def weigh(self) -> None:
        """All states by the mode's new weights."""
        for table in self._tables.values():
            table.weigh(self._mode.weights, self._shares)
            table.assess(0, self._worth)

    def available(self, demands: Sequence[Demand], states: Iterable[tuple[State, int]]) -> Ints:
        """int64[demands]: thousandths that copies of each alone could take of so many nodes of
        each state."""
        by_layout: dict[tuple[int, ...], list[tuple[State, int]]] = {}
        for state, count in states:
            by_layout.setdefault(_layout(state[-1]), []).append((state, count))
        total = np.zeros(len(demands), np.int64)
        for layout, members in by_layout.items():
            columns: dict[Column, int] = {}
            at = np.zeros(len(demands), np.int64)
            for i, demand in enumerate(demands):
                shares = _shares_of(demand, layout, self._shares)
                column = Column(*demand.room, demand.number, shares)
                at[i] = columns.setdefault(column, len(columns))
            arrays = _arrays([state for state, _ in members], len(layout))
            filled = fills(*arrays, columns_of([*columns], len(layout)))
            counts = np.array([count for _, count in members])
            total += (filled * counts[:, None]).sum(0)[at]
        return total

    def _settle(self) -> None:
        """Give the waiting states their worth."""
        count = len(self._numbers)
        if count > len(self._worth):
            self._worth = grow_array(self._worth, 2 * count)
        first = count - len(self._waiting)
        by_layout: dict[tuple[int, ...], list[int]] = {}
        for i, state in enumerate(self._waiting):
            by_layout.setdefault(_layout(state[-1]), []).append(i)
        for layout, places in by_layout.items():
            table = self._tables.get(layout)
            if table is None:
                table = self._tables[layout] = Table(layout, self._mode)
                table.weigh(self._mode.weights, self._shares)
            size = table.size
            table.add([self._waiting[i] for i in places], np.array(places) + first)
            table.assess(size, self._worth)
        self._waiting = []


class Table:
    """The states of one layout."""

    def __init__(self, layout: tuple[int, ...], mode: Mode) -> None:
        self._layout = layout
        self._mode = mode
        self.size = 0
        self._numbers: Ints = np.zeros(FIRST, np.int64)
        self._cpu: Ints = np.zeros(FIRST, np.int64)
        self._memory: Ints = np.zeros(FIRST, np.int64)
        self._free: Ints = np.zeros((FIRST, len(layout)), np.int64)
        self._columns: dict[Column, int] = {}
        self._arrays = columns_of((), len(layout))
        self._weights: Floats = np.zeros(0)
        self._features: Features = np.zeros((FIRST, 0), np.float32)

    def add(self, states: Sequence[State], numbers: Ints) -> None:
        """New states, with these numbers."""
        start, self.size = self.size, self.size + len(states)
        if self.size > len(self._cpu):
            room = 2 * self.size
            self._numbers = grow_array(self._numbers, room)
            self._cpu = grow_array(self._cpu, room)
            self._memory = grow_array(self._memory, room)
            self._free = _grow_rows(self._free, room)
            self._features = _grow_rows(self._features, room)
        here = slice(start, self.size)
        cpu, memory, free = _arrays(states, len(self._layout))
        self._numbers[here], self._free[here] = numbers, free
        self._cpu[here], self._memory[here] = cpu, memory
        self._features[here] = self._mode.features(cpu, memory, free, self._arrays)

    def weigh(self, weights: Sequence[tuple[Demand, int]], shares: Sequence[Sequence[int]]) -> None:
        """Take these weights; columns of classes that are new are filled in for all states."""
        by_column: dict[Column, int] = {}
        for demand, weight in weights:
            column = self._mode.column(demand, _shares_of(demand, self._layout, shares))
            if column is not None:
                by_column[column] = by_column.get(column, 0) + weight
        if len(self._columns) > COLUMNS_MAX:
            self._columns = {}
            self._features = np.zeros((len(self._cpu), 0), np.float32)
        new = [column for column in by_column if column not in self._columns]
        if new:
            for column in new:
                self._columns[column] = len(self._columns)
            added = np.zeros((len(self._cpu), len(new)), np.float32)
            here = slice(0, self.size)
            added[here] = self._mode.features(
                self._cpu[here], self._memory[here], self._free[here],
                columns_of(new, len(self._layout)),
            )  # fmt: skip
            self._features = np.concatenate((self._features, added), axis=1)
            self._arrays = columns_of([*self._columns], len(self._layout))
        self._weights = np.array([by_column.get(c, 0) for c in self._columns], np.float64)

    def assess(self, start: int, worth: Floats) -> None:
        """Write what the states from this one on are worth, by their numbers."""
        for at in range(start, self.size, CHUNK):
            here = slice(at, min(at + CHUNK, self.size))
            found = self._features[here].astype(np.float64) @ self._weights
            for device, kind in enumerate(self._layout):
                found += self._mode.device_worth(kind)[self._free[here, device]]
            worth[self._numbers[here]] = found


def _layout(codes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(code >> KIND_SHIFT for code in codes)


def _shares_of(
    demand: Demand, layout: tuple[int, ...], shares: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    if demand.ask < 0:
        return (0,) * len(layout)
    return tuple(shares[kind][demand.ask] for kind in layout)


def _arrays(states: Sequence[State], devices: int) -> tuple[Ints, Ints, Ints]:
    """int64[states] twice and int64[states, devices]: free CPU and memory, and free shares."""
    cpu = np.array([state[0] for state in states], np.int64)
    memory = np.array([state[1] for state in states], np.int64)
    codes = np.array([state[-1] for state in states], np.int64).reshape(len(states), devices)
    return cpu, memory, codes & SHARE_MASK


def _grow_rows(
    array: "np.ndarray[tuple[int, int], np.dtype[np.generic]]", room: int
) -> "np.ndarray":
    result = np.zeros((room, array.shape[1]), array.dtype)
    result[: len(array)] = array
    return result
