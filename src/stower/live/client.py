"""One HTTP client of an API server: requests with their answers, and streams of watch events."""

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Final, NamedTuple
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from stower.live.access import Access

JSON: Final = "application/json"
REQUEST_SECONDS: Final = 30.0
CONNECT_SECONDS: Final = 10.0
# A server sends bookmarks every minute: a stream that is silent for longer is dead.
UNAUTHORIZED: Final = 401
SILENCE_SECONDS: Final = 90.0
READ_BYTES: Final = 1 << 20
ERRORS: Final = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class Answer(NamedTuple):
    """What came back; status 0: nothing did, and `body` says why."""

    status: int
    body: bytes
    retry_after_s: float = 0.0

    @property
    def message(self) -> str:
        """What the server (or the network) said of it."""
        try:
            text = msgspec.json.decode(self.body)["message"]
        except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
            text = self.body[:300].decode("utf-8", "replace")
        return " ".join(str(text).split())


class WatchCut(Exception):
    """A stream ended before its time; it can be resumed."""


class WatchRefused(Exception):
    """The server does not serve this watch; `status` says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.message)
        self.status = answer.status


class Client:
    """An API server as seen from here."""

    def __init__(self, access: Access, user_agent: str) -> None:
        self.access = access
        self._agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Client":
        connector = aiohttp.TCPConnector(limit=0, ssl=self.access.tls or True)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS, connect=CONNECT_SECONDS),
            auto_decompress=True,
            headers={"User-Agent": self._agent},
            read_bufsize=READ_BYTES,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(
        self, method: str, path: str, body: bytes | None = None, content_type: str = JSON
    ) -> Answer:
        """One request. Never raises for what the network or the server does."""
        assert self._session is not None
        headers = {**await self.access.headers(), "Accept": JSON}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            url = URL(self.access.server + path, encoded=True)
            async with self._session.request(method, url, data=body, headers=headers) as response:
                if response.status == UNAUTHORIZED:
                    self.access.forget_token()
                after = response.headers.get("Retry-After", "")
                data = await response.read()
                return Answer(response.status, data, float(after) if after.isdecimal() else 0.0)
        except ERRORS as error:
            return Answer(0, (str(error) or type(error).__name__).encode())

    async def watch(self, path: str, query: dict[str, str]) -> AsyncIterator[list[bytes]]:
        """Lines of a watch as they come, as many at once as there are.

        Ends when the server ends the stream. Raises WatchRefused and WatchCut.
        """
        assert self._session is not None
        headers = {**await self.access.headers(), "Accept": JSON}
        url = f"{self.access.server}{path}?{urlencode({**query, 'watch': '1'})}"
        timeout = aiohttp.ClientTimeout(
            total=None, connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
        )
        try:
            async with self._session.get(url, headers=headers, timeout=timeout) as response:
                if response.status != 200:
                    if response.status == UNAUTHORIZED:
                        self.access.forget_token()
                    raise WatchRefused(Answer(response.status, await response.read()))
                rest = b""
                async for data in response.content.iter_any():
                    *lines, rest = (rest + data).split(b"\n")
                    if lines:
                        yield [line for line in lines if line]
        except ERRORS as error:
            raise WatchCut(str(error) or type(error).__name__) from None
