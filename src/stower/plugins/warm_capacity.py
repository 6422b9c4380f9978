"""WarmCapacity: users go where the most users are, and placeholders are in the way of none of them.

For users the cluster is as if there were no placeholders; the busiest node that is ready for them
is chosen, and those that hold the room there leave at once. Placeholders go where users are next.
Its companion keeps placeholders and empties nodes; ImageReadiness says which nodes are ready.

    pluginConfig:
      - name: WarmCapacity
        args: {pools: [{name: hub, namespace: jhub, users: {...}, placeholders: {...}}]}

Source: seed 001; zero-to-jupyterhub-k8s.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np

from stower.framework.args import Args, convert_args, duplicate, invalid, raise_faults
from stower.framework.plugin import MAX_NODE_SCORE, Features, Plugin, Scope
from stower.model.kinds import Pod
from stower.model.kinds.warm_pool import WarmPoolSpec, pool_faults
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape
from stower.warm.controller import WarmCapacity as Controller
from stower.warm.pools import Pool, Role

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class PoolArgs(WarmPoolSpec, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A WarmPool without the object."""

    name: Name
    namespace: Name


class WarmCapacityArgs(Args, frozen=True):
    """Arguments of the plugin in a KubeSchedulerConfiguration: pools beside those of the API."""

    pools: tuple[PoolArgs, ...] = ()


class WarmCapacity(Plugin):
    """See the module."""

    name = "WarmCapacity"
    scope = Scope.PODS
    enabling_plugin = "WarmCapacity"
    # Where users are comes before whatever else speaks for a node.
    default_weight = 1_000_000

    def __init__(self, pools: tuple[PoolArgs, ...] = ()) -> None:
        self._pools = pools

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "WarmCapacity":
        """WarmCapacityArgs."""
        pools = convert_args(args, WarmCapacityArgs, path).pools
        keys = [(pool.namespace, pool.name) for pool in pools]
        raise_faults(
            duplicate(f"{path}.pools[{i}]", "/".join(key))
            for i, key in enumerate(keys)
            if key in keys[:i]
        )
        raise_faults(
            invalid(f"{path}.pools[{i}].{at}", value, text)
            for i, pool in enumerate(pools)
            for at, value, text in pool_faults(pool, pool.name)
        )
        return cls(pools)

    def companion(self, state: ClusterState, seed: int) -> Controller:
        """Placeholders, repositioning, status."""
        pools = (Pool(f"{one.namespace}/{one.name}", one, None) for one in self._pools)
        return Controller(state, pools)

    def displaceable_pods(self, pod: Pod, state: ClusterState) -> Sequence[PodEntry]:
        """To a user, the placeholders of its pool, wherever it may go."""
        controller = find_warm_controller(state)
        found = controller.role_of(pod) if controller is not None and controller.pools else None
        if controller is None or found is None or found[1] is not Role.USER:
            return ()
        return controller.make_way(found[0], pod)

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Of users and placeholders alone."""
        controller = find_warm_controller(state)
        return (
            controller is not None
            and bool(controller.pools)
            and controller.role_of(pod) is not None
        )

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """100 for the best, one less for each next."""
        controller = find_warm_controller(state)
        found = controller.role_of(pod) if controller is not None else None
        if controller is None or found is None or found[1] is Role.PULLER:
            return None
        pool, role = found
        rows = np.flatnonzero(feasible)
        sort_columns = (_user_sort_columns if role is Role.USER else _placeholder_sort_columns)(
            controller, pool, pod, shape, rows
        )
        result = np.zeros(state.row_limit, np.int64)
        result[rows] = _rank_scores(sort_columns)
        return result


def find_warm_controller(state: ClusterState) -> Controller | None:
    """What is known of pools, None where the plugin is off."""
    found: Controller | None = state.companions.get(WarmCapacity.name)
    return found


def _user_sort_columns(
    controller: Controller, pool: Pool, pod: Pod, shape: Shape, rows: Ints
) -> list[Ints]:
    """Where the images are, or will be first; by number of users; then where nobody has to leave;
    then the oldest."""
    users, born = controller.users_on(pool)[rows], controller.nodes_of(pool).born_ns[rows]
    late = controller.lateness(pool, rows)
    if pool.spec.placeholders.placement == "Spread":
        weights = pool.spec.placeholders.weights
        held = controller.placeholders_on(pool)[rows]
        value = weights.user_to_user * users - weights.user_to_placeholder * held
        return [late, -value, born]
    full = controller.is_full_beside(pool, shape)[rows]
    return [late, -users, full.astype(np.int64), born]


def _placeholder_sort_columns(
    controller: Controller, pool: Pool, pod: Pod, shape: Shape, rows: Ints
) -> list[Ints]:
    """Not where it is drained; the node that it was moved to; by users, by placeholders."""
    state = controller.state
    users, held = controller.users_on(pool)[rows], controller.placeholders_on(pool)[rows]
    to = controller.promised_to(pool, pod)
    elsewhere = np.array([state.node_names[row] != to for row in rows.tolist()], np.int64)
    drained = np.array([state.node_names[row] in pool.draining for row in rows.tolist()], np.int64)
    if pool.spec.placeholders.placement == "Spread":
        weights = pool.spec.placeholders.weights
        born = controller.nodes_of(pool).born_ns
        newest = (born[rows] == born[rows].max(initial=0)).astype(np.int64)
        value = (
            weights.newest_node * newest
            - weights.placeholder_to_user * users
            - weights.placeholder_to_placeholder * held
        )
        return [drained, elsewhere, -value]
    return [drained, elsewhere, (users == 0).astype(np.int64), -users, -held]


def _rank_scores(sort_columns: list[Ints]) -> Ints:
    """100 for the rows that come first by these columns, one less for each next value."""
    count = len(sort_columns[0])
    ranks = np.zeros(count, np.int64)
    if count > 1:
        ranked = np.lexsort(sort_columns[::-1])
        differs = np.zeros(count - 1, np.bool_)
        for column in sort_columns:
            differs |= column[ranked][1:] != column[ranked][:-1]
        ranks[ranked[1:]] = np.cumsum(differs)
    return np.maximum(MAX_NODE_SCORE - ranks, 0)
