"""What has changed, in order, for caches to follow: each keeps its own place."""

from typing import Final, Generic, TypeVar

What = TypeVar("What")
LENGTH_MAX: Final = 65_536  # arbitrary: who is so far behind had better look at everything


class ChangeLog(Generic[What]):
    """The last changes."""

    __slots__ = ("_entries", "_start")

    def __init__(self) -> None:
        self._entries: list[What] = []
        self._start = 0

    def add(self, what: What) -> None:
        """It has changed."""
        self._entries.append(what)
        if len(self._entries) > LENGTH_MAX:
            dropped = len(self._entries) // 2
            del self._entries[:dropped]
            self._start += dropped

    @property
    def position(self) -> int:
        """How many there were in all."""
        return self._start + len(self._entries)

    def since(self, position: int) -> list[What] | None:
        """What has changed since; None where that is not remembered any more."""
        start = position - self._start
        return self._entries[start:] if start >= 0 else None
