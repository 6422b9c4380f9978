"""ImageReadiness: filters the nodes that lack the images of a pod, for user pods of a WarmPool.

Placeholder pods, which hold room for users and pull their images, may go to any node. Arguments for
WarmCapacity, the plugin that maintains the pools, enable this plugin too. Source: seed 001.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from stower.framework.cluster_events import Change
from stower.framework.dry_run import DryRun
from stower.framework.plugin import Plugin, Scope
from stower.framework.reasons import Rejection
from stower.model.kinds import Pod
from stower.plugins.warm_capacity import find_warm_controller
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape
from stower.warm.controller import WarmCapacity
from stower.warm.pools import Pool, Role

OUTSIDE_POOL: Final = "node(s) outside the user's warm pool"
IMAGES_MISSING: Final = "node(s) without the warm pool's images"


class ImageReadiness(Plugin):
    """Rejects for users nodes outside their warm pool, and nodes without the images; for the
    placeholders that a pool makes, nodes to which no user of it may go."""

    name = "ImageReadiness"
    scope = Scope.PODS
    enabling_plugin = "WarmCapacity"
    reasons = (OUTSIDE_POOL, IMAGES_MISSING)
    events_to_register = Change.WARMTH_CHANGED | Change.NODE_ADDED | Change.NODE_LABELS

    def is_relevant_to_pod(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether the pod is a user of a pool, or a placeholder that a pool makes."""
        controller = find_warm_controller(state)
        return _pool_of(pod, controller) is not None

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """Rejects nodes: 1 outside the pool, 2 where images are missing."""
        controller = find_warm_controller(state)
        found = _pool_of(pod, controller)
        if controller is None or found is None:
            return None
        pool, role = found
        if role is not Role.USER:
            return np.where(controller.open_rows(pool), 0, 1)
        codes = np.where(controller.admitted_rows(pool, pod), 0, 2)
        codes[~controller.nodes_of(pool).holds[: len(codes)]] = 1
        return codes

    def details(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[str]:
        """Yields the pod's warm pool and what the node is for it."""
        controller = find_warm_controller(state)
        pool_role = controller.role_of(pod) if controller is not None else None
        if controller is not None and pool_role is not None and row < state.row_limit:
            pool = pool_role[0]
            yield f"warm pool {pool.key}; the node is {controller.describe_node(pool, row)}"

    def dry_runs(  # type: ignore[override]
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> DryRun | None:
        """Returns None: evictions do not change images."""
        return None

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Returns the reason; unresolvable, because no eviction brings an image."""
        return Rejection((self.reasons[code - 1],), False)


def _pool_of(pod: Pod, controller: WarmCapacity | None) -> tuple[Pool, Role] | None:
    """Returns the pool whose user, or own placeholder, the pod is; None for any other pod."""
    found = controller.role_of(pod) if controller is not None and controller.pools else None
    if found is None:
        return None
    pool, role = found
    is_own = role is Role.PLACEHOLDER and pool.has_own_placeholders and pool.is_own(pod)
    return found if role is Role.USER or is_own else None
