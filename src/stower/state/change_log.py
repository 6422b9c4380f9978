"""ChangeLog: a bounded log of changes in order. Each cache reads it from a position of its own."""

from typing import Final, Generic, TypeVar

Entry = TypeVar("Entry")
LENGTH_MAX: Final = 65_536  # arbitrary: a reader that far behind does better to look at everything


class ChangeLog(Generic[Entry]):
    """The last changes, at most LENGTH_MAX of them."""

    __slots__ = ("_entries", "_start")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._start = 0

    def add(self, entry: Entry) -> None:
        """Appends a change."""
        self._entries.append(entry)
        if len(self._entries) > LENGTH_MAX:
            dropped = len(self._entries) // 2
            del self._entries[:dropped]
            self._start += dropped

    @property
    def position(self) -> int:
        """The position after the last change: the number of all changes since the start."""
        return self._start + len(self._entries)

    def entries_since(self, position: int) -> list[Entry] | None:
        """Returns the changes after a position; None where the log has dropped some of them."""
        start = position - self._start
        return self._entries[start:] if start >= 0 else None
