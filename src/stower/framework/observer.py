"""Who watches a scheduler work: metrics, log, traces, pages. None of them changes what it does."""

from collections.abc import Sequence

from stower.framework.decisions import Decision
from stower.framework.events import Event, WriteFailed, WriteOk
from stower.framework.writes import ApiWrite


class Observer:
    """One of them. A method that is not overridden looks at nothing; none may take long."""

    def on_decision(self, decision: Decision) -> None:
        """An attempt for a pod has ended."""

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        """A pod is on its node, so long after that was decided."""

    def on_bind_failure(self, decision: Decision, latency_s: float) -> None:
        """It cannot be bound there."""

    def on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, duration_s: float) -> None:
        """A write was answered, with all that was tried again."""

    def on_request(self, method: str, status: int, duration_s: float) -> None:
        """One request was answered; status 0: it was not."""

    def on_step(self, event: Event, duration_s: float) -> None:
        """The engine has taken in an event, and decided what it allows."""

    def on_plugin_timings(self, timings: Sequence[tuple[str, str, int]]) -> None:
        """Plugins took so long at extension points: plugin, point, ns."""


class Observers(Observer):
    """All of them, in order."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._all = tuple(observers)

    def __bool__(self) -> bool:
        return bool(self._all)

    def on_decision(self, decision: Decision) -> None:
        """See Observer."""
        for one in self._all:
            one.on_decision(decision)

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.on_bind(decision, latency_s)

    def on_bind_failure(self, decision: Decision, latency_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.on_bind_failure(decision, latency_s)

    def on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, duration_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.on_write(write, answer, duration_s)

    def on_request(self, method: str, status: int, duration_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.on_request(method, status, duration_s)

    def on_step(self, event: Event, duration_s: float) -> None:
        """See Observer."""
        for one in self._all:
            one.on_step(event, duration_s)

    def on_plugin_timings(self, timings: Sequence[tuple[str, str, int]]) -> None:
        """See Observer."""
        for one in self._all:
            one.on_plugin_timings(timings)
