"""Computes the part of a node's devices that copies of one request could use, and the part that the
request could not use.

A column describes a class of requests for nodes of one layout: CPU, memory, number of devices, and
the share that the request takes of each device. Columns and states are arrays here; the tests have
slow twins of both functions.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stower.devices.packing.phi import FULL
from stower.state.arrays import Ints

NEVER: Final = 1 << 30


class Column(NamedTuple):
    """One class of requests on nodes of one layout; shares by place of the device, 0 for none."""

    cpu_milli: int
    memory_bytes: int
    number: int
    shares: tuple[int, ...]


class Columns(NamedTuple):
    """The same as arrays: int64[columns] three times, int32[devices, columns], where no share is
    NEVER, which nothing has free; and which devices no column tells apart."""

    cpu_milli: Ints
    memory_bytes: Ints
    number: Ints
    shares: NDArray[np.int32]
    alike: tuple[tuple[int, ...], ...]


def columns_of(columns: Sequence[Column], devices: int) -> Columns:
    """Them as arrays."""
    shares = np.array([[s or NEVER for s in column.shares] for column in columns], np.int32)
    shares = shares.reshape(len(columns), devices).T
    alike: dict[bytes, list[int]] = {}
    for device in range(devices):
        alike.setdefault(shares[device].tobytes(), []).append(device)
    return Columns(
        np.array([column.cpu_milli for column in columns], np.int64),
        np.array([column.memory_bytes for column in columns], np.int64),
        np.array([column.number for column in columns], np.int64),
        shares,
        tuple(map(tuple, alike.values())),
    )


def fills(cpu: Ints, memory: Ints, free: Ints, columns: Columns) -> Ints:
    """int64[states, columns]: thousandths of devices that copies of a request alone could take.

    Of `cpu` and `memory` int64[states] and `free` int64[states, devices]. With so many copies that
    fit the devices one by one, the free share of all devices that can take one is taken; where
    there is CPU or memory for fewer, as much less of it.

    The whole numbers are floats here, which are divided in a third of the time: below 2**24 where
    32 bits hold them and 2**53 (8 PiB) otherwise, so that quotients, rounded down, are exact.
    """
    found = np.zeros((len(free), 3, len(columns.number)), np.float32)
    for devices in columns.alike:
        # Few shares are free in many places: what each is good for is found out once.
        free_here = free[:, devices]
        is_there = np.zeros(FULL + 1, np.bool_)
        is_there[free_here] = True
        at = (np.cumsum(is_there) - 1)[free_here]
        here = np.flatnonzero(is_there).astype(np.float32)[:, None]
        room = np.floor(here / columns.shares[devices[0]].astype(np.float32))
        has_room = room > 0
        good_for = np.stack((room, here * has_room, has_room), 1)
        for device in range(len(devices)):
            found += good_for[at[:, device]]
    places, usable, able = found[:, 0], found[:, 1], found[:, 2]
    number = np.maximum(columns.number, 1)
    copies = np.floor(places / number)
    for there, asked in ((cpu, columns.cpu_milli), (memory, columns.memory_bytes)):
        limits = np.floor(there[:, None] / np.maximum(asked, 1))
        np.minimum(copies, np.where(asked > 0, limits, NEVER), out=copies)
    copies[able < columns.number] = 0
    taken = usable * (copies * number)
    whole = np.maximum(places.astype(np.float64), 1)
    result: Ints = np.floor((2 * taken + whole) / (2 * whole)).astype(np.int64)
    return result


def fragments(cpu: Ints, free: Ints, columns: Columns) -> Ints:
    """int64[states, columns]: free thousandths of devices that a request could not use.

    Where it fits, those of devices that have too little for it; where it does not, all.
    Source: FGD (USENIX ATC '23), section 4.1.
    """
    able = np.zeros((len(cpu), len(columns.number)), np.int64)
    unusable = np.zeros_like(able)
    for device in range(free.shape[1]):
        here = free[:, device, None]
        fits = here >= columns.shares[device]
        able += fits
        unusable += here * ~fits
    fits = (columns.number > 0) & (able >= columns.number) & (cpu[:, None] >= columns.cpu_milli)
    result: Ints = np.where(fits, unusable, free.sum(1)[:, None])
    return result
