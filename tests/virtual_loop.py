"""VirtualLoop: an event loop whose clock moves only when a test advances it.

Must not know what runs on it.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
TURNS = 20  # iterations of the loop that run all work that is ready
STUCK_SECONDS = 60.0  # real time without an event after which a test fails


class _Clock(selectors.DefaultSelector):
    """A selector that advances a virtual time instead of waiting for timers."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1_000.0
        self.is_moving = False

    def select(self, timeout: float | None = None) -> list[Any]:
        """Returns the files that are ready. See selectors."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.is_moving and timeout is not None:
            self.now_s += timeout
            return []
        ready = super().select(STUCK_SECONDS)
        if not ready:
            raise AssertionError(f"nothing has happened for {STUCK_SECONDS:.0f} s")
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop for tests that are plain functions: each method runs the loop for a while.

    Functions for the executor run at once, in the thread of the loop.
    """

    def __init__(self) -> None:
        self._virtual = _Clock()
        super().__init__(self._virtual)
        self.threaded = 0  # number of functions that were given to the executor

    def time(self) -> float:
        """Returns the virtual time in seconds."""
        return self._virtual.now_s

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine to its end, without advancing the clock. Returns its result."""
        return self.run_until_complete(work)

    def do(self, function: Callable[..., object], *arguments: object) -> None:
        """Calls the function in the loop, then runs all work that is ready."""
        self.call_soon(function, *arguments)
        self.turns()

    def turns(self) -> None:
        """Runs all work that is ready, without advancing the clock."""
        for _ in range(TURNS):
            self.call_soon(self.stop)
            self.run_forever()

    def advance(self, seconds: float) -> None:
        """Advances the clock and runs each timer at its time."""
        self._virtual.is_moving = True
        try:
            self.run_until_complete(asyncio.sleep(seconds))
        finally:
            self._virtual.is_moving = False
        self.turns()

    def run_in_executor(
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Calls the function at once. Returns a future that is done."""
        self.threaded += 1
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def end(self) -> None:
        """Cancels all tasks and closes the loop."""
        self.run_until_complete(_cancel_others())
        self.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
