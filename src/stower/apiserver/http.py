"""Implements HTTP/1.1 for one handler: parses requests, sends responses in the order of requests.

Written for many small requests, which cost a third of what aiohttp's server takes for them: no
task, no timer and no stream for each; httptools parses them. Must not know what is served.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import httptools

from stower.apiserver.client_limits import BodyBudget, ConnectionLimits
from stower.pki.transports import finish_closing

BODY_BYTES_MAX: Final = 3 * 1024 * 1024  # as upstream
HEADER_BYTES_MAX: Final = 16 * 1024  # of one header field, and of the request line
HEAD_BYTES_MAX: Final = 64 * 1024  # of all of them, beside what comes in one piece with the end
HEADERS_MAX: Final = 128
OVERHEAD_FACTOR: Final = 8  # a chunk of one byte takes six
QUEUE_MAX: Final = 8  # requests that wait for the answer before theirs, until no more are read
BEHIND_STREAM_BYTES_MAX: Final = 16 * 1024  # of a body that comes while a watch is answered
HEADER_SECONDS: Final = 10.0  # from the first byte of a request to the end of its headers
BODY_SECONDS: Final = 30.0
SEND_SECONDS: Final = 60.0  # for a client to take what was sent
KEEP_ALIVE_SECONDS: Final = 75.0
LINGER_SECONDS: Final = 1.0  # for a client that still sends to read why it is refused
SWEEP_SECONDS: Final = 0.5  # between looks for connections whose time is over
NEVER: Final = float("inf")
REFUSED_METHODS: Final = ("CONNECT", "TRACE")
TEXT: Final = b"Content-Type: text/plain; charset=utf-8\r\n"

log = logging.getLogger(__name__)
_STARTS: Final = {s.value: f" {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class Message:
    """One request as it came."""

    __slots__ = (
        "body", "client", "context", "error", "fault", "headers", "held", "keep", "lines", "method",
        "overhead", "repeated", "size", "started", "target", "version", "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = ""
        self.target = b""
        self.version = "1.1"
        self.headers: dict[bytes, bytes] = {}  # names in lower case, the first of each
        self.repeated: list[tuple[bytes, bytes]] = []  # the others, names in lower case
        self.body: bytes | bytearray = b""
        self.size = 0
        self.client = ""  # whose limits count, once the handler has admitted it
        self.context: Any = None  # the handler's
        self.error: Any = None  # the handler's, of the fault
        self.held = 0  # bytes of the body that count
        self.started = False  # whether a part of the answer was sent
        self.keep = True  # the connection, after the answer
        self.fault: tuple[int, str] | None = None  # refuse it: status and why
        self.waits = False  # for 100 Continue, before it sends its body
        self.lines = 0  # of its head
        self.overhead = 0  # bytes that came after its head and are no body

    @property
    def has_body(self) -> bool:
        """Whether the headers announce a body."""
        length = self.headers.get(b"content-length", b"0")
        return b"transfer-encoding" in self.headers or length.strip(b"0 \t") != b""

    def header(self, name: bytes) -> str:
        """A header's value, or empty."""
        value = self.headers.get(name)
        return "" if value is None else _text(value)


@lru_cache(1024)
def _text(value: bytes) -> str:
    """The text of a header: most are the same with each request."""
    return value.decode("utf-8", "replace")


Answer = Callable[["Connection", Message], None]
Admit = Answer  # once the headers are there: sets client, or fault to refuse the request


def admit_all(connection: "Connection", message: Message) -> None:
    """Takes all requests as those of one client."""


class Connection(asyncio.Protocol):
    """One client. The handler answers each request with `reply`, or `start`, `write` and `end`."""

    def __init__(self, listener: "Listener") -> None:
        self.transport: Any = None
        self.peer_certificate: Any = None
        self.known: tuple[bytes, Any] = (b"", None)  # for the handler: credentials, and whose
        self.lost: Callable[[], None] | None = None  # called when the client goes away
        self._listener = listener
        self._loop = listener.loop
        self._parser: Any = None  # a circle of references, which only a connection begins
        self._message = Message()
        self._queue: deque[Message] = deque()
        self._answering: Message | None = None
        self._in_head = False  # of the request that comes
        self._in_body = False
        self._head_bytes = 0
        self._serving = False
        self._deaf = False  # what still comes is not read
        self._paused = False  # nothing comes
        self._streaming = False  # an answer goes out in pieces
        self._waits_for: tuple[Message, bool] | None = None  # whose rest, and if of its head
        self._writable: asyncio.Future[None] | None = None  # while the client takes no more
        self._deadline = NEVER

    # The transport calls

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self.peer_certificate = transport.get_extra_info("peercert")
        self._deadline = self._loop.time() + HEADER_SECONDS
        self._listener.connections[self] = None
        self._listener.limits.add(self)
        if self._listener.closing:
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._listener.connections.pop(self, None)
        self._listener.limits.remove(self)
        self._deaf = True
        self._drop_queue()
        if self._answering is not None:
            self._release(self._answering)
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(ConnectionResetError("the client closed the connection"))
            self._writable.exception()  # perhaps nobody waits
        if self.lost is not None:
            self.lost()

    def pause_writing(self) -> None:
        self._writable = self._loop.create_future()
        self._pause()
        if not self._streaming:
            self._deadline = self._loop.time() + SEND_SECONDS

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)
        self._deadline = NEVER if self._answering else self._loop.time() + KEEP_ALIVE_SECONDS
        self._listen()
        self._serve()

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        message, was_in_body, size = self._message, self._in_body, self._message.size
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._message.keep = False  # it was read as a request; what follows it is not ours
            self._deaf = True
        except httptools.HttpParserError as error:
            self._broken(str(error))
        else:
            if self._message is message:
                if self._in_head:
                    self._head_bytes += len(data)
                    if self._head_bytes > HEAD_BYTES_MAX:
                        self._broken(
                            f"the headers are too large: limit is {HEAD_BYTES_MAX // 1024} KiB"
                        )
                elif was_in_body and self._in_body:
                    self._count_overhead(message, len(data) - (message.size - size))
        if self._message.fault is not None and (self._in_head or self._in_body):
            self._queue.append(self._message)  # the rest of it is not read
            self._stop_reading()
        if len(self._queue) > QUEUE_MAX:
            if self._streaming:  # which may take hours, and only reading tells that the client left
                self.transport.abort()
                return
            self._pause()
        self._serve()
        if self._in_body and self._answering is not None:
            if not self._streaming:
                self._pause()  # the rest is read, and has its time, after the answer
            elif self._message.held > BEHIND_STREAM_BYTES_MAX:
                self.transport.abort()
                return
        if self._in_head or self._in_body:  # it came in part
            self._wait_for_rest()

    def _count_overhead(self, message: Message, size: int) -> None:
        """What is sent around a body in chunks: their sizes and extensions, and trailers."""
        message.overhead += size
        if message.overhead > HEAD_BYTES_MAX + OVERHEAD_FACTOR * message.size:
            self._broken(
                f"the chunk headers and trailers of the body have {message.overhead} bytes, limit "
                f"is {HEAD_BYTES_MAX + OVERHEAD_FACTOR * message.size}"
            )

    def _wait_for_rest(self) -> None:
        """Give the rest of a request its time, from its first byte or the end of its headers."""
        state = (self._message, self._in_head)
        if self._answering is None and state != self._waits_for:
            self._waits_for = state
            seconds = HEADER_SECONDS if self._in_head else BODY_SECONDS
            self._deadline = self._loop.time() + seconds

    # The parser calls

    def on_message_begin(self) -> None:
        self._message = Message()
        self._in_head = True
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        message = self._message
        message.target += url
        if len(message.target) > HEADER_BYTES_MAX:
            message.fault = (
                400,
                f"the request line is too long: limit is {HEADER_BYTES_MAX // 1024} KiB",
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer says nothing of who asks for what
        message = self._message
        name = name.lower()
        if name in message.headers:
            message.repeated.append((name, value))
        else:
            message.headers[name] = value
        message.lines += 1
        if len(name) + len(value) > HEADER_BYTES_MAX or message.lines > HEADERS_MAX:
            message.fault = (
                400,
                f"the headers are too large: limit is {HEADERS_MAX} headers of "
                f"{HEADER_BYTES_MAX // 1024} KiB each",
            )

    def on_headers_complete(self) -> None:
        message, parser = self._message, self._parser
        message.method = parser.get_method().decode()
        message.version = parser.get_http_version()
        message.keep = parser.should_keep_alive() and message.version != "1.0"
        self._in_head, self._in_body = False, True
        headers = message.headers
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > BODY_BYTES_MAX:
            self._too_large(message)
        message.waits = b"100-continue" in headers.get(b"expect", b"").lower()
        if message.version not in ("1.0", "1.1"):
            message.fault = (400, f"HTTP/{message.version} is not supported; use HTTP/1.1")
        elif message.version == "1.1" and b"host" not in headers:
            message.fault = (400, "the request has no Host header")
        elif any(name == b"host" for name, _ in message.repeated):
            message.fault = (400, "the request has more than one Host header")
        elif message.method in REFUSED_METHODS:
            message.fault = (405, f"the method {message.method} is not supported")
        elif b"upgrade" in headers and message.has_body:  # whose body the parser would not read
            message.fault = (400, "a request to upgrade the connection must not have a body")
        if message.fault is None:
            self._admit(message)
        if message.fault is not None:
            message.keep = False

    def _admit(self, message: Message) -> None:
        """Lets the handler decide on the headers alone whether the body is read."""
        self._listener.admit(self, message)
        if message.fault is None:
            why = self._listener.limits.identify(self, message.client)
            if why:
                message.fault = (429, why)

    def on_body(self, body: bytes) -> None:
        message = self._message
        message.size += len(body)
        if message.size > BODY_BYTES_MAX:
            self._too_large(message)
        if message.fault is not None:
            return
        if not self._listener.bodies.take(message.client, len(body)):
            message.fault = (429, "too many bytes of request bodies are not answered yet; retry")
            self._release(message)
            message.body = b""
            return
        message.held += len(body)
        if not message.body:
            message.body = body
        else:
            if isinstance(message.body, bytes):
                message.body = bytearray(message.body)
            message.body += body

    def on_message_complete(self) -> None:
        self._in_body = False
        self._queue.append(self._message)

    # Requests, in their order

    def _serve(self) -> None:
        """Have what has come answered, one after the other."""
        if self._serving:
            return
        self._serving = True
        while self._queue and self._answering is None and self._writable is None:
            message = self._answering = self._queue.popleft()
            self._deadline = NEVER
            try:
                self._listener.answer(self, message)
            except Exception:  # a fault of ours must not take others with it
                log.exception("internal error in %s %s", message.method, message.target)
                if message.started or self._answering is not message:
                    self.transport.abort()
                else:
                    message.keep = False
                    self.reply(message, 500, TEXT, b"internal error")
        self._serving = False
        coming = self._message
        if coming.waits and self._in_body and self._answering is None and not self._queue:
            coming.waits = False
            if coming.fault is None and not self.transport.is_closing():
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _finish_message(self, message: Message) -> None:
        """The message is answered."""
        self._answering = None
        self._release(message)
        if not message.keep or self._listener.closing:
            self._drop_queue()
            self._stop_reading()
            lingers = message.fault is not None and not self.transport.get_write_buffer_size()
            self._deadline = self._loop.time() + (LINGER_SECONDS if lingers else SEND_SECONDS)
            if message.fault is None:
                self.transport.close()  # when all is sent
            return
        if self._writable is not None:
            self._deadline = self._loop.time() + SEND_SECONDS
        else:
            if self._in_head or self._in_body:
                self._wait_for_rest()
            else:
                self._deadline = self._listener.swept_s + KEEP_ALIVE_SECONDS + SWEEP_SECONDS
            self._listen()
        self._serve()

    def _release(self, message: Message) -> None:
        """Counts the body of a message no more."""
        held, message.held = message.held, 0
        if held:
            self._listener.bodies.give_back(message.client, held)

    def _drop_queue(self) -> None:
        """Forgets the requests that nobody answers any more, and the one that comes."""
        for message in (*self._queue, self._message):
            self._release(message)
        self._queue.clear()

    def _pause(self) -> None:
        """Read no more for now."""
        if not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def _listen(self) -> None:
        """Read again, where that was paused and there is room."""
        if self._paused and len(self._queue) <= QUEUE_MAX and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def _too_large(self, message: Message) -> None:
        message.fault = (413, f"Request entity too large: limit is {BODY_BYTES_MAX}")

    def _broken(self, why: str) -> None:
        """This is no HTTP, or too much of it: say so after what is owed, and read no more."""
        if not (self._in_head or self._in_body):
            self._message = Message()
        self._in_head = True
        self._message.fault = (400, why)

    def _stop_reading(self) -> None:
        """Read nothing more."""
        self._deaf = True
        self._in_head = self._in_body = False
        self._message.keep = False

    def sweep(self, now_s: float) -> None:
        """Cut the connection if its time is over."""
        if now_s < self._deadline:
            return
        if self._in_body and self._writable is None:
            self._message.fault = (
                408,
                f"timeout: the body of the request was not received within {BODY_SECONDS:g} s",
            )
            self._queue.append(self._message)
            self._stop_reading()
            self._serve()
        else:
            self.transport.abort()

    def shut(self) -> None:
        """The server ends: close it, after the answer that is owed."""
        if self._answering is None:
            self.transport.close()

    # Answers

    def reply(self, message: Message, status: int, headers: bytes, body: bytes) -> None:
        """Answer with all of it at once. `headers`: lines with their ends."""
        message.started = True
        if not self.transport.is_closing():
            head = self._head(message, status, headers, len(body))
            self.transport.write(head if message.method == "HEAD" else head + body)
        self._finish_message(message)

    def start(self, message: Message, status: int, headers: bytes, length: int | None) -> None:
        """The head of an answer that comes in pieces; without a length, in chunks."""
        message.started = self._streaming = True
        self._release(message)  # an answer may take hours, as that of a watch
        message.body = b""
        self.transport.write(self._head(message, status, headers, length))

    def write(self, data: bytes) -> None:
        """A piece of an answer."""
        if not self.transport.is_closing():
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the client can take more. Raises ConnectionResetError where it is gone."""
        if self.transport.is_closing():
            raise ConnectionResetError("the client closed the connection")
        if self._writable is not None:
            self._deadline = self._loop.time() + SEND_SECONDS
            await self._writable

    def end(self, message: Message) -> None:
        """All pieces are written."""
        self._streaming = False
        self._finish_message(message)

    def abort(self) -> None:
        """Cut it: the answer cannot be finished."""
        self.transport.abort()

    def _head(self, message: Message, status: int, headers: bytes, length: int | None) -> bytes:
        size = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
        end = b"\r\n\r\n"
        if not message.keep or self._listener.closing:
            end = b"\r\nConnection: close\r\n\r\n"
        version = b"HTTP/1.0" if message.version == "1.0" else b"HTTP/1.1"
        return b"%b%b%bDate: %b\r\n%b%b" % (
            version, _STARTS[status], headers, self._listener.date(), size, end,
        )  # fmt: skip


class Listener:
    """All connections; makes them, as the factory of a server's protocols."""

    def __init__(self, answer: Answer, admit: Admit = admit_all) -> None:
        self.answer = answer
        self.admit = admit
        self.loop = asyncio.get_running_loop()
        self.bodies = BodyBudget()
        self.limits = ConnectionLimits(self.loop.time)
        self.connections: dict[Connection, None] = {}
        self.closing = False
        self.swept_s = self.loop.time()
        self._date = b""
        self._date_second = 0
        self._sweeper = self.loop.create_task(self._sweep())

    def __call__(self) -> Connection:
        connection = Connection(self)
        self.limits.accept(connection)
        return connection

    def date(self) -> bytes:
        """The time as headers have it."""
        second = int(time.time())
        if second != self._date_second:
            self._date_second = second
            self._date = formatdate(second, usegmt=True).encode()
        return self._date

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now_s = self.swept_s = self.loop.time()
            for connection in list(self.connections):
                connection.sweep(now_s)

    async def shutdown(self, seconds: float) -> None:
        """Close all connections; those that are owed an answer when they have it."""
        self.closing = True
        for connection in list(self.connections):
            connection.shut()
        end = self.loop.time() + seconds
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(0.01)
        self._sweeper.cancel()
        for connection in list(self.connections):
            connection.abort()
        await finish_closing()
