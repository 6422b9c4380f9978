"""A scheduler from beginning to end: find the server, schedule until told to stop."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stower.engine.step import Engine
from stower.live.access import AccessError, read_access
from stower.live.client import Client
from stower.live.endpoint import endpoint
from stower.live.scheduler import Observer, Options, Scheduler, ShellError

USER_AGENT = "stower-scheduler"


class Counting(Observer, Protocol):
    """An observer that can say what it counted."""

    def text(self, stats: Mapping[str, float]) -> bytes:
        """All of it, for Prometheus."""


@dataclass(frozen=True)
class Place:
    """Where the server is, and where to tell of ourselves (port None: nowhere)."""

    kubeconfig: Path | None = None
    context: str = ""
    port: int | None = None
    token: str = ""


async def run(
    place: Place,
    build: Callable[[], Engine],
    options: Options,
    metrics: Counting,
    ready: Callable[[str, int | None], None],
) -> None:
    """Until SIGINT or SIGTERM. `ready` is told the server and the endpoint's port.

    Raises ShellError, also where leadership is lost.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    try:
        access = await read_access(place.kubeconfig, place.context)
    except AccessError as error:
        raise ShellError(str(error)) from None
    async with Client(access, USER_AGENT) as client, contextlib.AsyncExitStack() as stack:
        scheduler = Scheduler(client, build, options, metrics)
        await scheduler.check_version()
        port = None
        if place.port is not None:
            try:
                serving = endpoint(scheduler, metrics.text, place.port, place.token)
                port = await stack.enter_async_context(serving)
            except OSError as error:
                why = error.strerror or str(error)
                raise ShellError(f"cannot listen on port {place.port}: {why}") from None
        ready(access.server, port)
        await scheduler.run(stop)
