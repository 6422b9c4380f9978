"""Runs aiohttp applications with bounds, and a log that never contains a part of a header.

Whoever can reach the port may open connections and say nothing, or little by little: there are only
so many, and each is closed if its request does not come. aiohttp logs a malformed request with the
line that is malformed, which may be a bearer token.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

CONNECTIONS_MAX: Final = 512
HEADERS_SECONDS_MAX: Final = 10.0  # from a request's first byte to the end of its headers
IDLE_SECONDS_MAX: Final = 75.0  # between requests
SHUTDOWN_SECONDS: Final = 60.0

Next = Callable[[web.Request], Awaitable[web.StreamResponse]]

log: Final = logging.getLogger(__name__)


class _WithoutRequests(logging.Filter):
    """Replaces what is said about requests that clients break off, or send malformed, by their
    number in HTTP and a class."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError):
            record.msg = f"{record.msg}: status %s, %s"
            code = getattr(error, "code", 400)
            record.args = (*_arguments(record), code, type(error).__name__)
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.INFO, "INFO"
        return True


def _arguments(record: logging.LogRecord) -> tuple[Any, ...]:
    return record.args if isinstance(record.args, tuple) else ()


log.addFilter(_WithoutRequests())


class _Connection(asyncio.Protocol):
    """Passes a connection on to aiohttp, and ends it if a request does not come."""

    def __init__(self, connections: "_Connections", inner: Any) -> None:
        self._connections = connections
        self.inner = inner
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_handling = False

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        self._transport = transport
        self.inner.connection_made(transport)
        self._start_timer()
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        """A part of a request, or more of them."""
        if not self._is_handling and self._timer is None:
            self._start_timer()
        self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client sends no more."""
        return self.inner.eof_received()  # type: ignore[no-any-return]

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """It has read on."""
        self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        self._stop_timer()
        self._connections.remove(self)
        self.inner.connection_lost(exc)

    def begin(self) -> None:
        """The headers of a request are here."""
        self._stop_timer()
        self._is_handling = True

    def end(self) -> None:
        """The request is answered."""
        self._is_handling = False

    def abort(self) -> None:
        """Closes the connection at once."""
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HEADERS_SECONDS_MAX, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Connections:
    """All connections of a server. Where there are too many, the one gives way that has been
    without a request for the longest."""

    def __init__(self) -> None:
        self._by_inner: dict[Any, _Connection] = {}
        self._idle: dict[_Connection, None] = {}  # those without a request, the longest first
        self._handshakes: deque[float] = deque()  # when each began, in seconds of the loop

    def accept(self, inner: Any) -> _Connection:
        """Returns the protocol of a new connection, which may have a TLS handshake before it.
        Raises ConnectionRefusedError."""
        now_s = asyncio.get_running_loop().time()
        while self._handshakes and now_s - self._handshakes[0] > HEADERS_SECONDS_MAX:
            self._handshakes.popleft()  # what failed is told to nobody
        if len(self._handshakes) >= CONNECTIONS_MAX:
            raise ConnectionRefusedError(f"{CONNECTIONS_MAX} connections are new")
        self._handshakes.append(now_s)
        return _Connection(self, inner)

    def add(self, connection: _Connection) -> None:
        """Counts a connection whose handshake is over."""
        if self._handshakes:
            self._handshakes.popleft()
        self._by_inner[connection.inner] = connection
        self._idle[connection] = None
        if len(self._by_inner) > CONNECTIONS_MAX:
            oldest = next(iter(self._idle))
            self.remove(oldest)
            oldest.abort()

    def remove(self, connection: _Connection) -> None:
        """Forgets a connection."""
        self._by_inner.pop(connection.inner, None)
        self._idle.pop(connection, None)

    def make_middleware(self) -> Any:
        """Returns the middleware that says when a request has come and when it is answered."""

        @web.middleware
        async def watch(request: web.Request, handler: Next) -> web.StreamResponse:
            connection = self._by_inner.get(request.protocol)
            if connection is None:  # it is being closed
                return await handler(request)
            connection.begin()
            self._idle.pop(connection, None)
            try:
                response = await handler(request)
                if response.status in (401, 403):
                    response.force_close()
                return response
            finally:
                connection.end()
                if connection.inner in self._by_inner:
                    self._idle[connection] = None

        return watch


@asynccontextmanager
async def serve_app(
    app: web.Application,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    shutdown_seconds: float = SHUTDOWN_SECONDS,
) -> AsyncIterator[int]:
    """Serves an application until the context exits; yields the port. Raises OSError.

    Bodies are not decompressed: a small one could become a huge one.
    """
    connections = _Connections()
    app.middlewares.insert(0, connections.make_middleware())
    runner = web.AppRunner(
        app, access_log=None, logger=log, shutdown_timeout=shutdown_seconds,
        auto_decompress=False, keepalive_timeout=IDLE_SECONDS_MAX,
    )  # fmt: skip
    await runner.setup()
    make = runner.server
    assert make is not None
    try:
        server = await asyncio.get_running_loop().create_server(
            lambda: connections.accept(make()), host, port, ssl=tls,
            ssl_handshake_timeout=HEADERS_SECONDS_MAX if tls is not None else None,
        )  # fmt: skip
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
    finally:
        await runner.cleanup()
