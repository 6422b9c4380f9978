"""Counts placeholders that the open trial has displaced as if they were still where they were.

A user is placed without them, and goes where none has to leave if all else is equal.
"""

from collections.abc import Iterable

import numpy as np

from stower.model.resources import PODS
from stower.state.arrays import Bools, Ints
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape
from stower.warm.controller import WarmCapacity
from stower.warm.pools import Pool
from stower.warm.sharing import placeholders_on


def placeholders_with_displaced(warm: WarmCapacity, pool: Pool) -> Ints:
    """Returns int64[row_limit]: placeholders by row, displaced ones on the row that they were taken
    off."""
    counts = placeholders_on(warm.state, (pool,))
    for entry in _displaced(warm, (pool,)):
        counts[entry.displaced_row] += 1
    return counts


def full_rows(warm: WarmCapacity, shape: Shape) -> Bools:
    """Returns bool[row_limit]: where a pod of the shape does not fit beside displaced
    placeholders."""
    state = warm.state
    full = np.zeros(state.row_limit, np.bool_)
    held_by: dict[int, list[Shape]] = {}
    for entry in _displaced(warm, warm.pools.values()):
        held_by.setdefault(entry.displaced_row, []).append(entry.shape)
    for row, shapes in held_by.items():
        for column, amount in (*shape.requests, (state.column(PODS), 1)):
            held = sum(a for one in shapes for c, a in one.usage if c is column)
            full[row] |= column.requested_cells[row] + amount + held > column.allocatable_cells[row]
    return full


def _displaced(warm: WarmCapacity, pools: Iterable[Pool]) -> list[PodEntry]:
    pods = warm.state.pods
    return [
        entry
        for pool in pools
        for uid in pool.placeholders
        if (entry := pods.get(uid)) is not None and entry.displaced_row >= 0
    ]
