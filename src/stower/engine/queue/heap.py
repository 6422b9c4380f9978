"""A heap whose entries can be withdrawn: they are skipped, and swept out when they are the most."""

from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, Protocol, TypeVar


class HasTurn(Protocol):
    """What lies in a heap: `turn` is that of its valid entry."""

    turn: int


P = TypeVar("P", bound=HasTurn)

# Below so many entries, sweeping is not worth the look.
SWEPT_FIRST: Final = 64


class LazyHeap(Generic[P]):
    """The smallest (key, turn) first. An entry is valid while its member has the entry's turn."""

    __slots__ = ("_items", "_stale")

    def __init__(self) -> None:
        self._items: list[tuple[Any, int, P]] = []
        self._stale = 0

    def push(self, key: Any, member: P) -> None:
        """Add the member under its current turn."""
        heappush(self._items, (key, member.turn, member))

    def withdraw(self) -> None:
        """Say that one entry has become invalid. The caller has changed its member's turn."""
        self._stale += 1
        if self._stale * 2 > len(self._items) and len(self._items) > SWEPT_FIRST:
            self._items = [item for item in self._items if item[2].turn == item[1]]
            heapify(self._items)
            self._stale = 0

    def first_key(self) -> Any | None:
        """The smallest valid key, or None."""
        self._skip()
        return self._items[0][0] if self._items else None

    def pop(self) -> P | None:
        """Take out the first valid member, or None."""
        self._skip()
        return heappop(self._items)[2] if self._items else None

    def __len__(self) -> int:
        """Entries, withdrawn ones included."""
        return len(self._items)

    def _skip(self) -> None:
        items = self._items
        while items and items[0][2].turn != items[0][1]:
            heappop(items)
            self._stale -= 1
