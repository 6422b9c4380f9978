"""Collects log lines of VM scheduling. The shell takes the lines and writes them."""

from typing import Final, NamedTuple

INFO: Final = "info"
WARN: Final = "warn"
ERROR: Final = "error"
NOTES_MAX: Final = 10_000  # nobody reads them, where so many wait


class Note(NamedTuple):
    """A line; `about`: the object, "" for none."""

    level: str
    text: str
    about: str = ""


class Notes:
    """The lines since somebody took them."""

    def __init__(self) -> None:
        self._notes: list[Note] = []

    def add(self, level: str, text: str, about: str = "") -> None:
        """One more."""
        if len(self._notes) < NOTES_MAX:
            self._notes.append(Note(level, text, about))

    def drain(self) -> list[Note]:
        """All of them, oldest first."""
        notes, self._notes = self._notes, []
        return notes
