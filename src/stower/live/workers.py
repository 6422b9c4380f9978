"""As many tasks as there is work for, up to a bound that may change meanwhile."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")


class Workers(Generic[T]):
    """Each takes one piece after the other, and ends when there is none."""

    def __init__(
        self,
        take: Callable[[], T | None],
        do: Callable[[T], Awaitable[None]],
        most: Callable[[], int],
    ) -> None:
        """`take` hands out the next piece or None; `most` may work at once."""
        self.busy = 0
        self._take = take
        self._do = do
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()

    def wanted(self, pieces: int) -> None:
        """So many pieces wait."""
        while pieces > 0 and self.busy < self._most():
            pieces -= 1
            self.busy += 1
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self, timeout_s: float) -> bool:
        """Finish what waits, for so long at most; whether all of it was."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        left = [task for task in self._tasks if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return not left

    async def _work(self) -> None:
        try:
            while self.busy <= self._most():
                piece = self._take()
                if piece is None:
                    return
                await self._do(piece)
        except Exception:
            log.exception("a worker failed")
            raise
        finally:
            self.busy -= 1
