"""How long a pod or a tree evicts nobody after it has evicted for devices that only drivers know.

Drivers are asked about nodes with room. Where there is none, room is made before they are asked,
and they may refuse what was made: the pause grows with the rounds of questions that came to
nothing, which the objects tell. When it ends is kept in memory, with what is queued: after a
restart, one more eviction is made.
"""

from collections.abc import Iterable
from typing import Final

from stower.engine.queue.entities import QueuedEntity
from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState

SPARES: Final = "spares other pods for a while: drivers refused the room that was made before"
FIRST_NS: Final = 30 * SECOND_NS  # after the first round; doubled with each
LONGEST_NS: Final = 600 * SECOND_NS


def begin_pause(state: ClusterState, queued: QueuedEntity, pods: Iterable[Pod]) -> None:
    """Begins a pause after an eviction for these pods, if drivers have been asked about them
    before."""
    rounds = max((_rounds(pod, state) for pod in pods), default=0)
    if rounds:
        length_ns = min(FIRST_NS << min(rounds - 1, 40), LONGEST_NS)
        queued.spares_until_ns = state.now_ns + length_ns


def _rounds(pod: Pod, state: ClusterState) -> int:
    said = state.negotiations.pod_scheduling(pod.key)
    is_own = said is not None and said.owner_uid == pod.metadata.uid
    return said.spec.round if said is not None and is_own else 0
