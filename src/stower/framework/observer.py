"""Observer: the callbacks by which metrics, logs, traces and pages follow a running scheduler.

An observer must not change what the scheduler does. Observers must not know each other.
"""

from collections.abc import Callable, Sequence

from stower.framework.decisions import Decision
from stower.framework.events import Event, WriteFailed, WriteOk
from stower.framework.writes import ApiWrite


class Observer:
    """Base class of observers. A method that is not overridden does nothing. No method may take
    long: the shell waits for it."""

    def on_decision(self, decision: Decision) -> None:
        """Called when a scheduling attempt for a pod has ended."""

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        """Called when a pod is on its node, `latency_s` after the decision."""

    def on_bind_failure(self, decision: Decision, latency_s: float) -> None:
        """Called when a pod cannot be bound to its node, `latency_s` after the decision."""

    def on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, duration_s: float) -> None:
        """Called when a write was answered. `duration_s` includes all retries."""

    def on_request(self, method: str, status: int, duration_s: float) -> None:
        """Called when a request to the API server has ended, by its HTTP status, 0 where no
        response came."""

    def on_step(self, event: Event, duration_s: float) -> None:
        """Called when the engine has processed an event and made the decisions that it allows."""

    def on_plugin_timings(self, timings: Sequence[tuple[str, str, int]]) -> None:
        """Called with durations of plugins: plugin, extension point, ns."""


ObserverFailed = Callable[[Observer, Exception], None]


class Observers(Observer):
    """Several observers as a single one: forwards each call, in order, to those that override the
    method. What one of them raises is reported, and the others are called all the same."""

    def __init__(self, observers: Sequence[Observer], observer_failed: ObserverFailed) -> None:
        self._observers = tuple(observers)
        self._observer_failed = observer_failed
        self._overriding = {
            name: tuple(
                o
                for o in observers
                if name in vars(o) or getattr(type(o), name) is not getattr(Observer, name)
            )
            for name in vars(Observer)
            if name.startswith("on_")
        }

    def __bool__(self) -> bool:
        return bool(self._observers)

    def _forward(self, name: str, *args: object) -> None:
        for observer in self._overriding[name]:
            try:
                getattr(observer, name)(*args)
            except Exception as error:
                self._observer_failed(observer, error)

    def on_decision(self, decision: Decision) -> None:
        """Forwards the call."""
        self._forward("on_decision", decision)

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        """Forwards the call."""
        self._forward("on_bind", decision, latency_s)

    def on_bind_failure(self, decision: Decision, latency_s: float) -> None:
        """Forwards the call."""
        self._forward("on_bind_failure", decision, latency_s)

    def on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, duration_s: float) -> None:
        """Forwards the call."""
        self._forward("on_write", write, answer, duration_s)

    def on_request(self, method: str, status: int, duration_s: float) -> None:
        """Forwards the call."""
        self._forward("on_request", method, status, duration_s)

    def on_step(self, event: Event, duration_s: float) -> None:
        """Forwards the call."""
        self._forward("on_step", event, duration_s)

    def on_plugin_timings(self, timings: Sequence[tuple[str, str, int]]) -> None:
        """Forwards the call, if there are any."""
        if timings:
            self._forward("on_plugin_timings", timings)
