"""The engine on an API server: watches feed it, its writes are sent, until it is told to stop.

All that the engine knows comes from the lists and watches; a scheduler that is killed and started
again goes on where the objects say.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stower.engine.engine import Engine
from stower.framework.companion import Metric
from stower.framework.decisions import Decision, Outcome
from stower.framework.events import (
    AgentAsked,
    Event,
    ExtenderAnswered,
    Hold,
    Listed,
    Observed,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.extenders import Extender
from stower.framework.observer import Observer, Observers
from stower.framework.profile import DEFAULT_SCHEDULER_NAME
from stower.framework.recording import Recording
from stower.framework.retries import CONFLICT
from stower.framework.writes import AgentAnswer, ApiWrite, Bind, CallExtender, CreateEvent, Write
from stower.live.agents import AgentRequestHandler
from stower.live.client import Client, collection_path
from stower.live.dispatcher import Dispatcher
from stower.live.extenders import HTTPExtenders
from stower.live.leader import LeaderElectionConfig, LeaderElector
from stower.live.reflector import Changes, MalformedObject, Reflector, TypedDecoder
from stower.live.renewal import EngineRenewal
from stower.live.shadow import ReorderBuffer, ShadowComparer
from stower.live.shell import Clock, ShellError, run_until_stopped, sleep_until
from stower.live.window import IN_FLIGHT
from stower.model.kinds import (
    BACKGROUND,
    DEVICES,
    GROUPS,
    KINDS,
    NEGOTIATING,
    ApiObject,
    Kind,
    Node,
    Pod,
    VirtualMachineMigration,
    VolumeAttachment,
    WarmPool,
)

log = logging.getLogger(__name__)

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
# Kinds that not every server has.
OPTIONAL_VIEWS: Final = (*DEVICES, *GROUPS, *NEGOTIATING, VirtualMachineMigration, WarmPool)
# What is not shown to us is taken for none, as roles that are older than some kinds do not name
# them: pods that need what is hidden wait, and nothing of it is given away.
FORBIDDEN_IGNORED_VIEWS: Final = (*OPTIONAL_VIEWS, VolumeAttachment)
# What companions say is said thousands of times a second where there are many VMs.
LEVELS: Final = {"info": logging.DEBUG, "warn": logging.INFO, "error": logging.WARNING}
# Pods that have ended hold no room.
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
# Decide for so long, then let the loop read and send.
SLICE_SECONDS: Final = 0.004
CLOSE_SECONDS: Final = 5.0
FLUSH_SECONDS: Final = 1.0
DECISIONS_MAX: Final = 1_000
# Changes that wait for the engine: watches are not read on meanwhile.
INBOX_MAX: Final = 20_000
# Pods whose binding is not answered; of more, nobody is told when they were bound.
PENDING_BINDINGS_MAX: Final = 50_000
# A leader that begins waits so long at most for its watches to show what the last one did.
CATCH_UP_SECONDS: Final = 0.5
CATCH_UP_CHECKS: Final = 25
STALL_CHECK_SECONDS: Final = 0.1
BIND_REJECTED_CODES: Final = (CONFLICT, 404)
NOTE_CHARACTERS_MAX: Final = 400  # of why a pod cannot be read


@dataclass(frozen=True)
class Options:
    """How to run. `terms` None: no election, this scheduler is the only one. `groups`, `vms`,
    `warm`: whether pod groups, migrations of VMs, and WarmPools are looked at. `shadow`: another
    scheduler decides, and is judged; nothing is written."""

    instance: str
    seed: int = 0
    in_flight: int = IN_FLIGHT
    terms: LeaderElectionConfig | None = None
    extenders: tuple[Extender, ...] = ()
    groups: bool = False
    vms: bool = False
    warm: bool = False
    shadow: ShadowComparer | None = None


class Scheduler:
    """An engine and its API server."""

    def __init__(
        self,
        client: Client,
        build: Callable[[], Engine],
        options: Options,
        observers: Sequence[Observer] = (),
        recording: Recording | None = None,
    ) -> None:
        """`build` makes the engine, once there is something to decide."""
        self.engine: Engine | None = None
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_MAX)
        self.client = client
        self._build = build
        self._options = options
        self._observers = Observers(observers)
        self._recording = recording
        self._renewal = EngineRenewal(recording) if recording is not None else None
        self._clock = Clock()
        self._inbox: deque[Event] = deque()
        self._wake_event = asyncio.Event()
        self._has_room = asyncio.Event()  # in the inbox
        self._has_room.set()
        self._pending_bindings: dict[str, Decision] = {}  # whose binding is not answered, by uid
        self.max_stall_s = 0.0  # the longest that the loop stood still
        chance = random.Random(options.seed)
        self.nodes = self._make_reflector(chance, NODES, Node)
        self.pods = self._make_reflector(chance, PODS, Pod, LIVE_PODS)
        self._reflectors_by_kind = {
            kind: self._make_reflector(
                chance,
                collection_path(kind),
                kind.view,
                "",
                *(collection_path(kind, version=version) for version in kind.also),
                optional=kind.view in (*OPTIONAL_VIEWS, VolumeAttachment),
            )
            for kind in _background_kinds(options)
        }
        self.background_reflectors = [*self._reflectors_by_kind.values()]
        self.elector = (
            LeaderElector(client, options.instance, options.terms, chance)
            if options.terms
            else None
        )
        self.dispatcher = Dispatcher(
            client,
            chance,
            self._on_write_result,
            lambda uid: self.pods.objects.get(uid),
            self._clock.now_ns,
            options.instance,
            options.in_flight,
            lambda: self.elector is None or self.elector.is_leader(),
            self._on_write,
        )
        self._reorder_buffer = ReorderBuffer() if options.shadow is not None else None
        self._is_deciding = self.elector is None and options.shadow is None
        self.extenders = HTTPExtenders(options.extenders, client, self._on_extender_response)
        self.agents = AgentRequestHandler(self._on_agent_request)

    def _make_reflector(
        self,
        chance: random.Random,
        path: str,
        view: type[Any],
        selector: str = "",
        *other_paths: str,
        optional: bool = False,
    ) -> Reflector:
        """Returns a reflector whose lists and changes go to this scheduler."""
        return Reflector(
            self.client,
            path,
            TypedDecoder(view),
            chance,
            selector=selector,
            optional=optional,
            ignore_forbidden=view in FORBIDDEN_IGNORED_VIEWS,
            other_paths=other_paths,
            on_list=self._on_list,
            on_changes=self._on_changes,
            has_room=self._has_room,
            on_malformed=self._on_malformed if view is Pod else lambda obj, why: None,
        )

    @property
    def is_ready(self) -> bool:
        """All there is has been listed."""
        return all(r.has_synced for r in (self.nodes, self.pods, *self.background_reflectors))

    @property
    def is_leader(self) -> bool:
        """Whether it decides."""
        return self.elector is None or self.elector.election.is_leader

    @property
    def lease_name(self) -> str:
        """The name under which leadership is held."""
        terms = self._options.terms
        return terms.name if terms is not None else ""

    @property
    def inbox_size(self) -> int:
        """Events that the engine has not taken in."""
        return len(self._inbox)

    @property
    def in_flight(self) -> int:
        """Writes that are not answered."""
        return self.dispatcher.pending_count

    def objects(self) -> Iterator[ApiObject]:
        """All that is known, as the API has it."""
        for reflector in (*self.background_reflectors, self.nodes, self.pods):
            yield from reflector.objects.values()

    def companion_metrics(self) -> list[Metric]:
        """What companions of plugins have counted."""
        companions = self.engine.state.companions.values() if self.engine is not None else ()
        return [metric for companion in companions for metric in companion.metrics()]

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, or until leadership is lost. Raises ShellError."""
        self.client.on_request = self._observers.on_request if self._observers else None
        reflecting = [r.run() for r in (self.nodes, self.pods, *self.background_reflectors)]
        work = [*reflecting, self._run_steps(), self._measure_loop_stalls()]
        if self.elector is not None:
            work.append(self._lead(self.elector))
        if self._recording is not None:
            work.append(_flush_periodically(self._recording))
        try:
            await run_until_stopped(stop, self.client.access.server, work)
        finally:
            # Another leads already: what was not sent is no longer ours to send.
            all_answered = await self.dispatcher.close(CLOSE_SECONDS if self.is_leader else 0.0)
            await self.extenders.close()
            # What is not answered may be carried out yet: the next one waits for the Lease to end.
            if self.elector is not None and all_answered:
                await self.elector.release()

    async def _lead(self, elector: LeaderElector) -> None:
        """Wait for leadership, then let the engine decide for as long as it lasts."""
        await elector.acquire()
        log.info("leading as %s", self._options.instance)
        beginning = asyncio.create_task(self._take_over(elector))
        try:
            await elector.renew()
        finally:
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
        raise ShellError("leadership is lost: another scheduler goes on")

    async def _take_over(self, elector: LeaderElector) -> None:
        """The engine was kept up to date, and held: what the last leader did is waited for."""
        pause_s = CATCH_UP_SECONDS / CATCH_UP_CHECKS
        while not self.is_ready:
            await asyncio.sleep(pause_s)
        for _ in range(CATCH_UP_CHECKS):
            if has_reached_version(self.pods.resource_version, elector.resource_version):
                break
            await asyncio.sleep(pause_s)
        self._is_deciding = True
        if self.engine is not None:
            self._inbox.append(Hold(False))
        self._wake_event.set()

    async def _measure_loop_stalls(self) -> None:
        """How long whatever else there is to do has to wait."""
        clock = asyncio.get_running_loop().time
        while True:
            began_s = clock()
            await asyncio.sleep(STALL_CHECK_SECONDS)
            self.max_stall_s = max(self.max_stall_s, clock() - began_s - STALL_CHECK_SECONDS)

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

    def _on_malformed(self, pod: MalformedObject, why: str) -> None:
        """A pod that says what no pod can: whoever made it is told, as nobody else will."""
        engine, spec, meta = self.engine, pod.spec, pod.metadata
        if engine is None or not self._is_deciding or spec.node_name or not self.is_leader:
            return
        if (spec.scheduler_name or DEFAULT_SCHEDULER_NAME) not in engine.profiles:
            return
        note = f"the pod cannot be read: {why}"[:NOTE_CHARACTERS_MAX]
        self.dispatcher.send([
            CreateEvent(
                0, meta.namespace, meta.name, meta.uid, "Warning", "FailedScheduling",
                "Scheduling", note, self._clock.now_ns(),
            )
        ])  # fmt: skip

    def _on_write_result(self, answer: WriteOk | WriteFailed) -> None:
        if isinstance(answer, WriteFailed):
            log.info("a write failed: %s %s", answer.code, answer.message)
        self._inbox.append(answer)
        self._wake_event.set()

    def _on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, took_s: float) -> None:
        self._observers.on_write(write, answer, took_s)
        if not isinstance(write, Bind):
            return
        decision = self._pending_bindings.get(write.uid)
        if decision is None:
            return
        if isinstance(answer, WriteOk) or answer.code in BIND_REJECTED_CODES:
            del self._pending_bindings[write.uid]
            after_s = max(0, self._clock.now_ns() - decision.at_ns) / 1e9
            told = (
                self._observers.on_bind
                if isinstance(answer, WriteOk)
                else self._observers.on_bind_failure
            )
            told(decision, after_s)

    def _on_extender_response(self, answer: ExtenderAnswered) -> None:
        if answer.error:
            log.info("an extender failed: %s", answer.error)
        self._inbox.append(answer)
        self._wake_event.set()

    def _on_agent_request(self, request: AgentAsked) -> None:
        if self.engine is None:
            text = "this scheduler does not lead"
            self.agents.complete(AgentAnswer(request.id, 503, text, "text/plain"))
            return
        self._inbox.append(request)
        self._wake_event.set()

    def _list_all(self) -> Listed:
        return Listed((*self.objects(),))

    # Steps

    async def _run_steps(self) -> None:
        # A recording begins with what decides; otherwise the engine is kept warm until it does.
        waits = self._recording is not None and self._options.shadow is None
        while not (self.is_ready and (self._is_deciding or not waits)):
            self._wake_event.clear()
            await self._wake_event.wait()
        engine = self._start_engine()
        while True:
            until = time.perf_counter() + SLICE_SECONDS
            while (event := self._next_event(engine)) is not None:
                self._step(engine, event)
                if time.perf_counter() >= until:
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
        """A new engine, and everything there is."""
        self.dispatcher.api_versions = {
            kind.view: version
            for kind, reflector in self._reflectors_by_kind.items()
            for version in kind.also
            if collection_path(kind, version=version) == reflector.path
        }
        engine = self.engine = self._build()
        engine.cycle.keeps_details = bool(self._observers)  # somebody may ask
        if self._recording is not None:
            self._recording.record_engine(self._options.instance)
        self._inbox.clear()
        if not self._is_deciding:
            self._inbox.append(Hold(True))
        self._inbox.append(self._list_all())
        return engine

    @property
    def _is_idle(self) -> bool:
        return not self._inbox and not self.dispatcher.pending_count

    def _next_wake_ns(self, engine: Engine) -> int | None:
        due = [
            engine.next_wake_ns,
            self._renewal.next_wake_ns if self._renewal is not None else None,
            self._reorder_buffer.wake_ns if self._reorder_buffer is not None else None,
        ]
        return min((one for one in due if one is not None), default=None)

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

    def _step(self, engine: Engine, event: Event) -> None:
        now_ns = self._clock.now_ns()
        writes: list[Write] = []
        if self._options.shadow is not None:
            self._options.shadow.compare_event(engine, event)
        began_s = time.perf_counter()
        try:
            writes = engine.step(event, now_ns)
        finally:  # what it could not stand is recorded too
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
            self._observers.on_step(event, time.perf_counter() - began_s)
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
            # What an engine that decides nothing tidies up is somebody else's to tidy up.
            self._inbox.extend(WriteOk(w.id) for w in writes if not isinstance(w, AgentAnswer))
        elif writes:
            self.dispatcher.send(
                [w for w in writes if not isinstance(w, CallExtender | AgentAnswer)]
            )
            for write in writes:
                if isinstance(write, CallExtender):
                    self.extenders.send(write)
                elif isinstance(write, AgentAnswer):
                    self.agents.complete(write)


def _background_kinds(options: Options) -> list[Kind]:
    """Returns the kinds besides nodes and pods that decisions depend on."""
    kinds = [k for k in KINDS if k.view in BACKGROUND]
    kinds = [k for k in kinds if options.groups or k.view not in GROUPS]
    kinds = [k for k in kinds if options.vms or k.view is not VirtualMachineMigration]
    return [k for k in kinds if options.warm or k.view is not WarmPool]


def has_reached_version(version: str, wanted: str) -> bool:
    """Whether a resourceVersion is as new as another. Where they are no numbers nobody can know."""
    if not (version.isdecimal() and wanted.isdecimal()):
        return True
    return int(version) >= int(wanted)


async def _flush_periodically(recording: Recording) -> None:
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        recording.flush()
