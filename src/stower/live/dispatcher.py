"""The engine's writes, carried out: many at a time, in order for each pod, each answered once.

A refusal that another try may cure is tried again here. A binding of which nobody knows whether it
was carried out is answered so: the engine knows what to do.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

import msgspec

from stower.framework.events import WriteFailed, WriteOk
from stower.framework.retries import (
    PAUSE_SECONDS_MAX,
    TOO_MANY,
    TRIES,
    final_code,
    is_curable,
    is_lost,
    pause_seconds,
)
from stower.framework.writes import (
    ApiWrite,
    Bind,
    CreateEvent,
    DeletePod,
    ObjectWrite,
    PatchPodStatus,
    call_of,
)
from stower.live.client import WITHHELD, Answer, Client
from stower.live.requests import request_of
from stower.live.shell import ask_within
from stower.live.window import Window
from stower.live.workers import Workers
from stower.model.kinds import Pod

EVENTS_MAX: Final = 10_000  # waiting to be told; more are dropped

_Ordered = Bind | PatchPodStatus | DeletePod | ObjectWrite
Answers = Callable[[WriteOk | WriteFailed], None]


class Dispatch:
    """Writes in, answers out."""

    def __init__(
        self,
        client: Client,
        chance: random.Random,
        answered: Answers,
        pod_of: Callable[[str], Pod | None],
        wall_ns: Callable[[], int],
        instance: str,
        in_flight: int,
        may_send: Callable[[], bool] = lambda: True,
        wrote: Callable[[ApiWrite, WriteOk | WriteFailed, float], None] = lambda *_: None,
    ) -> None:
        """`pod_of`: what is known of a pod, by uid. `instance`: the scheduler's name in Events.

        `may_send`: asked before each request. A process that stood still wakes up with writes that
        are no longer its own to send. `wrote`: told of each, and how many seconds it took.
        """
        self._may_send = may_send
        self._wrote = wrote
        self.versions: dict[type, str] = {}  # see request_of
        self.window = Window(in_flight)
        self.sent = 0
        self.retried = 0
        self.dropped_events = 0
        self._client = client
        self._chance = chance
        self._answered = answered
        self._pod_of = pod_of
        self._wall_ns = wall_ns
        self._instance = instance
        self._writes: deque[_Ordered] = deque()
        self._events: deque[CreateEvent] = deque()
        self._behind: dict[str, deque[_Ordered]] = {}  # pods with a write in flight
        self._doing: Counter[str] = Counter()  # writes in flight, by their names
        self._workers = Workers[ApiWrite](self._take, self._do, lambda: self.window.size)

    @property
    def waiting(self) -> int:
        """Writes that are not yet answered."""
        return len(self._writes) + len(self._events) + self._workers.busy

    def pending(self) -> Counter[str]:
        """The same, by what they are called."""
        behind = (write for queue in self._behind.values() for write in queue)
        return self._doing + Counter(call_of(w) for w in (*self._writes, *self._events, *behind))

    def send(self, writes: list[ApiWrite]) -> None:
        """Take these on."""
        for write in writes:
            if isinstance(write, CreateEvent):
                if len(self._events) >= EVENTS_MAX:
                    self.dropped_events += 1
                    self._answered(WriteFailed(write.id, TOO_MANY, "too many Events are waiting"))
                else:
                    self._events.append(write)
            elif write.uid in self._behind:
                self._behind[write.uid].append(write)
            else:
                self._behind[write.uid] = deque()
                self._writes.append(write)
        self._workers.wanted(len(self._writes) + len(self._events))

    async def close(self, timeout_s: float) -> bool:
        """Finish what was taken on, for so long at most; whether all of it was answered."""
        return await self._workers.close(timeout_s)

    def _take(self) -> ApiWrite | None:
        """Events wait for everything else."""
        if self._writes:
            return self._writes.popleft()
        return self._events.popleft() if self._events else None

    async def _do(self, write: ApiWrite) -> None:
        clock = asyncio.get_running_loop().time
        began_s, call = clock(), call_of(write)
        self._doing[call] += 1
        try:
            answer = await self._carry_out(write)
        finally:
            self._doing[call] -= 1
        self._wrote(write, answer, clock() - began_s)
        if not isinstance(write, CreateEvent):
            self._next_of(write.uid)
        self.sent += 1
        self._answered(answer)

    def _next_of(self, uid: str) -> None:
        behind = self._behind[uid]
        if behind:
            self._writes.append(behind.popleft())
        else:
            del self._behind[uid]

    async def _carry_out(self, write: ApiWrite) -> WriteOk | WriteFailed:
        request = request_of(
            write, self._pod_of(write.uid), self._wall_ns(), self._instance, self.versions
        )
        answer, was_lost = Answer(0, b""), False
        for turn in range(TRIES):
            answer = Answer(WITHHELD, b"")
            if self._may_send():  # and once more when there is a connection
                answer = await ask_within(self.window, self._client, *request, self._may_send)
            if answer.status == WITHHELD:
                return WriteFailed(write.id, 0, "another scheduler may lead by now")
            if 200 <= answer.status < 300:
                return WriteOk(write.id, _version(write, answer))
            if not is_curable(write, answer.status):
                break
            was_lost |= is_lost(answer.status)
            if turn + 1 < TRIES:
                self.retried += 1
                await self._pause(turn, answer.retry_after_s)
        return WriteFailed(write.id, final_code(write, answer.status, was_lost), answer.message)

    async def _pause(self, turn: int, least_s: float) -> None:
        """Between half and the whole of a time that doubles, and not less than was asked for."""
        pause = self._chance.uniform(*pause_seconds(turn))
        await asyncio.sleep(min(max(pause, least_s), PAUSE_SECONDS_MAX))


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Meta


def _version(write: ApiWrite, answer: Answer) -> str:
    """The version of what was written, for those who wait to see it; "" where it is not told."""
    if not isinstance(write, ObjectWrite | PatchPodStatus):
        return ""
    try:
        return msgspec.json.decode(answer.body, type=_Versioned).metadata.resource_version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
