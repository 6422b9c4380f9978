"""What has changed, in order, for caches to follow: each keeps its own place."""

from typing import Final, Generic, TypeVar

Entry = TypeVar("Entry")
LENGTH_MAX: Final = 65_536  # arbitrary: who is so far behind had better look at everything


class ChangeLog(Generic[Entry]):
    """The last changes."""

    __slots__ = ("_entries", "_start")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._start = 0

    def add(self, entry: Entry) -> None:
        """It has changed."""
        self._entries.append(entry)
        if len(self._entries) > LENGTH_MAX:
            dropped = len(self._entries) // 2
            del self._entries[:dropped]
            self._start += dropped

    @property
    def position(self) -> int:
        """How many there were in all."""
        return self._start + len(self._entries)

    def entries_since(self, position: int) -> list[Entry] | None:
        """What has changed since; None where that is not remembered any more."""
        start = position - self._start
        return self._entries[start:] if start >= 0 else None
