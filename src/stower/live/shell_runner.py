"""A shell from beginning to end: find the server, work until told to stop."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stower.engine.engine import Engine
from stower.framework.observer import Observer
from stower.framework.recording import Recording
from stower.garbage import swept_by_the_clock
from stower.live import debug
from stower.live.access import AccessError, read_access
from stower.live.client import Client
from stower.live.discovery import look
from stower.live.extenders import ExtenderError
from stower.live.scheduler import Options, Scheduler
from stower.live.shell import ShellError, Stopped, unless, why_not
from stower.live.version import check_version

if TYPE_CHECKING:
    # Their import costs those who serve nothing.
    from stower.live.endpoint import Pages
    from stower.metrics.catalogue import Metrics

USER_AGENT: Final = "stower-scheduler"
LOOPBACK: Final = "127.0.0.1"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """Where the server is."""

    kubeconfig: Path | None = None
    context: str = ""


@dataclass(frozen=True)
class Telling:
    """Where and to whom a scheduler tells of itself. `token`: whoever shows it is let in; without
    one, whom the API server knows and lets. `certificate`, `key`: files; without them there is TLS
    beyond loopback alone, by a certificate of its own. `pages`: more to serve; `watching`: who
    watches for them."""

    metrics: "Metrics"
    port: int
    token: str = ""
    host: str = LOOPBACK
    certificate: Path | None = None
    key: Path | None = None
    pages: "Pages | None" = None
    watching: Sequence[Observer] = ()


@dataclass(frozen=True)
class Around:
    """What there is around a scheduler. `agents`: host and port at which agents of VMs are served;
    `observers`: beside the metrics; `relies_on`: views of kinds without which the
    configuration makes little sense."""

    telling: Telling | None = None
    observers: Sequence[Observer] = ()
    recording: Recording | None = None
    agents: tuple[str, int] | None = None
    relies_on: tuple[type[Any], ...] = ()


@dataclass
class Ports:
    """Where it listens."""

    telling: str = ""
    agents: str = ""


async def run(
    place: Place,
    build: Callable[[], Engine],
    options: Options,
    around: Around,
    ready: Callable[[str, Ports], None],
    stop: Callable[[], asyncio.Event],
) -> Engine | None:
    """Until the event is set that `stop` makes. `ready` is told the server, and where it listens.
    The engine as it is then, where there is one.

    Raises ShellError, also where leadership is lost.
    """
    stopped = stop()
    try:
        access = await unless(stopped, read_access(place.kubeconfig, place.context))
    except AccessError as error:
        raise ShellError(str(error)) from None
    except Stopped:
        return None
    async with Client(access, USER_AGENT) as client, contextlib.AsyncExitStack() as stack:
        telling = around.telling
        observers = [*around.observers]
        if telling is not None:
            observers += [telling.metrics, *telling.watching]
        try:
            scheduler = Scheduler(client, build, options, observers, around.recording)
        except ExtenderError as error:
            raise ShellError(str(error)) from None
        try:
            await unless(stopped, check_version(client))
        except Stopped:
            return None
        await _look(client, around.relies_on)
        ports = Ports()
        if telling is not None:
            ports.telling = await stack.enter_async_context(_telling(scheduler, telling))
        if around.agents is not None:
            ports.agents = await stack.enter_async_context(_agents(scheduler, around.agents))
        _dump_at_signal(scheduler)
        ready(access.server, ports)
        async with swept_by_the_clock():
            await scheduler.run(stopped)
        return scheduler.engine


async def _look(client: Client, relies_on: tuple[type[Any], ...]) -> None:
    """Say what the server serves, and what it should."""
    found = await look(client, relies_on)
    log.info("on: %s; not served here: %s", ", ".join(found.on), ", ".join(found.off) or "nothing")
    for fault in found.faults:
        log.warning("%s", fault)


@contextlib.asynccontextmanager
async def _telling(scheduler: Scheduler, telling: Telling) -> Any:
    """Tell for as long as the block lasts; yields the address. Raises ShellError."""
    from stower.live.authorization import Delegated, Doorkeeper, OneToken
    from stower.live.endpoint import endpoint, no_pages
    from stower.live.samples import samples_of
    from stower.pki.server_certificate import Serving, ServingError

    def text() -> bytes:
        return telling.metrics.text([*samples_of(scheduler)], scheduler.companion_metrics())

    door: Doorkeeper = OneToken(telling.token) if telling.token else Delegated(scheduler.client)
    has_tls = telling.certificate is not None or telling.host != LOOPBACK
    try:
        hosts = (LOOPBACK, "localhost", telling.host)
        serving = Serving(telling.certificate, telling.key, hosts) if has_tls else None
    except ServingError as error:
        raise ShellError(f"certificate: {error}") from None
    fresh = asyncio.create_task(serving.keep_fresh()) if serving is not None else None
    context = serving.context if serving is not None else None
    host = telling.host
    try:
        pages = telling.pages or no_pages
        telling_now = endpoint(scheduler, text, door, host, telling.port, context, pages)
        async with _listening(telling_now, host, telling.port) as port:
            yield f"http{'s' if has_tls else ''}://{host}:{port}"
    finally:
        if fresh is not None:
            fresh.cancel()


@contextlib.asynccontextmanager
async def _agents(scheduler: Scheduler, address: tuple[str, int]) -> Any:
    """Serve the agents of VMs for as long as the block lasts; yields the address."""
    from stower.live.agents import serving

    async with _listening(serving(scheduler.agents, *address), *address) as port:
        yield f"{address[0]}:{port}"


@contextlib.asynccontextmanager
async def _listening(serving: Any, host: str, port: int) -> Any:
    """The same, and where it cannot listen it says so. Raises ShellError."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            taken = await stack.enter_async_context(serving)
        except OSError as error:
            raise ShellError(f"cannot listen on {host}:{port}: {why_not(error)}") from None
        yield taken


def _dump_at_signal(scheduler: Scheduler) -> None:
    """At SIGUSR2 the log is told what the scheduler has in mind, as kube-scheduler's is."""
    tasks = set[asyncio.Task[None]]()

    async def dump() -> None:
        for name, ask in (("queue", debug.queue), ("cache", debug.cache)):
            text = msgspec.json.encode(ask(scheduler, {})).decode()
            log.warning("Dump of the %s", name, extra={"fields": {name: text}})
        try:
            found = msgspec.json.encode(await debug.comparison(scheduler)).decode()
            log.warning("Cache beside the API", extra={"fields": {"comparison": found}})
        except debug.ComparisonFailed as error:
            log.warning("The cache cannot be compared: %s", error)

    def begin() -> None:
        task = asyncio.create_task(dump())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, begin)
