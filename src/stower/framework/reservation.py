"""Reserve and PreBind: what has to come true for a chosen node before the pod is bound to it."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from stower.framework.writes import Write
from stower.state.cluster import ClusterState


class Reservation(Protocol):
    """One plugin's part of a decision that other objects must agree with first.

    What `hold` has done to the state is seen by all decisions that follow.
    """

    timeout_message: str  # why it has failed when it was waited for too long
    timeout_ns: int
    awaited_objects: tuple[tuple[type, str, str], ...]  # objects, by view, namespace and name

    @property
    def retry_at_ns(self) -> int | None:
        """When to ask for writes again though nothing has changed; None where that is no use."""

    def assume(self, state: ClusterState) -> None:
        """Count on it from now on."""

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """What has to be written for it now; asked again whenever one of its objects has changed
        or one of its writes was answered. Once it is released: what tells whether a write of which
        no answer came was carried out, and nothing else."""

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """A write was answered: `code` 0 is done (the object has that version since), else the HTTP
        status. Whether to go on: False where that is the end of it."""

    def failure_reason(self, state: ClusterState) -> str:
        """Why it can no longer come true, or ""."""

    def is_done(self, state: ClusterState) -> bool:
        """Whether it has come true."""

    def waiting_event(self) -> tuple[str, str]:
        """Reason and text of an Event that says what the pod waits for, ("", "") for none."""

    def forget(self, state: ClusterState) -> None:
        """Count on it no more, as far as it has not come true and is not being written."""

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """The pod is not bound after all: what to write to take back what was written for it."""


@runtime_checkable
class VersionedReservation(Protocol):
    """A reservation that holds only for the pod as it was."""

    pod_resource_version: str  # the pod's resourceVersion, with which it is to be bound

    def restart(self, state: ClusterState) -> bool:
        """The pod was no longer so: begin anew. False where that has been too often."""


class CompositeReservation:
    """Parts of one plugin's decision, all of which must come true."""

    def __init__(self, parts: Sequence[Reservation]) -> None:
        first = min(parts, key=lambda part: part.timeout_ns)
        self.timeout_message = first.timeout_message
        self.timeout_ns = first.timeout_ns
        self.awaited_objects = tuple(key for part in parts for key in part.awaited_objects)
        self._parts = tuple(parts)
        self._part_by_write: dict[int, Reservation] = {}

    @property
    def retry_at_ns(self) -> int | None:
        """See Reservation."""
        return min(
            (ns for part in self._parts if (ns := part.retry_at_ns) is not None), default=None
        )

    def assume(self, state: ClusterState) -> None:
        """See Reservation."""
        for part in self._parts:
            part.assume(state)

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """See Reservation."""
        found = []
        for part in self._parts:
            for write in part.writes(state, next_id):
                self._part_by_write[write.id] = part
                found.append(write)
        return found

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """See Reservation."""
        return self._part_by_write.pop(id).on_answer(state, id, code, version)

    def failure_reason(self, state: ClusterState) -> str:
        """See Reservation."""
        return next((fault for part in self._parts if (fault := part.failure_reason(state))), "")

    def is_done(self, state: ClusterState) -> bool:
        """See Reservation."""
        return all(part.is_done(state) for part in self._parts)

    def waiting_event(self) -> tuple[str, str]:
        """See Reservation."""
        return next((note for part in self._parts if (note := part.waiting_event())[0]), ("", ""))

    def forget(self, state: ClusterState) -> None:
        """See Reservation."""
        for part in self._parts:
            part.forget(state)

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """See Reservation."""
        return [write for part in self._parts for write in part.unreserve(state, next_id)]
