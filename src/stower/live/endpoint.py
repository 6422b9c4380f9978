"""What a scheduler tells of itself over HTTP, read-only.

/healthz, /livez and /readyz say a word to anybody; everything else is for those whom a doorkeeper
lets in.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web

from stower.live import debug
from stower.live.authorization import AuthorizationError, Authorizer
from stower.live.scheduler import Scheduler

LOOPBACK: Final = "127.0.0.1"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LISTS_CHECK: Final = "lists"
SHUTDOWN_SECONDS: Final = 0.5  # pages that are open follow for ever

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Health = Mapping[str, Callable[[], bool]]  # what must be so, by name


# More to serve of a scheduler: who is let in is the doorkeeper's to say.
ExtraRoutes = Callable[[Scheduler, Authorizer], Sequence[web.RouteDef]]


def no_extra_routes(scheduler: Scheduler, authorizer: Authorizer) -> Sequence[web.RouteDef]:
    """Nothing more."""
    return ()


@asynccontextmanager
async def endpoint(
    scheduler: Scheduler,
    metrics: Callable[[], bytes],
    authorizer: Authorizer,
    host: str = LOOPBACK,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    extra_routes: ExtraRoutes = no_extra_routes,
) -> AsyncIterator[int]:
    """Serve for as long as the block lasts, with these pages; yields the port. Raises OSError."""

    async def handle_comparison(_: web.Request) -> web.Response:
        try:
            return _json(await debug.compare_cache(scheduler))
        except debug.ComparisonFailed as error:
            return error_response(502, str(error))

    def make_handler(render: Callable[[Scheduler, Mapping[str, str]], Any]) -> Handler:
        async def handler(request: web.Request) -> web.StreamResponse:
            return _json(render(scheduler, request.query))

        return handler

    async def handle_metrics(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": METRICS_TYPE})

    async def index(_: web.Request) -> web.Response:
        return _json({"paths": ["/metrics", *sorted((*debug.HANDLERS, debug.COMPARISON))]})

    routes = [
        web.get("/metrics", with_authorization(authorizer, handle_metrics)),
        web.get("/debug/", with_authorization(authorizer, index)),
        web.get(debug.COMPARISON, with_authorization(authorizer, handle_comparison)),
        *(
            web.get(path, with_authorization(authorizer, make_handler(ask)))
            for path, ask in debug.HANDLERS.items()
        ),
        *extra_routes(scheduler, authorizer),
    ]
    health = {LISTS_CHECK: lambda: scheduler.is_ready}
    async with serve_routes(routes, health, port, host, tls) as taken:
        yield taken


def with_authorization(authorizer: Authorizer, handler: Handler) -> Handler:
    """The same, for whom the doorkeeper lets in."""

    async def authorized_handler(request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        try:
            await authorizer.check(authorization, request.path, request.method.lower())
        except AuthorizationError as refused:
            more = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
            return error_response(refused.status, str(refused), **more)
        return await handler(request)

    return authorized_handler


def error_response(status: int, text: str, **extra_headers: str) -> web.Response:
    """Why not, as plain text that no browser takes for anything else."""
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", **extra_headers}
    return web.Response(status=status, text=f"{text}\n", headers=headers)


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


@asynccontextmanager
async def serve_routes(
    routes: Sequence[web.RouteDef],
    health: Health,
    port: int,
    host: str = LOOPBACK,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve these, and whether we are well. `health`: what must be so before others rely on us.
    Yields the port. Raises OSError."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(request: web.Request) -> web.Response:
        found = {name: is_so() for name, is_so in health.items()}
        lines = [f"[{'+' if good else '-'}]{name} {'ok' if good else 'failed'}"
                 for name, good in found.items()]  # fmt: skip
        if all(found.values()):
            whole = "\n".join([*lines, "readyz check passed\n"])
            return web.Response(text=whole if "verbose" in request.query else "ok")
        return web.Response(status=503, text="\n".join([*lines, "readyz check failed\n"]))

    app = web.Application(client_max_size=1024)
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/livez", healthz),
            web.get("/readyz", readyz),
            *routes,
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
