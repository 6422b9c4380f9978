"""An API server as a client sees it: requests with their answers, and streams of watch events.

aiohttp serves the streams alone and is imported with the first stream: the import takes 0.3 s, and
most verbs of the command line watch nothing.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from stower.live.access import Access, AccessError
from stower.live.connection import (
    CONNECT_SECONDS,
    REQUEST_SECONDS,
    ConnectionLost,
    ConnectionPool,
    RequestNotSent,
)
from stower.model.kinds import Kind

if TYPE_CHECKING:
    import aiohttp

JSON: Final = "application/json"
TRIES: Final = 5
RETRY_SECONDS: Final = 0.1
UNAUTHORIZED: Final = 401
NOT_SENT: Final = -1
# A server sends bookmarks every minute: a stream that is silent for longer is dead.
WATCH_IDLE_SECONDS: Final = 90.0
READ_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 16 << 20  # of a watch: an object has 3 MiB at most
TRANSPORT_ERRORS: Final = (OSError, asyncio.TimeoutError, ConnectionLost)


def collection_path(kind: Kind, namespace: str = "", version: str = "") -> str:
    """Where the objects of a kind are; of all namespaces where none is given, and in the kind's own
    apiVersion where none is."""
    version = version or kind.api_version
    group = "/apis/" if "/" in version else "/api/"
    within = f"/namespaces/{namespace}" if namespace else ""
    return f"{group}{version}{within}/{kind.plural}"


class Response(NamedTuple):
    """What came back; status 0: nothing did, and `body` says why."""

    status: int
    body: bytes
    retry_after_s: float = 0.0

    @property
    def message(self) -> str:
        """What the server (or the network) said of it."""
        try:
            text = msgspec.json.decode(self.body)["message"]
        except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError, RecursionError):
            text = self.body[:300].decode("utf-8", "replace")
        return " ".join(str(text).split())


def _error_text(error: BaseException) -> str:
    """What the network has against it, in words; what asyncio says of errors is for programmers."""
    number = getattr(error, "errno", None)
    text = os.strerror(number) if isinstance(number, int) and number > 0 else str(error)
    return text or type(error).__name__


class WatchInterrupted(Exception):
    """A stream ended before its time; it can be resumed."""


class WatchStatusError(Exception):
    """The server does not serve this watch; `status` says why."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.message)
        self.status = answer.status
        self.retry_after_s = answer.retry_after_s


class Client:
    """An API server as seen from here."""

    def __init__(self, access: Access, user_agent: str) -> None:
        self.access = access
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None  # of the first watch
        self._pool = ConnectionPool(access.server, access.tls, access.server_name)
        self._cached_headers: dict[str, str] | None = None
        self._cached_header_block = ""
        # Told of each request: method, status, and how many seconds it took.
        self.asked: Callable[[str, int, float], None] | None = None

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.close()
        if self._session is not None:
            await self._session.close()
        await asyncio.sleep(0)  # transports close with the loop's next turn

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = "",
        may_send: Callable[[], bool] = lambda: True,
    ) -> Response:
        """One request. Never raises for what the network or the server does. `may_send` is asked
        just before it is sent, as credentials and connections take time; status WITHHELD: it says
        no.

        What the server does not let in is asked again with what files and plugins say now. Raises
        AccessError where they say nothing.
        """
        clock = asyncio.get_running_loop().time
        began_s = clock()
        answer = await self._request_once(method, path, body, content_type, accept, may_send)
        if self.asked is not None:
            self.asked(method, answer.status, clock() - began_s)
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
        head = await self._build_header_block()
        if accept:
            head = head.replace(f"Accept: {JSON}\r\n", f"Accept: {accept}\r\n")
        if self._pool.tls is not self.access.tls:
            self._pool.close()
            self._pool = ConnectionPool(
                self.access.server, self.access.tls, self.access.server_name
            )
        sized = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n" if body else ""
        request = f"{method} {self._pool.prefix}{path} HTTP/1.1\r\n{head}{sized}\r\n".encode()
        try:
            reply = await self._pool.send(request + body if body else request, may_send)
        except RequestNotSent:
            return Response(NOT_SENT, b"")
        except TRANSPORT_ERRORS as error:
            return Response(0, _error_text(error).encode())
        after = reply.headers.get(b"retry-after", b"")
        data = reply.body[0] if len(reply.body) == 1 else b"".join(reply.body)
        return Response(reply.status, data, float(after) if after.isdigit() else 0.0)

    async def get_with_retry(self, path: str) -> Response:
        """A first look: a connection that breaks is tried again a few times."""
        clock = asyncio.get_running_loop().time
        end = clock() + REQUEST_SECONDS
        answer = await self.request("GET", path)
        for _ in range(TRIES - 1):
            if answer.status or clock() >= end:
                break
            await asyncio.sleep(RETRY_SECONDS)
            answer = await self.request("GET", path)
        return answer

    async def _build_header_block(self) -> str:
        """The header fields of every request."""
        headers = await self.access.headers()
        if headers is not self._cached_headers:
            self._cached_headers = headers
            own = {
                "Host": self._pool.host,
                "User-Agent": self._user_agent,
                "Accept": JSON,
                **headers,
            }
            for name, value in own.items():
                if "\r" in value or "\n" in value:
                    raise AccessError(f"{name}: a header cannot have line breaks")
            self._cached_header_block = "".join(
                f"{name}: {value}\r\n" for name, value in own.items()
            )
        return self._cached_header_block

    async def watch(self, path: str, query: dict[str, str]) -> AsyncIterator[list[bytes]]:
        """Lines of a watch as they come, as many at once as there are; none when it has begun.

        Ends when the server ends the stream. Raises WatchRefused and WatchCut.
        """
        import aiohttp

        headers = {**await self.access.headers(), "Accept": JSON}
        url = f"{self.access.server}{path}?{urlencode({**query, 'watch': '1'})}"
        timeout = aiohttp.ClientTimeout(
            total=None, connect=CONNECT_SECONDS, sock_read=WATCH_IDLE_SECONDS
        )
        try:
            async with self._watch_session().get(
                url,
                headers=headers,
                timeout=timeout,
                ssl=self.access.tls or True,
                server_hostname=self.access.server_name or None,
            ) as response:
                if response.status != 200:
                    if response.status == UNAUTHORIZED:
                        await self.access.renew()
                    after = response.headers.get("Retry-After", "")
                    after_s = float(after) if after.isdecimal() else 0.0
                    raise WatchStatusError(
                        Response(response.status, await response.read(), after_s)
                    )
                try:
                    yield []  # it stands
                    rest = b""
                    async for data in response.content.iter_any():
                        *lines, rest = (rest + data).split(b"\n")
                        if len(rest) > LINE_BYTES_MAX:
                            raise WatchInterrupted(f"a line has more than {LINE_BYTES_MAX} bytes")
                        if lines:
                            yield [line for line in lines if line]
                finally:
                    _abort(response)
        except (aiohttp.ClientError, *TRANSPORT_ERRORS) as error:
            raise WatchInterrupted(str(error) or type(error).__name__) from None

    def _watch_session(self) -> "aiohttp.ClientSession":
        """Returns the session of all watches, which is opened with the first one."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=True,
                headers={"User-Agent": self._user_agent},
                read_bufsize=READ_BYTES,
            )
        return self._session


def _abort(response: "aiohttp.ClientResponse") -> None:
    """Nobody reads on: no farewell is waited for, as TLS would."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
