"""Who watches a scheduler work: metrics, log, traces, pages. None of them changes what it does."""

from collections.abc import Sequence

from stower.framework.decisions import Decision
from stower.framework.events import Event, WriteFailed, WriteOk
from stower.framework.writes import ApiWrite


class Observer:
    """One of them. A method that is not overridden looks at nothing; none may take long."""

    def decided(self, decision: Decision) -> None:
        """An attempt for a pod has ended."""

    def bound(self, decision: Decision, after_s: float) -> None:
        """A pod is on its node, so long after that was decided."""

    def unbound(self, decision: Decision, after_s: float) -> None:
        """It cannot be bound there."""

    def wrote(self, write: ApiWrite, answer: WriteOk | WriteFailed, took_s: float) -> None:
        """A write was answered, with all that was tried again."""

    def asked(self, method: str, status: int, took_s: float) -> None:
        """One request was answered; status 0: it was not."""

    def stepped(self, event: Event, took_s: float) -> None:
        """The engine has taken in an event, and decided what it allows."""

    def lapped(self, laps: Sequence[tuple[str, str, int]]) -> None:
        """Plugins took so long at extension points: plugin, point, ns."""


class Observers(Observer):
    """All of them, in order."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._all = tuple(observers)

    def __bool__(self) -> bool:
        return bool(self._all)

    def decided(self, decision: Decision) -> None:
        """See Observer."""
        for one in self._all:
            one.decided(decision)

    def bound(self, decision: Decision, after_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.bound(decision, after_s)

    def unbound(self, decision: Decision, after_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.unbound(decision, after_s)

    def wrote(self, write: ApiWrite, answer: WriteOk | WriteFailed, took_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.wrote(write, answer, took_s)

    def asked(self, method: str, status: int, took_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.asked(method, status, took_s)

    def stepped(self, event: Event, took_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.stepped(event, took_s)

    def lapped(self, laps: Sequence[tuple[str, str, int]]) -> None:
        """See Observer."""
        for one in self._all:
            one.lapped(laps)
