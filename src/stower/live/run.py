"""A shell from beginning to end: find the server, work until told to stop."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stower.actors.assembly import build_actors
from stower.actors.cluster import Cluster
from stower.engine.step import Engine
from stower.live.access import AccessError, read_access
from stower.live.actors import ActorShell, discover
from stower.live.client import Client
from stower.live.endpoint import endpoint
from stower.live.scheduler import Observer, Options, Scheduler, ShellError

USER_AGENT = "stower-scheduler"
ACTORS_AGENT = "stower-actors"


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
    stop: Callable[[], asyncio.Event],
) -> None:
    """Until the event is set that `stop` makes. `ready` is told the server and the endpoint's port.

    Raises ShellError, also where leadership is lost.
    """
    stopped = stop()
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
        await scheduler.run(stopped)


async def run_actors(
    place: Place,
    cluster: Cluster,
    ready: Callable[[str], None],
    stop: Callable[[], asyncio.Event],
) -> None:
    """Kubelets and controllers, until the event is set that `stop` makes. Raises ShellError."""
    stopped = stop()
    try:
        access = await read_access(place.kubeconfig, place.context)
    except AccessError as error:
        raise ShellError(str(error)) from None
    async with Client(access, ACTORS_AGENT) as client:
        actors = build_actors(cluster, await discover(client))
        shell = ActorShell(client, actors, cluster.seed)
        ready(access.server)
        await shell.run(stopped)
