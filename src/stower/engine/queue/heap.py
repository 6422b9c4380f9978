"""A heap whose entries can be withdrawn: withdrawn entries are skipped, and removed once they are
the majority.

Each push stores the member's `turn`, a number that the owner changes to withdraw the entry. Must
not know anything else about its members.
"""

from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol, TypeVar


class HeapMember(Protocol):
    """A member of a LazyHeap. `turn`: the number stored in its only valid entry; entries with
    another number are withdrawn."""

    turn: int


M = TypeVar("M", bound=HeapMember)

# Below this many entries, removing withdrawn ones is not worth a pass. Each may hold a pod that is
# gone, which may have megabytes.
SWEEP_MIN: Final = 8


class LazyHeap(list[tuple[Any, int, M]]):
    """A heap of (key, turn, member), smallest (key, turn) first. An entry is valid while its member
    has the entry's turn. A list, so that its truth value costs no call; its length counts withdrawn
    entries too."""

    __slots__ = ("_stale",)

    def __init__(self) -> None:
        super().__init__()
        self._stale = 0

    def push(self, key: Any, member: M) -> None:
        """Adds the member under its current turn."""
        heappush(self, (key, member.turn, member))

    def withdraw(self) -> None:
        """Records that one entry became invalid: the caller has changed its member's turn."""
        self._stale += 1
        if self._stale * 2 > len(self) and len(self) > SWEEP_MIN:
            self[:] = [item for item in self if item[2].turn == item[1]]
            heapify(self)
            self._stale = 0

    def first_key(self) -> Any | None:
        """Returns the smallest valid key, or None."""
        self._skip()
        return self[0][0] if self else None

    def pop_first(self) -> M | None:
        """Removes and returns the first valid member, or None."""
        while self:
            _, turn, member = heappop(self)
            if member.turn == turn:
                return member
            self._stale -= 1
        return None

    def _skip(self) -> None:
        while self and self[0][2].turn != self[0][1]:
            heappop(self)
            self._stale -= 1
