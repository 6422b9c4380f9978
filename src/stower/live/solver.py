"""Has searches done by a process of its own (solver_process.py), one after the other; their
answers become events of the engine.

The process is started for the first search. One that ends, or takes too long, is replaced. Of
searches that wait, namespaces have their turns, and a newer one for a tree replaces the older one.
Every Solve is answered.
"""

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from stower.framework.events import Solved
from stower.framework.writes import Solve
from stower.live.solver_process import LENGTH_BYTES

# Searches are limited by their work: some seconds on a machine that is not overloaded.
SECONDS_MAX: Final = 300.0
ANSWER_BYTES_MAX: Final = 64 << 20
# Of the messages of one namespace that wait, beside one: a problem of 5,000 nodes takes 4 MiB.
WAITING_BYTES_MAX: Final = 16 << 20
# -P: no module of the folder in which the scheduler was started.
COMMAND: Final = (sys.executable, "-P", "-m", "stower.live.solver_process")
log = logging.getLogger(__name__)


class Solver:
    """The searches that wait, and the process. Owns both."""

    def __init__(self, on_answer: Callable[[Solved], None]) -> None:
        self._on_answer = on_answer
        self._waiting: dict[str, dict[str, Solve]] = {}  # by namespace, by uid
        self._task: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._generation = 0  # of the engine that asks

    def forget(self) -> None:
        """Drops all that was asked: the engine that asked is no more."""
        self._waiting.clear()
        self._generation += 1

    def send(self, write: Solve) -> None:
        """Takes a search; `on_answer` gets its answer."""
        if not write.message:  # others are to be served first, and nothing else
            answer = Solved(write.id)
            asyncio.get_running_loop().call_soon(self._tell, answer, self._generation)
            return
        turns = self._waiting.setdefault(write.namespace, {})
        older = turns.get(write.uid)
        if older is None and sum(len(w.message) for w in turns.values()) > WAITING_BYTES_MAX:
            error = "too many searches of its namespace wait"
            self._on_answer(Solved(write.id, error=error))
            return
        turns[write.uid] = write
        if older is not None:
            self._on_answer(Solved(older.id, error="the group has changed"))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Ends the process; searches that wait get no answer."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._end_process()

    async def _run(self) -> None:
        while (write := self._next()) is not None:
            generation = self._generation
            try:
                async with asyncio.timeout(SECONDS_MAX):
                    body = await self._solve(write.message)
                answer = Solved(write.id, body)
            except Exception as error:  # every search has an answer
                await self._end_process()
                reason = " ".join(str(error).split()) or type(error).__name__
                log.warning(
                    "no answer to the search for %s/%s: %s", write.namespace, write.name, reason
                )
                answer = Solved(write.id, error=reason)
            self._tell(answer, generation)

    def _tell(self, answer: Solved, generation: int) -> None:
        if generation == self._generation:
            self._on_answer(answer)

    def _next(self) -> Solve | None:
        """Takes the oldest search of the namespace whose turn it is."""
        namespace = next(iter(self._waiting), None)
        if namespace is None:
            return None
        turns = self._waiting.pop(namespace)
        write = turns.pop(next(iter(turns)))
        if turns:
            self._waiting[namespace] = turns  # behind the others
        return write

    async def _solve(self, message: bytes) -> bytes:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
            )
        source, target = self._process.stdout, self._process.stdin
        assert source is not None
        assert target is not None
        target.write(len(message).to_bytes(LENGTH_BYTES) + message)
        await target.drain()
        size = int.from_bytes(await source.readexactly(LENGTH_BYTES))
        if size > ANSWER_BYTES_MAX:
            raise EOFError(f"an answer of {size:,} bytes")
        return await source.readexactly(size)

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
