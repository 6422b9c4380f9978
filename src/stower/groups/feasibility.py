"""Computes whether a group can still be placed, from the results of its children. Must not know
nodes or pods.

Source: KEP-6012 "GangScheduling Plugin Changes" (PlacementFeasible).
"""

from enum import Enum


class Feasibility(Enum):
    """The scheduling result of a group, as its parent sees it."""

    SUCCESS = "Success"
    WAIT = "Wait"
    """Children are still untried, and there may be room for them."""
    UNSCHEDULABLE = "Unschedulable"
    """There is no room, but preemption may help."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Only a change of the group or of the cluster helps."""


def feasibility(minimum: int, placed: int, remaining: int, refused: int) -> Feasibility:
    """Returns the result of a group that needs `minimum` (M) children, of which `placed` (S) are
    placed, `remaining` (R) are untried, and `refused` (U) were rejected for reasons that preemption
    might remove."""
    if placed >= minimum:
        return Feasibility.SUCCESS
    if placed + remaining >= minimum:
        return Feasibility.WAIT
    if placed + remaining + refused >= minimum:
        return Feasibility.UNSCHEDULABLE
    return Feasibility.UNRESOLVABLE
