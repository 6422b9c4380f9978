"""Reserve and PreBind: what has to come true for a chosen node before the pod is bound to it."""

from collections.abc import Callable
from typing import Protocol

from stower.framework.writes import Write
from stower.state.cluster import ClusterState


class Reservation(Protocol):
    """One plugin's part of a decision that other objects must agree with first.

    What `hold` has done to the state is seen by all decisions that follow.
    """

    doing: str  # what is being done, as an error says it: "binding volumes"
    timeout_ns: int
    awaits: tuple[tuple[type, str, str], ...]  # objects, by view, namespace and name

    def hold(self, state: ClusterState) -> None:
        """Count on it from now on."""

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """What has to be written for it."""

    def fault(self, state: ClusterState) -> str:
        """Why it can no longer come true, or ""."""

    def is_done(self, state: ClusterState) -> bool:
        """Whether it has come true."""

    def release(self, state: ClusterState) -> None:
        """Count on it no more, as far as it has not come true."""
