"""Kernels of the resource scores: module-level functions over plain arrays, and their scalar twins.

Source: kube-scheduler plugins/noderesources. All divisions are of non-negative integers, so that
Python's floor and Go's truncation agree. A resource that a node does not have counts for nothing
there.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stower.framework.plugin import MAX_NODE_SCORE
from stower.state.arrays import Bools, Ints, ResourceColumn, Rows

Shares = NDArray[np.float64]

# The shape of RequestedToCapacityRatio is written with scores of 0 to 10.
MAX_CUSTOM_SCORE: Final = 10


class ScoredResource(NamedTuple):
    """One resource that a score counts: where it is, what the pod adds, how much it weighs.

    `allocated` is the column of requests that counts: for cpu and memory of NodeResourcesFit the
    one in which pods without requests count as something.
    """

    column: ResourceColumn
    allocated: ResourceColumn
    amount: int
    weight: int


def least_allocated(scored_resources: Sequence[ScoredResource], rows: Rows) -> Ints:
    """int64[rows]: weighted mean of the free share after the pod, 0 to 100."""
    return _weighted_mean(scored_resources, rows, _free_share)


def most_allocated(scored_resources: Sequence[ScoredResource], rows: Rows) -> Ints:
    """int64[rows]: weighted mean of the used share after the pod, 0 to 100."""
    return _weighted_mean(scored_resources, rows, _used_share)


def _free_share(requested: Ints, capacity: Ints) -> Ints:
    """Written over `requested`, which is the caller's to spend."""
    share = np.subtract(capacity, requested, out=requested)
    # The maximum comes first: below 0 the product could overflow (ROOM_MAX * 100 does not).
    np.maximum(share, 0, out=share)
    share *= MAX_NODE_SCORE
    share //= capacity
    return share


def _used_share(requested: Ints, capacity: Ints) -> Ints:
    """Written over `requested`, which is the caller's to spend."""
    share = np.minimum(requested, capacity, out=requested)
    share *= MAX_NODE_SCORE
    share //= capacity
    return share


def _weighted_mean(
    scored_resources: Sequence[ScoredResource], rows: Rows, share: Callable[[Ints, Ints], Ints]
) -> Ints:
    """Weighted mean over the resources that the node has; 0 where it has none of them.

    Some 4 µs a resource for a few rows: almost all of it is the number of NumPy calls.
    """
    total: Ints | int = 0
    weights: Ints | int = 0
    for column, allocated, amount, weight in scored_resources:
        capacity = column.allocatable[rows]
        requested = allocated.requested[rows] + amount
        if np.count_nonzero(capacity) == len(capacity):
            part = share(requested, capacity)
            if weight != 1:
                part *= weight
            weights = weights + weight
        else:
            has = capacity > 0
            part = share(requested, np.where(has, capacity, 1)) * weight * has
            weights = weights + has * weight
        total = total + part if isinstance(total, np.ndarray) else part
    result: Ints = total // np.maximum(weights, 1)
    return result


def least_allocated_row(scored_resources: Sequence[ScoredResource]) -> Callable[[int], int]:
    """least_allocated for one row."""

    def score(row: int) -> int:
        total = weights = 0
        for column, allocated, amount, weight in scored_resources:
            capacity = column.allocatable_cells[row]
            if capacity > 0:
                free = capacity - allocated.requested_cells[row] - amount
                if free > 0:
                    total += free * 100 // capacity * weight
                weights += weight
        return total // weights if weights else 0

    return score


def most_allocated_row(scored_resources: Sequence[ScoredResource]) -> Callable[[int], int]:
    """most_allocated for one row."""

    def score(row: int) -> int:
        total = weights = 0
        for column, allocated, amount, weight in scored_resources:
            capacity = column.allocatable_cells[row]
            if capacity > 0:
                requested = allocated.requested_cells[row] + amount
                total += (
                    (requested if requested < capacity else capacity) * 100 // capacity * weight
                )
                weights += weight
        return total // weights if weights else 0

    return score


def ratio_table(points: Sequence[tuple[int, int]]) -> Ints:
    """int64[101]: the score of each whole percentage of use, by straight lines between the points.

    `points` are (utilisation 0-100, score 0-10), ascending. Go truncates towards zero, also
    downhill.
    """
    scale = MAX_NODE_SCORE // MAX_CUSTOM_SCORE
    table = []
    for percent in range(101):
        for i, (use, score) in enumerate(points):
            if percent <= use:
                if i == 0:
                    table.append(score * scale)
                else:
                    before, low = points[i - 1]
                    rise = (score - low) * scale * (percent - before)
                    table.append(low * scale + math.trunc(rise / (use - before)))
                break
        else:
            table.append(points[-1][1] * scale)
    return np.array(table, np.int64)


def requested_to_capacity(
    scored_resources: Sequence[ScoredResource], rows: Rows, table: Ints
) -> Ints:
    """int64[rows]: weighted mean of the table's scores, rounded half up; zero scores do not
    weigh.
    """
    count = len(scored_resources[0].column.allocatable[rows])
    total = np.zeros(count, np.int64)
    weights = np.zeros(count, np.int64)
    for column, allocated, amount, weight in scored_resources:
        capacity = column.allocatable[rows]
        requested = allocated.requested[rows] + amount
        # Above capacity it is 100 %, also of nothing; cut first, so that nothing overflows.
        percent = np.minimum(requested, capacity) * 100 // np.maximum(capacity, 1)
        score = table[percent]
        weighs = (score > 0) & (capacity > 0)
        total += score * weight * weighs
        weights += weight * weighs
    result: Ints = (2 * total + weights) // np.maximum(2 * weights, 1)
    return result


def requested_to_capacity_row(
    scored_resources: Sequence[ScoredResource], table: Ints
) -> Callable[[int], int]:
    """requested_to_capacity for one row."""
    scores = table.tolist()

    def score(row: int) -> int:
        total = weights = 0
        for column, allocated, amount, weight in scored_resources:
            capacity = column.allocatable_cells[row]
            if capacity > 0:
                requested = allocated.requested_cells[row] + amount
                percent = 100 if requested > capacity else requested * 100 // capacity
                part = scores[max(percent, 0)]
                if part > 0:
                    total += part * weight
                    weights += weight
        return (2 * total + weights) // (2 * weights) if weights else 0

    return score


def balanced_allocation(scored_resources: Sequence[ScoredResource], rows: Rows) -> Ints:
    """int64[rows]: 50 to 100, above 75 where the pod makes the node's use more even.

    float64 in upstream's order of operations, then truncated.
    """
    shares: list[Shares] = []
    present: list[Bools | None] = []
    for column, allocated, amount, _ in scored_resources:
        capacity = column.allocatable[rows]
        has = None
        if np.count_nonzero(capacity) != len(capacity):
            has = capacity > 0
            capacity = np.where(has, capacity, 1)
        requested = allocated.requested[rows]
        # float64[2, rows]: without the pod and with it.
        share: Shares = np.empty((2, len(capacity)))
        np.divide(requested, capacity, out=share[0])
        np.divide(requested + amount, capacity, out=share[1])
        shares.append(np.minimum(share, 1.0, out=share))
        present.append(has)
    evenness = np.subtract(1.0, _deviations(shares, present))
    evenness *= MAX_NODE_SCORE
    without, with_pod = evenness.astype(np.int64)
    half = MAX_NODE_SCORE // 2
    result: Ints = half + (half + with_pod - without) // 2
    return result


def _deviations(shares: Sequence[Shares], present: Sequence[Bools | None]) -> Shares:
    """float64[2, rows]: standard deviation of the used shares of the resources present.

    `present` is None for a resource that all rows have. Spends the first of the shares.
    """
    if len(shares) == 2:
        # Of two shares upstream takes half their distance, which rounds otherwise than the formula.
        halves = np.subtract(shares[0], shares[1], out=shares[0])
        np.abs(halves, out=halves)
        halves *= 0.5
        for has in present:
            if has is not None:
                halves *= has
        return halves
    everywhere = np.ones(shares[0].shape[1], np.bool_)
    there = [everywhere if has is None else has for has in present]
    count = np.sum(there, axis=0)
    total = np.zeros_like(shares[0])
    for share, has in zip(shares, there, strict=True):
        total = total + np.where(has, share, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros_like(total)
    for share, has in zip(shares, there, strict=True):
        squares = squares + np.where(has, (share - mean) * (share - mean), 0.0)
    many = np.sqrt(squares / np.maximum(count, 1))
    high = np.max([np.where(h, s, -1.0) for s, h in zip(shares, there, strict=True)], axis=0)
    low = np.min([np.where(h, s, 2.0) for s, h in zip(shares, there, strict=True)], axis=0)
    return np.where(count > 2, many, np.where(count == 2, (high - low) / 2, 0.0))


def balanced_allocation_row(scored_resources: Sequence[ScoredResource]) -> Callable[[int], int]:
    """balanced for one row."""

    def score(row: int) -> int:
        before: list[float] = []
        after: list[float] = []
        for column, allocated, amount, _ in scored_resources:
            capacity = column.allocatable_cells[row]
            if capacity > 0:
                used = allocated.requested_cells[row]
                # Beyond 2**53 Go rounds both before it divides; Python divides, then rounds.
                whole = float(capacity)
                share = float(used) / whole
                before.append(share if share < 1.0 else 1.0)
                share = float(used + amount) / whole
                after.append(share if share < 1.0 else 1.0)
        gain = int((1 - _deviation(after)) * 100) - int((1 - _deviation(before)) * 100)
        return 50 + (50 + gain) // 2

    return score


def _deviation(shares: list[float]) -> float:
    count = len(shares)
    if count == 2:
        return abs((shares[0] - shares[1]) / 2)
    if count < 2:
        return 0.0
    total = 0.0
    for share in shares:
        total += share
    mean = total / count
    squares = 0.0
    for share in shares:
        squares += (share - mean) * (share - mean)
    return math.sqrt(squares / count)
