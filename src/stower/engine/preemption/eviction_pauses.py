"""How long a pod or a tree evicts nobody after it has evicted for devices that only drivers know.

Drivers are asked about nodes with room. Where there is none, room is made before they are asked,
and they may refuse what was made: the pause grows with the rounds of questions that came to
nothing, which the objects tell. When it ends is kept in memory: after a restart, one more eviction
is made.
"""

from collections.abc import Hashable, Iterable
from typing import Final

from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState

SPARES: Final = "spares other pods for a while: drivers refused the room that was made before"
FIRST_NS: Final = 30 * SECOND_NS  # after the first round; doubled with each
LONGEST_NS: Final = 600 * SECOND_NS
KNOWN_MAX: Final = 10_000  # pauses that are remembered; the oldest is forgotten first


class EvictionPauses:
    """By the pod's uid or the tree's root."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._until_ns: dict[Hashable, int] = {}

    def until_ns(self, key: Hashable) -> int:
        """Returns until when it evicts nobody, 0 where it never had to wait."""
        return self._until_ns.get(key, 0)

    def begin(self, key: Hashable, pods: Iterable[Pod]) -> None:
        """Begins a pause after an eviction for these pods, if drivers have been asked about them
        before."""
        rounds = max((self._rounds(pod) for pod in pods), default=0)
        if not rounds:
            return
        length_ns = min(FIRST_NS << min(rounds - 1, 40), LONGEST_NS)
        self._until_ns.pop(key, None)
        self._until_ns[key] = self._state.now_ns + length_ns
        if len(self._until_ns) > KNOWN_MAX:
            del self._until_ns[next(iter(self._until_ns))]

    def _rounds(self, pod: Pod) -> int:
        said = self._state.negotiations.pod_scheduling(pod.key)
        is_own = said is not None and said.owner_uid == pod.metadata.uid
        return said.spec.round if said is not None and is_own else 0
