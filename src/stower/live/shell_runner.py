"""Runs a scheduler from start to stop: finds the server, serves the endpoints, and decides until
stopped.
"""

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
from stower.live.discovery import Served, check_features
from stower.live.extenders import ExtenderError
from stower.live.scheduler import Options, Scheduler
from stower.live.shell import ShellError, StopRequested, os_error_text, run_unless_stopped
from stower.live.version import check_version

if TYPE_CHECKING:
    # Imported only when something is served, as the import takes time.
    from stower.live.endpoint import ExtraRoutes
    from stower.metrics.catalogue import Metrics

USER_AGENT: Final = "stower-scheduler"
LOOPBACK: Final = "127.0.0.1"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KubeconfigFlags:
    """The kubeconfig and the context that name the server."""

    kubeconfig: Path | None = None
    context: str = ""


@dataclass(frozen=True)
class ServingOptions:
    """Options of a scheduler's endpoints.

    `token`: permits requests that have it; without a token, the API server authorizes them.
    `certificate`, `key`: files; without them, TLS is used beyond loopback alone, with a
    self-signed certificate. `extra_routes`: further routes; `route_observers`: their observers.
    """

    metrics: "Metrics"
    port: int
    token: str = ""
    host: str = LOOPBACK
    certificate: Path | None = None
    key: Path | None = None
    extra_routes: "ExtraRoutes | None" = None
    route_observers: Sequence[Observer] = ()


@dataclass(frozen=True)
class AgentServingOptions:
    """Where the agents of VMs are served. `token`: what each request must have; empty for none.
    `has_tls`: with the certificate and key of these files, or a self-signed certificate."""

    host: str
    port: int
    token: str = ""
    has_tls: bool = False
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class RunOptions:
    """Options of what runs in addition to a scheduler.

    `observers`: in addition to the metrics; `agents`: None where agents of VMs are not served.
    """

    serving: ServingOptions | None = None
    observers: Sequence[Observer] = ()
    recording: Recording | None = None
    agents: AgentServingOptions | None = None


@dataclass
class ListenAddresses:
    """The addresses of the running servers; "" for a server that does not run."""

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
    """Runs a scheduler until the event that `make_stop_event` returns is set.

    `on_ready` gets the server and the addresses of the endpoints. Returns the engine as it is at
    the end, None if there is none. Raises ShellError, also when leadership is lost.
    """
    stop = make_stop_event()
    try:
        access = await run_unless_stopped(stop, read_access(flags.kubeconfig, flags.context))
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
            await run_unless_stopped(stop, check_version(client))
            availability = scheduler.reflectors.availability
            await run_unless_stopped(stop, availability.look())
        except StopRequested:
            return None
        await _log_features(client, availability.served, options.required_views)
        addresses = ListenAddresses()
        if serving is not None:
            addresses.serving = await stack.enter_async_context(_serve_endpoint(scheduler, serving))
        if run_options.agents is not None:
            addresses.agents = await stack.enter_async_context(
                _serve_agents(scheduler, run_options.agents)
            )
        _dump_at_signal(scheduler)
        on_ready(access.server, addresses)
        async with swept_by_the_clock():
            await scheduler.run(stop)
        return scheduler.engine


async def _log_features(
    client: Client, served: Served | None, required_views: tuple[type[Any], ...]
) -> None:
    """Logs which features the server supports, and what is missing for the configuration."""
    report = await check_features(client, served, required_views)
    log.info(
        "features served by the API server: %s; not served: %s",
        ", ".join(report.served),
        ", ".join(report.missing) or "nothing",
    )
    for problem in report.problems:
        log.warning("%s", problem)


@contextlib.asynccontextmanager
async def _serve_endpoint(scheduler: Scheduler, serving_options: ServingOptions) -> Any:
    """Serves the endpoints until the context exits; yields the address. Raises ShellError."""
    from stower.live.authorization import Authorizer, DelegatingAuthorizer, StaticTokenAuthorizer
    from stower.live.endpoint import endpoint, no_extra_routes
    from stower.live.samples import collect_samples

    def render_metrics() -> bytes:
        return serving_options.metrics.text(
            [*collect_samples(scheduler)], scheduler.companion_metrics()
        )

    authorizer: Authorizer = (
        StaticTokenAuthorizer(serving_options.token)
        if serving_options.token
        else DelegatingAuthorizer(scheduler.client)
    )
    has_tls = serving_options.certificate is not None or serving_options.host != LOOPBACK
    host = serving_options.host
    async with _keep_context(serving_options, has_tls) as context:
        extra_routes = serving_options.extra_routes or no_extra_routes
        server = endpoint(
            scheduler, render_metrics, authorizer, host, serving_options.port, context, extra_routes
        )
        async with _listen(server, host, serving_options.port) as port:
            yield f"http{'s' if has_tls else ''}://{host}:{port}"


@contextlib.asynccontextmanager
async def _keep_context(options: ServingOptions | AgentServingOptions, has_tls: bool) -> Any:
    """Yields the TLS context of a server, None for plain HTTP. Raises ShellError."""
    if not has_tls:
        yield None
        return
    from stower.pki.server_certificate import Serving, ServingError

    try:
        hosts = (LOOPBACK, "localhost", options.host)
        serving = Serving(options.certificate, options.key, hosts)
    except ServingError as error:
        raise ShellError(f"certificate: {error}") from None
    refresh_task = asyncio.create_task(serving.keep_fresh())
    try:
        yield serving.context
    finally:
        refresh_task.cancel()


@contextlib.asynccontextmanager
async def _serve_agents(scheduler: Scheduler, options: AgentServingOptions) -> Any:
    """Serves the agents of VMs until the context exits; yields the address. Raises ShellError."""
    from stower.live.agents import serve_agents

    host = options.host
    async with _keep_context(options, options.has_tls) as context:
        server = serve_agents(scheduler.agents, host, options.port, options.token, context)
        async with _listen(server, host, options.port) as port:
            yield f"{host}:{port}"


@contextlib.asynccontextmanager
async def _listen(server: Any, host: str, port: int) -> Any:
    """Enters a server's context; raises ShellError if the server cannot listen."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            bound_port = await stack.enter_async_context(server)
        except OSError as error:
            raise ShellError(f"cannot listen on {host}:{port}: {os_error_text(error)}") from None
        yield bound_port


def _dump_at_signal(scheduler: Scheduler) -> None:
    """Logs the queue, the cache and its comparison at SIGUSR2, as kube-scheduler does."""
    tasks = set[asyncio.Task[None]]()

    async def dump() -> None:
        try:
            for name, render in (("queue", debug.dump_queue), ("cache", debug.dump_cache)):
                text = msgspec.json.encode(render(scheduler, {})).decode()
                log.warning("Dump of the %s", name, extra={"fields": {name: text}})
            comparison = msgspec.json.encode(await debug.compare_cache(scheduler)).decode()
            log.warning(
                "Comparison of the cache with the API", extra={"fields": {"comparison": comparison}}
            )
        except debug.ComparisonFailed as error:
            log.warning("Cannot compare the cache with the API: %s", error)
        except Exception:
            log.exception("cannot dump the scheduler")

    def start_dump() -> None:
        task = asyncio.create_task(dump())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, start_dump)
