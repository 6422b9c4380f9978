"""Collects the report of a run with faults while it runs.

Reads the CPU clock of the thread around steps, attempts and runs of companions, and counts what
changes on the server. No decision depends on it: a run with a collector has the same digest as a
run without.
"""

import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.framework.companion import Companion
from stower.framework.decisions import Decision, Outcome
from stower.framework.events import Event, Observed, WatchType
from stower.framework.plugin import Plugin
from stower.framework.stopwatch import Stopwatch
from stower.framework.writes import Write
from stower.model.times import SECOND_NS
from stower.sim.report import LongestStep, Memory, Part, PartReport, Report, StepReport
from stower.sim.server import Server
from stower.sim.work_counter import WorkCounter

COMPANION_PARTS: Final = {"AutoscaleEnforcer": Part.VMS, "WarmCapacity": Part.WARM}
OUTCOMES: Final = {
    Outcome.PLACED: "pods placed",
    Outcome.UNSCHEDULABLE: "pods refused",
    Outcome.ERROR: "pods in error",
}


class AttemptStopwatch(Stopwatch):
    """Keeps, in the order of decisions, the attempt that each belongs to and its duration so far.
    Times no plugins."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        super().__init__(clock_ns)
        self.laps: list[tuple[int, int]] = []
        self._attempt = 0
        self._is_in_attempt = False

    def begin_step(self) -> None:
        """Ends the last attempt: a decision before the next one belongs to none."""
        self.laps.clear()
        self._is_in_attempt = False

    def start(self) -> None:
        """See Stopwatch."""
        super().start()
        self.is_sampling = False
        self._attempt += 1
        self._is_in_attempt = True

    def elapsed_ns(self) -> int:
        """See Stopwatch."""
        elapsed_ns = super().elapsed_ns() if self._is_in_attempt else 0
        self.laps.append((self._attempt if self._is_in_attempt else 0, elapsed_ns))
        return elapsed_ns

    def instrument(self, plugin: Plugin) -> None:
        """Leaves the plugin as it is."""


class ReportCollector:
    """Collects the report of one run; used as a context manager around the run.

    A decision costs two readings of the clock, some 1 us in all.
    """

    def __init__(self, server: Server, seed: int) -> None:
        self.report = Report()
        self.stopwatch = AttemptStopwatch(self._clock_ns)
        self._server = server
        self._seed = seed
        self._gc_ns = 0
        self._gc_began_ns = 0
        self._is_stepping = False
        self._blocks_before = 0
        self._has_third = False
        self.counter = WorkCounter(self.report, server)
        server.tell.append(self.counter.on_change)

    def __enter__(self) -> Self:
        gc.callbacks.append(self._on_gc)
        self._blocks_before = sys.getallocatedblocks()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        gc.callbacks.remove(self._on_gc)
        self.report.end = self._memory()
        self.report.gc_ns = self._gc_ns

    # Time

    def _clock_ns(self) -> int:
        """The CPU time of this thread without the garbage collector's."""
        return time.thread_time_ns() - self._gc_ns

    def _on_gc(self, phase: str, about: dict[str, int]) -> None:
        if not self._is_stepping:
            return
        if phase == "start":
            self._gc_began_ns = time.thread_time_ns()
        else:
            self._gc_ns += time.thread_time_ns() - self._gc_began_ns

    def step(self, engine: Engine, event: Event, now_ns: int, process: str) -> list[Write]:
        """Runs a step of an engine and times it."""
        self.stopwatch.begin_step()
        writes: list[Write] = []
        self._is_stepping = True
        began_ns = self._clock_ns()
        try:
            writes = engine.step(event, now_ns)
        finally:
            cpu_ns = self._clock_ns() - began_ns
            self._is_stepping = False
            key = event_kind(event)
            step = self.report.steps.get(key)
            if step is None:
                step = self.report.steps[key] = StepReport()
            step.steps.add(cpu_ns)
            if step.is_longest(cpu_ns):
                about = describe_event(event)
                at_s = now_ns / SECOND_NS
                step.longest = LongestStep(cpu_ns, self._seed, at_s, process, about, len(writes))
        return writes

    def builder(self, configuration: Mapping[str, Any] | None) -> Callable[[], Engine]:
        """Returns a function that builds the engines of schedulers, with their attempts timed."""
        return lambda: self._instrument(
            build_engine(configuration, seed=self._seed, stopwatch=self.stopwatch)
        )

    def _instrument(self, engine: Engine) -> Engine:
        """Times the companions of a new engine."""
        self.report.part(Part.CLUSTER).count("engines started")
        for name, companion in engine.state.companions.items():
            if name in COMPANION_PARTS:
                self._time_companion(companion, self.report.part(COMPANION_PARTS[name]))
        return engine

    def _time_companion(self, companion: Companion, report: PartReport) -> None:
        run, decisions, clock_ns = companion.run, report.decisions, self._clock_ns

        def timed(now_ns: int, next_id: Callable[[], int], is_held: bool) -> list[Write]:
            began_ns = clock_ns()
            writes = run(now_ns, next_id, is_held)
            if writes:
                decisions.add(clock_ns() - began_ns)
            return writes

        companion.run = timed  # type: ignore[method-assign]

    def on_decisions(self, engine: Engine, decisions: Sequence[Decision]) -> None:
        """Counts the decisions of the last step, which this collector has run."""
        laps = self.stopwatch.laps[-len(decisions) :]  # the engine drops the oldest of too many
        for i, decision in enumerate(decisions):
            entry = engine.state.pods.get(decision.uid)
            pod = entry.pod if entry is not None else None
            part = self.report.part(self.counter.part_of(pod) if pod is not None else Part.PODS)
            part.count(OUTCOMES[decision.outcome])
            if decision.victims:
                part.count("preemptions")
                part.count("victims chosen", len(decision.victims))
            attempt, cpu_ns = laps[i]
            is_last = i + 1 == len(laps) or laps[i + 1][0] != attempt
            if attempt and is_last:
                part.decisions.add(cpu_ns)

    def count_scaling(self, ordered: int, removed: int) -> None:
        """Counts the nodes that the autoscaler has ordered and removed."""
        for what, number in (("nodes ordered", ordered), ("nodes scaled down", removed)):
            if number:
                self.report.part(Part.CLUSTER).count(what, number)

    # Memory

    def observe(self, now_ns: int, end_ns: int) -> None:
        """Takes the memory when a third of the virtual time has passed."""
        if not self._has_third and now_ns * 3 >= end_ns:
            self._has_third = True
            self.report.a_third = self._memory()

    def _memory(self) -> Memory:
        return Memory(resident_bytes(), sys.getallocatedblocks() - self._blocks_before)


def event_kind(event: Event) -> str:
    """Returns the kind of an event, and of its object: "Observed Pod"."""
    name = type(event).__name__
    return f"{name} {type(event.object).__name__}" if isinstance(event, Observed) else name


def describe_event(event: Event) -> str:
    """Returns an event as text: its kind, and the object that it is about."""
    obj: Any = getattr(event, "object", None)
    kind: WatchType | None = getattr(event, "type", None)
    about = f" {obj.metadata.name}" if obj is not None else ""
    return f"{event_kind(event)}{f' {kind.value}' if kind is not None else ''}{about}"


def resident_bytes() -> int:
    """Returns the resident memory of this process; where the system does not tell, the most that it
    has been."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
