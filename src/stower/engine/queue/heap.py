"""A heap whose entries can be withdrawn: they are skipped, and removed once they are the majority.

Must not know what its members are beyond their `turn`.
"""

from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol, TypeVar


class HasTurn(Protocol):
    """A heap member; `turn` is that of its only valid entry."""

    turn: int


M = TypeVar("M", bound=HasTurn)

# Below this many entries, removing withdrawn ones is not worth a pass.
SWEEP_MIN: Final = 64


class LazyHeap(list[tuple[Any, int, M]]):
    """(key, turn, member), smallest (key, turn) first; an entry is valid while its member has the
    entry's turn. A list, so that its truth value costs no call: withdrawn entries count too."""

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
