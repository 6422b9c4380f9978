"""Serves the autoscaler-agents of VMs over HTTP: one POST is one request.

Each request goes to the engine as an AgentAsked event, so that a recording contains it too. This
module does not interpret requests; stower.vms.agent has the protocol. A request of a browser is
refused: any web page could make one for whoever looks at it.
"""

import asyncio
import hmac
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from stower.framework.events import AgentAsked
from stower.framework.writes import AgentAnswer
from stower.live.http_runner import Next, serve_app
from stower.vms.agent import BODY_BYTES_MAX

PENDING_MAX: Final = 10_000
# The engine answers within a second; a process that was suspended may take longer.
TIMEOUT_SECONDS: Final = 10
BODY_SECONDS: Final = 10


class AgentRequestHandler:
    """Passes requests to the engine and holds each one until the engine has answered it."""

    def __init__(self, submit: Callable[[AgentAsked], None]) -> None:
        self._submit = submit
        self._pending: dict[int, asyncio.Future[AgentAnswer]] = {}
        self._next_id = 1

    def complete(self, answer: AgentAnswer) -> None:
        """Answers the request with the answer's id; does nothing if it is no longer pending."""
        future = self._pending.pop(answer.id, None)
        if future is not None and not future.done():
            future.set_result(answer)

    async def handle(self, request: web.Request) -> web.Response:
        """Handles one request; reads at most BODY_BYTES_MAX bytes of its body.

        The status is 415 for a compressed body, 408 for one that does not come within
        BODY_SECONDS, and 503 if PENDING_MAX requests are pending, or if the engine does not answer
        within TIMEOUT_SECONDS.
        """
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return web.Response(status=415, text="Content-Encoding: want identity")
        try:
            body = await asyncio.wait_for(_read_body(request), BODY_SECONDS)
        except TimeoutError:
            return web.Response(status=408, text=f"no whole body within {BODY_SECONDS} s")
        except web.RequestPayloadError:
            return web.Response(status=400, text="the body is malformed")
        if len(self._pending) >= PENDING_MAX:
            return web.Response(status=503, text=f"{PENDING_MAX} requests are pending already")
        id, self._next_id = self._next_id, self._next_id + 1
        future = self._pending[id] = asyncio.get_running_loop().create_future()
        self._submit(AgentAsked(id, request.method, body))
        try:
            answer = await asyncio.wait_for(future, TIMEOUT_SECONDS)
        except TimeoutError:
            return web.Response(status=503, text=f"no answer within {TIMEOUT_SECONDS} s")
        finally:
            self._pending.pop(id, None)
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
    agents: AgentRequestHandler,
    host: str,
    port: int,
    token: str = "",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serves agents until the context exits; yields the port. Raises OSError.

    `token`: what each request must have; empty for none. `tls`: None for plain HTTP.
    """
    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_make_check(token)])
    app.router.add_route("*", "/{path:.*}", agents.handle)
    async with serve_app(app, host, port, tls) as bound_port:
        yield bound_port
