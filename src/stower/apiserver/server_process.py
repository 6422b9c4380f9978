"""Runs an API server until it is stopped: state directory, certificates, kubeconfig, listener."""

import asyncio
import base64
import contextlib
import hmac
import logging
import resource
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from stower.api.expiry import EventExpiry
from stower.api.kubernetes_service import INTERVAL_S, KubernetesService
from stower.api.server import Api
from stower.api.store import LARGE_OBJECTS_BYTES
from stower.apiserver.audit import Audit
from stower.apiserver.authentication import Access
from stower.apiserver.client_limits import HANDSHAKE_SECONDS
from stower.apiserver.database import Committer, Database, StateError, WriteError
from stower.apiserver.handler import Handler, server_context
from stower.apiserver.http import Listener
from stower.apiserver.tables import load_registry
from stower.garbage import swept_by_the_clock
from stower.pki.certificates import make_certificates
from stower.pki.files import write_private
from stower.pki.transports import create_server, stop_accepting
from stower.pki.trust import UntrustedError, check_folder

log = logging.getLogger(__name__)
LOOPBACK: Final = "127.0.0.1"
HOSTS: Final = (LOOPBACK, "::1", "localhost", "kubernetes", "kubernetes.default.svc")
TOKEN: Final = "token"
BACKLOG: Final = 512
FILES_MAX: Final = 16_384
EVENT_TTL_SECONDS: Final = 3600.0
LOOKS_PER_TTL: Final = 60  # so an Event is kept for a sixtieth longer at most
SHUTDOWN_SECONDS: Final = 2.0  # for answers that are owed


@dataclass(frozen=True)
class Options:
    """How to serve."""

    state: Path
    host: str = LOOPBACK
    port: int = 0
    memory: bool = False
    plugins: frozenset[str] = frozenset()
    kubeconfig: Path | None = None
    version: str = "1.36"
    more: tuple[str, ...] = ()  # keys of api.optional_kinds.SERVE
    by_roles: bool = False  # what nobody's role allows is forbidden
    audit: Path | None = None  # a file for a line about each request
    event_ttl_s: float = EVENT_TTL_SECONDS
    large_objects_bytes: int = LARGE_OBJECTS_BYTES  # of one namespace


@dataclass
class RunningServer:
    """A server that listens."""

    api: Api
    handler: Handler
    url: str
    kubeconfig: Path
    objects: int


def _check_trusted(folder: Path) -> None:
    """Its keys and its token are those of whoever can write to it. Raises StateError."""
    try:
        check_folder(folder)
    except UntrustedError as error:
        raise StateError(f"--state {folder}: {error}") from None


def _token(folder: Path) -> str:
    path = folder / TOKEN
    if not path.exists():
        write_private(path, secrets.token_urlsafe(32).encode())
    return path.read_text(encoding="ascii").strip()


def write_kubeconfig(path: Path, folder: Path, url: str, token: str) -> None:
    """A kubeconfig with everything in it: authority, client certificate, token."""

    def text(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    cluster = {"server": url, "certificate-authority-data": text("ca.crt")}
    user = {
        "client-certificate-data": text("admin.crt"),
        "client-key-data": text("admin.key"),
        "token": token,
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stower", "cluster": cluster}],
        "users": [{"name": "stower-admin", "user": user}],
        "contexts": [{"name": "stower", "context": {"cluster": "stower", "user": "stower-admin"}}],
        "current-context": "stower",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


async def _expire_events(api: Api, committer: Committer, ttl_s: float) -> None:
    expiry = EventExpiry(api, round(ttl_s * 1e9), time.time_ns())
    while True:
        await asyncio.sleep(ttl_s / LOOKS_PER_TTL)
        try:
            expiry.find_expired(time.time_ns())
            while expiry.remove_some(time.time_ns()):
                committer.on_write()
                await asyncio.sleep(0)
        except Exception:  # of one Event; the others go at the next look
            log.exception("cannot delete an expired Event")
        committer.on_write()


def _ignore_lost_clients(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Clients that vanish in mid-handshake are no fault of ours, and not worth a traceback."""
    error = context.get("exception")
    kind = error if isinstance(error, type) else type(error)
    if error is not None and issubclass(kind, OSError):  # as TLS errors are
        log.info("a client connection failed: %s", error)
    else:
        loop.default_exception_handler(context)


def _publish(api: Api, committer: Committer, name: tuple[str, int]) -> KubernetesService:
    """Writes where the server listens, by the name of its socket."""
    address, port = name[:2]
    service = KubernetesService(api, address, port)
    service.reconcile(time.time_ns())
    committer.on_write()
    return service


async def _keep_service(service: KubernetesService, committer: Committer) -> None:
    while True:
        await asyncio.sleep(INTERVAL_S)
        try:
            service.reconcile(time.time_ns())
        except Exception:  # the next look may fare better
            log.exception("cannot restore the Service default/kubernetes")
        committer.on_write()


@contextlib.asynccontextmanager
async def _in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs what has no end for as long as the block lasts."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


def _url(host: str, port: int) -> str:
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _raise_file_limit() -> None:
    """Lets the process open as many files as it may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.asynccontextmanager
async def run_server(options: Options) -> AsyncIterator[RunningServer]:
    """A server for as long as the block lasts. Raises StateError and OSError."""
    folder = options.state
    _check_trusted(folder)
    database = None if options.memory else Database(folder)
    audit = None
    committer = None
    try:
        hosts = HOSTS if options.host in HOSTS else (*HOSTS, options.host)
        make_certificates(folder / "pki", hosts)
        token = _token(folder / "pki")
        api = Api(
            load_registry(options.version, options.more),
            seed=secrets.token_hex(16),
            plugins=options.plugins,
            secret=hmac.new(token.encode(), b"service accounts", "sha256").hexdigest(),
            by_roles=options.by_roles,
        )
        api.store.large_bytes_max = options.large_objects_bytes
        count = database.load(api.store) if database is not None else 0
        audit = Audit(options.audit) if options.audit is not None else None
        handler = Handler(api, Access(token), audit=audit)
        committer = Committer(api.store, database, handler.show)
        handler.committer = committer
        api.restore()
        api.bootstrap(time.time_ns())
        try:
            await committer.flush()
        except WriteError as error:
            raise StateError(f"{folder}: cannot write the built-in objects: {error}") from None
        _raise_file_limit()
        listener = Listener(handler, handler.admit)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_ignore_lost_clients)
        server = await create_server(
            loop,
            listener,
            options.host,
            options.port,
            ssl=server_context(folder / "pki"),
            backlog=BACKLOG,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=2,
        )
        try:
            name = server.sockets[0].getsockname()
            service = _publish(api, committer, name)
            url = _url(options.host, name[1])
            kubeconfig = options.kubeconfig or folder / "kubeconfig"
            write_kubeconfig(kubeconfig, folder / "pki", url, token)
            upkeep = _in_background(
                _expire_events(api, committer, options.event_ttl_s),
                _keep_service(service, committer),
            )
            async with swept_by_the_clock(), upkeep:
                yield RunningServer(api, handler, url, kubeconfig, count)
        finally:
            await stop_accepting(server)
            server.close()
            handler.close()
            await listener.shutdown(SHUTDOWN_SECONDS)
            with contextlib.suppress(TimeoutError):  # of clients that never said a word
                await asyncio.wait_for(server.wait_closed(), SHUTDOWN_SECONDS)
    finally:
        if audit is not None:
            audit.close()
        if committer is not None:
            await committer.close()
        if database is not None:
            database.close()


async def serve(
    options: Options, ready: Callable[[RunningServer], None], stop: Callable[[], asyncio.Event]
) -> None:
    """Serve until the event is set that `stop` makes."""
    stopped = stop()
    async with run_server(options) as server:
        ready(server)
        await stopped.wait()
