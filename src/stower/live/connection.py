"""Requests that are answered at once, over connections that are kept: HTTP/1.1 and nothing more.

A scheduler makes two small writes for each pod. aiohttp's client takes 125-190 µs of CPU for one;
this takes a third, with httptools to read the answers. Streams stay with aiohttp (client.py).
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import httptools

from stower.pki.transports import create_connection

IDLE_SECONDS: Final = 20.0  # servers close what is idle for longer, perhaps as we write to it
CONNECT_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 30.0
BODY_BYTES_MAX: Final = 256 << 20


class RequestNotSent(Exception):
    """It was not sent: whoever asked may ask no more."""


class ConnectionLost(Exception):
    """There is no answer, and nobody knows whether the request was carried out."""


class Reply:
    """An answer as it comes."""

    __slots__ = ("body", "headers", "size", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body: list[bytes] = []
        self.size = 0


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self.idle_since_s = 0.0
        self.is_open = True
        self._transport: Any = None
        self._parser: Any = None
        self._reply = Reply()
        self._has_head = False
        self._response_future: asyncio.Future[Reply] | None = None

    def send(self, request: bytes) -> "asyncio.Future[Reply]":
        """Send a request; its answer, or Lost. Raises Lost at once where it is closed: a server
        may end between the handshake and the first request."""
        if not self.is_open:
            raise ConnectionLost("the connection was closed")
        self._reply = Reply()
        self._has_head = False
        self._parser = httptools.HttpResponseParser(self)
        self._response_future = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._response_future

    def close(self, why: str = "closed") -> None:
        """Close it at once; whoever waits for an answer has lost it."""
        self.is_open = False
        answer, self._response_future = self._response_future, None
        if self._transport is not None:
            self._transport.abort()
        if answer is not None and not answer.done():
            answer.set_exception(ConnectionLost(why))

    # The transport calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._response_future is None:
            self.close()  # nothing was asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.close(f"no HTTP answer: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        headers = self._reply.headers
        sized = b"content-length" in headers or b"transfer-encoding" in headers
        if exc is None and self._has_head and not sized and self._response_future is not None:
            self.on_message_complete()  # its end is the end of the connection
        self.close(str(exc) if exc else "the server closed the connection")

    # The parser calls

    def on_headers_complete(self) -> None:
        self._has_head = self._parser.get_status_code() != 100

    def on_header(self, name: bytes, value: bytes) -> None:
        self._reply.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._reply.size += len(body)
        if self._reply.size > BODY_BYTES_MAX:
            raise httptools.HttpParserError(f"more than {BODY_BYTES_MAX} bytes")
        self._reply.body.append(body)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == 100:
            return
        self._reply.status = status
        if not self._parser.should_keep_alive():
            self.is_open = False
        answer, self._response_future = self._response_future, None
        if answer is not None and not answer.done():
            answer.set_result(self._reply)


class ConnectionPool:
    """Connections to one server."""

    def __init__(
        self,
        server: str,
        tls: ssl.SSLContext | None,
        server_name: str = "",
        timeout_s: float = REQUEST_SECONDS,
    ) -> None:
        """`server_name`: of the server's certificate, where that is not its host."""
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
        # Until when each may wait for its answer, the first first; one timer looks after all.
        self._deadlines_s: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, request: bytes, may_send: Callable[[], bool] = lambda: True) -> Reply:
        """The answer to a request. `may_send` is asked when there is a connection, just before.

        Raises Lost, OSError, TimeoutError and Withheld.
        """
        loop = asyncio.get_running_loop()
        connection = self._pop_idle(loop.time()) or await self._connect(loop)
        if not may_send():
            connection.idle_since_s = loop.time()
            self._idle.append(connection)
            raise RequestNotSent
        self._deadlines_s[connection] = due_s = loop.time() + self._timeout_s
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._close_overdue, loop)
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
        """Close those that were due, and look again when the next one is."""
        self._timer, now_s = None, loop.time()
        for connection, due_s in list(self._deadlines_s.items()):
            if due_s > now_s:
                self._timer = loop.call_at(due_s, self._close_overdue, loop)
                return
            del self._deadlines_s[connection]
            connection.close("no answer in time")

    def close(self) -> None:
        """Close what is idle."""
        if self._timer is not None and not self._deadlines_s:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            self._idle.pop().close()

    def _pop_idle(self, now_s: float) -> Connection | None:
        """The one that was used last; those that were not used for long are closed."""
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
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await create_connection(
                loop,
                Connection,
                self._hostname,
                self._port,
                ssl=self._tls,
                server_hostname=(self._server_name or self._hostname) if self._tls else None,
            )
        made: Connection = connection
        return made
