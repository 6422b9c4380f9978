"""Keeps what was read of pods' negotiations since an object about them or a node has changed.

Must not know plugins.
"""

from typing import Final

from stower.devices.negotiation.claims import PodNegotiation
from stower.framework.reasons import Rejection
from stower.model.kinds import Pod
from stower.state.arrays import Bools
from stower.state.cluster import ClusterState
from stower.state.devices import Devices

SWEPT_FIRST: Final = 8  # pods


class Known:
    """A pod's negotiation, and the rejections of nodes that are found when they are asked for."""

    def __init__(self, negotiation: PodNegotiation) -> None:
        self.negotiation = negotiation
        self.refused: list[tuple[Rejection, Bools | list[int]]] | None = None


class KnownNegotiations:
    """What was read since an object about negotiations or a node has changed, by the pod's uid:
    each plugin point of an attempt reads it."""

    def __init__(self, devices: Devices) -> None:
        self._generations = (-1,) * 5
        self._by_uid: dict[str, Known] = {}
        self._sweep_at = SWEPT_FIRST

    def add(self, pod: Pod, negotiation: PodNegotiation, state: ClusterState) -> Known:
        """Adds or replaces the pod's; drops those of pods that are gone now and then."""
        if len(self._by_uid) >= self._sweep_at:
            kept = {uid: known for uid, known in self._by_uid.items() if uid in state.pods}
            self._by_uid.clear()
            self._by_uid.update(kept)
            self._sweep_at = max(SWEPT_FIRST, 2 * len(kept))
        found = self._by_uid[pod.metadata.uid] = Known(negotiation)
        return found

    def at(self, state: ClusterState) -> dict[str, Known]:
        """Returns what holds for the state's objects."""
        now = (
            state.devices.claim_generation, state.negotiations.generation, state.groups.generation,
            state.node_log.position, state.row_limit,
        )  # fmt: skip
        if now != self._generations:
            self._generations = now
            self._by_uid.clear()
            self._sweep_at = SWEPT_FIRST
        return self._by_uid
