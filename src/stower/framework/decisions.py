"""Decision: the record of one scheduling attempt, for explanations, metrics, logs and pages.

Must not know the readers of the records.
"""

from enum import Enum

import msgspec

from stower.framework.reasons import Diagnosis


class Outcome(Enum):
    """The result of a scheduling attempt."""

    PLACED = "placed"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The result of one scheduling attempt for one pod, and the reasons for it.

    message: the text of the pod's condition where the attempt failed; scores: the best few nodes
    with their scores, where scores are recorded; victims: the pods that preemption evicts, on the
    node `nominated`; waited_ns: the time since the pod entered the queue; took_ns: the duration by
    the shell's stopwatch, 0 where the shell has none.
    """

    namespace: str
    name: str
    uid: str
    outcome: Outcome
    at_ns: int
    attempts: int
    node_name: str = ""
    message: str = ""
    diagnosis: Diagnosis | None = None
    scores: tuple[tuple[str, int], ...] = ()
    victims: tuple[str, ...] = ()
    nominated: str = ""
    profile: str = ""
    waited_ns: int = 0
    took_ns: int = 0
