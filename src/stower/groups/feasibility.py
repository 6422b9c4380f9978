"""Whether a group can still be placed, from what is known of its children.

Source: KEP-6012 "GangScheduling Plugin Changes" (PlacementFeasible).
"""

from enum import Enum


class Feasibility(Enum):
    """What a group says to the one around it."""

    SUCCESS = "Success"
    WAIT = "Wait"
    """There may be room for it."""
    UNSCHEDULABLE = "Unschedulable"
    """There is not, but evictions might make some."""
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    """Nothing but a change of the group or of the cluster helps."""


def feasibility(minimum: int, placed: int, remaining: int, refused: int) -> Feasibility:
    """Of a group that needs `minimum` (M) children of which so many are placed (S), have not been
    tried (R) and were refused for what evictions might change (U)."""
    if placed >= minimum:
        return Feasibility.SUCCESS
    if placed + remaining >= minimum:
        return Feasibility.WAIT
    if placed + remaining + refused >= minimum:
        return Feasibility.UNSCHEDULABLE
    return Feasibility.UNRESOLVABLE
