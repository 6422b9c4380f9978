"""Calls a driver's methods: one at a time, in a thread of their own, as a call may take long.

Only that thread changes the ledger; results are handed to the event loop.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from stower.driver import Driver, Entry, Ledger
from stower.driver.executor import Call, call, failure
from stower.driver.messages import AdoptCall, AllocateCall, DeallocateCall, Event, Examination
from stower.model.kinds import Node, ResourceClass

log = logging.getLogger(__name__)

METHOD_NAMES: Final = {
    Examination: "unsuitable_nodes",
    AllocateCall: "allocate",
    DeallocateCall: "deallocate",
    AdoptCall: "adopt",
}


class DriverSnapshot(NamedTuple):
    """The nodes and resource classes, by name, that a driver may read during a call."""

    nodes: Mapping[str, Node]
    classes: Mapping[str, ResourceClass]


class CallResult(NamedTuple):
    """The result of one call: the driver's method, the answer, the ledger's entries of the call's
    claims after it (by uid, None where there is none), and the duration in seconds."""

    name: str
    answer: Event
    entries: Mapping[str, Entry | None]
    took_s: float


class DriverExecutor:
    """Calls one driver. Owns the thread of the calls; the thread alone changes the ledger."""

    def __init__(
        self, driver: Driver, ledger: Ledger, on_result: Callable[[CallResult], None]
    ) -> None:
        """`on_result` is called in the event loop in which `start` was called."""
        self.pending_count = 0  # calls without a result
        self._driver = driver
        self._ledger = ledger
        self._on_result = on_result
        self._queue: queue.SimpleQueue[tuple[Call, DriverSnapshot] | None] = queue.SimpleQueue()
        self._is_closing = False
        self._exit_event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Starts the thread. The thread does not keep the process alive: the ledger has what a call
        has taken, whenever the process ends."""
        self._loop = asyncio.get_running_loop()
        self._driver.taken = self._ledger.entries
        threading.Thread(target=self._run_thread, name=self._driver.name, daemon=True).start()

    def submit(self, driver_call: Call, snapshot: DriverSnapshot) -> None:
        """Queues a call behind all earlier ones."""
        self.pending_count += 1
        self._queue.put((driver_call, snapshot))

    def stop(self) -> None:
        """Lets the running call end, and begins no other."""
        self._is_closing = True

    async def close(self, timeout_s: float) -> bool:
        """Stops, and returns whether the running call has ended within `timeout_s`."""
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
        while (item := self._queue.get()) is not None and not self._is_closing:
            self._post_result(self._call_driver(*item))
        self._post_result(None)

    def _post_result(self, result: CallResult | None) -> None:
        assert self._loop is not None
        try:
            if result is None:
                self._loop.call_soon_threadsafe(self._exit_event.set)
            else:
                self._loop.call_soon_threadsafe(self._handle_result, result)
        except RuntimeError:
            pass  # the loop is closed: nothing waits for the result any more

    def _call_driver(self, driver_call: Call, snapshot: DriverSnapshot) -> CallResult:
        name, driver = METHOD_NAMES[type(driver_call)], self._driver
        driver.nodes, driver.classes = snapshot
        started_s = time.perf_counter()

        def log_error(error: BaseException) -> None:
            log.error("%s.%s failed", type(driver).__name__, name, exc_info=error)

        try:
            answer = call(driver_call, driver, self._ledger, log_error)
        except BaseException as error:  # sys.exit() in a method ends the call, and nothing else
            log_error(error)
            answer = failure(driver_call, error)
        took_s = time.perf_counter() - started_s
        return CallResult(name, answer, self._ledger_entries(driver_call), took_s)

    def _ledger_entries(self, driver_call: Call) -> dict[str, Entry | None]:
        if isinstance(driver_call, AllocateCall | AdoptCall):
            return {entry.uid: self._ledger.entries.get(entry.uid) for entry in driver_call.entries}
        if isinstance(driver_call, DeallocateCall):
            return {driver_call.entry.uid: self._ledger.entries.get(driver_call.entry.uid)}
        return {}

    # In the event loop

    def _handle_result(self, result: CallResult) -> None:
        self.pending_count -= 1
        self._on_result(result)
