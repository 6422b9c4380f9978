"""How much of a node's devices copies of one request could take, and what it could not use.

A column is what a class of requests means to nodes of one layout: CPU, devices, and the share that
it takes of each of them. Columns and states are arrays here; the tests have slow twins of both.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stower.state.arrays import Ints

NEVER: Final = 1 << 30


class Column(NamedTuple):
    """One class of requests on nodes of one layout; shares by place of the device, 0 for none."""

    cpu: int
    number: int
    shares: tuple[int, ...]


class Columns(NamedTuple):
    """The same as arrays: int64[columns], int64[columns], int32[devices, columns]; no share is
    NEVER, which nothing has free."""

    cpu: Ints
    number: Ints
    shares: NDArray[np.int32]


def columns_of(columns: Sequence[Column], devices: int) -> Columns:
    """Them as arrays."""
    shares = np.array([[s or NEVER for s in column.shares] for column in columns], np.int32)
    return Columns(
        np.array([column.cpu for column in columns], np.int64),
        np.array([column.number for column in columns], np.int64),
        shares.reshape(len(columns), devices).T,
    )


def fills(cpu: Ints, free: Ints, columns: Columns) -> Ints:
    """int64[states, columns]: thousandths of devices that copies of a request alone could take.

    Of `cpu` int64[states] and `free` int64[states, devices]. With so many copies that fit the
    devices one by one, the free share of all devices that can take one is taken; where there is CPU
    for fewer, as much less of it.
    """
    places = np.zeros((len(cpu), len(columns.cpu)), np.int32)
    usable = np.zeros_like(places)
    able = np.zeros_like(places)
    small = free.astype(np.int32)  # divided in half the time
    for device in range(free.shape[1]):
        here = small[:, device, None]
        room = here // columns.shares[device]
        has_room = room > 0
        places += room
        usable += here * has_room
        able += has_room
    by_cpu = cpu[:, None] // np.maximum(columns.cpu, 1)
    by_cpu[:, columns.cpu == 0] = NEVER
    number = np.maximum(columns.number, 1)
    copies = np.minimum(places // number, by_cpu)
    copies[able < columns.number] = 0
    taken = usable * (copies * number)
    whole = np.maximum(places, 1)
    result: Ints = (2 * taken + whole) // (2 * whole)
    return result


def fragments(cpu: Ints, free: Ints, columns: Columns) -> Ints:
    """int64[states, columns]: free thousandths of devices that a request could not use.

    Where it fits, those of devices that have too little for it; where it does not, all.
    Source: FGD (USENIX ATC '23), section 4.1.
    """
    able = np.zeros((len(cpu), len(columns.cpu)), np.int64)
    unusable = np.zeros_like(able)
    for device in range(free.shape[1]):
        here = free[:, device, None]
        fits = here >= columns.shares[device]
        able += fits
        unusable += here * ~fits
    fits = (columns.number > 0) & (able >= columns.number) & (cpu[:, None] >= columns.cpu)
    result: Ints = np.where(fits, unusable, free.sum(1)[:, None])
    return result
