"""ImageLocality: prefer nodes that already have the pod's images.

Source: kube-scheduler plugins/imagelocality. An image counts by its size times the share of nodes
that have it, so that one node with everything does not draw all pods.
"""

from typing import Final

import numpy as np

from stower.framework.plugin import MAX_NODE_SCORE, Plugin
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

# 90 % of the images on public registries lie between these sizes (upstream's constants).
MIN_BYTES: Final = 23 * 1024 * 1024
MAX_CONTAINER_BYTES: Final = 1000 * 1024 * 1024


class ImageLocality(Plugin):
    """Score by the sizes of the pod's images that the node has."""

    name = "ImageLocality"

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """0 to 100 between the thresholds."""
        if not state.images.has_any(shape.images):
            return None
        sums = np.zeros(state.capacity, np.int64)
        for image in shape.images:
            holders, size = state.images.rows_and_size(image)
            # float64 in upstream's order of operations, then truncated.
            counts = state.images.node_counts(image, holders)
            spread = counts.astype(np.float64) / float(state.node_count)
            sums[holders] += (float(size) * spread).astype(np.int64)
        highest = MAX_CONTAINER_BYTES * shape.container_count
        clipped = np.clip(sums[rows], MIN_BYTES, highest)
        scores: Ints = MAX_NODE_SCORE * (clipped - MIN_BYTES) // (highest - MIN_BYTES)
        return scores

    def generation(self, shape: Shape, state: ClusterState) -> int:
        """Image lists and the number of nodes change every node's score."""
        if not state.images.has_any(shape.images):
            return -1
        return state.images.generation * 1_000_003 + state.node_count
