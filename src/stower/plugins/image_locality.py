"""ImageLocality: prefers nodes that already have the pod's images.

Source: kube-scheduler plugins/imagelocality. An image counts by its size times the share of nodes
that have it, so that a single node with all images does not attract all pods.
"""

from typing import Final

import numpy as np

from stower.framework.plugin import MAX_NODE_SCORE, Plugin
from stower.state.arrays import Ints, Rows
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

# 90 % of the images on public registries lie between these sizes (kube-scheduler's constants).
MIN_BYTES: Final = 23 * 1024 * 1024
MAX_CONTAINER_BYTES: Final = 1000 * 1024 * 1024


class ImageLocality(Plugin):
    """Scores nodes by the total size of the pod's images that they have."""

    name = "ImageLocality"

    def score(self, shape: Shape, state: ClusterState, rows: Rows) -> Ints | None:
        """Scores 0 to 100, linear between the thresholds."""
        if not state.images.has_any(shape.images):
            return None
        sums = np.zeros(state.capacity, np.int64)
        for image in shape.images:
            holders, size = state.images.rows_and_size(image)
            # float64 in kube-scheduler's order of operations, then truncated.
            counts = state.images.node_counts(image, holders)
            spread = counts.astype(np.float64) / float(state.node_count)
            sums[holders] += (float(size) * spread).astype(np.int64)
        highest = MAX_CONTAINER_BYTES * shape.container_count
        clipped = np.clip(sums[rows], MIN_BYTES, highest)
        scores: Ints = MAX_NODE_SCORE * (clipped - MIN_BYTES) // (highest - MIN_BYTES)
        return scores

    def generation(self, shape: Shape, state: ClusterState) -> int:
        """Returns a number that changes with image lists and the node count: both change the scores
        of all nodes."""
        if not state.images.has_any(shape.images):
            return -1
        return state.images.generation * 1_000_003 + state.node_count
