"""Orders pods that share a driver and whose selection has failed before: one at a time has a node
selected (S5).

Without an order two such pods could for ever take from each other the devices that both need.
"""

from collections.abc import Iterable

from stower.devices.negotiation.claims import PodNegotiation

Rank = tuple[int, str, str]


def rank(negotiation: PodNegotiation) -> Rank:
    """Returns the sort key of a pod: by priority, then age, then uid. A pod of a tree has the age
    and uid of the root, so that trees are ranked as a whole."""
    meta, tree = negotiation.pod.metadata, negotiation.tree
    created, uid = (meta.creation_timestamp, meta.uid) if tree is None else (tree.created, tree.uid)
    return -negotiation.pod.priority, created or "", uid


def preceding_pod(
    negotiation: PodNegotiation, others: Iterable[tuple[PodNegotiation, bool]], by_rank: bool
) -> str:
    """Returns the pod (namespace/name) whose selection comes first, "" for none.

    `others`: pods without a node that have failed before, and whether it is their turn: a node was
    selected for them, be that seen yet or not, and not too long ago.

    One that waits for the answer of a driver holds nobody up, however high its rank. `by_rank`:
    whether rank counts at all; it bounds how long one waits, and must not hold others up for ever
    where a pod of high rank cannot go to its node for reasons of its own.
    """
    own, drivers = rank(negotiation), {*negotiation.drivers}
    own_tree = negotiation.tree
    for other, is_its_turn in others:
        said = other.scheduling
        if own_tree is not None and other.tree == own_tree:
            continue
        if said is None or not other.is_ours or drivers.isdisjoint(other.drivers):
            continue
        if is_its_turn:
            return other.pod.key
        if said.spec.selected_node:
            continue
        if by_rank and rank(other) < own and other.pending and not other.silent_parties():
            refused = other.refusals_by_node()
            if any(name not in refused for name in said.spec.potential_nodes or ()):
                return other.pod.key
    return ""
