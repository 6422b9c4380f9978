"""A client of one API server: single requests with their responses, and watches.

Does not retry, except where a function says so; never interprets objects.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from stower.live.access import Access, AccessError
from stower.live.connection import (
    REQUEST_SECONDS,
    ConnectionLost,
    ConnectionPool,
    RequestNotSent,
)
from stower.live.outages import error_text
from stower.live.stream import ResponseStream
from stower.model.kinds import Kind
from stower.pki.transports import finish_closing

T = TypeVar("T")
JSON: Final = "application/json"
TRIES: Final = 5
RETRY_SECONDS: Final = 0.1
UNAUTHORIZED: Final = 401
NOT_SENT: Final = -1
# An API server sends a bookmark every minute: a watch that is silent for longer is dead.
WATCH_IDLE_SECONDS: Final = 90.0
STATUS_BYTES_MAX: Final = 1 << 20  # of a refusal
LINE_BYTES_MAX: Final = 16 << 20  # of a watch event; an object has at most 3 MiB
TRANSPORT_ERRORS: Final = (OSError, asyncio.TimeoutError, ConnectionLost)


def collection_path(kind: Kind, namespace: str = "", version: str = "") -> str:
    """Returns the URL path of a kind's objects: those of all namespaces if `namespace` is empty, in
    the kind's own apiVersion if `version` is empty."""
    version = version or kind.api_version
    group = "/apis/" if "/" in version else "/api/"
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"{group}{version}{scope}/{kind.plural}"


class Response(NamedTuple):
    """A response. Status 0: none came, and `body` says why; NOT_SENT: the request was not sent."""

    status: int
    body: bytes
    retry_after_s: float = 0.0

    @property
    def message(self) -> str:
        """The message of a Status object, or else the beginning of the body, on one line."""
        try:
            text = msgspec.json.decode(self.body)["message"]
        except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError, RecursionError):
            text = self.body[:300].decode("utf-8", "replace")
        return " ".join(str(text).split())

    def read(self, type: type[T]) -> T | None:
        """The body of a success as this type; None where the server refuses, or sends no such
        thing."""
        return read_json(self.body, type) if 200 <= self.status < 300 else None


def read_json(data: bytes, type: type[T]) -> T | None:
    """Returns JSON as this type; None where it is no such thing."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class WatchInterrupted(Exception):
    """A watch ended early; it can be resumed."""


class WatchStatusError(Exception):
    """The server refuses a watch, or ends it with an error; `answer` says why."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.message)
        self.answer = answer
        self.status = answer.status
        self.retry_after_s = answer.retry_after_s


class Client:
    """Sends requests and watches to one API server. Owns the connections of requests; each watch
    has one of its own."""

    def __init__(self, access: Access, user_agent: str) -> None:
        self.access = access
        self._user_agent = user_agent
        self._pool = ConnectionPool(access.server, access.tls, access.server_name)
        self._cached_headers: dict[str, str] | None = None
        self._cached_header_block = ""
        # Called with method, status and duration in seconds of each request; not of the second
        # try after a 401.
        self.on_request: Callable[[str, int, float], None] | None = None

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.close()
        await finish_closing()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = "",
        may_send: Callable[[], bool] = lambda: True,
    ) -> Response:
        """Sends one request. Never raises for errors of the network or the server.

        `may_send` is called just before the request is sent, as credentials and connections take
        time; if it returns False, the request is not sent and the status is NOT_SENT.

        After a 401 the credentials are read again from files and plugins, and the request is sent
        once more. Raises AccessError if there are no credentials.
        """
        clock = asyncio.get_running_loop().time
        started_s = clock()
        answer = await self._request_once(method, path, body, content_type, accept, may_send)
        if self.on_request is not None:
            self.on_request(method, answer.status, clock() - started_s)
        if answer.status == UNAUTHORIZED and await self.access.renew():
            answer = await self._request_once(method, path, body, content_type, accept, may_send)
        return answer

    async def _request_once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        accept: str,
        may_send: Callable[[], bool],
    ) -> Response:
        head = await self._build_header_block(accept)
        self._renew_pool()
        body_head = (
            f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n" if body else ""
        )
        request = f"{method} {self._pool.prefix}{path} HTTP/1.1\r\n{head}{body_head}\r\n".encode()
        try:
            reply = await self._pool.send(request + body if body else request, may_send)
        except RequestNotSent:
            return Response(NOT_SENT, b"")
        except TRANSPORT_ERRORS as error:
            return Response(0, error_text(error).encode())
        reply_body = reply.body[0] if len(reply.body) == 1 else b"".join(reply.body)
        return Response(reply.status, reply_body, _retry_after_s(reply.headers))

    async def get_with_retry(self, path: str) -> Response:
        """Sends the GET of a first contact; tries again a few times while there is no response."""
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + REQUEST_SECONDS
        answer = await self.request("GET", path)
        for _ in range(TRIES - 1):
            if answer.status or clock() >= deadline_s:
                break
            await asyncio.sleep(RETRY_SECONDS)
            answer = await self.request("GET", path)
        return answer

    async def _build_header_block(self, accept: str) -> str:
        """Returns the header fields of every request; builds them when credentials change.
        `accept`: instead of JSON."""
        headers = await self.access.headers()
        if headers is not self._cached_headers:
            self._cached_headers = headers
            fields = {
                "Host": self._pool.host,
                "User-Agent": self._user_agent,
                "Accept": JSON,
                **headers,
            }
            for name, value in fields.items():
                if "\r" in value or "\n" in value:
                    raise AccessError(f"{name}: a header cannot have line breaks")
            self._cached_header_block = "".join(
                f"{name}: {value}\r\n" for name, value in fields.items()
            )
        if not accept:
            return self._cached_header_block
        return self._cached_header_block.replace(f"Accept: {JSON}\r\n", f"Accept: {accept}\r\n")

    async def watch(
        self, path: str, query: dict[str, str], accept: str = ""
    ) -> AsyncIterator[list[bytes]]:
        """Yields the lines of a watch as they arrive, all available ones at once.

        Yields an empty list first, when the server has accepted the watch. Ends when the server
        ends the stream. Raises WatchStatusError, WatchInterrupted and AccessError.
        """
        head = await self._build_header_block(accept)
        self._renew_pool()
        target = f"{self._pool.prefix}{path}?{urlencode({**query, 'watch': '1'})}"
        stream: ResponseStream | None = None
        try:
            stream = await self._pool.connect(
                asyncio.get_running_loop(), lambda: ResponseStream(WATCH_IDLE_SECONDS)
            )
            status = await stream.request(f"GET {target} HTTP/1.1\r\n{head}\r\n".encode())
            if status != 200:
                if status == UNAUTHORIZED:
                    await self.access.renew()
                body = await stream.read_all(STATUS_BYTES_MAX)
                raise WatchStatusError(Response(status, body, _retry_after_s(stream.headers)))
            yield []  # accepted
            partial_line = b""
            while chunk := await stream.read():
                *lines, partial_line = (partial_line + chunk).split(b"\n")
                if len(partial_line) > LINE_BYTES_MAX:
                    raise WatchInterrupted(f"a line has more than {LINE_BYTES_MAX} bytes")
                if lines:
                    yield [line for line in lines if line]
        except TRANSPORT_ERRORS as error:
            raise WatchInterrupted(error_text(error)) from None
        finally:
            if stream is not None:
                stream.close()

    def _renew_pool(self) -> None:
        """Opens no more connections with certificates that were replaced."""
        if self._pool.tls is not self.access.tls:
            self._pool.close()
            self._pool = ConnectionPool(
                self.access.server, self.access.tls, self.access.server_name
            )


def _retry_after_s(headers: Mapping[bytes, bytes]) -> float:
    text = headers.get(b"retry-after", b"")
    return float(text) if text.isdigit() else 0.0
