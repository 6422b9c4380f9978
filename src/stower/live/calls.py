"""Calls of a driver's methods: one at a time, in a thread of their own, as they may take long."""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from stower.driver import Driver, Entry, Ledger
from stower.driver.executor import Call, call, failure
from stower.driver.messages import Adopting, Event, Examination, Freeing, Taking
from stower.model.kinds import Node, ResourceClass

log = logging.getLogger(__name__)

NAMES: Final = {
    Examination: "unsuitable_nodes",
    Taking: "allocate",
    Freeing: "deallocate",
    Adopting: "adopt",
}


class Around(NamedTuple):
    """What a driver may look at while it is called."""

    nodes: Mapping[str, Node]
    classes: Mapping[str, ResourceClass]


class Called(NamedTuple):
    """What came of a call: the answer, and how the ledger's entries of its claims are by now."""

    name: str
    answer: Event
    entries: Mapping[str, Entry | None]
    took_s: float


class Calls:
    """One driver with its ledger."""

    def __init__(self, driver: Driver, ledger: Ledger, told: Callable[[Called], None]) -> None:
        """`told` is called in the loop in which this is started."""
        self.waiting = 0  # calls that are not answered
        self._driver = driver
        self._ledger = ledger
        self._told = told
        self._queue: queue.SimpleQueue[tuple[Call, Around] | None] = queue.SimpleQueue()
        self._is_closing = False
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread. It does not keep the process alive: what a call has taken stands in the
        ledger, whenever the process ends."""
        self._loop = asyncio.get_running_loop()
        self._driver.taken = self._ledger.entries
        threading.Thread(target=self._work, name=self._driver.name, daemon=True).start()

    def send(self, output: Call, around: Around) -> None:
        """Have this call made after those before."""
        self.waiting += 1
        self._queue.put((output, around))

    def stop(self) -> None:
        """Begin no more calls."""
        self._is_closing = True

    async def close(self, timeout_s: float) -> bool:
        """The same; whether the last call has ended within this time."""
        self.stop()
        if self._loop is None:
            return True
        self._queue.put(None)
        try:
            await asyncio.wait_for(self._ended.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    # In the thread

    def _work(self) -> None:
        while (piece := self._queue.get()) is not None and not self._is_closing:
            self._tell(self._do(*piece))
        self._tell(None)

    def _tell(self, called: Called | None) -> None:
        assert self._loop is not None
        try:
            if called is None:
                self._loop.call_soon_threadsafe(self._ended.set)
            else:
                self._loop.call_soon_threadsafe(self._answered, called)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for it any more

    def _do(self, output: Call, around: Around) -> Called:
        name, driver = NAMES[type(output)], self._driver
        driver.nodes, driver.classes = around
        began_s = time.perf_counter()

        def tell(error: BaseException) -> None:
            log.error("%s.%s failed", type(driver).__name__, name, exc_info=error)

        try:
            answer = call(output, driver, self._ledger, tell)
        except BaseException as error:  # sys.exit() in a method ends the call, and nothing else
            tell(error)
            answer = failure(output, error)
        took_s = time.perf_counter() - began_s
        return Called(name, answer, self._entries(output), took_s)

    def _entries(self, output: Call) -> dict[str, Entry | None]:
        if isinstance(output, Taking | Adopting):
            return {entry.uid: self._ledger.entries.get(entry.uid) for entry in output.entries}
        if isinstance(output, Freeing):
            return {output.entry.uid: self._ledger.entries.get(output.entry.uid)}
        return {}

    # In the loop

    def _answered(self, called: Called) -> None:
        self.waiting -= 1
        self._told(called)
