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

METHOD_NAMES: Final = {
    Examination: "unsuitable_nodes",
    Taking: "allocate",
    Freeing: "deallocate",
    Adopting: "adopt",
}


class DriverSnapshot(NamedTuple):
    """What a driver may look at while it is called."""

    nodes: Mapping[str, Node]
    classes: Mapping[str, ResourceClass]


class CallResult(NamedTuple):
    """What came of a call: the answer, and how the ledger's entries of its claims are by now."""

    name: str
    answer: Event
    entries: Mapping[str, Entry | None]
    took_s: float


class DriverExecutor:
    """One driver with its ledger."""

    def __init__(
        self, driver: Driver, ledger: Ledger, on_result: Callable[[CallResult], None]
    ) -> None:
        """`told` is called in the loop in which this is started."""
        self.pending_count = 0  # calls that are not answered
        self._driver = driver
        self._ledger = ledger
        self._on_result = on_result
        self._queue: queue.SimpleQueue[tuple[Call, DriverSnapshot] | None] = queue.SimpleQueue()
        self._is_closing = False
        self._exit_event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread. It does not keep the process alive: what a call has taken stands in the
        ledger, whenever the process ends."""
        self._loop = asyncio.get_running_loop()
        self._driver.taken = self._ledger.entries
        threading.Thread(target=self._run_thread, name=self._driver.name, daemon=True).start()

    def submit(self, output: Call, snapshot: DriverSnapshot) -> None:
        """Have this call made after those before."""
        self.pending_count += 1
        self._queue.put((output, snapshot))

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
            await asyncio.wait_for(self._exit_event.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    # In the thread

    def _run_thread(self) -> None:
        while (piece := self._queue.get()) is not None and not self._is_closing:
            self._post_result(self._call_driver(*piece))
        self._post_result(None)

    def _post_result(self, result: CallResult | None) -> None:
        assert self._loop is not None
        try:
            if result is None:
                self._loop.call_soon_threadsafe(self._exit_event.set)
            else:
                self._loop.call_soon_threadsafe(self._handle_result, result)
        except RuntimeError:
            pass  # the loop is closed: nobody waits for it any more

    def _call_driver(self, output: Call, snapshot: DriverSnapshot) -> CallResult:
        name, driver = METHOD_NAMES[type(output)], self._driver
        driver.nodes, driver.classes = snapshot
        began_s = time.perf_counter()

        def log_error(error: BaseException) -> None:
            log.error("%s.%s failed", type(driver).__name__, name, exc_info=error)

        try:
            answer = call(output, driver, self._ledger, log_error)
        except BaseException as error:  # sys.exit() in a method ends the call, and nothing else
            log_error(error)
            answer = failure(output, error)
        took_s = time.perf_counter() - began_s
        return CallResult(name, answer, self._ledger_entries(output), took_s)

    def _ledger_entries(self, output: Call) -> dict[str, Entry | None]:
        if isinstance(output, Taking | Adopting):
            return {entry.uid: self._ledger.entries.get(entry.uid) for entry in output.entries}
        if isinstance(output, Freeing):
            return {output.entry.uid: self._ledger.entries.get(output.entry.uid)}
        return {}

    # In the loop

    def _handle_result(self, result: CallResult) -> None:
        self.pending_count -= 1
        self._on_result(result)
