"""Reserve and PreBind: what has to come true for a chosen node before the pod is bound to it."""

from collections.abc import Callable
from typing import Protocol

from stower.framework.writes import Write
from stower.state.cluster import ClusterState


class Reservation(Protocol):
    """One plugin's part of a decision that other objects must agree with first.

    What `hold` has done to the state is seen by all decisions that follow.
    """

    expired: str  # why it has failed when it was waited for too long
    timeout_ns: int
    awaits: tuple[tuple[type, str, str], ...]  # objects, by view, namespace and name

    @property
    def again_ns(self) -> int | None:
        """When to ask for writes again though nothing has changed; None where that is no use."""

    def hold(self, state: ClusterState) -> None:
        """Count on it from now on."""

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """What has to be written for it now; asked again whenever one of its objects has changed
        or one of its writes was answered."""

    def answered(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """A write was answered: `code` 0 is done (the object has that version since), else the HTTP
        status. Whether to go on: False where that is the end of it."""

    def fault(self, state: ClusterState) -> str:
        """Why it can no longer come true, or ""."""

    def is_done(self, state: ClusterState) -> bool:
        """Whether it has come true."""

    def note(self) -> tuple[str, str]:
        """Reason and text of an Event that says what the pod waits for, ("", "") for none."""

    def release(self, state: ClusterState) -> None:
        """Count on it no more, as far as it has not come true and is not being written."""

    def undo(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The pod is not bound after all: what to write to take back what was written for it."""
