"""One run with faults: builds a cluster, its load and faults from a script, and checks all laws.

The same script gives the same run, step by step.
"""

import random
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from hashlib import blake2b
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.controllers.assembly import build_vm_agents, build_vm_controllers
from stower.controllers.runtime import ControllerManager
from stower.engine.engine import Engine
from stower.framework.events import Event
from stower.framework.recording import Recording
from stower.framework.writes import Write
from stower.model.errors import InvariantError
from stower.model.kinds import Pod
from stower.model.times import SECOND_NS
from stower.sim.agenda import Agenda
from stower.sim.checkers import CHECKERS
from stower.sim.checkers.checker import Checker, ViolationError
from stower.sim.checkers.preemption_log import PreemptionLog
from stower.sim.checkers.step_reader import StepReader
from stower.sim.claims import Claims
from stower.sim.configurations import configuration_for, configuration_of_profile
from stower.sim.controller_process import ControllerProcess
from stower.sim.faults import FAULT_BY_NAME, FAULTS
from stower.sim.known_findings import KNOWN_FINDINGS, KnownFinding, find_known
from stower.sim.large_load import Size
from stower.sim.link import Weather
from stower.sim.load import PARTS, draw_script
from stower.sim.node_autoscaling import NodeAutoscaling
from stower.sim.nodes import Kubelets
from stower.sim.report import Report
from stower.sim.report_collector import ReportCollector, describe_event
from stower.sim.resource_drivers import Negotiators
from stower.sim.rival_load import has_rivals
from stower.sim.scheduler import SchedulerProcess
from stower.sim.script import MILLI_NS, Script
from stower.sim.server import Change, Server
from stower.sim.storage_driver import Driver
from stower.sim.vm_load import has_vms
from stower.sim.workload_controller import Controller

ACTIVE_NS: Final = 180 * SECOND_NS
# After the last fault: backoffs, the five minutes, leases and the last pods' lifetimes run out.
SETTLE_NS: Final = 480 * SECOND_NS
STILL_NS: Final = 400 * SECOND_NS
LOOK_NS: Final = 15 * SECOND_NS
LOOKS_MAX: Final = 1_200  # of days, fewer
LAST_STEPS: Final = 12
_encode: Final = msgspec.json.Encoder(enc_hook=str).encode
VM_ACTORS: Final = (("vm-controller", build_vm_controllers), ("vm-agent", build_vm_agents))


class Finding(msgspec.Struct, frozen=True):
    """What came of a run. `law` is "" where no law was broken but in known ways; `report`: None
    unless asked for."""

    seed: int
    faults: tuple[str, ...]
    law: str
    what: str
    last_steps: tuple[str, ...]
    steps: int
    bound: int
    virtual_s: float
    digest: str
    report: Report | None = None
    known: tuple[str, ...] = ()  # known findings: law and issue, "migrations (issue 38)"


class Trial:
    """One script, run."""

    def __init__(
        self,
        script: Script,
        configuration: Mapping[str, Any] | None = None,
        checkers: Sequence[type[Checker]] = CHECKERS,
        recording: Recording | None = None,
        is_reporting: bool = False,
        known: Sequence[KnownFinding] | None = None,
        on_time: Callable[[int, int], None] = lambda now_ns, end_ns: None,
    ) -> None:
        """`known`: findings that do not end the run, None: those that are listed; `on_time`: told
        now and then of the virtual time, and when the run ends. Raises InvalidObject for an invalid
        configuration."""
        self._on_time = on_time
        self._known = KNOWN_FINDINGS if known is None else known
        self._found: list[KnownFinding] = []
        self.script = script
        self.seed = script.seed
        self.active_ns = script.active_ms * MILLI_NS
        self.agenda = Agenda()
        self.server = Server(lambda: self.agenda.now_ns)
        self.kubelets = Kubelets(self.agenda, self.server, self._chance("kubelets"))
        self.schedulers: list[SchedulerProcess] = []
        configuration = configuration_for(script, configuration)
        self.build: Callable[[], Engine] = lambda: build_engine(configuration, seed=self.seed)
        self.collector = ReportCollector(self.server, self.seed) if is_reporting else None
        self.build_scheduler = self._builder(configuration)
        self.steps = 0
        self._recording = recording
        self._last: deque[tuple[int, str, Event, list[Write]]] = deque(maxlen=LAST_STEPS)
        self._digest = blake2b(digest_size=8)
        self.step_reader = StepReader()
        self.preemption_log = PreemptionLog(self.server, self.agenda, self.step_reader)
        self.has_rivals = has_rivals(script)
        self.checkers = [
            checker(self) for checker in checkers if checker.allows_rivals or not self.has_rivals
        ]
        self._sort_checkers()
        self.server.tell.append(self._on_change)
        self.claims = Claims(self.agenda, self.server, f"{self.seed}")
        self.controller = Controller(
            self.agenda, self.server, self.kubelets, script.templates, f"{self.seed}",
            self.active_ns, self.claims,
        )  # fmt: skip
        self.driver = Driver(self.agenda, self.server, self._chance("driver"))
        self._weather: list[Weather] = []
        self.negotiators = Negotiators(
            self.agenda, self.server, self._chance("negotiators"), self._weather
        )
        self.autoscaling = NodeAutoscaling(
            self.agenda, self.server, self.kubelets, self._chance("autoscaling"), self.active_ns
        )
        self.actors: list[ControllerProcess] = []
        if has_vms(script):
            self.actors = [self._actors(*one) for one in VM_ACTORS]
        self.faults = [FAULT_BY_NAME[name](self._chance(name), self) for name in script.faults]

    def run(self) -> Finding:
        """To the end, or to the first law that is broken."""
        law = what = ""
        try:
            with self.collector or nullcontext():
                self._run()
        except ViolationError as broken:
            law, what = broken.law, broken.what
        except (InvariantError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            law, what = "no exceptions", f"{type(error).__name__}: {error}"
        if self.collector is not None:
            self.collector.count_scaling(self.autoscaling.ordered, self.autoscaling.removed)
        bound = sum(bool(pod.spec.node_name) for pod in self.server.all(Pod).values())
        return Finding(
            self.seed,
            tuple(fault.name for fault in self.faults),
            law,
            what,
            tuple(_format_step(*step) for step in self._last) if law else (),
            self.steps,
            bound,
            self.agenda.now_ns / SECOND_NS,
            self._digest.hexdigest(),
            None if self.collector is None else self.collector.report,
            tuple(f"{row.law} (issue {row.issue})" for row in self._found),
        )

    def _builder(self, configuration: Mapping[str, Any] | None) -> Callable[[], Engine]:
        """Returns a function that builds the engines of a scheduler, timed where runs report."""
        if self.collector is not None:
            return self.collector.builder(configuration)
        return lambda: build_engine(configuration, seed=self.seed)

    def add_scheduler(self, profile: str = "") -> SchedulerProcess:
        """One more candidate for leadership; with a profile of that name and a Lease of its own,
        unless that is ""."""
        name = f"scheduler-{len(self.schedulers)}"
        build, lease = self.build_scheduler, "stower"
        if profile:
            configuration, lease = configuration_of_profile(profile), profile
            build = self._builder(configuration)
        scheduler = SchedulerProcess(
            name, self.agenda, self.server, self._chance(name), self._weather,
            build, self._on_step, self._recording, self.collector, lease,
        )  # fmt: skip
        scheduler.calm_ns = self.active_ns
        self.schedulers.append(scheduler)
        return scheduler

    def _run(self) -> None:
        self.driver.begin()
        for actors in self.actors:
            actors.start()
        for happening in self.script.happenings:
            self.agenda.schedule_at(happening.at_ms * MILLI_NS, lambda h=happening: h.apply(self))  # type: ignore[misc]
        self._weather += self.faults
        self.add_scheduler().start()
        for fault in self.faults:
            fault.plan()
        end_ns = self.active_ns + SETTLE_NS
        look_ns = max(LOOK_NS, self.active_ns // LOOKS_MAX)
        for at_ns in range(look_ns, end_ns, look_ns):
            self.agenda.run(at_ns)
            self._on_time(at_ns, end_ns)
            for checker in self.checkers:
                try:
                    checker.check()
                except ViolationError as broken:
                    self._drop_known(checker, broken)
            if self.collector is not None:
                self.collector.observe(at_ns, end_ns + STILL_NS)
        self.agenda.run(end_ns + STILL_NS)
        for checker in self.checkers:
            try:
                checker.check_end()
            except ViolationError as broken:
                self._drop_known(checker, broken)

    def _drop_known(self, checker: Checker, broken: ViolationError) -> None:
        """Leaves out a checker after a known finding; raises the violation if it is not known."""
        row = find_known(broken.law, broken.what, self.script, self._known)
        if row is None:
            raise broken
        self._found.append(row)
        self.checkers = [other for other in self.checkers if other is not checker]
        self._sort_checkers()

    def _sort_checkers(self) -> None:
        """Finds those that look at each change, and at each step."""
        self._of_changes = [c for c in self.checkers if type(c).on_change is not Checker.on_change]
        self._of_steps = [c for c in self.checkers if type(c).on_step is not Checker.on_step]

    def _actors(self, name: str, build: Callable[[], ControllerManager]) -> ControllerProcess:
        return ControllerProcess(
            name, self.agenda, self.server, self._chance(name), self._weather, build
        )

    def _chance(self, what: str) -> random.Random:
        """Of its own for each part: leaving one out changes nothing for the others."""
        return random.Random(f"{self.seed}:{what}")

    def _on_change(self, change: Change) -> None:
        for checker in self._of_changes:
            try:
                checker.on_change(change)
            except ViolationError as broken:
                self._drop_known(checker, broken)

    def _on_step(self, process: SchedulerProcess, event: Event, writes: list[Write]) -> None:
        self.steps += 1
        self._last.append((self.agenda.now_ns, process.name, event, writes))
        if writes:
            self._digest.update(_encode((self.agenda.now_ns, process.name, writes)))
        if process.engine is not None and process.engine.errors.counts:
            (_, text, about), *_ = process.engine.errors.take_log_lines()
            raise ViolationError("no exceptions", f"{text} ({about})")
        for checker in self._of_steps:
            try:
                checker.on_step(process, event, writes)
            except ViolationError as broken:
                self._drop_known(checker, broken)


def script_of(
    seed: int,
    faults: Sequence[str] | None = None,
    active_ns: int = ACTIVE_NS,
    size: Size | None = None,
    parts: Collection[str] = PARTS,
) -> Script:
    """Returns the script of a seed. `faults`: names; None: those that the seed draws, some alone,
    some all together. `size`, `parts`: see load.draw_script."""
    if faults is None:
        chance = random.Random(f"{seed}:mix")
        share = chance.random()
        faults = [fault.name for fault in FAULTS if chance.random() < share]
    return draw_script(seed, tuple(sorted(faults)), active_ns, size, parts)


def _format_step(now_ns: int, name: str, event: Event, writes: list[Write]) -> str:
    """A step as one line."""
    done = ", ".join(f"{type(w).__name__} {getattr(w, 'name', '')}" for w in writes)
    return (
        f"{now_ns / SECOND_NS:.3f} s {name}: {describe_event(event)}{f' -> {done}' if done else ''}"
    )
