"""Reads the negotiations of a pod group tree from the cluster state, for NegotiatedResources.

A tree that has learned how many devices a node has (devices/negotiation/trees) places its pods
accordingly: devices of pods that a trial has placed count, and a node without devices for one more
pod is rejected.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import numpy as np

from stower.devices.negotiation.claims import PodNegotiation, TreeRank, driver_of
from stower.devices.negotiation.trees import (
    ANY_NODE,
    SOME_NODES,
    ClaimId,
    Pool,
    TreeNegotiation,
    TreeNegotiations,
    TreeTurn,
    has_begun,
    pending_devices,
)
from stower.framework.dry_run import CapacityConstraint, no_usage
from stower.framework.negotiation import FeasibleNodes
from stower.model.kinds import Pod
from stower.model.selectors import NodeSelector
from stower.state.arrays import Ints
from stower.state.cluster import ClusterState
from stower.state.groups import GroupKey

# More than any tree requests.
UNLIMITED: Final = 1 << 40


def rank_of_tree(pod: Pod, state: ClusterState) -> TreeRank | None:
    """Returns the pod group tree of a pod, None where its groups are not known."""
    groups = state.groups
    root = groups.root(GroupKey(False, f"{pod.metadata.namespace}/{pod.group_name}"))
    obj = groups.get(root)
    if obj is None:
        return None
    meta = obj.metadata
    kind = "CompositePodGroup" if root.is_composite else "PodGroup"
    return TreeRank(f"{kind} {root.key}", meta.creation_timestamp or "", meta.uid)


def known_of(negotiation: PodNegotiation, state: ClusterState) -> TreeNegotiation | None:
    """Returns what is known about the negotiations of the pod's tree, None for nothing."""
    if negotiation.tree is None:
        return None
    return state.negotiations.extension(TreeNegotiations).get(negotiation.tree.uid)


def begin_attempt(
    negotiations: Sequence[PodNegotiation], state: ClusterState, can_be_placed: bool
) -> bool:
    """Updates what is known about a tree from its pods without a node. Returns whether the pods are
    giving back devices. Changes nothing in a trial."""
    tree = negotiations[0].tree if negotiations else None
    if tree is None or state.journal.is_in_trial:
        return False
    known = state.negotiations.extension(TreeNegotiations).add(tree.uid)
    known.update(tree.key, negotiations, _TreeContext(state))
    known.is_stalled = not can_be_placed
    return known.is_failed


def turn_of(
    negotiation: PodNegotiation, feasible: FeasibleNodes, state: ClusterState
) -> TreeTurn | None:
    """Returns what a step of the pod may do for its tree; None if the pod is scheduled alone."""
    known = known_of(negotiation, state) if feasible.is_of_tree else None
    if known is None:
        return None
    row = feasible.chosen_row
    node = state.node_names[row] if row >= 0 and not known.is_failed else ""
    if not node and has_begun(negotiation) and not state.journal.is_in_trial:
        known.fail(state.now_ns)
    is_patient = known.is_begun and not known.is_failed  # else there is nothing to keep
    retry_ns = known.patient_until_ns if is_patient else 0
    return TreeTurn(
        node, feasible.may_select or known.is_begun, known.is_begun, known.not_before_ns,
        retry_ns or known.expires_ns, known.attempt, not node and retry_ns > state.now_ns,
    )  # fmt: skip


def stall(negotiation: PodNegotiation, state: ClusterState, has_failed: bool) -> None:
    """Records that the pod's tree cannot go on soon; `has_failed`: that its pods give back what
    they have. Does nothing in a trial."""
    known = known_of(negotiation, state)
    if known is not None and not state.journal.is_in_trial:
        known.is_stalled = True
        known.is_failed |= has_failed


def rows_without_devices(
    negotiation: PodNegotiation, known: TreeNegotiation, state: ClusterState
) -> Iterable[tuple[str, int | slice]]:
    """Yields drivers and the rows on which the pod's tree cannot have devices for the pod as well,
    as far as that is known."""
    if not known.capacity:
        return
    wanted = pending_devices(negotiation)
    for driver, node in known.capacity:
        free = known.free((driver, node))
        if free is None or wanted.get(driver, 0) <= free:
            continue
        row = state.row_of(node) if node != ANY_NODE else -1
        if node == ANY_NODE:
            yield driver, state.all_rows
        elif row >= 0:
            yield driver, row


def constraints_of(
    negotiation: PodNegotiation, known: TreeNegotiation, state: ClusterState, code: int
) -> tuple[CapacityConstraint, ...]:
    """Returns the known numbers of devices, as amounts of nodes that the tree's pods share."""
    found = []
    for driver, count in pending_devices(negotiation).items():
        nodes = [node for of, node in known.capacity if of == driver and node != ANY_NODE]
        if nodes:
            free = _free_devices(driver, nodes, known, state)
            name = f"devices of {driver}"
            found.append(CapacityConstraint(name, free, count, no_usage, code, True, empty=free))
    return tuple(found)


def _free_devices(
    driver: str, nodes: Sequence[str], known: TreeNegotiation, state: ClusterState
) -> Callable[[slice], Ints]:
    def free(rows: slice) -> Ints:
        amounts = np.full(state.row_limit, UNLIMITED, np.int64)
        for node in nodes:
            row, count = state.row_of(node), known.free((driver, node))
            if 0 <= row < state.row_limit and count is not None:
                amounts[row] = max(count, 0)
        return amounts[rows]

    return free


def assume_devices(negotiation: PodNegotiation, node_name: str, state: ClusterState) -> None:
    """Counts the devices that the pod's pending claims take on the node, within a trial."""
    known = known_of(negotiation, state)
    if known is None or not known.capacity or not state.journal.is_recording:
        return
    for driver, count in pending_devices(negotiation).items():
        for pool in ((driver, node_name), (driver, ANY_NODE)):
            if pool in known.capacity:
                known.assume(pool, count)
                state.journal.log(known.assume, pool, -count)


def _node_of(selector: NodeSelector | None) -> str:
    """Returns the only node that an allocation can be used on, ANY_NODE or SOME_NODES."""
    if selector is None:
        return ANY_NODE
    names: set[str] = set()
    for term in selector.node_selector_terms or ():
        fields = [field for field in term.match_fields or () if field.operator == "In"]
        names.update(name for field in fields for name in field.values or ())
        if not fields:
            names.add(SOME_NODES)
    return names.pop() if len(names) == 1 else SOME_NODES


class _TreeContext:
    """The cluster state, as devices/negotiation/trees reads it (TreeSurroundings)."""

    def __init__(self, state: ClusterState) -> None:
        self.now_ns = state.now_ns
        self._state = state

    def claims_in_use(self, drivers: Collection[str]) -> Iterable[tuple[ClaimId, Pool]]:
        """See TreeSurroundings."""
        devices, classes = self._state.devices, self._state.negotiations.classes
        for claim in devices.api_claims():
            key, allocation = claim.metadata.key, claim.status.allocation
            driver = driver_of(claim, classes) if allocation is not None else ""
            if allocation is None or driver not in drivers:
                continue
            if any(not entry.is_assumed for entry in devices.users(key).values()):
                yield (key, claim.metadata.uid), (driver, _node_of(allocation.node_selector))

    def is_in_use(self, claim: ClaimId) -> bool:
        """See TreeSurroundings."""
        key, uid = claim
        found = self._state.devices.api_claim(key)
        return (
            found is not None and found.metadata.uid == uid and found.status.allocation is not None
        )
