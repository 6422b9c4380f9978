"""Runs the engine on an API server: reflectors feed it events, the dispatcher sends its writes.

The engine's state comes from lists and watches alone: a scheduler that is killed and started again
continues from the API's objects. This module decides nothing about pods.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from stower.engine.engine import Engine
from stower.engine.guard_points import GuardPoint
from stower.framework.companion import Metric
from stower.framework.decisions import Decision, Outcome
from stower.framework.events import (
    AgentAsked,
    Event,
    ExtenderAnswered,
    Hold,
    Listed,
    Observed,
    Solved,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.extenders import Extender
from stower.framework.observer import Observer, Observers
from stower.framework.profile import DEFAULT_SCHEDULER_NAME
from stower.framework.recording import Recording
from stower.framework.retries import CONFLICT, TOO_MANY_REQUESTS, is_outcome_unknown
from stower.framework.writes import (
    AgentAnswer,
    ApiWrite,
    Bind,
    CallExtender,
    CreateEvent,
    Solve,
    Write,
    call_name,
    write_text,
)
from stower.live.agent_requests import AgentRequests
from stower.live.client import Client
from stower.live.cluster_reflectors import ClusterReflectors, background_kinds
from stower.live.dispatcher import Dispatcher
from stower.live.extenders import HTTPExtenders
from stower.live.leader import LeaderElectionConfig, LeaderElector
from stower.live.outages import Outages
from stower.live.reflector import Changes, MalformedObject
from stower.live.renewal import EngineRenewal
from stower.live.shadow import ReorderBuffer, ShadowComparer
from stower.live.shell import Clock, ShellError, run_until_stopped, sleep_until
from stower.live.solver import Solver
from stower.live.window import IN_FLIGHT
from stower.model.kinds import ApiObject

log = logging.getLogger(__name__)

# Companions log thousands of lines a second if there are many VMs: each level is one lower here.
LEVELS: Final = {"info": logging.DEBUG, "warn": logging.INFO, "error": logging.WARNING}
# The engine runs for this long before the event loop reads and sends again.
SLICE_SECONDS: Final = 0.004
CLOSE_SECONDS: Final = 5.0
FLUSH_SECONDS: Final = 1.0
DECISIONS_MAX: Final = 1_000
# Events that wait for the engine; while there are more, watches are not read.
INBOX_MAX: Final = 20_000
# Pods whose binding has no result yet; the binding of further pods is not observed.
PENDING_BINDINGS_MAX: Final = 50_000
# A new leader waits this long at most for its watches to show the previous leader's writes.
CATCH_UP_SECONDS: Final = 0.5
CATCH_UP_CHECKS: Final = 25
STALL_CHECK_SECONDS: Final = 0.1
BIND_REJECTED_CODES: Final = (CONFLICT, 404)
WRITE: Final = "cannot write"
NOTE_CHARACTERS_MAX: Final = 400  # of the reason why a pod cannot be read


@dataclass(frozen=True)
class Options:
    """Options of a scheduler.

    `instance`: its name in Events and in the Lease. `seed`: of the random pauses. `in_flight`: the
    most writes in flight. `leader_election` None: no election, this scheduler is the only one.
    `groups`, `vms`, `warm`: whether pod groups, migrations of VMs, and WarmPools are watched.
    `required_views`: views of the kinds that the configuration relies on.
    `shadow`: compares another scheduler's decisions; nothing is written.
    """

    instance: str
    seed: int = 0
    in_flight: int = IN_FLIGHT
    leader_election: LeaderElectionConfig | None = None
    extenders: tuple[Extender, ...] = ()
    groups: bool = False
    vms: bool = False
    warm: bool = False
    required_views: tuple[type, ...] = ()
    shadow: ShadowComparer | None = None


class Scheduler:
    """Runs an engine. Owns its reflectors, dispatcher, leader election, extenders and agents."""

    def __init__(
        self,
        client: Client,
        build: Callable[[], Engine],
        options: Options,
        observers: Sequence[Observer] = (),
        recording: Recording | None = None,
    ) -> None:
        """`build`: builds the engine, once all objects are listed."""
        self.engine: Engine | None = None
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_MAX)
        self.client = client
        self._build = build
        self._options = options
        self._observers = Observers(observers, self._on_observer_error)
        self._recording = recording
        self._renewal = EngineRenewal(recording) if recording is not None else None
        self._clock = Clock()
        self._inbox: deque[Event] = deque()
        self._wake_event = asyncio.Event()
        self._has_room = asyncio.Event()  # whether the inbox has room
        self._has_room.set()
        self._pending_bindings: dict[str, Decision] = {}  # bindings without a result, by uid
        self.max_stall_s = 0.0  # the longest stall of the event loop since the last metrics
        rng = random.Random(options.seed)
        self._outages = Outages()
        self.reflectors = ClusterReflectors(
            client,
            background_kinds(options.groups, options.vms, options.warm),
            rng,
            options.required_views,
            on_list=self._on_list,
            on_changes=self._on_changes,
            on_malformed_pod=self._on_malformed_pod,
            has_room=self._has_room,
            outages=self._outages,
        )
        self.elector = (
            LeaderElector(client, options.instance, options.leader_election, rng, self._outages)
            if options.leader_election
            else None
        )
        self.dispatcher = Dispatcher(
            client,
            rng,
            self._on_write_result,
            lambda uid: self.reflectors.pods.objects.get(uid),
            self._clock.now_ns,
            options.instance,
            options.in_flight,
            lambda: self.elector is None or self.elector.is_leader(),
            self._on_write,
        )
        self._reorder_buffer = ReorderBuffer() if options.shadow is not None else None
        self._is_deciding = self.elector is None and options.shadow is None
        self.extenders = HTTPExtenders(options.extenders, client, self._on_extender_response)
        self.solver = Solver(self._on_search_answer)
        self.agents = AgentRequests(self._on_agent_request)

    @property
    def is_ready(self) -> bool:
        """Whether all resources have been listed."""
        return self.reflectors.have_synced

    @property
    def is_leader(self) -> bool:
        """Whether this scheduler leads."""
        return self.elector is None or self.elector.election.is_leader

    @property
    def lease_name(self) -> str:
        """The name of the Lease; "" without an election."""
        config = self._options.leader_election
        return config.name if config is not None else ""

    @property
    def inbox_size(self) -> int:
        """The number of events that wait for the engine."""
        return len(self._inbox)

    @property
    def in_flight(self) -> int:
        """The number of writes without a result."""
        return self.dispatcher.pending_count

    def objects(self) -> Iterator[ApiObject]:
        """Returns all observed objects, as the API has them."""
        return self.reflectors.objects()

    def companion_metrics(self) -> list[Metric]:
        """Returns the metrics of the companions of plugins."""
        return self.engine.companion_metrics() if self.engine is not None else []

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set. Raises ShellError, also when leadership is lost."""
        self.client.on_request = self._observers.on_request if self._observers else None
        reflector_runs = [reflector.run() for reflector in self.reflectors]
        coroutines = [*reflector_runs, self.reflectors.availability.run()]
        coroutines += [self._run_steps(), self._measure_loop_stalls()]
        if self.elector is not None:
            coroutines.append(self._lead(self.elector))
        if self._recording is not None:
            coroutines.append(_flush_periodically(self._recording))
        try:
            await run_until_stopped(stop, self.client.access.server, coroutines)
        finally:
            # After a loss of leadership another scheduler leads: unsent writes must not be sent.
            all_answered = await self.dispatcher.close(CLOSE_SECONDS if self.is_leader else 0.0)
            await self.extenders.close()
            await self.solver.close()
            # A write without a result may still be carried out: then the next leader has to wait
            # until the Lease expires.
            if self.elector is not None and all_answered:
                await self.elector.release()

    async def _lead(self, elector: LeaderElector) -> None:
        """Acquires leadership, starts the takeover, and renews until leadership is lost."""
        await elector.acquire()
        log.info("leading as %s", self._options.instance)
        takeover = asyncio.create_task(self._take_over(elector))
        try:
            await elector.renew()
        finally:
            takeover.cancel()
            await asyncio.gather(takeover, return_exceptions=True)
        raise ShellError("lost leadership: stopping, as another scheduler may lead")

    async def _take_over(self, elector: LeaderElector) -> None:
        """Releases the hold of the engine once the watches show the previous leader's writes.

        The engine of a standby is kept up to date, but held. Waits CATCH_UP_SECONDS at most.
        """
        pause_s = CATCH_UP_SECONDS / CATCH_UP_CHECKS
        while not self.is_ready:
            await asyncio.sleep(pause_s)
        for _ in range(CATCH_UP_CHECKS):
            if has_reached_version(self.reflectors.pods.resource_version, elector.resource_version):
                break
            await asyncio.sleep(pause_s)
        self._is_deciding = True
        if self.engine is not None:
            self._inbox.append(Hold(False))
        self._wake_event.set()

    async def _measure_loop_stalls(self) -> None:
        """Measures how long other tasks have to wait for the event loop."""
        clock = asyncio.get_running_loop().time
        while True:
            started_s = clock()
            await asyncio.sleep(STALL_CHECK_SECONDS)
            self.max_stall_s = max(self.max_stall_s, clock() - started_s - STALL_CHECK_SECONDS)

    def _on_observer_error(self, observer: Observer, error: Exception) -> None:
        """Records an error of an observer; the log line follows with the next step."""
        if self.engine is not None:
            self.engine.errors.record(GuardPoint.OBSERVER, type(observer).__name__, error)
        else:
            log.error("internal error in %s", GuardPoint.OBSERVER, exc_info=error)

    # Events in

    def _on_list(self) -> None:
        if self.engine is not None and self.is_ready:
            if self._reorder_buffer is not None:
                self._reorder_buffer.clear()
            self._inbox.append(self._list_all())
        self._wake_event.set()

    def _on_changes(self, changes: Changes) -> None:
        if self._reorder_buffer is not None and self.engine is not None:
            for kind, obj in changes:
                self._reorder_buffer.put(Observed(kind, obj), self._clock.now_ns())
            self._wake_event.set()
        elif self.engine is not None:
            self._inbox.extend(Observed(kind, obj) for kind, obj in changes)
            if len(self._inbox) > INBOX_MAX:
                self._has_room.clear()
            self._wake_event.set()

    def _on_malformed_pod(self, pod: MalformedObject, why: str) -> None:
        """Sends an Event about a pod that cannot be decoded, as no other component reports it."""
        engine, spec, meta = self.engine, pod.spec, pod.metadata
        if engine is None or not self._is_deciding or spec.node_name or not self.is_leader:
            return
        if (spec.scheduler_name or DEFAULT_SCHEDULER_NAME) not in engine.profiles:
            return
        note = f"Cannot decode the pod: {why}"[:NOTE_CHARACTERS_MAX]
        self.dispatcher.send([
            CreateEvent(
                0, meta.namespace, meta.name, meta.uid, "Warning", "FailedScheduling",
                "Scheduling", note, self._clock.now_ns(),
            )
        ])  # fmt: skip

    def _on_write_result(self, answer: WriteOk | WriteFailed) -> None:
        self._inbox.append(answer)
        self._wake_event.set()

    def _on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, took_s: float) -> None:
        self._observers.on_write(write, answer, took_s)
        kind = call_name(write)
        if isinstance(answer, WriteOk):
            self._outages.end(kind, WRITE)
        elif answer.code == TOO_MANY_REQUESTS or is_outcome_unknown(answer.code):
            self._outages.meet(WRITE, kind, answer.message, answer.code, logging.INFO)
        else:
            text = "a write to the API server failed: %s: %s %s"
            log.info(text, write_text(write), answer.code, answer.message)
        if not isinstance(write, Bind):
            return
        decision = self._pending_bindings.get(write.uid)
        if decision is None:
            return
        if isinstance(answer, WriteOk) or answer.code in BIND_REJECTED_CODES:
            del self._pending_bindings[write.uid]
            latency_s = max(0, self._clock.now_ns() - decision.at_ns) / 1e9
            notify = (
                self._observers.on_bind
                if isinstance(answer, WriteOk)
                else self._observers.on_bind_failure
            )
            notify(decision, latency_s)

    def _on_extender_response(self, answer: ExtenderAnswered) -> None:
        self._inbox.append(answer)
        self._wake_event.set()

    def _on_search_answer(self, answer: Solved) -> None:
        self._inbox.append(answer)
        self._wake_event.set()

    def _on_agent_request(self, request: AgentAsked) -> None:
        if self.engine is None:
            text = "this scheduler is not the leader, or is not ready yet"
            self.agents.complete(AgentAnswer(request.id, 503, text, "text/plain"))
            return
        self._inbox.append(request)
        self._wake_event.set()

    def _list_all(self) -> Listed:
        return Listed((*self.objects(),))

    # Steps

    async def _run_steps(self) -> None:
        # A recording begins with an engine that decides; without a recording, a standby keeps its
        # engine up to date.
        must_decide = self._recording is not None and self._options.shadow is None
        while not (self.is_ready and (self._is_deciding or not must_decide)):
            self._wake_event.clear()
            await self._wake_event.wait()
        engine = self._start_engine()
        while True:
            slice_end_s = time.perf_counter() + SLICE_SECONDS
            while (event := self._next_event(engine)) is not None:
                self._take(engine, event)
                if time.perf_counter() >= slice_end_s:
                    break
            else:
                self._has_room.set()
                if self._renewal is not None and self._renewal.is_due(engine, self._is_idle):
                    engine = self._start_engine()
                    self._renewal.complete()
                    continue
                self._wake_event.clear()
                await sleep_until(self._wake_event, self._next_wake_ns(engine), self._clock)
                continue
            await asyncio.sleep(0)

    def _start_engine(self) -> Engine:
        """Builds an engine, with a list of all objects as its first event."""
        self.dispatcher.api_versions = self.reflectors.api_versions()
        engine = self.engine = self._build()
        engine.cycle.keeps_details = bool(self._observers)  # observers may need them
        if self._recording is not None:
            self._recording.record_engine(self._options.instance)
        self._inbox.clear()
        self.solver.forget()
        if not self._is_deciding:
            self._inbox.append(Hold(True))
        self._inbox.append(self._list_all())
        return engine

    @property
    def _is_idle(self) -> bool:
        return not self._inbox and not self.dispatcher.pending_count

    def _next_wake_ns(self, engine: Engine) -> int | None:
        wakes_ns = [
            engine.next_wake_ns,
            self._renewal.next_wake_ns if self._renewal is not None else None,
            self._reorder_buffer.wake_ns if self._reorder_buffer is not None else None,
        ]
        return min((wake_ns for wake_ns in wakes_ns if wake_ns is not None), default=None)

    def _next_event(self, engine: Engine) -> Event | None:
        if self._renewal is not None:
            next_hold = self._renewal.next_hold(self._clock.now_ns())
            if next_hold is not None:
                return next_hold
        if self._inbox:
            return self._inbox.popleft()
        if self._reorder_buffer is not None and (
            event := self._reorder_buffer.pop_due(self._clock.now_ns())
        ):
            return event
        due_ns = engine.next_wake_ns
        return Tick() if due_ns is not None and due_ns <= self._clock.now_ns() else None

    def _take(self, engine: Engine, event: Event) -> None:
        """Lets the engine process an event, or what another scheduler's event comes to."""
        if self._options.shadow is None:
            self._step(engine, event)
            return
        for one in self._options.shadow.take(engine, event):
            self._step(engine, one)

    def _step(self, engine: Engine, event: Event) -> None:
        now_ns = self._clock.now_ns()
        writes: list[Write] = []
        started_s = time.perf_counter()
        try:
            writes = engine.step(event, now_ns)
        finally:  # an event on which the engine fails is recorded, too
            if self._recording is not None:
                self._recording.record_step(self._options.instance, now_ns, event, writes)
        for level, text, about in engine.notes():
            log.log(LEVELS[level], "%s%s", text, f" ({about})" if about else "")
        if (
            self._pending_bindings
            and isinstance(event, Observed)
            and event.type is WatchType.DELETED
        ):
            self._pending_bindings.pop(event.object.metadata.uid, None)
        if self._observers:
            self._observers.on_step(event, time.perf_counter() - started_s)
            self._observers.on_plugin_timings(engine.stopwatch.take_timings())
        for decision in engine.drain():
            self.decisions.append(decision)
            if self._observers:
                self._observers.on_decision(decision)
                if (
                    decision.outcome is Outcome.PLACED
                    and len(self._pending_bindings) < PENDING_BINDINGS_MAX
                ):
                    self._pending_bindings[decision.uid] = decision
        if writes and self._options.shadow is not None:
            # A shadow writes nothing: the other scheduler does what its engine would clean up.
            self._inbox.extend(
                WriteOk(write.id) for write in writes if not isinstance(write, AgentAnswer | Solve)
            )
        elif writes:
            self.dispatcher.send(
                [w for w in writes if not isinstance(w, CallExtender | AgentAnswer | Solve)]
            )
            for write in writes:
                if isinstance(write, CallExtender):
                    self.extenders.send(write)
                elif isinstance(write, AgentAnswer):
                    self.agents.complete(write)
        for write in writes:
            if isinstance(write, Solve):
                self.solver.send(write)


def has_reached_version(version: str, wanted: str) -> bool:
    """Returns whether a resourceVersion is at least as new as another.

    True if one of them is not a number: then they cannot be compared.
    """
    if not (version.isdecimal() and wanted.isdecimal()):
        return True
    return int(version) >= int(wanted)


async def _flush_periodically(recording: Recording) -> None:
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        recording.flush()
