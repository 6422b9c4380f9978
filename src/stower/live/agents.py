"""Serves the autoscaler-agents of VMs over HTTP: one POST is one request.

Does not interpret requests; agent_requests.py passes them on. A request of a browser is refused:
any web page could make one for whoever looks at it.
"""

import asyncio
import hmac
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from aiohttp import web

from stower.live.agent_requests import AgentRequests
from stower.live.http_runner import Next, serve_app
from stower.vms.agent import BODY_BYTES_MAX

BODY_SECONDS: Final = 10


async def _handle(requests: AgentRequests, request: web.Request) -> web.Response:
    """Handles one request; reads at most BODY_BYTES_MAX bytes of its body.

    The status is 415 for a compressed body, 408 for one that does not come within BODY_SECONDS.
    """
    if request.headers.get("Content-Encoding", "identity") != "identity":
        return web.Response(status=415, text="Content-Encoding: want identity")
    try:
        body = await asyncio.wait_for(_read_body(request), BODY_SECONDS)
    except TimeoutError:
        return web.Response(status=408, text=f"no whole body within {BODY_SECONDS} s")
    except web.RequestPayloadError:
        return web.Response(status=400, text="the body is malformed")
    answer = await requests.ask(request.method, body)
    headers = {"Content-Type": answer.type} if answer.type else {}
    return web.Response(status=answer.status, body=answer.body.encode(), headers=headers)


async def _read_body(request: web.Request) -> bytes:
    body = b""
    while len(body) < BODY_BYTES_MAX:
        chunk = await request.content.read(BODY_BYTES_MAX - len(body))
        if not chunk:
            break
        body += chunk
    return body


def _make_check(token: str) -> Any:
    """Returns the middleware that refuses browsers, and requests without the token."""

    @web.middleware
    async def check(request: web.Request, handler: Next) -> web.StreamResponse:
        if request.method == "TRACE":
            return web.Response(status=405, text="TRACE is not served")
        names = map(str.lower, request.headers)
        if any(name == "origin" or name.startswith("sec-fetch-") for name in names):
            return web.Response(status=403, text="requests of browsers are refused")
        kind, _, sent = request.headers.get("Authorization", "").partition(" ")
        is_known = kind.lower() == "bearer" and hmac.compare_digest(
            sent.strip().encode("utf-8", "surrogateescape"), token.encode()
        )
        if token and not is_known:
            headers = {"WWW-Authenticate": "Bearer"}
            return web.Response(status=401, text="a bearer token is required", headers=headers)
        return await handler(request)

    return check


@asynccontextmanager
async def serve_agents(
    requests: AgentRequests,
    host: str,
    port: int,
    token: str = "",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serves agents until the context exits; yields the port. Raises OSError.

    `token`: what each request must have; empty for none. `tls`: None for plain HTTP.
    """
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_make_check(token)])
    app.router.add_route("*", "/{path:.*}", partial(_handle, requests))
    async with serve_app(app, host, port, tls) as bound_port:
        yield bound_port
