"""Sends the engine's writes to the API server: many at a time, in order for each pod.

Every write gets exactly one result. A refused write is sent again if that may help. If it is
unknown whether a binding was carried out, the result says so (504): the engine handles that case.
"""

import asyncio
import logging
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
    write_text,
)
from stower.live.client import NOT_SENT, Client, Response
from stower.live.requests import build_request
from stower.live.shell import request_in_window
from stower.live.window import Window
from stower.live.workers import WorkerPool
from stower.model.kinds import Pod

log = logging.getLogger(__name__)
EVENTS_MAX: Final = 10_000  # Events that wait to be sent; more are dropped
EVENT_SHARE: Final = 4  # a quarter of the window, while other writes wait
EVENTS_CLOSE_SECONDS: Final = 1.0  # for the Events that wait when the dispatcher is closed

_PodWrite = Bind | PatchPodStatus | DeletePod | ObjectWrite
ResultCallback = Callable[[WriteOk | WriteFailed], None]


class Dispatcher:
    """Sends writes and reports their results. Owns the queues of writes and the workers."""

    def __init__(
        self,
        client: Client,
        rng: random.Random,
        on_result: ResultCallback,
        get_pod: Callable[[str], Pod | None],
        wall_ns: Callable[[], int],
        instance: str,
        in_flight: int,
        may_send: Callable[[], bool] = lambda: True,
        on_write: Callable[[ApiWrite, WriteOk | WriteFailed, float], None] = lambda *_: None,
    ) -> None:
        """`get_pod`: returns the pod of a uid as last observed. `instance`: the name in Events.

        `may_send`: called before each request, as a process that was suspended continues with
        writes that are no longer its own to send. `on_write`: called with each write, its result,
        and its duration in seconds.
        """
        self._may_send = may_send
        self._on_write = on_write
        self.api_versions: dict[type, str] = {}  # see build_request
        self.window = Window(in_flight)
        self.sent_count = 0
        self.retry_count = 0
        self.dropped_event_count = 0
        self._client = client
        self._rng = rng
        self._on_result = on_result
        self._get_pod = get_pod
        self._wall_ns = wall_ns
        self._instance = instance
        self._writes: deque[_PodWrite] = deque()
        self._events: deque[CreateEvent] = deque()
        # The writes behind the pending one of the same object.
        self._queues_by_uid: dict[str, deque[_PodWrite]] = {}
        self._in_flight: Counter[str] = Counter()  # number of writes in flight, by call name
        self._workers = WorkerPool[_PodWrite](
            lambda: self._writes.popleft() if self._writes else None,
            lambda write: self._process(write, self.window),
            lambda: self.window.size,
            write_text,
        )
        # Events have workers and a window of their own: a pod's Event follows its binding soon,
        # however many pods wait, and a server that throttles Events, or is slow to keep them, holds
        # up no binding. While other writes wait, few are in flight: a server that is saturated
        # serves bindings first.
        self.event_window = Window(in_flight)
        self._event_workers = WorkerPool[CreateEvent](
            lambda: self._events.popleft() if self._events else None,
            lambda write: self._process(write, self.event_window),
            self._max_event_workers,
            write_text,
        )

    @property
    def pending_count(self) -> int:
        """The number of writes that are queued or in flight.

        Writes behind a pending one of the same object are not counted, so that the number is 0
        only if every write has its result.
        """
        workers = self._workers.worker_count + self._event_workers.worker_count
        return len(self._writes) + len(self._events) + workers

    def pending_by_call(self) -> Counter[str]:
        """Returns the number of all writes without a result, by call name."""
        waiting = (write for queue in self._queues_by_uid.values() for write in queue)
        return self._in_flight + Counter(
            call_name(w) for w in (*self._writes, *self._events, *waiting)
        )

    def send(self, writes: list[ApiWrite]) -> None:
        """Queues writes and starts workers for them."""
        for write in writes:
            if isinstance(write, CreateEvent):
                if len(self._events) >= EVENTS_MAX:
                    self.dropped_event_count += 1
                    why = f"not sent: the limit of {EVENTS_MAX} queued Events is reached"
                    log.info("%s: %s", write_text(write), why)
                    self._on_result(WriteFailed(write.id, TOO_MANY_REQUESTS, why))
                else:
                    self._events.append(write)
            elif write.uid in self._queues_by_uid:
                self._queues_by_uid[write.uid].append(write)
            else:
                self._queues_by_uid[write.uid] = deque()
                self._writes.append(write)
        self._workers.start_workers(len(self._writes))
        self._event_workers.start_workers(len(self._events))

    async def close(self, timeout_s: float) -> bool:
        """Waits at most `timeout_s` for all writes, EVENTS_CLOSE_SECONDS for Events. Returns
        whether every write has its result, but for Events, whose loss does no harm."""
        is_done, _ = await asyncio.gather(
            self._workers.close(timeout_s),
            self._event_workers.close(min(timeout_s, EVENTS_CLOSE_SECONDS)),
        )
        return is_done

    def _max_event_workers(self) -> int:
        if not self._writes:
            return self.event_window.size
        return max(1, min(self.event_window.size, self.window.size // EVENT_SHARE))

    async def _process(self, write: ApiWrite, window: Window) -> None:
        clock = asyncio.get_running_loop().time
        started_s, call = clock(), call_name(write)
        self._in_flight[call] += 1
        try:
            answer = await self._execute(write, window)
        finally:
            self._in_flight[call] -= 1
        self._on_write(write, answer, clock() - started_s)
        if not isinstance(write, CreateEvent):
            self._enqueue_next(write.uid)
        self.sent_count += 1
        self._on_result(answer)
        if self._events and not self._writes:
            self._event_workers.start_workers(len(self._events))

    def _enqueue_next(self, uid: str) -> None:
        waiting = self._queues_by_uid[uid]
        if waiting:
            self._writes.append(waiting.popleft())
        else:
            del self._queues_by_uid[uid]

    async def _execute(self, write: ApiWrite, window: Window) -> WriteOk | WriteFailed:
        request = build_request(
            write, self._get_pod(write.uid), self._wall_ns(), self._instance, self.api_versions
        )
        answer, was_outcome_unknown = Response(0, b""), False
        for attempt in range(TRIES):
            answer = Response(NOT_SENT, b"")
            if self._may_send():  # called again once there is a connection
                answer = await request_in_window(window, self._client, *request, self._may_send)
            if answer.status == NOT_SENT:
                return WriteFailed(
                    write.id, 0, "not sent: this scheduler may no longer be the leader"
                )
            if 200 <= answer.status < 300:
                return WriteOk(write.id, _version(write, answer))
            if not is_retriable(write, answer.status):
                break
            was_outcome_unknown |= is_outcome_unknown(answer.status)
            if attempt + 1 < TRIES:
                self.retry_count += 1
                await self._backoff(attempt, answer.retry_after_s)
        return WriteFailed(
            write.id, final_code(write, answer.status, was_outcome_unknown), answer.message
        )

    async def _backoff(self, attempt: int, min_s: float) -> None:
        """Sleeps between half and the whole of a pause that doubles with each attempt.

        The pause is at least `min_s` (Retry-After), and at most PAUSE_SECONDS_MAX.
        """
        pause_s = self._rng.uniform(*pause_seconds(attempt))
        await asyncio.sleep(min(max(pause_s, min_s), PAUSE_SECONDS_MAX))


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Meta


def _version(write: ApiWrite, answer: Response) -> str:
    """Returns the resourceVersion of the written object, "" if the response has none.

    The engine waits until a watch shows that version.
    """
    if not isinstance(write, ObjectWrite | PatchPodStatus):
        return ""
    try:
        return msgspec.json.decode(answer.body, type=_Versioned).metadata.resource_version
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
