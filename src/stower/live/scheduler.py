"""The engine on an API server: watches feed it, its writes are sent, until it is told to stop.

All that the engine knows comes from the lists and watches; a scheduler that is killed and started
again goes on where the objects say.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from stower.engine.decisions import Decision
from stower.engine.queue import PLACES
from stower.engine.step import Engine
from stower.framework.companion import Metric
from stower.framework.events import (
    AgentAsked,
    Event,
    ExtenderAnswered,
    Listed,
    Observed,
    Tick,
    WriteFailed,
    WriteOk,
)
from stower.framework.extenders import Extender
from stower.framework.recording import Recording
from stower.framework.writes import AgentAnswer, CallExtender, Write
from stower.live.agents import Agents
from stower.live.client import Client, collection_path
from stower.live.dispatch import Dispatch
from stower.live.extenders import Extenders
from stower.live.leader import Candidate, Terms
from stower.live.reflect import Changes, Reflector, Views
from stower.live.renewal import Renewal
from stower.live.shell import Clock, ShellError, run_until, sleep_until
from stower.live.window import IN_FLIGHT
from stower.model.kinds import (
    BACKGROUND,
    DEVICES,
    GROUPS,
    KINDS,
    NEGOTIATING,
    Node,
    Pod,
    VirtualMachineMigration,
)

log = logging.getLogger(__name__)

NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/pods"
# Kinds that not every server has.
OPTIONAL: Final = (*DEVICES, *GROUPS, *NEGOTIATING, VirtualMachineMigration)
# What companions say is said thousands of times a second where there are many VMs.
LEVELS: Final = {"info": logging.DEBUG, "warn": logging.INFO, "error": logging.WARNING}
# Pods that have ended hold no room.
LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
# Decide for so long, then let the loop read and send.
SLICE_SECONDS: Final = 0.004
CLOSE_SECONDS: Final = 5.0
FLUSH_SECONDS: Final = 1.0
DECISIONS_KEPT: Final = 1_000


class Observer(Protocol):
    """Whoever counts."""

    def decided(self, decision: Decision) -> None:
        """An attempt for a pod has ended."""


@dataclass(frozen=True)
class Options:
    """How to run. `terms` None: no election, this scheduler is the only one. `groups`, `vms`:
    whether pod groups, and migrations of VMs, are looked at."""

    instance: str
    seed: int = 0
    in_flight: int = IN_FLIGHT
    terms: Terms | None = None
    extenders: tuple[Extender, ...] = ()
    groups: bool = False
    vms: bool = False


class Scheduler:
    """An engine and its API server."""

    def __init__(
        self,
        client: Client,
        build: Callable[[], Engine],
        options: Options,
        observer: Observer | None = None,
        recording: Recording | None = None,
    ) -> None:
        """`build` makes the engine, once there is something to decide."""
        self.engine: Engine | None = None
        self.decisions: deque[Decision] = deque(maxlen=DECISIONS_KEPT)
        self._client = client
        self._build = build
        self._options = options
        self._observer = observer
        self._recording = recording
        self._renewal = Renewal(recording) if recording is not None else None
        self._clock = Clock()
        self._inbox: deque[Event] = deque()
        self._awake = asyncio.Event()
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
                may_be_hidden=view in GROUPS,
                also=also,
                on_list=self._on_list,
                on_changes=self._on_changes,
            )

        self.nodes = reflect(NODES, Node)
        self.pods = reflect(PODS, Pod, LIVE_PODS)
        # Whatever else decisions depend on.
        kinds = [k for k in KINDS if k.view in BACKGROUND]
        kinds = [k for k in kinds if options.groups or k.view not in GROUPS]
        kinds = [k for k in kinds if options.vms or k.view is not VirtualMachineMigration]
        self._kinds = {
            kind: reflect(
                collection_path(kind),
                kind.view,
                "",
                *(collection_path(kind, version=version) for version in kind.also),
                optional=kind.view in OPTIONAL,
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
        )
        self.extenders = Extenders(options.extenders, client, self._said)
        self.agents = Agents(self._asked)

    @property
    def is_ready(self) -> bool:
        """All there is has been listed."""
        return all(r.listed for r in (self.nodes, self.pods, *self.related))

    def stats(self) -> dict[str, float]:
        """What metrics ask for, counted now."""
        engine = self.engine
        counts = engine.queue.counts() if engine is not None else {}
        return {
            **{place.name.lower(): counts.get(place, 0) for place in PLACES},
            "nodes": len(self.nodes.objects),
            "pods": len(self.pods.objects),
            "writes_waiting": self.dispatch.waiting,
            "writes_sent": self.dispatch.sent,
            "writes_retried": self.dispatch.retried,
            "writes_in_flight_max": self.dispatch.window.size,
            "events_dropped": self.dispatch.dropped_events,
            "watch_cuts": sum(r.cuts for r in (self.nodes, self.pods, *self.related)),
            "relists": sum(r.relists for r in (self.nodes, self.pods, *self.related)),
            "leading": self.candidate is None or self.candidate.election.leads,
        }

    def companion_metrics(self) -> list[Metric]:
        """What companions of plugins have counted."""
        companions = self.engine.state.companions.values() if self.engine is not None else ()
        return [metric for companion in companions for metric in companion.metrics()]

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`, or until leadership is lost. Raises ShellError."""
        reflecting = [r.run() for r in (self.nodes, self.pods, *self.related)]
        work = [*reflecting, self._lead()]
        if self._recording is not None:
            work.append(_keep_flushed(self._recording))
        try:
            await run_until(stop, self._client.access.server, work)
        finally:
            # Another leads already: what was not sent is no longer ours to send.
            leads = self.candidate is None or self.candidate.election.leads
            await self.dispatch.close(CLOSE_SECONDS if leads else 0.0)
            await self.extenders.close()
            if self.candidate is not None:
                await self.candidate.release()

    async def _lead(self) -> None:
        """Wait for leadership, then drive the engine for as long as it lasts."""
        if self.candidate is None:
            await self._drive()
            return
        await self.candidate.acquire()
        log.info("leading as %s", self._options.instance)
        driving = asyncio.create_task(self._drive())
        holding = asyncio.create_task(self.candidate.hold())
        try:
            await asyncio.wait((driving, holding), return_when=asyncio.FIRST_COMPLETED)
            if driving.done():
                driving.result()
        finally:
            for task in (driving, holding):
                task.cancel()
            await asyncio.gather(driving, holding, return_exceptions=True)
        raise ShellError("leadership is lost: another scheduler goes on")

    # Events in

    def _on_list(self) -> None:
        if self.engine is not None and self.is_ready:
            self._inbox.append(self._everything())
        self._awake.set()

    def _on_changes(self, changes: Changes) -> None:
        if self.engine is not None:
            self._inbox.extend(Observed(kind, obj) for kind, obj in changes)
            self._awake.set()

    def _answered(self, answer: WriteOk | WriteFailed) -> None:
        if isinstance(answer, WriteFailed):
            log.info("a write failed: %s %s", answer.code, answer.message)
        self._inbox.append(answer)
        self._awake.set()

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
        related = (obj for r in self.related for obj in r.objects.values())
        return Listed((*related, *self.nodes.objects.values(), *self.pods.objects.values()))

    # Steps

    async def _drive(self) -> None:
        while not self.is_ready:
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
        engine.cycle.keeps_why = self._observer is not None  # somebody may ask
        if self._recording is not None:
            self._recording.built(self._options.instance)
        self._inbox.clear()
        self._inbox.append(self._everything())
        return engine

    @property
    def _is_quiet(self) -> bool:
        return not self._inbox and not self.dispatch.waiting

    def _wakes_ns(self, engine: Engine) -> int | None:
        due_ns = engine.next_wake_ns
        renewal_ns = self._renewal.wakes_ns if self._renewal is not None else None
        if due_ns is None or renewal_ns is None:
            return due_ns if renewal_ns is None else renewal_ns
        return min(due_ns, renewal_ns)

    def _next(self, engine: Engine) -> Event | None:
        if self._renewal is not None:
            order = self._renewal.order(self._clock.now_ns())
            if order is not None:
                return order
        if self._inbox:
            return self._inbox.popleft()
        due_ns = engine.next_wake_ns
        return Tick() if due_ns is not None and due_ns <= self._clock.now_ns() else None

    def _step(self, engine: Engine, event: Event) -> None:
        now_ns = self._clock.now_ns()
        writes: list[Write] = []
        try:
            writes = engine.step(event, now_ns)
        finally:  # what it could not stand is recorded too
            if self._recording is not None:
                self._recording.stepped(self._options.instance, now_ns, event, writes)
        for level, text, about in engine.notes():
            log.log(LEVELS[level], "%s%s", text, f" ({about})" if about else "")
        for decision in engine.drain():
            self.decisions.append(decision)
            if self._observer is not None:
                self._observer.decided(decision)
        if writes:
            self.dispatch.send([w for w in writes if not isinstance(w, CallExtender | AgentAnswer)])
            for write in writes:
                if isinstance(write, CallExtender):
                    self.extenders.send(write)
                elif isinstance(write, AgentAnswer):
                    self.agents.answered(write)


async def _keep_flushed(recording: Recording) -> None:
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        recording.flush()
