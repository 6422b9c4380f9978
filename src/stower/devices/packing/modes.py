"""The interface of a packing mode: how states are valued, and the score of a change of value."""

from collections.abc import Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stower.devices.packing.fill import Column, Columns
from stower.devices.packing.mix import Demand, Mix, Request, Room
from stower.state.arrays import Bools, Floats, Ints

# Whole numbers up to 2**24, which 32 bits hold exactly: there is one for every state and column.
Features = NDArray[np.float32]
Weights = Sequence[tuple[Demand, int]]
NO_WORTH: Final[Floats] = np.zeros(1001)


class Rows(NamedTuple):
    """The nodes, by row: free CPU and memory, devices of which nothing is taken, free thousandths
    of all."""

    cpu: Ints
    memory: Ints
    full: Ints
    free: Ints


class Size(NamedTuple):
    """A node, whatever of it is free; compared by devices first."""

    devices: int
    room: Room


class Supply(Protocol):
    """What a mode may ask about the cluster when it weighs a mix."""

    @property
    def shares(self) -> Sequence[Sequence[int]]:
        """By kind of device: the share that each ask takes."""

    @property
    def rows(self) -> Rows:
        """The nodes as they are."""

    @property
    def largest(self) -> Size:
        """The largest node's."""

    def available(self, demands: Sequence[Demand]) -> Ints:
        """int64[demands]: thousandths that copies of each alone could take of the cluster."""


class Mode(Protocol):
    """The worth of a state is the sum of its features, weighted, and of its devices' own worth.

    All of these are whole numbers, their sums below 2**53: exact, in whichever order they are
    added, so that equal states are worth the same everywhere.
    """

    counts_memory: ClassVar[bool]
    weights: Weights

    def column(self, demand: Demand, shares: tuple[int, ...]) -> Column | None:
        """The column of a class; classes with equal columns share one. None: it does not count."""

    def features(self, cpu: Ints, memory: Ints, free: Ints, columns: Columns) -> Features:
        """float32[states, columns], of states that are int64[states] of CPU and of memory, and
        int64[states, devices]."""

    def device_worth(self, kind: int) -> Floats:
        """float64[1001]: the worth of a free share of a device of that kind."""

    def weigh(self, mix: Mix, supply: Supply) -> None:
        """New weights."""

    def gain(self, difference: Floats) -> Floats:
        """What a change of worth scores: more is better, and equal ones are equally good."""

    def set_aside(self, request: Request, supply: Supply) -> Bools | None:
        """bool[rows]: nodes to be used only where there is no other; None where there are none."""
