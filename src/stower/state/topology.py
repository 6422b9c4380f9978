"""Sums amounts over topology domains: the rows of nodes with the same value of a label key."""

from typing import TYPE_CHECKING

import numpy as np

from stower.state.arrays import Ints

if TYPE_CHECKING:
    from stower.state.cluster import ClusterState


def domain_sums(state: "ClusterState", key: str, amounts: Ints) -> dict[str, int]:
    """Returns the sum of `amounts` (int64[row_limit]) per value of the key, over present nodes,
    sorted by value. Nodes without the key are in no domain."""
    column = state.labels.columns.get(key)
    if column is None:
        return {}
    rows = state.all_rows
    codes = column.codes[rows]
    live = state.present[rows] & (codes > 0)
    # Not bincount(weights=), which sums in float64: the bytes of a cluster may exceed 2^53.
    sums = np.zeros(column.code_count, np.int64)
    np.add.at(sums, codes[live], amounts[live])
    seen = np.bincount(codes[live], minlength=column.code_count) > 0
    return dict(sorted((str(column.values[int(c)]), int(sums[c])) for c in np.flatnonzero(seen)))
