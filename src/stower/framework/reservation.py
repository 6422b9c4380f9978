"""Reservation: what a plugin writes and waits for between choosing a pod's node and binding the pod
(Reserve and PreBind).

A plugin returns a Reservation for a pod and a node. The engine sends its writes, hands back the
answers, watches the awaited objects, and binds the pod when all reservations are done. Must not
know what plugins reserve.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

from stower.framework.writes import Write
from stower.state.cluster import ClusterState
from stower.state.devices import is_same_or_newer


class Reservation(Protocol):
    """The writes and awaited objects of one plugin before one pod can be bound to its node.

    What `assume` changes in the state is visible to all later decisions.
    """

    timeout_message: str  # why the reservation has failed when its timeout is over
    timeout_ns: int  # from the start of PreBind
    awaited_objects: tuple[tuple[type, str, str], ...]  # by view, namespace and name

    @property
    def retry_at_ns(self) -> int | None:
        """The time at which to call `writes` again without a change; None if not needed."""

    def assume(self, state: ClusterState) -> None:
        """Assumes in the state what the reservation decides, until `forget`."""

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Returns what has to be written now. Called again whenever an awaited object has changed
        or a write was answered. After `forget`: returns only writes whose answers show whether a
        write of unknown outcome was carried out."""

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """Takes the answer to a write: `code` 0 where the write was carried out (`version` is the
        object's resourceVersion since), else the HTTP status. Returns False where the reservation
        has failed."""

    def failure_reason(self, state: ClusterState) -> str:
        """Returns why the reservation can no longer succeed, "" where it still can."""

    def is_done(self, state: ClusterState) -> bool:
        """Returns whether the pod can be bound as far as this reservation is concerned."""

    def waiting_event(self) -> tuple[str, str]:
        """Returns reason and note of an Event that says what the pod waits for, ("", "") for
        none."""

    def forget(self, state: ClusterState) -> None:
        """Withdraws the assumptions that the API does not show yet and that are not being
        written."""

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Returns the writes that take back what was written for the pod, which is not bound after
        all."""


class VersionedReservation(Reservation, Protocol):
    """A reservation that is valid only for one version of the pod. Others have no such members."""

    @property
    def pod_resource_version(self) -> str:
        """The pod's resourceVersion, on which its binding relies."""

    def restart(self, state: ClusterState) -> bool:
        """Starts again for the current version of the pod, after a binding that relied on an older
        version was refused. Returns False where that has happened too often."""


class CompositeReservation:
    """Several reservations of one plugin as one, which is done when all of them are. Owns the
    mapping of write ids to reservations."""

    def __init__(self, parts: Sequence[Reservation]) -> None:
        first = min(parts, key=lambda part: part.timeout_ns)
        self.timeout_message = first.timeout_message
        self.timeout_ns = first.timeout_ns
        self.awaited_objects = tuple(key for part in parts for key in part.awaited_objects)
        self.parts = tuple(parts)
        self._part_by_write: dict[int, Reservation] = {}

    @property
    def retry_at_ns(self) -> int | None:
        """Implements Reservation for all parts."""
        return min(
            (ns for part in self.parts if (ns := part.retry_at_ns) is not None), default=None
        )

    def assume(self, state: ClusterState) -> None:
        """Implements Reservation for all parts."""
        for part in self.parts:
            part.assume(state)

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Implements Reservation for all parts."""
        found = []
        for part in self.parts:
            for write in part.writes(state, next_id):
                self._part_by_write[write.id] = part
                found.append(write)
        return found

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """Implements Reservation for all parts."""
        return self._part_by_write.pop(id).on_answer(state, id, code, version)

    def failure_reason(self, state: ClusterState) -> str:
        """Implements Reservation for all parts."""
        return next((reason for part in self.parts if (reason := part.failure_reason(state))), "")

    def is_done(self, state: ClusterState) -> bool:
        """Implements Reservation for all parts."""
        return all(part.is_done(state) for part in self.parts)

    def waiting_event(self) -> tuple[str, str]:
        """Implements Reservation for all parts."""
        return next((event for part in self.parts if (event := part.waiting_event())[0]), ("", ""))

    def forget(self, state: ClusterState) -> None:
        """Implements Reservation for all parts."""
        for part in self.parts:
            part.forget(state)

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Implements Reservation for all parts."""
        return [write for part in self.parts for write in part.unreserve(state, next_id)]

    @property
    def pod_resource_version(self) -> str:
        """The oldest version that a part relies on, "" for none."""
        return oldest_version(self.parts)

    def restart(self, state: ClusterState) -> bool:
        """Implements VersionedReservation for the parts that are versioned."""
        return all(part.restart(state) for part in versioned(self.parts))


def versioned(parts: Iterable[Reservation]) -> list[VersionedReservation]:
    """Returns the reservations that rely on a version of the pod."""
    return [cast(VersionedReservation, p) for p in parts if getattr(p, "pod_resource_version", "")]


def oldest_version(parts: Iterable[Reservation]) -> str:
    """Returns the oldest version of the pod that one of its reservations relies on, "" for any."""
    oldest = ""
    for part in parts:
        version = getattr(part, "pod_resource_version", "")
        if version and (not oldest or is_same_or_newer(oldest, version)):
            oldest = version
    return oldest
