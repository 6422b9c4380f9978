"""A scheduler process of a run with faults: the engine, its watches, its writes and its leadership.

The counterpart of live/: a candidate lists and watches, and builds its engine when it holds the
Lease; writes are sent in order for each pod and retried by the same rules; a process that loses
leadership ends and is restarted from outside. A process that crashes loses all its state; writes
that it had sent may still arrive.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from stower.engine.engine import Engine
from stower.framework.decisions import Decision
from stower.framework.election import JITTER_FACTOR, LeaderElection, LeaderElectionConfig
from stower.framework.events import (
    Event,
    Listed,
    Observed,
    Solved,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.recording import Recording
from stower.framework.retries import (
    CONFLICT,
    TRIES,
    final_code,
    is_outcome_unknown,
    is_retriable,
    pause_seconds,
)
from stower.framework.writes import AgentAnswer, ApiWrite, CallExtender, CreateEvent, Solve, Write
from stower.groups.solving import solve
from stower.model.kinds import BACKGROUND, ApiObject, Node, Pod
from stower.model.times import SECOND_NS
from stower.sim.agenda import Agenda
from stower.sim.link import Link, Weather
from stower.sim.report_collector import ReportCollector
from stower.sim.server import NOT_FOUND, OK, Server

VIEWS: Final = (Node, Pod, *BACKGROUND)
TERMS: Final = LeaderElectionConfig()
# How long a search takes on a machine that others use, too; how many never have an answer.
SOLVED_AFTER_S: Final = (0.01, 5.0)
SOLVER_ENDS: Final = 0.05
EPOCH_NS: Final = 1_767_225_600 * SECOND_NS  # when virtual time begins, by the wall: 2026-01-01

Told = Callable[["SchedulerProcess", Event, list[Write]], None]


class SchedulerProcess:
    """One candidate; `engine` is there while it leads."""

    def __init__(
        self,
        name: str,
        agenda: Agenda,
        server: Server,
        chance: random.Random,
        weather: list[Weather],
        build: Callable[[], Engine],
        told: Told,
        recording: Recording | None = None,
        collector: ReportCollector | None = None,
        lease: str = "stower",
    ) -> None:
        """`told` of each step: its event and its writes. `collector`: times the steps. `lease`: the
        name of the Lease that it campaigns for."""
        self.name = name
        self.engine: Engine | None = None
        self.lives = 0
        self.decisions: deque[Decision] = deque(maxlen=1_000)
        self.skew_ns = 0  # its monotonic clock, ahead of the world's: it never goes back
        self.wall_skew_ns = 0
        self._agenda = agenda
        self._server = server
        self._chance = chance
        self._weather = weather
        self._build = build
        self._told = told
        self._recording = recording
        self._collector = collector
        self._lease = lease
        self._link: Link | None = None
        self._election = LeaderElection(name, TERMS)
        self._behind: dict[str, deque[ApiWrite]] = {}
        self._wake_ns: int | None = None
        self._frozen_until_ns = 0
        self.led_ns = 0  # since when it leads
        self.calm_ns: int | None = None  # from then on no solver ends
        self._inbox: deque[Event] = deque()

    @property
    def now_ns(self) -> int:
        """By its own clock."""
        return self._agenda.now_ns + self.skew_ns

    @property
    def _instance(self) -> str:
        return f"{self.name}-{self.lives}"

    @property
    def is_up(self) -> bool:
        """Whether it runs, leading or not."""
        return self._link is not None

    @property
    def is_frozen(self) -> bool:
        """Whether it stands still."""
        return self._agenda.now_ns < self._frozen_until_ns

    @property
    def awake_since_ns(self) -> int:
        """When it last began to lead or to go on; now, where it does not lead."""
        if self.engine is None or self.is_frozen:
            return self._agenda.now_ns
        return max(self.led_ns, self._frozen_until_ns)

    def get_shown_pod(self, uid: str) -> Pod | None:
        """The pod as this process was last shown it."""
        found = self._link.streams[Pod].objects.get(uid) if self._link is not None else None
        return found if isinstance(found, Pod) else None

    # Life and death

    def start(self) -> None:
        """Begin with nothing but what the server says."""
        self.lives += 1
        self._election = LeaderElection(self._instance, TERMS)
        self._link = Link(
            self._agenda, self._server, self._chance, self._weather, VIEWS,
            self._on_list, self._on_change,
        )  # fmt: skip
        self._campaign(self.lives)

    def crash(self, for_ns: int | None = None) -> None:
        """It is gone, with all that it knew; after so long it is started again."""
        if self._link is None:
            return
        self.lives += 1
        self._link.close()
        self._link = None
        self.engine = None
        self._behind.clear()
        self._inbox.clear()
        self._wake_ns = None
        if for_ns is not None:
            life = self.lives
            self._agenda.schedule_after(
                for_ns, lambda: self.start() if life == self.lives else None
            )

    def freeze(self, for_ns: int) -> None:
        """It does nothing for so long: paused, swapped out, or its machine suspended."""
        self._frozen_until_ns = max(self._frozen_until_ns, self._agenda.now_ns + for_ns)
        self._agenda.schedule_at(self._frozen_until_ns, self._thaw)

    def cut(self, view: type[Any]) -> None:
        """One of its watches breaks."""
        if self._link is not None and view in self._link.streams:
            self._link.cut(self._link.streams[view])

    def _thaw(self) -> None:
        if self._agenda.now_ns >= self._frozen_until_ns:
            self._step_through_inbox()

    # Leadership

    def _campaign(self, life: int) -> None:
        if life != self.lives or self._link is None:
            return
        if self._agenda.now_ns < self._frozen_until_ns:
            self._agenda.schedule_at(self._frozen_until_ns, lambda: self._campaign(life))
            return
        if self.engine is not None and not self._election.check_leadership(self.now_ns):
            self._on_lease_loss()
            return
        asked_at_ns = self.now_ns
        self._link.ask(
            lambda: (self._server.leases.get(self._lease),),
            lambda status, found: self._read(life, asked_at_ns, status, found),
        )
        longest = (
            TERMS.retry_ns if self._election.is_leader else int(TERMS.retry_ns * JITTER_FACTOR)
        )
        self._agenda.schedule_after(
            self._chance.randint(TERMS.retry_ns, longest), lambda: self._campaign(life)
        )

    def _read(self, life: int, asked_at_ns: int, status: int, found: Any) -> None:
        if life != self.lives or self._link is None or status != OK or found is None:
            return
        (lease,) = found
        wall_ns = EPOCH_NS + self.now_ns + self.wall_skew_ns
        wanted = self._election.try_acquire_or_renew(lease, self.now_ns, wall_ns)
        if wanted is None:
            if self._election.is_leader and not self._election.check_leadership(
                self.now_ns, is_held_by_other=True
            ):
                self._on_lease_loss()
            return
        version = 0 if lease is None else lease["metadata"]["version"]

        def on_write(status: int, code: Any) -> None:
            if life != self.lives or status != OK or code != OK:
                return
            self._election.confirm_renewal(asked_at_ns)
            self._lead()

        self._link.ask(lambda: self._server.put_lease(self._lease, wanted, version), on_write)

    def _lead(self) -> None:
        if self.engine is None and self._link is not None and self._link.is_ready:
            self.engine = self._build()
            if self._recording is not None:
                self._recording.record_engine(self._instance)
            self.led_ns = self._agenda.now_ns
            self._take(Listed(self._link.list_objects()))

    def _on_lease_loss(self) -> None:
        """Another goes on; whoever looks after processes starts this one again."""
        self.crash(SECOND_NS)

    # Events in

    def _on_list(self) -> None:
        if self.engine is not None and self._link is not None and self._link.is_ready:
            self._take(Listed(self._link.list_objects()))

    def _on_change(self, kind: WatchType, obj: ApiObject) -> None:
        if self.engine is not None:
            self._take(Observed(kind, obj))

    def _take(self, event: Event) -> None:
        if self.engine is None:
            return  # it has died of what it was just told
        self._inbox.append(event)
        if len(self._inbox) == 1:
            self._step_through_inbox()

    def _step_through_inbox(self) -> None:
        """Step for what has come, and be woken when the engine wants it."""
        while self._inbox and self._agenda.now_ns >= self._frozen_until_ns:
            if not self._step(self._inbox[0]):
                return
            if self._inbox:
                self._inbox.popleft()
        self._sleep()

    def _step(self, event: Event) -> bool:
        if self.engine is None:
            return False
        if not self._election.check_leadership(self.now_ns):
            self._on_lease_loss()
            return False
        writes: list[Write] = []
        try:
            if self._collector is None:
                writes = self.engine.step(event, self.now_ns)
            else:
                writes = self._collector.step(self.engine, event, self.now_ns, self.name)
        finally:
            if self._recording is not None:
                self._recording.record_step(self._instance, self.now_ns, event, writes)
        decisions = self.engine.drain()
        self.decisions.extend(decisions)
        if self._collector is not None:
            self._collector.on_decisions(self.engine, decisions)
        self._told(self, event, writes)
        for write in writes:
            if isinstance(write, Solve):
                self._solve(write)
            elif not isinstance(write, CallExtender | AgentAnswer):
                self._send(write)
        return True

    def _sleep(self) -> None:
        due_ns = self.engine.next_wake_ns if self.engine is not None else None
        if due_ns is None:
            return
        at_ns = max(due_ns - self.skew_ns, self._agenda.now_ns, self._frozen_until_ns)
        if self._wake_ns is not None and self._agenda.now_ns < self._wake_ns <= at_ns:
            return
        self._wake_ns = at_ns
        life = self.lives
        self._agenda.schedule_at(at_ns, lambda: self._on_wake(life, at_ns))

    def _on_wake(self, life: int, at_ns: int) -> None:
        if life != self.lives or self._wake_ns != at_ns:
            return
        self._wake_ns = None
        due_ns = self.engine.next_wake_ns if self.engine is not None else None
        if due_ns is not None and due_ns <= self.now_ns:
            self._take(Tick())
        else:
            self._sleep()

    # Writes out

    def _solve(self, write: Solve) -> None:
        """Searches; the answer comes after some time, or none as the solver has ended. Without a
        message, it comes once all that happens at this moment has happened."""
        answer, life, lasts_ns = Solved(write.id), self.lives, 0
        if write.message:
            lasts_ns = int(self._chance.uniform(*SOLVED_AFTER_S) * SECOND_NS)
            answer = Solved(write.id, error="the solver has ended")
            is_calm = self.calm_ns is not None and self._agenda.now_ns >= self.calm_ns
            if self._chance.random() >= SOLVER_ENDS or is_calm:
                answer = Solved(write.id, solve(write.message))
        self._agenda.schedule_after(
            lasts_ns, lambda: self._take(answer) if life == self.lives else None
        )

    def _send(self, write: ApiWrite) -> None:
        if isinstance(write, CreateEvent):
            self._send_write(write, 0, False, self.lives)
        elif write.uid in self._behind:
            self._behind[write.uid].append(write)
        else:
            self._behind[write.uid] = deque()
            self._send_write(write, 0, False, self.lives)

    def _send_write(self, write: ApiWrite, turn: int, was_lost: bool, life: int) -> None:
        if life != self.lives or self._link is None:
            return
        if self._agenda.now_ns < self._frozen_until_ns:
            again = self._frozen_until_ns
            self._agenda.schedule_at(again, lambda: self._send_write(write, turn, was_lost, life))
            return
        if not self._election.check_leadership(self.now_ns):
            self._on_lease_loss()  # another leads already: what was not sent is not ours to send
            return

        def on_answer(status: int, found: Any) -> None:
            if life == self.lives:
                code, version = found if status == OK else (status, "")
                self._on_answer(write, turn, was_lost, code, version)

        self._link.ask(lambda: self._server.carry_out(write), on_answer)

    def _on_answer(
        self, write: ApiWrite, turn: int, was_lost: bool, status: int, version: str
    ) -> None:
        if is_retriable(write, status) and turn + 1 < TRIES:
            shortest, longest = pause_seconds(turn)
            pause_ns = int(self._chance.uniform(shortest, longest) * SECOND_NS)
            lost, life = was_lost or is_outcome_unknown(status), self.lives
            self._agenda.schedule_after(
                pause_ns, lambda: self._send_write(write, turn + 1, lost, life)
            )
            return
        if not isinstance(write, CreateEvent):
            behind = self._behind[write.uid]
            if behind:
                self._send_write(behind.popleft(), 0, False, self.lives)
            else:
                del self._behind[write.uid]
        code = final_code(write, status, was_lost)
        if code == OK:
            self._take(WriteOk(write.id, version))
        else:
            self._take(WriteFailed(write.id, code, _text(code)))


def _text(code: int) -> str:
    return {0: "no answer", NOT_FOUND: "not found", CONFLICT: "conflict"}.get(code, f"{code}")
