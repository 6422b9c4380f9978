"""Decisions: one record per attempt, for whoever explains, counts or draws."""

from enum import Enum

import msgspec

from stower.framework.reasons import Diagnosis


class Outcome(Enum):
    """What an attempt came to."""

    PLACED = "placed"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


class Decision(msgspec.Struct, frozen=True, gc=False):
    """One attempt for one pod, and why. `message` is the condition's text where it failed; `scores`
    (where they are kept): the best few nodes; `victims`: whom preemption evicts, on `nominated`;
    `waited_ns`: since the pod came into the queue; `took_ns`: by the shell's stopwatch, 0 where it
    has none."""

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
