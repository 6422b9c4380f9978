"""Whose turn it is (S5): of the pods whose selection has failed before and that share a driver, one
at a time is selected for. Otherwise two of them can take from each other for ever what both need.
"""

from collections.abc import Iterable

from stower.devices.negotiation.claims import Talk

Rank = tuple[int, str, str]


def rank(talk: Talk) -> Rank:
    """Who goes first: by priority, then age, then uid."""
    meta = talk.pod.metadata
    return -talk.pod.priority, meta.creation_timestamp or "", meta.uid


def is_turn(talk: Talk, others: Iterable[Talk]) -> bool:
    """Whether the pod goes first. `others`: pods without a node that have failed before.

    One that waits for the answer of a driver holds nobody up, however high its rank.
    """
    own, drivers = rank(talk), {*talk.drivers}
    for other in others:
        said = other.scheduling
        if said is None or not other.is_ours or drivers.isdisjoint(other.drivers):
            continue
        if said.spec.selected_node:
            return False
        if rank(other) < own and other.pending and not other.silent():
            refused = other.refused_by()
            if any(name not in refused for name in said.spec.potential_nodes or ()):
                return False
    return True
