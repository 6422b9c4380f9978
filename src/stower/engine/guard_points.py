"""The points at which the engine enters one of its parts for one entity. Each has a guard.

A guard contains what is raised behind it: the error is counted under the point's name and
reported, and the entity is tried again after a delay. Must not know what the parts do.
"""

from enum import StrEnum


class GuardPoint(StrEnum):
    """All guard points, by the name that `stower_internal_errors_total` has for each."""

    STEP = "start of a step"
    OBJECT = "object event"
    LIST = "list of objects"
    ANSWER = "answer to a write"
    EXTENDER_ANSWER = "extender answer"
    AGENT_REQUEST = "agent request"
    TIMERS = "timers"
    QUEUE = "queue"
    HINT = "queueing hint"
    GROUPS = "pod group update"
    POD_ATTEMPT = "scheduling attempt"
    TREE_ATTEMPT = "pod group attempt"
    SOLVER = "solver"
    COMPANION = "companion"
    COMPANION_OBJECT = "companion object"
    COMPANION_ENTITY = "companion entity"
    COMPANION_STATUS = "companion status"
    OBSERVER = "observer"
    EXPLANATION = "explanation"
    RECOVERY = "recovery"
