"""A pool of HTTP/1.1 connections for requests with one complete response each.

A scheduler makes two small writes for each pod. aiohttp's client takes 125-190 µs of CPU for one;
this module takes a third, with httptools as the parser. stream.py has the responses of watches.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httptools

from stower.live.outages import error_text
from stower.pki.transports import create_connection

# Servers close connections that are idle for longer, perhaps during a write.
IDLE_SECONDS: Final = 20.0
CONNECT_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 30.0
BODY_BYTES_MAX: Final = 256 << 20

Protocol = TypeVar("Protocol", bound=asyncio.Protocol)


class RequestNotSent(Exception):
    """The request was not sent, as the caller may no longer send it."""


class ConnectionLost(Exception):
    """There is no response, and it is unknown whether the request was carried out."""


class Reply:
    """A response while it is received: `body` in parts, `size` in bytes of body so far."""

    __slots__ = ("body", "headers", "size", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body: list[bytes] = []
        self.size = 0


class Connection(asyncio.Protocol):
    """One connection; it carries one request at a time."""

    def __init__(self) -> None:
        self.idle_since_s = 0.0
        self.is_open = True
        self._transport: Any = None
        self._parser: Any = None
        self._reply = Reply()
        self._has_head = False
        self._response_future: asyncio.Future[Reply] | None = None

    def send(self, request: bytes) -> "asyncio.Future[Reply]":
        """Sends a request and returns a future of its response, which may raise ConnectionLost.

        Raises ConnectionLost itself if the connection is closed: a server may end between the
        handshake and the first request.
        """
        if not self.is_open:
            raise ConnectionLost("the connection was closed")
        self._reply = Reply()
        self._has_head = False
        self._parser = httptools.HttpResponseParser(self)
        self._response_future = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._response_future

    def close(self, reason: str = "closed") -> None:
        """Closes the connection at once; a pending request fails with ConnectionLost."""
        self.is_open = False
        future, self._response_future = self._response_future, None
        if self._transport is not None:
            self._transport.abort()
        if future is not None and not future.done():
            future.set_exception(ConnectionLost(reason))

    # Called by the transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._response_future is None:
            self.close()  # there is no request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.close(f"the answer is not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        headers = self._reply.headers
        has_length = b"content-length" in headers or b"transfer-encoding" in headers
        if exc is None and self._has_head and not has_length and self._response_future is not None:
            self.on_message_complete()  # the end of the connection is the end of the body
        self.close(error_text(exc) if exc else "the server closed the connection")

    # Called by the parser

    def on_headers_complete(self) -> None:
        self._has_head = self._parser.get_status_code() != 100

    def on_header(self, name: bytes, value: bytes) -> None:
        self._reply.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._reply.size += len(body)
        if self._reply.size > BODY_BYTES_MAX:
            raise httptools.HttpParserError(f"the body has more than {BODY_BYTES_MAX} bytes")
        self._reply.body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == 100:
            return
        self._reply.status = status
        if not self._parser.should_keep_alive():
            self.is_open = False
        future, self._response_future = self._response_future, None
        if future is not None and not future.done():
            future.set_result(self._reply)


class ConnectionPool:
    """Connections to one server; idle ones are used again."""

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | None,
        server_name: str = "",
        timeout_s: float = REQUEST_SECONDS,
    ) -> None:
        """`server_name`: the name in the server's certificate, if that is not its host."""
        parts = urlsplit(server)
        self.tls = tls
        self._server_name = server_name
        self.prefix = parts.path.rstrip("/")
        self.host = parts.netloc
        self._hostname = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._timeout_s = timeout_s
        self._idle: deque[Connection] = deque()
        # The deadline of each pending request, the earliest first; one timer serves all of them.
        self._deadlines_s: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, request: bytes, may_send: Callable[[], bool] = lambda: True) -> Reply:
        """Sends a request and returns its response. `may_send` is called once there is a
        connection, just before the request is sent.

        Raises ConnectionLost, OSError, TimeoutError, and RequestNotSent if `may_send` returns
        False.
        """
        loop = asyncio.get_running_loop()
        connection = self._pop_idle(loop.time()) or await self._connect(loop)
        if not may_send():
            connection.idle_since_s = loop.time()
            self._idle.append(connection)
            raise RequestNotSent
        self._deadlines_s[connection] = deadline_s = loop.time() + self._timeout_s
        if self._timer is None:
            self._timer = loop.call_at(deadline_s, self._close_overdue, loop)
        try:
            reply = await connection.send(request)
        except BaseException:
            connection.close()
            raise
        finally:
            self._deadlines_s.pop(connection, None)
        if connection.is_open:
            connection.idle_since_s = loop.time()
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    def _close_overdue(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes connections whose deadline has passed; sets the timer for the next deadline."""
        self._timer, now_s = None, loop.time()
        for connection, deadline_s in list(self._deadlines_s.items()):
            if deadline_s > now_s:
                self._timer = loop.call_at(deadline_s, self._close_overdue, loop)
                return
            del self._deadlines_s[connection]
            connection.close(f"no answer within {self._timeout_s:g} s")

    def close(self) -> None:
        """Closes all idle connections."""
        if self._timer is not None and not self._deadlines_s:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            self._idle.pop().close()

    def _pop_idle(self, now_s: float) -> Connection | None:
        """Returns the connection that was used last; closes those that were idle for too long."""
        while self._idle and (
            not self._idle[0].is_open or self._idle[0].idle_since_s < now_s - IDLE_SECONDS
        ):
            self._idle.popleft().close()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> Connection:
        return await self.connect(loop, Connection)

    async def connect(
        self, loop: asyncio.AbstractEventLoop, make: Callable[[], Protocol]
    ) -> Protocol:
        """Opens one more connection to the server, which the pool does not own. Raises OSError and
        TimeoutError."""
        async with asyncio.timeout(CONNECT_SECONDS):
            _, protocol = await create_connection(
                loop,
                make,
                self._hostname,
                self._port,
                ssl=self._tls,
                server_hostname=(self._server_name or self._hostname) if self._tls else None,
            )
        opened: Protocol = protocol
        return opened
