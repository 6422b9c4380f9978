"""The version of a pod on which its binding relies.

Whoever takes something from a pod that is about to be bound modifies the pod before. A binding that
relies on the version before that is refused, also if it was sent by a process that has ended.
"""

from typing import Final

from stower.model.times import SECOND_NS
from stower.state.cluster import ClusterState
from stower.state.devices import is_same_or_newer

# After a conflict, for so long a newer version is waited for; then the same one is tried again.
NEWS_NS: Final = 3 * SECOND_NS


class PodVersion:
    """The newest known version of one pod. `value`: the one that a binding relies on;
    `awaited_until_ns`: until when a newer version is waited for, None if none is."""

    __slots__ = ("_outdated", "_uid", "awaited_until_ns", "value")

    def __init__(self, uid: str) -> None:
        self.value = ""
        self._uid = uid
        self._outdated = ""  # the version with which a binding was refused
        self.awaited_until_ns: int | None = None

    def reject(self, now_ns: int) -> None:
        """Takes that a binding was refused which relied on `value`."""
        self._outdated, self.awaited_until_ns = self.value, now_ns + NEWS_NS

    def newest(self, state: ClusterState) -> str | None:
        """Returns the version as it was seen, or as a later write of ours was answered; None while
        a write of ours is not answered, or a newer version is on its way."""
        entry = state.pods.get(self._uid)
        if entry is None or entry.pending_write_count:
            return None
        version = entry.pod.metadata.resource_version
        if is_same_or_newer(entry.written_version, version):
            version = entry.written_version
        awaited_ns = self.awaited_until_ns
        if awaited_ns is not None:
            if version == self._outdated and state.now_ns < awaited_ns:
                return None
            self.awaited_until_ns = None
        return version
