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

    __slots__ = ("_deferred", "_is_nested", "_undo", "is_recording", "is_undoing")

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.is_recording = False
        self._is_nested = False  # what is undone is a part of a trial
        # While it rolls back, a primitive must do no more than its own inverse.
        self.is_undoing = False

    @property
    def is_in_trial(self) -> bool:
        """Whether what is so now may only be supposed to be."""
        return self.is_recording or (self.is_undoing and self._is_nested)

    def log(self, undo: Callable[..., None], *args: Any) -> None:
        """Remember how to undo what was just done. Call only while `recording`."""
        self._undo.append((undo, args))

    def defer(self, call: Callable[..., None], *args: Any) -> None:
        """Tidying that must wait until the changes stay; forgotten if they are undone."""
        self._deferred.append((call, args))

    def trial(self) -> "Trial":
        """`with journal.trial():` undoes on exit all that was done inside. Trials nest."""
        return Trial(self)

    def __len__(self) -> int:
        return len(self._undo)

    def _rollback(self, mark: int, was_recording: bool) -> None:
        self.is_recording = False
        self.is_undoing = True
        self._is_nested = was_recording
        undo = self._undo
        while len(undo) > mark:
            call, args = undo.pop()
            call(*args)
        self.is_undoing = False
        self.is_recording = was_recording

    def _run_deferred(self) -> None:
        """The outermost trial is over. Tidying left by a part that was undone does no harm."""
        self._undo.clear()
        later, self._deferred = self._deferred, []
        for call, args in later:
            call(*args)


class Trial:
    """An open trial; `keep()` gives its changes to the trial around it, or makes them stay."""

    __slots__ = ("_journal", "_kept", "_mark", "_was_recording")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._mark = len(journal)
        self._was_recording = journal.is_recording
        self._kept = False

    def __enter__(self) -> "Trial":
        self._journal.is_recording = True
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
            self._journal.is_recording = self._was_recording
        if not self._was_recording:
            self._journal._run_deferred()
