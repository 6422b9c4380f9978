"""The journal: what to do to undo, newest first.

Every primitive that changes the state logs its inverse while a trial is open. An inverse is
itself a primitive, so that caches which follow the dirty logs need to know nothing of trials.

What may outlive a rollback: interned shapes, registered tallies, columns of new resources and label
keys (all zero again), and the capacity of arrays.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any


class Journal:
    """A stack of inverse operations. Cost: 0.1 µs a change while a trial is open, else nothing."""

    __slots__ = ("_later", "_outer", "_undo", "recording", "undoing")

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._later: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.recording = False
        self._outer = False  # what is undone is a part of a trial
        # While it rolls back, a primitive must do no more than its own inverse.
        self.undoing = False

    @property
    def in_trial(self) -> bool:
        """Whether what is so now may only be supposed to be."""
        return self.recording or (self.undoing and self._outer)

    def log(self, undo: Callable[..., None], *args: Any) -> None:
        """Remember how to undo what was just done. Call only while `recording`."""
        self._undo.append((undo, args))

    def later(self, call: Callable[..., None], *args: Any) -> None:
        """Tidying that must wait until the changes stay; forgotten if they are undone."""
        self._later.append((call, args))

    def trial(self) -> "Trial":
        """`with journal.trial():` undoes on exit all that was done inside. Trials nest."""
        return Trial(self)

    def __len__(self) -> int:
        return len(self._undo)

    def _rollback(self, mark: int, was_recording: bool) -> None:
        self.recording = False
        self.undoing = True
        self._outer = was_recording
        undo = self._undo
        while len(undo) > mark:
            call, args = undo.pop()
            call(*args)
        self.undoing = False
        self.recording = was_recording

    def _settle(self) -> None:
        """The outermost trial is over. Tidying left by a part that was undone does no harm."""
        self._undo.clear()
        later, self._later = self._later, []
        for call, args in later:
            call(*args)


class Trial:
    """An open trial; `keep()` gives its changes to the trial around it, or makes them stay."""

    __slots__ = ("_journal", "_kept", "_mark", "_was_recording")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._mark = len(journal)
        self._was_recording = journal.recording
        self._kept = False

    def __enter__(self) -> "Trial":
        self._journal.recording = True
        return self

    def keep(self) -> None:
        """Do not undo on exit."""
        self._kept = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._kept or kind is not None:
            self._journal._rollback(self._mark, self._was_recording)
        else:
            self._journal.recording = self._was_recording
        if not self._was_recording:
            self._journal._settle()
