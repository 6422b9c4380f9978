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
from stower.live.agents import Agents
from stower.live.client import Client, collection_path
from stower.live.dispatcher import Dispatch
from stower.live.extenders import Extenders
from stower.live.leader import Candidate, Terms
from stower.live.reflector import Changes, Reflector, Unreadable, Views
from stower.live.renewal import Renewal
from stower.live.shadow import Ordered, Shadow
from stower.live.shell import Clock, ShellError, run_until, sleep_until
from stower.live.window import IN_FLIGHT
from stower.model.kinds import (
    BACKGROUND,
    DEVICES,
    GROUPS,
    KINDS,
    NEGOTIATING,
    ApiObject,
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
OPTIONAL: Final = (*DEVICES, *GROUPS, *NEGOTIATING, VirtualMachineMigration, WarmPool)
# What is not shown to us is taken for none, as roles that are older than some kinds do not name
# them: pods that need what is hidden wait, and nothing of it is given away.
MAY_BE_HIDDEN: Final = (*OPTIONAL, VolumeAttachment)
# What companions say is said thousands of times a second where there are many VMs.
LEVELS: Final = {"info": logging.DEBUG, "warn": logging.INFO, "error": logging.WARNING}
# Pods that have ended hold no room.
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
# Decide for so long, then let the loop read and send.
SLICE_SECONDS: Final = 0.004
CLOSE_SECONDS: Final = 5.0
FLUSH_SECONDS: Final = 1.0
DECISIONS_KEPT: Final = 1_000
# Changes that wait for the engine: watches are not read on meanwhile.
INBOX_MAX: Final = 20_000
# Pods whose binding is not answered; of more, nobody is told when they were bound.
PLACED_MAX: Final = 50_000
# A leader that begins waits so long at most for its watches to show what the last one did.
CATCH_UP_SECONDS: Final = 0.5
CATCH_UP_LOOKS: Final = 25
STALL_LOOK_SECONDS: Final = 0.1
GONE: Final = (CONFLICT, 404)
NOTE_CHARACTERS_MAX: Final = 400  # of why a pod cannot be read


@dataclass(frozen=True)
class Options:
    """How to run. `terms` None: no election, this scheduler is the only one. `groups`, `vms`,
    `warm`: whether pod groups, migrations of VMs, and WarmPools are looked at. `shadow`: another
    scheduler decides, and is judged; nothing is written."""

    instance: str
    seed: int = 0
    in_flight: int = IN_FLIGHT
    terms: Terms | None = None
    extenders: tuple[Extender, ...] = ()
    groups: bool = False
    vms: bool = False
    warm: bool = False
    shadow: Shadow | None = None


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
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_KEPT)
        self.client = client
        self._build = build
        self._options = options
        self._observers = Observers(observers)
        self._recording = recording
        self._renewal = Renewal(recording) if recording is not None else None
        self._clock = Clock()
        self._inbox: deque[Event] = deque()
        self._awake = asyncio.Event()
        self._has_room = asyncio.Event()  # in the inbox
        self._has_room.set()
        self._placed: dict[str, Decision] = {}  # whose binding is not answered, by uid
        self.stalled_s = 0.0  # the longest that the loop stood still
        chance = random.Random(options.seed)

        def reflect(
            path: str, view: type[Any], selector: str = "", *also: str, optional: bool = False
        ) -> Reflector:
            return Reflector(
                client,
                path,
                Views(view),
                chance,
                selector=selector,
                optional=optional,
                may_be_hidden=view in MAY_BE_HIDDEN,
                also=also,
                on_list=self._on_list,
                on_changes=self._on_changes,
                has_room=self._has_room,
                on_unreadable=self._on_unreadable if view is Pod else lambda obj, why: None,
            )

        self.nodes = reflect(NODES, Node)
        self.pods = reflect(PODS, Pod, LIVE_PODS)
        # Whatever else decisions depend on.
        kinds = [k for k in KINDS if k.view in BACKGROUND]
        kinds = [k for k in kinds if options.groups or k.view not in GROUPS]
        kinds = [k for k in kinds if options.vms or k.view is not VirtualMachineMigration]
        kinds = [k for k in kinds if options.warm or k.view is not WarmPool]
        self._kinds = {
            kind: reflect(
                collection_path(kind),
                kind.view,
                "",
                *(collection_path(kind, version=version) for version in kind.also),
                optional=kind.view in (*OPTIONAL, VolumeAttachment),
            )
            for kind in kinds
        }
        self.related = [*self._kinds.values()]
        self.candidate = (
            Candidate(client, options.instance, options.terms, chance) if options.terms else None
        )
        self.dispatch = Dispatch(
            client,
            chance,
            self._answered,
            lambda uid: self.pods.objects.get(uid),
            self._clock.now_ns,
            options.instance,
            options.in_flight,
            lambda: self.candidate is None or self.candidate.leads_still(),
            self._wrote,
        )
        self._ordered = Ordered() if options.shadow is not None else None
        self._decides = self.candidate is None and options.shadow is None
        self.extenders = Extenders(options.extenders, client, self._said)
        self.agents = Agents(self._asked)

    @property
    def is_ready(self) -> bool:
        """All there is has been listed."""
        return all(r.listed for r in (self.nodes, self.pods, *self.related))

    @property
    def leads(self) -> bool:
        """Whether it decides."""
        return self.candidate is None or self.candidate.election.leads

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
        return self.dispatch.waiting

    def objects(self) -> Iterator[ApiObject]:
        """All that is known, as the API has it."""
        for reflector in (*self.related, self.nodes, self.pods):
            yield from reflector.objects.values()

    def companion_metrics(self) -> list[Metric]:
        """What companions of plugins have counted."""
        companions = self.engine.state.companions.values() if self.engine is not None else ()
        return [metric for companion in companions for metric in companion.metrics()]

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, or until leadership is lost. Raises ShellError."""
        self.client.asked = self._observers.asked if self._observers else None
        reflecting = [r.run() for r in (self.nodes, self.pods, *self.related)]
        work = [*reflecting, self._drive(), self._look_at_loop()]
        if self.candidate is not None:
            work.append(self._lead(self.candidate))
        if self._recording is not None:
            work.append(_keep_flushed(self._recording))
        try:
            await run_until(stop, self.client.access.server, work)
        finally:
            # Another leads already: what was not sent is no longer ours to send.
            all_answered = await self.dispatch.close(CLOSE_SECONDS if self.leads else 0.0)
            await self.extenders.close()
            # What is not answered may be carried out yet: the next one waits for the Lease to end.
            if self.candidate is not None and all_answered:
                await self.candidate.release()

    async def _lead(self, candidate: Candidate) -> None:
        """Wait for leadership, then let the engine decide for as long as it lasts."""
        await candidate.acquire()
        log.info("leading as %s", self._options.instance)
        beginning = asyncio.create_task(self._take_over(candidate))
        try:
            await candidate.hold()
        finally:
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
        raise ShellError("leadership is lost: another scheduler goes on")

    async def _take_over(self, candidate: Candidate) -> None:
        """The engine was kept up to date, and held: what the last leader did is waited for."""
        pause_s = CATCH_UP_SECONDS / CATCH_UP_LOOKS
        while not self.is_ready:
            await asyncio.sleep(pause_s)
        for _ in range(CATCH_UP_LOOKS):
            if is_at(self.pods.version, candidate.version):
                break
            await asyncio.sleep(pause_s)
        self._decides = True
        if self.engine is not None:
            self._inbox.append(Hold(False))
        self._awake.set()

    async def _look_at_loop(self) -> None:
        """How long whatever else there is to do has to wait."""
        clock = asyncio.get_running_loop().time
        while True:
            began_s = clock()
            await asyncio.sleep(STALL_LOOK_SECONDS)
            self.stalled_s = max(self.stalled_s, clock() - began_s - STALL_LOOK_SECONDS)

    # Events in

    def _on_list(self) -> None:
        if self.engine is not None and self.is_ready:
            if self._ordered is not None:
                self._ordered.clear()
            self._inbox.append(self._everything())
        self._awake.set()

    def _on_changes(self, changes: Changes) -> None:
        if self._ordered is not None and self.engine is not None:
            for kind, obj in changes:
                self._ordered.put(Observed(kind, obj), self._clock.now_ns())
            self._awake.set()
        elif self.engine is not None:
            self._inbox.extend(Observed(kind, obj) for kind, obj in changes)
            if len(self._inbox) > INBOX_MAX:
                self._has_room.clear()
            self._awake.set()

    def _on_unreadable(self, pod: Unreadable, why: str) -> None:
        """A pod that says what no pod can: whoever made it is told, as nobody else will."""
        engine, spec, meta = self.engine, pod.spec, pod.metadata
        if engine is None or not self._decides or spec.node_name or not self.leads:
            return
        if (spec.scheduler_name or DEFAULT_SCHEDULER_NAME) not in engine.profiles:
            return
        note = f"the pod cannot be read: {why}"[:NOTE_CHARACTERS_MAX]
        self.dispatch.send([
            CreateEvent(
                0, meta.namespace, meta.name, meta.uid, "Warning", "FailedScheduling",
                "Scheduling", note, self._clock.now_ns(),
            )
        ])  # fmt: skip

    def _answered(self, answer: WriteOk | WriteFailed) -> None:
        if isinstance(answer, WriteFailed):
            log.info("a write failed: %s %s", answer.code, answer.message)
        self._inbox.append(answer)
        self._awake.set()

    def _wrote(self, write: ApiWrite, answer: WriteOk | WriteFailed, took_s: float) -> None:
        self._observers.wrote(write, answer, took_s)
        if not isinstance(write, Bind):
            return
        decision = self._placed.get(write.uid)
        if decision is None:
            return
        if isinstance(answer, WriteOk) or answer.code in GONE:
            del self._placed[write.uid]
            after_s = max(0, self._clock.now_ns() - decision.at_ns) / 1e9
            told = self._observers.bound if isinstance(answer, WriteOk) else self._observers.unbound
            told(decision, after_s)

    def _said(self, answer: ExtenderAnswered) -> None:
        if answer.error:
            log.info("an extender failed: %s", answer.error)
        self._inbox.append(answer)
        self._awake.set()

    def _asked(self, request: AgentAsked) -> None:
        if self.engine is None:
            text = "this scheduler does not lead"
            self.agents.answered(AgentAnswer(request.id, 503, text, "text/plain"))
            return
        self._inbox.append(request)
        self._awake.set()

    def _everything(self) -> Listed:
        return Listed((*self.objects(),))

    # Steps

    async def _drive(self) -> None:
        # A recording begins with what decides; otherwise the engine is kept warm until it does.
        waits = self._recording is not None and self._options.shadow is None
        while not (self.is_ready and (self._decides or not waits)):
            self._awake.clear()
            await self._awake.wait()
        engine = self._begin()
        while True:
            until = time.perf_counter() + SLICE_SECONDS
            while (event := self._next(engine)) is not None:
                self._step(engine, event)
                if time.perf_counter() >= until:
                    break
            else:
                self._has_room.set()
                if self._renewal is not None and self._renewal.is_due(engine, self._is_quiet):
                    engine = self._begin()
                    self._renewal.done()
                    continue
                self._awake.clear()
                await sleep_until(self._awake, self._wakes_ns(engine), self._clock)
                continue
            await asyncio.sleep(0)

    def _begin(self) -> Engine:
        """A new engine, and everything there is."""
        self.dispatch.versions = {
            kind.view: version
            for kind, reflector in self._kinds.items()
            for version in kind.also
            if collection_path(kind, version=version) == reflector.path
        }
        engine = self.engine = self._build()
        engine.cycle.keeps_details = bool(self._observers)  # somebody may ask
        if self._recording is not None:
            self._recording.built(self._options.instance)
        self._inbox.clear()
        if not self._decides:
            self._inbox.append(Hold(True))
        self._inbox.append(self._everything())
        return engine

    @property
    def _is_quiet(self) -> bool:
        return not self._inbox and not self.dispatch.waiting

    def _wakes_ns(self, engine: Engine) -> int | None:
        due = [
            engine.next_wake_ns,
            self._renewal.wakes_ns if self._renewal is not None else None,
            self._ordered.wake_ns if self._ordered is not None else None,
        ]
        return min((one for one in due if one is not None), default=None)

    def _next(self, engine: Engine) -> Event | None:
        if self._renewal is not None:
            order = self._renewal.order(self._clock.now_ns())
            if order is not None:
                return order
        if self._inbox:
            return self._inbox.popleft()
        if self._ordered is not None and (event := self._ordered.taken(self._clock.now_ns())):
            return event
        due_ns = engine.next_wake_ns
        return Tick() if due_ns is not None and due_ns <= self._clock.now_ns() else None

    def _step(self, engine: Engine, event: Event) -> None:
        now_ns = self._clock.now_ns()
        writes: list[Write] = []
        if self._options.shadow is not None:
            self._options.shadow.before(engine, event)
        began_s = time.perf_counter()
        try:
            writes = engine.step(event, now_ns)
        finally:  # what it could not stand is recorded too
            if self._recording is not None:
                self._recording.stepped(self._options.instance, now_ns, event, writes)
        for level, text, about in engine.notes():
            log.log(LEVELS[level], "%s%s", text, f" ({about})" if about else "")
        if self._placed and isinstance(event, Observed) and event.type is WatchType.DELETED:
            self._placed.pop(event.object.metadata.uid, None)
        if self._observers:
            self._observers.stepped(event, time.perf_counter() - began_s)
            self._observers.lapped(engine.stopwatch.taken())
        for decision in engine.drain():
            self.decisions.append(decision)
            if self._observers:
                self._observers.decided(decision)
                if decision.outcome is Outcome.PLACED and len(self._placed) < PLACED_MAX:
                    self._placed[decision.uid] = decision
        if writes and self._options.shadow is not None:
            # What an engine that decides nothing tidies up is somebody else's to tidy up.
            self._inbox.extend(WriteOk(w.id) for w in writes if not isinstance(w, AgentAnswer))
        elif writes:
            self.dispatch.send([w for w in writes if not isinstance(w, CallExtender | AgentAnswer)])
            for write in writes:
                if isinstance(write, CallExtender):
                    self.extenders.send(write)
                elif isinstance(write, AgentAnswer):
                    self.agents.answered(write)


def is_at(version: str, wanted: str) -> bool:
    """Whether a resourceVersion is as new as another. Where they are no numbers nobody can know."""
    if not (version.isdecimal() and wanted.isdecimal()):
        return True
    return int(version) >= int(wanted)


async def _keep_flushed(recording: Recording) -> None:
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        recording.flush()
