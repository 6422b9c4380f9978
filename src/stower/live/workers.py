"""As many tasks as there is work for, up to a bound that may change meanwhile."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")


class WorkerPool(Generic[T]):
    """Each takes one piece after the other, and ends when there is none."""

    def __init__(
        self,
        next_item: Callable[[], T | None],
        process: Callable[[T], Awaitable[None]],
        max_workers: Callable[[], int],
    ) -> None:
        """`take` hands out the next piece or None; `most` may work at once."""
        self.worker_count = 0
        self._next_item = next_item
        self._process = process
        self._max_workers = max_workers
        self._tasks: set[asyncio.Task[None]] = set()

    def start_workers(self, item_count: int) -> None:
        """So many pieces wait."""
        while item_count > 0 and self.worker_count < self._max_workers():
            item_count -= 1
            self.worker_count += 1
            task = asyncio.create_task(self._run_worker())
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

    async def _run_worker(self) -> None:
        try:
            while self.worker_count <= self._max_workers():
                piece = self._next_item()
                if piece is None:
                    return
                await self._process(piece)
        except Exception:
            log.exception("a worker failed")
            raise
        finally:
            self.worker_count -= 1
