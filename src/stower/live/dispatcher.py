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
    TOO_MANY_REQUESTS,
    TRIES,
    final_code,
    is_outcome_unknown,
    is_retriable,
    pause_seconds,
)
from stower.framework.writes import (
    ApiWrite,
    Bind,
    CreateEvent,
    DeletePod,
    ObjectWrite,
    PatchPodStatus,
    call_name,
)
from stower.live.client import NOT_SENT, Client, Response
from stower.live.requests import build_request
from stower.live.shell import request_in_window
from stower.live.window import Window
from stower.live.workers import WorkerPool
from stower.model.kinds import Pod

EVENTS_MAX: Final = 10_000  # waiting to be told; more are dropped

_PodWrite = Bind | PatchPodStatus | DeletePod | ObjectWrite
ResultCallback = Callable[[WriteOk | WriteFailed], None]


class Dispatcher:
    """Writes in, answers out."""

    def __init__(
        self,
        client: Client,
        chance: random.Random,
        on_result: ResultCallback,
        get_pod: Callable[[str], Pod | None],
        wall_ns: Callable[[], int],
        instance: str,
        in_flight: int,
        may_send: Callable[[], bool] = lambda: True,
        on_write: Callable[[ApiWrite, WriteOk | WriteFailed, float], None] = lambda *_: None,
    ) -> None:
        """`pod_of`: what is known of a pod, by uid. `instance`: the scheduler's name in Events.

        `may_send`: asked before each request. A process that stood still wakes up with writes that
        are no longer its own to send. `wrote`: told of each, and how many seconds it took.
        """
        self._may_send = may_send
        self._on_write = on_write
        self.api_versions: dict[type, str] = {}  # see request_of
        self.window = Window(in_flight)
        self.sent_count = 0
        self.retry_count = 0
        self.dropped_event_count = 0
        self._client = client
        self._chance = chance
        self._on_result = on_result
        self._get_pod = get_pod
        self._wall_ns = wall_ns
        self._instance = instance
        self._writes: deque[_PodWrite] = deque()
        self._events: deque[CreateEvent] = deque()
        self._queues_by_uid: dict[str, deque[_PodWrite]] = {}  # pods with a write in flight
        self._in_flight: Counter[str] = Counter()  # writes in flight, by their names
        self._workers = WorkerPool[ApiWrite](
            self._next_write, self._process, lambda: self.window.size
        )

    @property
    def pending_count(self) -> int:
        """Writes that are not yet answered."""
        return len(self._writes) + len(self._events) + self._workers.worker_count

    def pending_by_call(self) -> Counter[str]:
        """The same, by what they are called."""
        behind = (write for queue in self._queues_by_uid.values() for write in queue)
        return self._in_flight + Counter(
            call_name(w) for w in (*self._writes, *self._events, *behind)
        )

    def send(self, writes: list[ApiWrite]) -> None:
        """Take these on."""
        for write in writes:
            if isinstance(write, CreateEvent):
                if len(self._events) >= EVENTS_MAX:
                    self.dropped_event_count += 1
                    self._on_result(
                        WriteFailed(write.id, TOO_MANY_REQUESTS, "too many Events are waiting")
                    )
                else:
                    self._events.append(write)
            elif write.uid in self._queues_by_uid:
                self._queues_by_uid[write.uid].append(write)
            else:
                self._queues_by_uid[write.uid] = deque()
                self._writes.append(write)
        self._workers.start_workers(len(self._writes) + len(self._events))

    async def close(self, timeout_s: float) -> bool:
        """Finish what was taken on, for so long at most; whether all of it was answered."""
        return await self._workers.close(timeout_s)

    def _next_write(self) -> ApiWrite | None:
        """Events wait for everything else."""
        if self._writes:
            return self._writes.popleft()
        return self._events.popleft() if self._events else None

    async def _process(self, write: ApiWrite) -> None:
        clock = asyncio.get_running_loop().time
        began_s, call = clock(), call_name(write)
        self._in_flight[call] += 1
        try:
            answer = await self._execute(write)
        finally:
            self._in_flight[call] -= 1
        self._on_write(write, answer, clock() - began_s)
        if not isinstance(write, CreateEvent):
            self._enqueue_next(write.uid)
        self.sent_count += 1
        self._on_result(answer)

    def _enqueue_next(self, uid: str) -> None:
        behind = self._queues_by_uid[uid]
        if behind:
            self._writes.append(behind.popleft())
        else:
            del self._queues_by_uid[uid]

    async def _execute(self, write: ApiWrite) -> WriteOk | WriteFailed:
        request = build_request(
            write, self._get_pod(write.uid), self._wall_ns(), self._instance, self.api_versions
        )
        answer, was_lost = Response(0, b""), False
        for turn in range(TRIES):
            answer = Response(NOT_SENT, b"")
            if self._may_send():  # and once more when there is a connection
                answer = await request_in_window(
                    self.window, self._client, *request, self._may_send
                )
            if answer.status == NOT_SENT:
                return WriteFailed(write.id, 0, "another scheduler may lead by now")
            if 200 <= answer.status < 300:
                return WriteOk(write.id, _version(write, answer))
            if not is_retriable(write, answer.status):
                break
            was_lost |= is_outcome_unknown(answer.status)
            if turn + 1 < TRIES:
                self.retry_count += 1
                await self._backoff(turn, answer.retry_after_s)
        return WriteFailed(write.id, final_code(write, answer.status, was_lost), answer.message)

    async def _backoff(self, attempt: int, min_s: float) -> None:
        """Between half and the whole of a time that doubles, and not less than was asked for."""
        pause = self._chance.uniform(*pause_seconds(attempt))
        await asyncio.sleep(min(max(pause, min_s), PAUSE_SECONDS_MAX))


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Meta


def _version(write: ApiWrite, answer: Response) -> str:
    """The version of what was written, for those who wait to see it; "" where it is not told."""
    if not isinstance(write, ObjectWrite | PatchPodStatus):
        return ""
    try:
        return msgspec.json.decode(answer.body, type=_Versioned).metadata.resource_version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
