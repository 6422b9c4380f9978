"""The journal: undoes the changes of a trial by their inverse operations, newest first.

Every primitive that changes the state logs its inverse while a trial is open. An inverse is itself
a primitive, so that caches which follow the dirty logs need no code for trials. Must not know what
it undoes.

What may outlive a rollback: interned shapes, registered tallies, columns of new resources and label
keys (all zero again), and the capacity of arrays.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any


class Journal:
    """A stack of inverse operations. Costs 0.1 µs per change while a trial is open, else
    nothing."""

    __slots__ = ("_deferred", "_is_nested", "_undo", "is_recording", "is_undoing")

    def __init__(self) -> None:
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.is_recording = False
        self._is_nested = False  # whether the trial that is being undone is inside another
        # During a rollback, a primitive must change nothing beyond what it was called to restore.
        self.is_undoing = False

    @property
    def is_in_trial(self) -> bool:
        """Whether the current state may be a supposition: a trial is open, or one inside another
        trial is being rolled back."""
        return self.is_recording or (self.is_undoing and self._is_nested)

    def log(self, undo: Callable[..., None], *args: Any) -> None:
        """Pushes the inverse of the change that was just made. Call only while `is_recording`."""
        self._undo.append((undo, args))

    def defer(self, call: Callable[..., None], *args: Any) -> None:
        """Registers cleanup that has to wait until no change can be undone any more: it runs when
        the outermost trial ends. It must do no harm where the change was undone."""
        self._deferred.append((call, args))

    def trial(self) -> "Trial":
        """Returns a context manager that undoes all changes inside it on exit. Trials nest."""
        return Trial(self)

    def __len__(self) -> int:
        return len(self._undo)

    def _rollback(self, mark: int, was_recording: bool) -> None:
        self.is_recording = False
        self.is_undoing = True
        self._is_nested = was_recording
        undo = self._undo
        try:
            while len(undo) > mark:
                call, args = undo.pop()
                call(*args)
        finally:
            self.is_undoing = False
            self.is_recording = was_recording

    def _run_deferred(self) -> None:
        """Runs the deferred cleanup after the outermost trial, also that of changes that were
        undone, where it does no harm."""
        self._undo.clear()
        deferred, self._deferred = self._deferred, []
        for call, args in deferred:
            call(*args)


class Trial:
    """An open trial. `keep()` passes its changes to the outer trial; without one, it makes them
    final."""

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
        """Keeps the changes on exit, unless an exception is raised."""
        self._kept = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if not self._kept or kind is not None:
                self._journal._rollback(self._mark, self._was_recording)
            else:
                self._journal.is_recording = self._was_recording
        finally:
            if not self._was_recording:
                self._journal._run_deferred()
