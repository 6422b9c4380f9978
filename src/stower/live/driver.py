"""Runs a resource driver on an API server: watches feed its controller, calls go to the driver, and
writes go to the server.

    from stower.driver import Allocation, Driver, RefusedError
    from stower.live.driver import serve

The ledger is the only state that is kept: a driver that is killed and started again continues from
the API's objects and the ledger.
"""

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stower.devices.negotiation.claims import driver_of, is_pending
from stower.driver import Controller, Driver, Ledger
from stower.driver.controller import VIEWS
from stower.driver.executor import Call
from stower.driver.messages import AdoptCall, Event
from stower.framework.events import Listed, Observed, Tick, WriteFailed, WriteOk
from stower.framework.retries import CONFLICT
from stower.framework.writes import ApiWrite, write_text
from stower.live.access import AccessError, read_access
from stower.live.calls import CallResult, DriverExecutor, DriverSnapshot
from stower.live.client import Client, collection_path
from stower.live.dispatcher import Dispatcher
from stower.live.ledger import FileLedger, LedgerError
from stower.live.outages import Outages
from stower.live.reflector import Changes, Reflector, TriedEveryMinute, TypedDecoder
from stower.live.shell import (
    Clock,
    ShellError,
    StopRequested,
    os_error_text,
    run_unless_stopped,
    run_until_stopped,
    sleep_until,
)
from stower.live.version import check_version
from stower.live.window import IN_FLIGHT
from stower.model.kinds import (
    KIND_BY_VIEW,
    NEGOTIATING,
    Node,
    Pod,
    ResourceClaim,
    ResourceClass,
)

if TYPE_CHECKING:
    from stower.metrics.drivers import DriverMetrics

log = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.004
CLOSE_SECONDS: Final = 5.0
CALL_SECONDS: Final = 15.0  # for the running call to end after a stop
BAD_REQUEST: Final = 400
PORT_MAX: Final = 65535
# Terminated pods need no devices.
SELECTORS: Final = {Pod: "status.phase!=Succeeded,status.phase!=Failed"}


class DriverShell:
    """Runs one driver. Owns its controller, reflectors, dispatcher and the thread of its calls."""

    def __init__(
        self,
        client: Client,
        driver: Driver,
        ledger: Ledger,
        metrics: "DriverMetrics | None" = None,
    ) -> None:
        # While it runs, only the executor's thread uses the ledger: this copy is as of the last
        # result.
        self._entries = dict(ledger.entries)
        self.controller = Controller(driver.name, self._entries)
        self._client = client
        self._outages = Outages()
        self._metrics = metrics
        self._clock = Clock()
        self._inbox: deque[Event | CallResult] = deque()
        self._wake_event = asyncio.Event()
        self._snapshot: DriverSnapshot | None = None  # None: out of date
        self._is_started = False
        rng = random.Random(zlib.crc32(driver.name.encode()))
        self.reflectors = {view: self._make_reflector(view, rng) for view in (*VIEWS, Node)}
        self.executor = DriverExecutor(driver, ledger, self._on_call_result)
        self.dispatcher = Dispatcher(
            client,
            rng,
            self._on_write_result,
            lambda _: None,
            self._clock.now_ns,
            socket.gethostname(),
            IN_FLIGHT,
            on_write=self._on_write,
        )

    def _make_reflector(self, view: type[Any], rng: random.Random) -> Reflector:
        feeds_controller = view in VIEWS

        def on_changes(changes: Changes) -> None:
            if view in (Node, ResourceClass):
                self._snapshot = None
            if feeds_controller and self._is_started:
                self._inbox.extend(Observed(kind, obj) for kind, obj in changes)
                self._wake_event.set()

        def on_list() -> None:
            self._snapshot = None
            if feeds_controller and self._is_started and self.is_ready:
                self._inbox.append(self._list_all())
            self._wake_event.set()

        path = collection_path(KIND_BY_VIEW[view])
        return Reflector(
            self._client,
            path,
            TypedDecoder(view),
            rng,
            selector=SELECTORS.get(view, ""),
            available=TriedEveryMinute(path) if view in NEGOTIATING else None,
            on_list=on_list,
            on_changes=on_changes,
            outages=self._outages,
        )

    @property
    def is_ready(self) -> bool:
        """Whether all resources have been listed."""
        return all(reflector.has_synced for reflector in self.reflectors.values())

    def stats(self) -> dict[str, float]:
        """Returns the current values of the driver's metrics, by name."""
        return {
            **msgspec.structs.asdict(self.controller.counts),
            "driver_pending_claims": self._pending_claim_count(),
            "driver_ledger_entries": len(self._entries),
            "driver_calls_waiting": self.executor.pending_count,
            "writes_waiting": self.dispatcher.pending_count,
            "writes_sent": self.dispatcher.sent_count,
            "writes_retried": self.dispatcher.retry_count,
            "watch_cuts": sum(r.interruption_count for r in self.reflectors.values()),
            "relists": sum(r.relist_count for r in self.reflectors.values()),
        }

    def _pending_claim_count(self) -> int:
        claims, classes = self.reflectors[ResourceClaim].objects, self._current_snapshot().classes
        name = self.controller.driver
        return sum(is_pending(c) and driver_of(c, classes) == name for c in claims.values())

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set. Raises ShellError."""
        reflecting = [reflector.run() for reflector in self.reflectors.values()]
        self.executor.start()
        try:
            await run_until_stopped(
                stop, self._client.access.server, (*reflecting, self._run_steps())
            )
        finally:
            self.executor.stop()
            await self.dispatcher.close(CLOSE_SECONDS)

    # Events in

    def _list_all(self) -> Listed:
        return Listed(
            tuple(obj for view in VIEWS for obj in self.reflectors[view].objects.values())
        )

    def _on_write_result(self, answer: WriteOk | WriteFailed) -> None:
        self._inbox.append(answer)
        self._wake_event.set()

    def _on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, _took_s: float) -> None:
        if isinstance(answer, WriteFailed) and answer.code != CONFLICT:
            # The controller repeats the write: the log must show that it can never succeed.
            level = logging.WARNING if answer.code >= BAD_REQUEST else logging.INFO
            text = "a write to the API server failed: %s: %s %s"
            log.log(level, text, write_text(write), answer.code, answer.message)

    def _on_call_result(self, result: CallResult) -> None:
        if self._metrics is not None:
            self._metrics.observe_call(result.name, result.took_s)
        self._inbox.append(result)
        self._wake_event.set()

    # Steps

    async def _run_steps(self) -> None:
        while not self.is_ready:
            self._wake_event.clear()
            await self._wake_event.wait()
        self._is_started = True
        self._inbox.append(self._list_all())
        while True:
            slice_end_s = time.perf_counter() + SLICE_SECONDS
            while (event := self._next_event()) is not None:
                self._step(event)
                if time.perf_counter() >= slice_end_s:
                    break
            else:
                self._wake_event.clear()
                await sleep_until(self._wake_event, self.controller.next_wake_ns, self._clock)
                continue
            await asyncio.sleep(0)

    def _next_event(self) -> Event | CallResult | None:
        if self._inbox:
            return self._inbox.popleft()
        due_ns = self.controller.next_wake_ns
        return Tick() if due_ns is not None and due_ns <= self._clock.now_ns() else None

    def _step(self, event: Event | CallResult) -> None:
        if isinstance(event, CallResult):
            for uid, entry in event.entries.items():
                if entry is None:
                    self._entries.pop(uid, None)
                else:
                    self._entries[uid] = entry
            event = event.answer
        writes: list[ApiWrite] = []
        for output in self.controller.step(event, self._clock.now_ns()):
            if isinstance(output, AdoptCall):
                count = len(output.entries)
                log.warning(
                    "%d allocated claims have no entry in the ledger: calling the driver's adopt()",
                    count,
                )
            if isinstance(output, Call):
                self.executor.submit(output, self._current_snapshot())
            else:
                writes.append(output)
        if writes:
            self.dispatcher.send(writes)

    def _current_snapshot(self) -> DriverSnapshot:
        """Returns the snapshot for a call; it is never changed, as another thread reads it."""
        if self._snapshot is None:
            nodes, classes = (
                {obj.metadata.name: obj for obj in self.reflectors[view].objects.values()}
                for view in (Node, ResourceClass)
            )
            self._snapshot = DriverSnapshot(nodes, classes)
        return self._snapshot


async def run_driver(
    driver: Driver,
    ledger: str | os.PathLike[str],
    stop: asyncio.Event,
    *,
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str = "",
    metrics_port: int | None = None,
    on_ready: Callable[[str, int | None], None] = lambda server, port: None,
) -> None:
    """Runs the driver until `stop` is set. `on_ready` gets the server's address and the port of the
    metrics. Without a kubeconfig: KUBECONFIG, ~/.kube/config, or the pod's service account.

    A call that is running at the stop has 15 s to end. What it takes after that is in the ledger,
    which no other process can open before this process has ended.

    Raises ShellError and LedgerError if the driver cannot run.
    """
    if not driver.name:
        raise ShellError(
            f"{type(driver).__name__}.name is empty: want the driverName of its ResourceClass"
        )
    if metrics_port is not None and not 0 <= metrics_port <= PORT_MAX:
        raise ShellError(f"metrics_port: got {metrics_port}, want 0 (any free port) to {PORT_MAX}")
    file_ledger = FileLedger(ledger, driver.name)
    has_call_ended = True
    try:
        kubeconfig_path = Path(kubeconfig) if kubeconfig is not None else None
        try:
            access = await run_unless_stopped(stop, read_access(kubeconfig_path, context))
        except AccessError as error:
            raise ShellError(str(error)) from None
        async with Client(access, f"stower-driver {driver.name}") as client:
            await run_unless_stopped(stop, check_version(client))
            async with contextlib.AsyncExitStack() as stack:
                metrics, port = None, None
                if metrics_port is not None:
                    from stower.metrics.drivers import DriverMetrics

                    metrics = DriverMetrics()
                shell = DriverShell(client, driver, file_ledger, metrics)
                if metrics_port is not None and metrics is not None:
                    port = await stack.enter_async_context(
                        _serve_metrics(shell, metrics, metrics_port)
                    )
                on_ready(access.server, port)
                try:
                    await shell.run(stop)
                finally:
                    has_call_ended = await shell.executor.close(CALL_SECONDS)
    except StopRequested:
        pass
    finally:
        if has_call_ended:
            file_ledger.close()
        else:
            log.warning(
                "a driver call is still running; the ledger records what the call allocates"
            )


@contextlib.asynccontextmanager
async def _serve_metrics(shell: DriverShell, metrics: "DriverMetrics", port: int) -> Any:
    """Serves metrics on loopback until the context exits; yields the port. Raises ShellError."""
    from aiohttp import web

    from stower.live.endpoint import LISTS_CHECK, METRICS_TYPE, serve_routes

    async def handle_metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=metrics.text(shell.stats()), headers={"Content-Type": METRICS_TYPE}
        )

    async with contextlib.AsyncExitStack() as stack:
        health = {LISTS_CHECK: lambda: shell.is_ready}
        serving = serve_routes([web.get("/metrics", handle_metrics)], health, port)
        try:
            bound_port = await stack.enter_async_context(serving)
        except OSError as error:
            raise ShellError(f"cannot listen on port {port}: {os_error_text(error)}") from None
        yield bound_port


def serve(
    driver: Driver,
    *,
    ledger: str | os.PathLike[str],
    kubeconfig: str | os.PathLike[str] | None = None,
    context: str = "",
    metrics_port: int | None = None,
) -> None:
    """Runs the driver until SIGTERM or SIGINT; a second signal ends the process at once.

    Without a kubeconfig: KUBECONFIG, ~/.kube/config, or the pod's service account. `metrics_port`:
    serves /metrics and /readyz on loopback; 0 picks a free port.

    If the driver cannot run, the process ends with one line on standard error and code 1.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)

    def on_ready(server: str, port: int | None) -> None:
        metrics_hint = "" if port is None else f"; metrics are on http://127.0.0.1:{port}/metrics"
        print(
            f"{driver.name} is connected to {server}{metrics_hint}. Stop it with Ctrl-C.",
            flush=True,
        )

    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def request_stop(signal_number: signal.Signals) -> None:
            stop.set()
            loop.remove_signal_handler(signal_number)

        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, request_stop, signal_number)
        await run_driver(
            driver,
            ledger,
            stop,
            kubeconfig=kubeconfig,
            context=context,
            metrics_port=metrics_port,
            on_ready=on_ready,
        )

    try:
        asyncio.run(main())
    except (ShellError, LedgerError) as error:
        sys.exit(f"{driver.name or type(driver).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


__all__ = ["DriverShell", "run_driver", "serve"]
