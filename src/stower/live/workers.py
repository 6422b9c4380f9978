"""A pool of asyncio tasks that grows with the work, up to a limit that may change at any time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")


class WorkerPool(Generic[T]):
    """Runs workers; each processes one item after the other and ends when there is none."""

    def __init__(
        self,
        next_item: Callable[[], T | None],
        process: Callable[[T], Awaitable[None]],
        max_workers: Callable[[], int],
        item_text: Callable[[T], str],
    ) -> None:
        """`next_item` returns the next item or None; `max_workers` the number that may run;
        `item_text` names an item in the log."""
        self.worker_count = 0
        self._next_item = next_item
        self._process = process
        self._max_workers = max_workers
        self._item_text = item_text
        self._tasks: set[asyncio.Task[None]] = set()

    def start_workers(self, item_count: int) -> None:
        """Starts workers for the waiting items, as far as the limit allows."""
        while item_count > 0 and self.worker_count < self._max_workers():
            item_count -= 1
            self.worker_count += 1
            task = asyncio.create_task(self._run_worker())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self, timeout_s: float) -> bool:
        """Waits at most `timeout_s`, then cancels what runs. Returns whether all had ended."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
        unfinished = [task for task in self._tasks if not task.done()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        return not unfinished

    async def _run_worker(self) -> None:
        item: T | None = None
        try:
            while self.worker_count <= self._max_workers():
                item = self._next_item()
                if item is None:
                    return
                await self._process(item)
        except Exception:
            text = self._item_text(item) if item is not None else "no item"
            log.exception("a worker failed (%s)", text)
            raise
        finally:
            self.worker_count -= 1
