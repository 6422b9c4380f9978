"""One HTTP/1.1 response that is read while it comes, as a watch: with httptools as the parser, and
without the tenth of a second that the import of an HTTP client takes.

What is not read is buffered up to READ_BYTES_MAX; then the transport reads no further.
"""

import asyncio
from typing import Any, Final

import httptools

from stower.live.connection import ConnectionLost
from stower.live.outages import error_text

READ_BYTES_MAX: Final = 1 << 20


class ResponseStream(asyncio.Protocol):
    """A connection for one request and its response. Raises ConnectionLost where the connection
    ends, or says nothing for `idle_s`."""

    def __init__(self, idle_s: float) -> None:
        self.status = 0  # 0 until the head has come
        self.headers: dict[bytes, bytes] = {}
        self._idle_s = idle_s
        self._transport: Any = None
        self._parser = httptools.HttpResponseParser(self)
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._is_complete = False
        self._reason = ""  # why the connection ended
        self._waiter: asyncio.Future[None] | None = None
        self._heard_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def request(self, data: bytes) -> int:
        """Sends the request; returns the status of the response."""
        if not self._reason:
            self._transport.write(data)
        while not self.status:
            await self._wait()
        return self.status

    async def read(self) -> bytes:
        """Returns what has come of the body, as soon as there is any; b"" at its end."""
        while not self._chunks and not self._is_complete:
            await self._wait()
        chunks, self._chunks, self._size = self._chunks, [], 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def read_all(self, bytes_max: int) -> bytes:
        """Returns the whole body, or its beginning."""
        body = b""
        while len(body) < bytes_max and (chunk := await self.read()):
            body += chunk
        return body[:bytes_max]

    def close(self) -> None:
        """Closes the connection without waiting for the end of TLS."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self) -> None:
        if self._reason:
            raise ConnectionLost(self._reason)
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self.close()
        self._wake()

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._heard_s + self._idle_s and not self._is_paused:
            self._end(f"nothing came for {self._idle_s:g} s")
        else:
            due_s = max(self._heard_s + self._idle_s, loop.time() + 1)
            self._timer = loop.call_at(due_s, self._check_idle)

    # Called by the transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._heard_s = asyncio.get_running_loop().time()
        self._check_idle()

    def data_received(self, data: bytes) -> None:
        self._heard_s = asyncio.get_running_loop().time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"the answer is not HTTP: {error}")
            return
        if self._size > READ_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        has_end = b"content-length" in self.headers or b"transfer-encoding" in self.headers
        if exc is None and self.status and not has_end:
            self._is_complete = True  # the end of the connection is the end of the body
        self._end(error_text(exc) if exc else "the server closed the connection")

    # Called by the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 100:
            self.status = status

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        if self.status:
            self._is_complete = True
