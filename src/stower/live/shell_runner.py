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
from stower.live.discovery import check_features
from stower.live.extenders import ExtenderError
from stower.live.scheduler import Options, Scheduler
from stower.live.shell import ShellError, StopRequested, os_error_text, run_unless_stopped
from stower.live.version import check_version

if TYPE_CHECKING:
    # Their import costs those who serve nothing.
    from stower.live.endpoint import ExtraRoutes
    from stower.metrics.catalogue import Metrics

USER_AGENT: Final = "stower-scheduler"
LOOPBACK: Final = "127.0.0.1"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KubeconfigFlags:
    """Where the server is."""

    kubeconfig: Path | None = None
    context: str = ""


@dataclass(frozen=True)
class ServingOptions:
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
    extra_routes: "ExtraRoutes | None" = None
    route_observers: Sequence[Observer] = ()


@dataclass(frozen=True)
class RunOptions:
    """What there is around a scheduler. `agents`: host and port at which agents of VMs are served;
    `observers`: beside the metrics; `relies_on`: views of kinds without which the
    configuration makes little sense."""

    serving: ServingOptions | None = None
    observers: Sequence[Observer] = ()
    recording: Recording | None = None
    agents: tuple[str, int] | None = None
    required_views: tuple[type[Any], ...] = ()


@dataclass
class ListenAddresses:
    """Where it listens."""

    serving: str = ""
    agents: str = ""


async def run(
    flags: KubeconfigFlags,
    build: Callable[[], Engine],
    options: Options,
    run_options: RunOptions,
    on_ready: Callable[[str, ListenAddresses], None],
    make_stop_event: Callable[[], asyncio.Event],
) -> Engine | None:
    """Until the event is set that `stop` makes. `ready` is told the server, and where it listens.
    The engine as it is then, where there is one.

    Raises ShellError, also where leadership is lost.
    """
    stopped = make_stop_event()
    try:
        access = await run_unless_stopped(stopped, read_access(flags.kubeconfig, flags.context))
    except AccessError as error:
        raise ShellError(str(error)) from None
    except StopRequested:
        return None
    async with Client(access, USER_AGENT) as client, contextlib.AsyncExitStack() as stack:
        serving = run_options.serving
        observers = [*run_options.observers]
        if serving is not None:
            observers += [serving.metrics, *serving.route_observers]
        try:
            scheduler = Scheduler(client, build, options, observers, run_options.recording)
        except ExtenderError as error:
            raise ShellError(str(error)) from None
        try:
            await run_unless_stopped(stopped, check_version(client))
        except StopRequested:
            return None
        await _log_features(client, run_options.required_views)
        ports = ListenAddresses()
        if serving is not None:
            ports.serving = await stack.enter_async_context(_serve_endpoint(scheduler, serving))
        if run_options.agents is not None:
            ports.agents = await stack.enter_async_context(
                _serve_agents(scheduler, run_options.agents)
            )
        _dump_at_signal(scheduler)
        on_ready(access.server, ports)
        async with swept_by_the_clock():
            await scheduler.run(stopped)
        return scheduler.engine


async def _log_features(client: Client, required_views: tuple[type[Any], ...]) -> None:
    """Say what the server serves, and what it should."""
    found = await check_features(client, required_views)
    log.info(
        "on: %s; not served here: %s",
        ", ".join(found.served),
        ", ".join(found.missing) or "nothing",
    )
    for fault in found.problems:
        log.warning("%s", fault)


@contextlib.asynccontextmanager
async def _serve_endpoint(scheduler: Scheduler, serving_options: ServingOptions) -> Any:
    """Tell for as long as the block lasts; yields the address. Raises ShellError."""
    from stower.live.authorization import Authorizer, DelegatingAuthorizer, StaticTokenAuthorizer
    from stower.live.endpoint import endpoint, no_extra_routes
    from stower.live.samples import collect_samples
    from stower.pki.server_certificate import Serving, ServingError

    def render_metrics() -> bytes:
        return serving_options.metrics.text(
            [*collect_samples(scheduler)], scheduler.companion_metrics()
        )

    door: Authorizer = (
        StaticTokenAuthorizer(serving_options.token)
        if serving_options.token
        else DelegatingAuthorizer(scheduler.client)
    )
    has_tls = serving_options.certificate is not None or serving_options.host != LOOPBACK
    try:
        hosts = (LOOPBACK, "localhost", serving_options.host)
        serving = (
            Serving(serving_options.certificate, serving_options.key, hosts) if has_tls else None
        )
    except ServingError as error:
        raise ShellError(f"certificate: {error}") from None
    fresh = asyncio.create_task(serving.keep_fresh()) if serving is not None else None
    context = serving.context if serving is not None else None
    host = serving_options.host
    try:
        extra_routes = serving_options.extra_routes or no_extra_routes
        telling_now = endpoint(
            scheduler, render_metrics, door, host, serving_options.port, context, extra_routes
        )
        async with _listen(telling_now, host, serving_options.port) as port:
            yield f"http{'s' if has_tls else ''}://{host}:{port}"
    finally:
        if fresh is not None:
            fresh.cancel()


@contextlib.asynccontextmanager
async def _serve_agents(scheduler: Scheduler, address: tuple[str, int]) -> Any:
    """Serve the agents of VMs for as long as the block lasts; yields the address."""
    from stower.live.agents import serve_agents

    async with _listen(serve_agents(scheduler.agents, *address), *address) as port:
        yield f"{address[0]}:{port}"


@contextlib.asynccontextmanager
async def _listen(serving: Any, host: str, port: int) -> Any:
    """The same, and where it cannot listen it says so. Raises ShellError."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            taken = await stack.enter_async_context(serving)
        except OSError as error:
            raise ShellError(f"cannot listen on {host}:{port}: {os_error_text(error)}") from None
        yield taken


def _dump_at_signal(scheduler: Scheduler) -> None:
    """At SIGUSR2 the log is told what the scheduler has in mind, as kube-scheduler's is."""
    tasks = set[asyncio.Task[None]]()

    async def dump() -> None:
        for name, ask in (("queue", debug.dump_queue), ("cache", debug.dump_cache)):
            text = msgspec.json.encode(ask(scheduler, {})).decode()
            log.warning("Dump of the %s", name, extra={"fields": {name: text}})
        try:
            found = msgspec.json.encode(await debug.compare_cache(scheduler)).decode()
            log.warning("Cache beside the API", extra={"fields": {"comparison": found}})
        except debug.ComparisonFailed as error:
            log.warning("The cache cannot be compared: %s", error)

    def begin() -> None:
        task = asyncio.create_task(dump())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, begin)
