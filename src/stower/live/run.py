"""A shell from beginning to end: find the server, work until told to stop."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stower.engine.step import Engine
from stower.framework.companion import Metric
from stower.framework.recording import Recording
from stower.live.access import AccessError, read_access
from stower.live.client import Client
from stower.live.extenders import ExtenderError
from stower.live.scheduler import Observer, Options, Scheduler
from stower.live.shell import ShellError, Stopped, unless
from stower.live.version import check_version

USER_AGENT = "stower-scheduler"


class Counting(Observer, Protocol):
    """An observer that can say what it counted."""

    def text(self, stats: Mapping[str, float], companions: Sequence[Metric] = ()) -> bytes:
        """All of it, for Prometheus."""


@dataclass(frozen=True)
class Place:
    """Where the server is."""

    kubeconfig: Path | None = None
    context: str = ""


@dataclass(frozen=True)
class Endpoint:
    """Where to tell of ourselves, to whoever shows the token."""

    port: int
    token: str
    metrics: Counting


async def run(
    place: Place,
    build: Callable[[], Engine],
    options: Options,
    telling: Endpoint | None,
    ready: Callable[[str, int | None, int | None], None],
    stop: Callable[[], asyncio.Event],
    recording: Recording | None = None,
    agents: tuple[str, int] | None = None,
) -> None:
    """Until the event is set that `stop` makes. `ready` is told the server, and the ports of the
    endpoint and for agents; `agents`: host and port at which agents of VMs are served.

    Raises ShellError, also where leadership is lost.
    """
    stopped = stop()
    try:
        access = await unless(stopped, read_access(place.kubeconfig, place.context))
    except AccessError as error:
        raise ShellError(str(error)) from None
    except Stopped:
        return
    async with Client(access, USER_AGENT) as client, contextlib.AsyncExitStack() as stack:
        observer = telling.metrics if telling is not None else None
        try:
            scheduler = Scheduler(client, build, options, observer, recording)
        except ExtenderError as error:
            raise ShellError(str(error)) from None
        try:
            await unless(stopped, check_version(client))
        except Stopped:
            return
        port = agents_port = None
        if telling is not None:
            from stower.live.endpoint import endpoint

            try:
                serving = endpoint(scheduler, telling.metrics.text, telling.port, telling.token)
                port = await stack.enter_async_context(serving)
            except OSError as error:
                why = error.strerror or str(error)
                raise ShellError(f"cannot listen on port {telling.port}: {why}") from None
        if agents is not None:
            from stower.live.agents import serving as serving_agents

            try:
                listening = serving_agents(scheduler.agents, *agents)
                agents_port = await stack.enter_async_context(listening)
            except OSError as error:
                why = error.strerror or str(error)
                raise ShellError(f"cannot listen on {agents[0]}:{agents[1]}: {why}") from None
        ready(access.server, port, agents_port)
        await scheduler.run(stopped)
