"""Patches a pod's status before the pod is bound; retries after conflicts and lost answers."""

from collections.abc import Callable
from typing import Final

import msgspec

from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import PatchPodStatus, Write
from stower.state.cluster import ClusterState

PATCH_ATTEMPTS_MAX: Final = 5


class PodStatusPatch:
    """One patch of one pod's status, with its attempts."""

    def __init__(self, patch: PatchPodStatus) -> None:
        """`patch`: each attempt sends it with a new id."""
        self._patch = patch
        self._pending_write_id = 0  # 0 if no write is pending
        self._attempts = 0
        self.is_done = False

    @property
    def is_sent(self) -> bool:
        """Whether the patch was ever sent."""
        return bool(self._pending_write_id or self._attempts)

    def writes(self, next_id: Callable[[], int]) -> list[Write]:
        """Returns the patch, unless it is done or pending."""
        if self._pending_write_id or self.is_done:
            return []
        self._pending_write_id = next_id()
        return [msgspec.structs.replace(self._patch, id=self._pending_write_id)]

    def is_own(self, id: int) -> bool:
        """Returns whether the id is that of the pending write."""
        return id == self._pending_write_id

    def handle_answer(self, state: ClusterState, code: int, version: str) -> bool:
        """Records the answer (0: done; `version`: the pod's since); returns whether to continue."""
        entry = state.pods.get(self._patch.uid)
        if entry is not None and version:
            entry.written_version = version
        self._pending_write_id = 0
        self._attempts += 1
        self.is_done = code == 0
        return code in (0, CONFLICT, UNKNOWN) and self._attempts < PATCH_ATTEMPTS_MAX
