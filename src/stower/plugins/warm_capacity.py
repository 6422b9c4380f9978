"""WarmCapacity: packs users of a warm pool onto ready nodes; users displace placeholder pods.

For users, nodes are chosen as if placeholders were absent: the busiest ready node, whose
placeholders are deleted at once if they occupy the room. Placeholders go to the nodes where users
go next. The companion (warm/controller.py) maintains placeholders and empties nodes; ImageReadiness
rejects nodes that are not ready.

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
from stower.framework.cluster_events import Change
from stower.framework.plugin import MAX_NODE_SCORE, Features, Plugin, Scope
from stower.model.kinds import Pod
from stower.model.kinds.warm_pool import WarmPoolSpec, pool_faults
from stower.model.selectors import label_key_fault
from stower.state.arrays import Bools, Ints
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.shapes import Shape
from stower.warm.controller import WarmCapacity as Controller
from stower.warm.displaced import full_rows, placeholders_with_displaced
from stower.warm.leaving import extra_seconds
from stower.warm.pools import Pool, Role

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class PoolArgs(WarmPoolSpec, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A WarmPool as an argument, with name and namespace."""

    name: Name
    namespace: Name


class WarmCapacityArgs(Args, frozen=True, rename="camel"):
    """Arguments in a KubeSchedulerConfiguration: pools in addition to WarmPool objects, and which
    labels these objects may set on nodes: keys, or domains as `example.com/*`. `WarmPool` objects
    belong to users of namespaces, and pods of other namespaces may select nodes by a label."""

    pools: tuple[PoolArgs, ...] = ()
    node_labels: tuple[str, ...] = ()


def _node_label_fault(label: str) -> str | None:
    """What is wrong with an entry of nodeLabels, or None."""
    key = f"{label[:-1]}x" if label.endswith("/*") else label
    return label_key_fault(key) if "/" in key else "a label with a domain, or example.com/*"


class WarmCapacity(Plugin):
    """Names placeholders that a user displaces; scores nodes for users and placeholders."""

    name = "WarmCapacity"
    scope = Scope.PODS
    enabling_plugin = "WarmCapacity"
    events_to_register = Change.PLACED_POD_DELETED
    # Packing users comes before all other scores.
    default_weight = 1_000_000

    def __init__(self, pools: tuple[PoolArgs, ...] = (), node_labels: tuple[str, ...] = ()) -> None:
        self._pools = pools
        self._node_labels = node_labels

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "WarmCapacity":
        """Reads WarmCapacityArgs."""
        parsed = convert_args(args, WarmCapacityArgs, path)
        pools = parsed.pools
        keys = [(pool.namespace, pool.name) for pool in pools]
        raise_faults(
            duplicate(f"{path}.pools[{i}]", "/".join(key))
            for i, key in enumerate(keys)
            if key in keys[:i]
        )
        raise_faults(
            invalid(f"{path}.pools[{i}].{field}", value, text)
            for i, pool in enumerate(pools)
            for field, value, text in pool_faults(pool, pool.name)
        )
        raise_faults(
            invalid(f"{path}.nodeLabels[{i}]", label, f"must be {fault}")
            for i, label in enumerate(parsed.node_labels)
            if (fault := _node_label_fault(label))
        )
        return cls(pools, parsed.node_labels)

    def companion(self, state: ClusterState, seed: int) -> Controller:
        """Returns the companion for placeholders, repositioning and pool status."""
        pools = (Pool(f"{pool.namespace}/{pool.name}", pool, None) for pool in self._pools)
        return Controller(state, pools, self._node_labels)

    def displaceable_pods(self, pod: Pod, state: ClusterState) -> Sequence[PodEntry]:
        """Returns for a user the placeholders on the nodes that are admitted for it."""
        controller = find_warm_controller(state)
        pool_role = controller.role_of(pod) if controller is not None and controller.pools else None
        if controller is None or pool_role is None or pool_role[1] is not Role.USER:
            return ()
        return controller.select_displaceable(pool_role[0], pod)

    def has_scores(self, pod: Pod, state: ClusterState) -> bool:
        """Returns whether the pod belongs to a pool."""
        controller = find_warm_controller(state)
        return (
            controller is not None
            and bool(controller.pools)
            and controller.role_of(pod) is not None
        )

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Scores 100 for the best nodes, and one less for each next rank."""
        controller = find_warm_controller(state)
        pool_role = controller.role_of(pod) if controller is not None else None
        if controller is None or pool_role is None or pool_role[1] is Role.PULLER:
            return None
        pool, role = pool_role
        rows = np.flatnonzero(feasible)
        sort_columns = (_user_sort_columns if role is Role.USER else _placeholder_sort_columns)(
            controller, pool, pod, shape, rows
        )
        result = np.zeros(state.row_limit, np.int64)
        result[rows] = _rank_scores(sort_columns)
        return result


def find_warm_controller(state: ClusterState) -> Controller | None:
    """Returns the companion, which maintains the pools; None if the plugin is off."""
    controller: Controller | None = state.companions.get(WarmCapacity.name)
    return controller


def _user_sort_columns(
    controller: Controller, pool: Pool, pod: Pod, shape: Shape, rows: Ints
) -> list[Ints]:
    """Returns the columns by which nodes are ranked for a user: images present, or expected first;
    in use for it for the shortest time, where users are known to be idle; most users; no
    placeholder to delete; oldest."""
    users, born = controller.users_on(pool)[rows], controller.nodes_of(pool).born_ns[rows]
    lateness = controller.lateness(pool, rows)
    if pool.spec.placeholders.placement == "Spread":
        weights = pool.spec.placeholders.weights
        placeholders = placeholders_with_displaced(controller, pool)[rows]
        value = weights.user_to_user * users - weights.user_to_placeholder * placeholders
        return [lateness, -value, born]
    is_full = full_rows(controller, shape)[rows].astype(np.int64)
    sort_columns = [lateness, -users, is_full, born]
    sharing = controller.sharing(pool)
    if pool.spec.packing.mode == "Leaving" and any(one.last_active_ns for one in sharing):
        sort_columns.insert(1, extra_seconds(controller.state, pool, sharing, rows))
    return sort_columns


def _placeholder_sort_columns(
    controller: Controller, pool: Pool, pod: Pod, shape: Shape, rows: Ints
) -> list[Ints]:
    """Returns the columns by which nodes are ranked for a placeholder: users can use it, now or
    soon; not drained; the node to which it was moved; by users; by placeholders."""
    state = controller.state
    users, placeholders = controller.users_on(pool)[rows], controller.placeholders_on(pool)[rows]
    is_elsewhere = (rows != state.row_of(controller.promised_node(pool, pod))).astype(np.int64)
    drained = np.zeros(state.row_limit + 1, np.int64)  # the last: nodes that are gone
    drained[[state.row_of(name) for name in pool.draining]] = 1
    is_drained = drained[rows]
    usable = controller.nodes_of(pool).usable
    is_unusable = (~usable[rows]).astype(np.int64)
    if pool.spec.placeholders.placement == "Spread":
        weights = pool.spec.placeholders.weights
        born = controller.nodes_of(pool).born_ns
        is_newest = (born[rows] == born[rows[usable[rows]]].max(initial=0)).astype(np.int64)
        value = (
            weights.newest_node * is_newest
            - weights.placeholder_to_user * users
            - weights.placeholder_to_placeholder * placeholders
        )
        return [is_unusable, is_drained, is_elsewhere, -value]
    return [
        is_unusable,
        is_drained,
        is_elsewhere,
        (users == 0).astype(np.int64),
        -users,
        -placeholders,
    ]


def _rank_scores(sort_columns: list[Ints]) -> Ints:
    """Returns 100 for the first rows by these columns, one less for each next value, down to 0."""
    count = len(sort_columns[0])
    ranks = np.zeros(count, np.int64)
    if count > 1:
        ranked = np.lexsort(sort_columns[::-1])
        is_different = np.zeros(count - 1, np.bool_)
        for column in sort_columns:
            is_different |= column[ranked][1:] != column[ranked][:-1]
        ranks[ranked[1:]] = np.cumsum(is_different)
    return np.maximum(MAX_NODE_SCORE - ranks, 0)
