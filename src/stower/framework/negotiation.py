"""Settling: what others have to agree with before a node is certain, while its pod waits."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from stower.framework.writes import CreateObject, PatchObject, PatchPodStatus
from stower.state.arrays import Ints


class FeasibleNodes(Protocol):
    """What an attempt has found."""

    @property
    def has_rows(self) -> bool:
        """Whether there is a row that would do."""

    @property
    def count(self) -> int:
        """How many there are."""

    def ranked_rows(self, among: Ints | None = None) -> Sequence[int]:
        """The rows (of these) that would do, the best first; none where there is none."""


class Wait(msgspec.Struct, frozen=True):
    """The pod is not bound yet. `writes`: without ids; while they are not answered and seen, the
    pod is not tried again; `goes_on`: then it is tried at once. `nominate`: the node that is
    promised to it; "" takes a promise back, None leaves it. `again_ns`: when to try again though
    nothing has happened; `behind`: the object (view, namespace/name) that has to change before."""

    message: str
    writes: Sequence[CreateObject | PatchObject | PatchPodStatus] = ()
    nominated_node_name: str | None = None
    retry_at_ns: int | None = None
    is_retried_at_once: bool = False
    awaited_object: tuple[type, str] | None = None
