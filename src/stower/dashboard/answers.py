"""Computes the data of views for pages: once for all pages that request it, and cached.

One query runs at a time, at most ten per second. A result is kept for a time proportional to the
time that it took.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from stower.dashboard.forked_queries import QueryError, run_in_child

PAUSE_SECONDS: Final = 0.1  # from one to the next: each stops the scheduler for a moment
KEPT_SECONDS: Final = 1.0
KEPT_TIMES: Final = 4  # as long as it took to find
KEPT_MAX: Final = 100
WAITING_MAX: Final = 200

# What has to be known before, and then the work itself, which may take long.
Prepared = Callable[[], Awaitable[Callable[[], bytes]]]


class Answers:
    """By what was asked."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, bytes]] = {}  # until when
        self._asked: dict[str, asyncio.Task[bytes]] = {}
        self._turn = asyncio.Lock()
        self._moment = 0

    async def get(self, question: str, prepared: Prepared) -> bytes:
        """The answer. Raises QueryError."""
        until_s, answer = self._kept.get(question, (0.0, b""))
        if time.monotonic() < until_s:
            return answer
        task = self._asked.get(question)
        if task is None:
            if len(self._asked) >= WAITING_MAX:
                raise QueryError(f"too many requests: {WAITING_MAX} are waiting")
            task = self._asked[question] = asyncio.create_task(
                self._find(question, prepared, self._moment)
            )
            task.add_done_callback(lambda done: self._on_done(question, done))
        return await asyncio.shield(task)

    def forget(self) -> None:
        """It is another moment now."""
        self._moment += 1
        self._kept.clear()
        self._asked.clear()

    def _on_done(self, question: str, task: asyncio.Task[bytes]) -> None:
        if self._asked.get(question) is task:
            del self._asked[question]
        if not task.cancelled():
            task.exception()  # those who asked may all have gone

    async def _find(self, question: str, prepared: Prepared, moment: int) -> bytes:
        async with self._turn:
            began_s = time.monotonic()
            answer = await run_in_child(await prepared())
            took_s = time.monotonic() - began_s
            if moment == self._moment:
                until_s = began_s + took_s + max(KEPT_SECONDS, KEPT_TIMES * took_s)
                self._kept.pop(question, None)
                while len(self._kept) >= KEPT_MAX:
                    del self._kept[next(iter(self._kept))]
                self._kept[question] = until_s, answer
            await asyncio.sleep(max(0.0, PAUSE_SECONDS - took_s))
            return answer
