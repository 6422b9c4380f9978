"""What a pod's status has to say before the pod is bound: written until the API has it."""

from collections.abc import Callable
from typing import Final

import msgspec

from stower.framework.retries import CONFLICT, UNKNOWN
from stower.framework.writes import PatchPodStatus, Write

PATCH_ATTEMPTS_MAX: Final = 5


class PodStatusPatch:
    """One patch of one pod's status."""

    def __init__(self, patch: PatchPodStatus) -> None:
        """`patch`: its id is another one with each try."""
        self._patch = patch
        self._pending_write_id = 0  # the write, while it is not answered
        self._tries = 0
        self.is_done = False

    @property
    def is_sent(self) -> bool:
        """Whether it was ever written."""
        return bool(self._pending_write_id or self._tries)

    def writes(self, next_id: Callable[[], int]) -> list[Write]:
        """The patch, unless it is done or being written."""
        if self._pending_write_id or self.is_done:
            return []
        self._pending_write_id = next_id()
        return [msgspec.structs.replace(self._patch, id=self._pending_write_id)]

    def is_own(self, id: int) -> bool:
        """Whether this write is it."""
        return id == self._pending_write_id

    def answered(self, code: int) -> bool:
        """It was answered (0: done). Whether to go on."""
        self._pending_write_id = 0
        self._tries += 1
        self.is_done = code == 0
        return code in (0, CONFLICT, UNKNOWN) and self._tries < PATCH_ATTEMPTS_MAX
