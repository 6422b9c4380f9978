"""Topology domains: rows with the same value of a label key, or of several keys in order."""

from typing import TYPE_CHECKING

import numpy as np

from stower.state.arrays import Ints

if TYPE_CHECKING:
    from stower.state.cluster import ClusterState


def domain_sums(state: "ClusterState", key: str, amounts: Ints) -> dict[str, int]:
    """Sum of `amounts` (int64[row_limit]) per value of the key, over present nodes, sorted by
    value.

    Nodes without the key are in no domain.
    """
    column = state.labels.columns.get(key)
    if column is None:
        return {}
    rows = state.all_rows
    codes = column.codes[rows]
    live = state.present[rows] & (codes > 0)
    # Not bincount(weights=): it sums in float64, which bytes of a cluster outgrow (2^53).
    sums = np.zeros(column.code_count, np.int64)
    np.add.at(sums, codes[live], amounts[live])
    seen = np.bincount(codes[live], minlength=column.code_count) > 0
    return dict(sorted((str(column.values[int(c)]), int(sums[c])) for c in np.flatnonzero(seen)))


def domain_codes(state: "ClusterState", keys: tuple[str, ...]) -> Ints:
    """int64[row_limit]: a number per distinct combination of the keys' values, coarse key first.

    Rows that lack one of the keys get -1. Two rows have equal numbers for a prefix of the keys if
    and only if they lie in the same domain at that level of the tree.
    """
    rows = state.all_rows
    count = state.row_limit
    combined = np.zeros(count, np.int64)
    missing = ~state.present[rows]
    for key in keys:
        column = state.labels.columns.get(key)
        if column is None:
            return np.full(count, -1, np.int64)
        codes = column.codes[rows]
        missing |= codes == 0
        _, combined = np.unique(combined * column.code_count + codes, return_inverse=True)
    return np.where(missing, -1, combined)
