"""Serves a scheduler's HTTP endpoints, all read-only: health, metrics, dumps, and extra routes.

/healthz, /livez and /readyz need no authorization; all other paths do.
"""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web

from stower.live import debug
from stower.live.authorization import AuthorizationError, Authorizer
from stower.live.http_runner import serve_app
from stower.live.scheduler import Scheduler

LOOPBACK: Final = "127.0.0.1"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
LISTS_CHECK: Final = "lists"
SHUTDOWN_SECONDS: Final = 0.5  # streams of open pages never end by themselves

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Health = Mapping[str, Callable[[], bool]]  # checks of readiness, by name


# Further routes of a scheduler, which authorize their requests with the authorizer.
ExtraRoutes = Callable[[Scheduler, Authorizer], Sequence[web.RouteDef]]


def no_extra_routes(scheduler: Scheduler, authorizer: Authorizer) -> Sequence[web.RouteDef]:
    """Returns no routes."""
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
    """Serves a scheduler's endpoints until the context exits; yields the port. Raises OSError.

    `metrics`: returns the body of /metrics; `extra_routes`: what is served besides.
    """

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

    async def handle_index(_: web.Request) -> web.Response:
        return _json({"paths": ["/metrics", *sorted((*debug.HANDLERS, debug.COMPARISON))]})

    routes = [
        web.get("/metrics", with_authorization(authorizer, handle_metrics)),
        web.get("/debug/", with_authorization(authorizer, handle_index)),
        web.get(debug.COMPARISON, with_authorization(authorizer, handle_comparison)),
        *(
            web.get(path, with_authorization(authorizer, make_handler(render)))
            for path, render in debug.HANDLERS.items()
        ),
        *extra_routes(scheduler, authorizer),
    ]
    health = {LISTS_CHECK: lambda: scheduler.is_ready}
    async with serve_routes(routes, health, port, host, tls) as bound_port:
        yield bound_port


def with_authorization(authorizer: Authorizer, handler: Handler) -> Handler:
    """Returns the handler behind an authorization check; a refusal is answered with its status."""

    async def authorized_handler(request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        try:
            await authorizer.check(authorization, request.path, request.method.lower())
        except AuthorizationError as error:
            headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else {}
            return error_response(error.status, str(error), **headers)
        return await handler(request)

    return authorized_handler


def error_response(status: int, text: str, **extra_headers: str) -> web.Response:
    """Returns an error as plain text; its headers forbid browsers to guess another type."""
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
    """Serves routes and the health endpoints until the context exits; yields the port.

    `health`: the checks that must hold before /readyz answers 200. Raises OSError.
    """

    async def handle_healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def handle_readyz(request: web.Request) -> web.Response:
        results = {name: check() for name, check in health.items()}
        lines = [
            f"[{'+' if passed else '-'}]{name} {'ok' if passed else 'failed'}"
            for name, passed in results.items()
        ]
        if all(results.values()):
            report = "\n".join([*lines, "readyz check passed\n"])
            return web.Response(text=report if "verbose" in request.query else "ok")
        return web.Response(status=503, text="\n".join([*lines, "readyz check failed\n"]))

    app = web.Application(client_max_size=1024)
    app.add_routes(
        [
            web.get("/healthz", handle_healthz),
            web.get("/livez", handle_healthz),
            web.get("/readyz", handle_readyz),
            *routes,
        ]
    )
    async with serve_app(app, host, port, tls, SHUTDOWN_SECONDS) as bound_port:
        yield bound_port
