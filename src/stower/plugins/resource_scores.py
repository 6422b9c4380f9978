"""Score functions for resource utilization: over arrays of rows, with scalar twins for one row.

Source: kube-scheduler plugins/noderesources. All divisions are of non-negative integers, so that
Python's floor and Go's truncation agree. A resource that a node does not have does not count there.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stower.framework.plugin import MAX_NODE_SCORE
from stower.state.arrays import Bools, Ints, ResourceColumn, Rows

Shares = NDArray[np.float64]

# Scores in the shape of RequestedToCapacityRatio are 0 to 10.
MAX_CUSTOM_SCORE: Final = 10


class ScoredResource(NamedTuple):
    """One resource that a score counts: its column, what the pod adds, and its weight.

    `allocated` is the column of requests that counts: for cpu and memory of NodeResourcesFit the
    one in which pods without requests count as non-zero.
    """

    column: ResourceColumn
    allocated: ResourceColumn
    amount: int
    weight: int


def least_allocated(scored_resources: Sequence[ScoredResource], rows: Rows) -> Ints:
    """Returns int64[rows]: weighted mean of the free share after placing the pod, 0 to 100."""
    return _weighted_mean(scored_resources, rows, _free_share)


def most_allocated(scored_resources: Sequence[ScoredResource], rows: Rows) -> Ints:
    """Returns int64[rows]: weighted mean of the used share after placing the pod, 0 to 100."""
    return _weighted_mean(scored_resources, rows, _used_share)


def _free_share(requested: Ints, capacity: Ints) -> Ints:
    """Returns the free share, 0 to 100. Overwrites `requested`."""
    share = np.subtract(capacity, requested, out=requested)
    # The maximum comes first: 100 times a value below 0 could overflow, ROOM_MAX * 100 cannot.
    np.maximum(share, 0, out=share)
    share *= MAX_NODE_SCORE
    share //= capacity
    return share


def _used_share(requested: Ints, capacity: Ints) -> Ints:
    """Returns the used share, 0 to 100. Overwrites `requested`."""
    share = np.minimum(requested, capacity, out=requested)
    share *= MAX_NODE_SCORE
    share //= capacity
    return share


def _weighted_mean(
    scored_resources: Sequence[ScoredResource], rows: Rows, share: Callable[[Ints, Ints], Ints]
) -> Ints:
    """Returns the weighted mean over the resources that the node has; 0 if it has none of them.

    Takes some 4 µs per resource for a few rows, almost all of it due to the number of NumPy calls.
    """
    total: Ints | int = 0
    weights: Ints | int = 0
    for column, allocated, amount, weight in scored_resources:
        capacity = column.allocatable[rows]
        requested = allocated.requested[rows] + amount
        if np.count_nonzero(capacity) == len(capacity):
            part_score = share(requested, capacity)
            if weight != 1:
                part_score *= weight
            weights = weights + weight
        else:
            has_resource = capacity > 0
            part_score = (
                share(requested, np.where(has_resource, capacity, 1)) * weight * has_resource
            )
            weights = weights + has_resource * weight
        total = total + part_score if isinstance(total, np.ndarray) else part_score
    result: Ints = total // np.maximum(weights, 1)
    return result


def least_allocated_row(scored_resources: Sequence[ScoredResource]) -> Callable[[int], int]:
    """Returns `least_allocated` for one row at a time."""

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
    """Returns `most_allocated` for one row at a time."""

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
    """Returns int64[101]: the score of each whole percentage of use, linear between the points.

    `points` are (utilization 0-100, score 0-10), ascending. Go truncates towards zero, also where
    the curve descends.
    """
    scale = MAX_NODE_SCORE // MAX_CUSTOM_SCORE
    table = []
    for percent in range(101):
        for i, (use, score) in enumerate(points):
            if percent <= use:
                if i == 0:
                    table.append(score * scale)
                else:
                    start, low = points[i - 1]
                    rise = (score - low) * scale * (percent - start)
                    table.append(low * scale + math.trunc(rise / (use - start)))
                break
        else:
            table.append(points[-1][1] * scale)
    return np.array(table, np.int64)


def requested_to_capacity(
    scored_resources: Sequence[ScoredResource], rows: Rows, table: Ints
) -> Ints:
    """Returns int64[rows]: weighted mean of the table's scores, rounded half up; scores of 0 are
    not weighted."""
    count = len(scored_resources[0].column.allocatable[rows])
    total = np.zeros(count, np.int64)
    weights = np.zeros(count, np.int64)
    for column, allocated, amount, weight in scored_resources:
        capacity = column.allocatable[rows]
        requested = allocated.requested[rows] + amount
        # Above capacity it is 100 %, also of no capacity; the minimum first avoids overflow.
        percent = np.minimum(requested, capacity) * 100 // np.maximum(capacity, 1)
        score = table[percent]
        has_weight = (score > 0) & (capacity > 0)
        total += score * weight * has_weight
        weights += weight * has_weight
    result: Ints = (2 * total + weights) // np.maximum(2 * weights, 1)
    return result


def requested_to_capacity_row(
    scored_resources: Sequence[ScoredResource], table: Ints
) -> Callable[[int], int]:
    """Returns `requested_to_capacity` for one row at a time."""
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
    """Returns int64[rows]: 50 to 100, above 75 if the pod makes the use of the node more even.

    float64 in kube-scheduler's order of operations, then truncated.
    """
    shares: list[Shares] = []
    present: list[Bools | None] = []
    for column, allocated, amount, _ in scored_resources:
        capacity = column.allocatable[rows]
        has_resource = None
        if np.count_nonzero(capacity) != len(capacity):
            has_resource = capacity > 0
            capacity = np.where(has_resource, capacity, 1)
        requested = allocated.requested[rows]
        # float64[2, rows]: without the pod and with it.
        share: Shares = np.empty((2, len(capacity)))
        np.divide(requested, capacity, out=share[0])
        np.divide(requested + amount, capacity, out=share[1])
        shares.append(np.minimum(share, 1.0, out=share))
        present.append(has_resource)
    evenness = np.subtract(1.0, _deviations(shares, present))
    evenness *= MAX_NODE_SCORE
    without_pod, with_pod = evenness.astype(np.int64)
    half = MAX_NODE_SCORE // 2
    result: Ints = half + (half + with_pod - without_pod) // 2
    return result


def _deviations(shares: Sequence[Shares], present: Sequence[Bools | None]) -> Shares:
    """Returns float64[2, rows]: standard deviation of the used shares of the resources present.

    `present` is None for a resource that all rows have. Overwrites the first of the shares.
    """
    if len(shares) == 2:
        # kube-scheduler takes half the distance of two shares; the formula would round differently.
        halves = np.subtract(shares[0], shares[1], out=shares[0])
        np.abs(halves, out=halves)
        halves *= 0.5
        for has_resource in present:
            if has_resource is not None:
                halves *= has_resource
        return halves
    all_rows = np.ones(shares[0].shape[1], np.bool_)
    masks = [all_rows if has_resource is None else has_resource for has_resource in present]
    count = np.sum(masks, axis=0)
    total = np.zeros_like(shares[0])
    for share, has_resource in zip(shares, masks, strict=True):
        total = total + np.where(has_resource, share, 0.0)
    mean = total / np.maximum(count, 1)
    squares = np.zeros_like(total)
    for share, has_resource in zip(shares, masks, strict=True):
        squares = squares + np.where(has_resource, (share - mean) * (share - mean), 0.0)
    deviation = np.sqrt(squares / np.maximum(count, 1))
    high = np.max([np.where(h, s, -1.0) for s, h in zip(shares, masks, strict=True)], axis=0)
    low = np.min([np.where(h, s, 2.0) for s, h in zip(shares, masks, strict=True)], axis=0)
    return np.where(count > 2, deviation, np.where(count == 2, (high - low) / 2, 0.0))


def balanced_allocation_row(scored_resources: Sequence[ScoredResource]) -> Callable[[int], int]:
    """Returns `balanced_allocation` for one row at a time."""

    def score(row: int) -> int:
        old_shares: list[float] = []
        new_shares: list[float] = []
        for column, allocated, amount, _ in scored_resources:
            capacity = column.allocatable_cells[row]
            if capacity > 0:
                used = allocated.requested_cells[row]
                # Beyond 2**53 Go rounds both before it divides; Python divides, then rounds.
                whole = float(capacity)
                share = float(used) / whole
                old_shares.append(share if share < 1.0 else 1.0)
                share = float(used + amount) / whole
                new_shares.append(share if share < 1.0 else 1.0)
        gain = int((1 - _deviation(new_shares)) * 100) - int((1 - _deviation(old_shares)) * 100)
        return 50 + (50 + gain) // 2

    return score


def _deviation(shares: list[float]) -> float:
    """Returns the standard deviation of the shares; `_deviations` for one row."""
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
