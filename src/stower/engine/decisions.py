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
    (where they are kept): the best few nodes; `victims`: whom preemption evicts, on `nominated`."""

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
