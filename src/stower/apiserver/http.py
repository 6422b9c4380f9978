"""The API over HTTP/1.1: one handler behind aiohttp, which knows nothing of what it serves.

Answers wait until what they tell of is durable. Watch streams are written straight to the
transport, one buffer for all watchers of the same selection; one that does not keep up has its
position in the history and is served from there, or told 410 when that is forgotten.
"""

import asyncio
import hmac
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from aiohttp import HttpVersion11, web
from aiohttp.web_protocol import RequestHandler

from stower.api.errors import ApiError, bad_request, internal
from stower.api.reads import Feed, Watch
from stower.api.requests import APPLY_PATCH, JSON, Request, Response, refusal
from stower.api.server import Api
from stower.apiserver.database import Committer, WriteFailed
from stower.apiserver.documents import from_yaml, to_yaml
from stower.apiserver.protobuf import MEDIA_TYPE as PROTOBUF
from stower.apiserver.protobuf import BadProtobuf, Decoder

BODY_BYTES_MAX: Final = 3 * 1024 * 1024  # as upstream
HEADER_BYTES_MAX: Final = 16 * 1024  # of one header field, and of the request line
QUERY_FIELDS_MAX: Final = 64
HEADER_SECONDS: Final = 10.0  # from the first byte of a request to the end of its headers
BODY_SECONDS: Final = 30.0
SEND_SECONDS: Final = 60.0  # for a client to take a piece of an answer
KEEP_ALIVE_SECONDS: Final = 75.0
WATCH_SECONDS: Final = 3600  # where the client does not say
WATCH_SECONDS_MAX: Final = 24 * 3600
BOOKMARK_SECONDS: Final = 60.0
BEHIND_BYTES: Final = 512 * 1024  # unsent, from where a watcher is served by its position
PIECES_MAX: Final = 4  # of an answer that goes out at once; longer ones are streamed
YAML: Final = "application/yaml"
NO_CHUNKS: Final = "a watch needs HTTP/1.1"
ASIDE_BYTES: Final = 16 * 1024  # of YAML, from where it is read and written in a thread
WARNING_MAX: Final = 256  # characters of one warning where there are too many
WARNING_COUNT_MAX: Final = 64  # Python's http.client takes 100 headers
WARNINGS_MAX: Final = 4096  # characters of all warnings of an answer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Access:
    """Who is let in."""

    token: str
    user: str = "admin"
    groups: tuple[str, ...] = ("system:masters", "system:authenticated")


class Connection(RequestHandler):
    """A connection that is cut when a request's headers do not come."""

    header_timer: asyncio.TimerHandle | None = None
    stream: "Stream | None" = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._await_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        waiting = self._current_request is None and not self._messages
        if waiting and data and self.header_timer is None:
            self._await_headers()  # a part of the headers has come

    def connection_lost(self, exc: BaseException | None) -> None:
        self.headers_came()
        if self.stream is not None:
            self.stream.wake.set()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self.header_timer = self._loop.call_later(HEADER_SECONDS, self._cut)

    def headers_came(self) -> None:
        """The request is whole but for its body."""
        if self.header_timer is not None:
            self.header_timer.cancel()
            self.header_timer = None

    def _cut(self) -> None:
        self.header_timer = None
        if self.transport is not None:
            self.transport.abort()


class Server(web.Server):
    """aiohttp's server with our connections."""

    def __call__(self) -> Connection:
        return Connection(self, loop=self._loop, **self._kwargs)


def make_request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: Any
) -> web.BaseRequest:
    """A request whose body is limited."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(
        message, payload, protocol, writer, task, loop, client_max_size=BODY_BYTES_MAX
    )


class Stream:
    """One watcher."""

    __slots__ = ("behind", "transport", "wake", "watch")

    def __init__(self, watch: Watch, transport: asyncio.Transport) -> None:
        self.watch = watch
        self.transport = transport
        self.behind = True  # served by its own task, from its position
        self.wake = asyncio.Event()


def chunk(data: bytes) -> bytes:
    """A piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Handler:
    """Turns HTTP requests into the API's, and its answers into HTTP."""

    def __init__(self, api: Api, access: Access, clock: Callable[[], int] = time.time_ns) -> None:
        self.api = api
        self.access = access
        self.clock = clock
        self.decoder = Decoder(api.registry)
        self.committer: Committer | None = None
        self.streams: dict[Feed, list[Stream]] = {}
        self.closing = asyncio.Event()
        self.requests = 0
        self.events_sent = 0

    # Requests

    async def __call__(self, web_request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        connection = web_request.protocol
        if isinstance(connection, Connection):
            connection.headers_came()
        self.requests += 1
        try:
            request = await self._request(web_request)
        except ApiError as error:
            return await self._send(web_request, refusal(error))
        assert self.committer is not None
        try:
            response = self.api.handle(request)
        except Exception as error:  # a fault of ours must not take the connection with it
            log.exception("%s %s", request.method, request.path)
            response = refusal(internal(f"{type(error).__name__}: {error}"))
        finally:
            self.committer.wrote()
        if isinstance(response, Watch):
            if web_request.version < HttpVersion11:
                return await self._send(web_request, refusal(bad_request(NO_CHUNKS)))
            return await self._stream(web_request, response)
        try:
            await self.committer.durable(response.revision)
        except WriteFailed as error:
            text = f"the write could not be made durable and was taken back: {error}"
            response = refusal(
                ApiError(500, "InternalError", text, {"causes": [{"message": text}]})
            )
        return await self._send(web_request, response)

    async def _request(self, web_request: web.BaseRequest) -> Request:
        """The request as the API wants it. Raises ApiError."""
        headers = web_request.headers
        user, groups = self._authenticated(web_request)
        path, _, query = web_request.raw_path.partition("?")
        if "%" in path and ("%2f" in path.lower() or "%00" in path):
            raise bad_request("a name in a path must not contain a slash or a null character")
        try:
            parts = () if not query else tuple(
                parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX,
                          errors="strict")
            )  # fmt: skip
            decoded = unquote(path, errors="strict") if "%" in path else path
        except ValueError:
            raise bad_request("the path or query of the request cannot be read") from None
        if "100-continue" in headers.get("Expect", "").lower():
            await web_request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await self._body(web_request)
        content_type = headers.get("Content-Type", "")
        media = content_type.partition(";")[0].strip().lower()
        if media == PROTOBUF:
            body, content_type = self._from_protobuf(body), JSON
        elif media in (YAML, APPLY_PATCH):
            body = await _aside(body, from_yaml)
            content_type = JSON if media == YAML else content_type
        return Request(
            web_request.method,
            decoded,
            self.clock(),
            parts,
            body,
            content_type,
            headers.get("Accept", ""),
            user,
            groups,
            _text(headers.get("User-Agent", "")),
            _text(headers.get("Host", "")),
        )

    def _from_protobuf(self, body: bytes) -> bytes:
        try:
            return self.decoder.decode(body)
        except BadProtobuf as error:
            raise bad_request(f"the body cannot be read as protobuf: {error}") from None

    def _authenticated(self, web_request: web.BaseRequest) -> tuple[str, tuple[str, ...]]:
        """Name and groups of the client. Raises ApiError 401."""
        transport = web_request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if certificate:
            subject = [pair for part in certificate.get("subject", ()) for pair in part]
            names = [value for key, value in subject if key == "commonName"]
            groups = tuple(value for key, value in subject if key == "organizationName")
            if names:
                return names[0], (*groups, "system:authenticated")
        kind, _, token = web_request.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(
            token.strip().encode(errors="replace"), self.access.token.encode()
        ):
            return self.access.user, self.access.groups
        raise ApiError(401, "Unauthorized", "Unauthorized")

    async def _body(self, web_request: web.BaseRequest) -> bytes:
        if not web_request.can_read_body:
            return b""
        length = web_request.content_length
        content = web_request.content
        try:
            if length is not None and length > BODY_BYTES_MAX:
                raise web.HTTPRequestEntityTooLarge(BODY_BYTES_MAX, length)
            if length is not None and content.is_eof():
                return content.read_nowait()  # all of it has come with the headers
            return await asyncio.wait_for(web_request.read(), BODY_SECONDS)
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {BODY_BYTES_MAX}"
            raise ApiError(413, "RequestEntityTooLarge", text) from None
        except TimeoutError:
            raise ApiError(408, "Timeout", "the request's body did not come in time") from None
        except (ValueError, web.PayloadAccessError) as error:
            raise bad_request(f"the request's body cannot be read: {error}") from None

    # Answers

    async def _send(self, web_request: web.BaseRequest, response: Response) -> web.StreamResponse:
        headers = dict(response.headers)
        headers["Content-Type"] = response.content_type
        headers["Cache-Control"] = "no-cache, private"
        made: web.StreamResponse
        if len(response.parts) <= PIECES_MAX:
            body = response.body
            if wants_yaml(web_request) and response.content_type == JSON:
                headers["Content-Type"] = YAML
                body = await _aside(body, to_yaml)
            made = web.Response(status=response.status, body=body, headers=headers)
        else:
            made = web.StreamResponse(status=response.status, headers=headers)
        for text in warning_texts(response.warnings):
            made.headers.add("Warning", text)
        if (
            response.status >= 400
            and web_request.content_length
            and not web_request.content.is_eof()
        ):
            made.force_close()  # what is left of the body is not read
        if isinstance(made, web.Response):
            return made
        await made.prepare(web_request)
        for part in response.parts:
            await asyncio.wait_for(made.write(part), SEND_SECONDS)
            await asyncio.sleep(0)  # others first: a long list must not hold up a bind
        await made.write_eof()
        return made

    async def _stream(self, web_request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
        """Send what a watch has to say until its time is over."""
        made = web.StreamResponse(
            headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"}
        )
        made.enable_chunked_encoding()
        await made.prepare(web_request)
        transport = web_request.transport
        assert self.committer is not None
        if transport is None:
            return made
        loop = asyncio.get_running_loop()
        seconds = watch.timeout_seconds
        limit = WATCH_SECONDS if not seconds or seconds < 0 else min(seconds, WATCH_SECONDS_MAX)
        end = loop.time() + limit
        bookmark_at = loop.time() + BOOKMARK_SECONDS
        stream = Stream(watch, transport)
        if isinstance(web_request.protocol, Connection):
            web_request.protocol.stream = stream
        group = self.streams.setdefault(watch.feed, [])
        group.append(stream)
        try:
            while not self.closing.is_set():
                frames = watch.poll()
                if frames:
                    self.events_sent += len(frames)
                    await asyncio.wait_for(made.write(b"".join(frames)), SEND_SECONDS)
                    continue
                if watch.ended:
                    break
                now = loop.time()
                if now >= end:
                    break
                if watch.bookmarks and now >= bookmark_at:
                    bookmark_at = now + BOOKMARK_SECONDS
                    await made.write(watch.bookmark(max(watch.position, self.api.store.visible)))
                stream.wake.clear()
                stream.behind = False
                pause = min(end, bookmark_at if watch.bookmarks else end) - loop.time()
                try:
                    await asyncio.wait_for(stream.wake.wait(), max(0.0, pause))
                except TimeoutError:
                    pass
                finally:
                    stream.behind = True
                if transport.is_closing():
                    return made
            await made.write_eof()
        except TimeoutError:
            transport.abort()  # a client that does not read
        except ConnectionError:
            pass  # a client that went away
        finally:
            group.remove(stream)
            if not group:
                self.streams.pop(watch.feed, None)
        return made

    def show(self) -> None:
        """Send what has become visible to all watchers that keep up."""
        visible = self.api.store.visible
        for feed, streams in self.streams.items():
            buffers: dict[int, tuple[bytes, int]] = {}
            for stream in streams:
                if stream.behind:
                    continue
                watch = stream.watch
                start = watch.position
                made = buffers.get(start)
                if made is None:
                    made = buffers[start] = joined(feed, watch, visible)
                data, count = made
                transport = stream.transport
                gone = transport.is_closing()
                if gone or count < 0 or transport.get_write_buffer_size() > BEHIND_BYTES:
                    stream.wake.set()
                    continue
                watch.position = visible
                if data:
                    transport.write(data)
                    self.events_sent += count

    def close(self) -> None:
        """End all streams."""
        self.closing.set()
        for streams in self.streams.values():
            for stream in streams:
                stream.wake.set()


def joined(feed: Feed, watch: Watch, visible: int) -> tuple[bytes, int]:
    """What a watcher at this position is told now, as one chunk; count -1: let it poll itself."""
    events = watch.collection.events_after(watch.position)
    if events is None or feed.form.name or len(events) > 1000:
        return b"", -1
    frames = []
    for event in events:
        if event.revision > visible:
            break
        frame = feed.frame(event)
        if frame is not None:
            frames.append(frame)
    return (chunk(b"".join(frames)) if frames else b""), len(frames)


def _text(header: str) -> str:
    """A header's value without the bytes that are no text."""
    return header.encode("utf-8", "replace").decode()


def warning_texts(warnings: Iterable[str]) -> Iterator[str]:
    """Values of Warning headers: printable, and not too long together, as upstream."""
    texts = ["".join(c for c in w if c.isprintable()) for w in dict.fromkeys(warnings)]
    if sum(map(len, texts)) > WARNINGS_MAX:
        texts = [text[:WARNING_MAX] for text in texts]
    left = WARNINGS_MAX
    for text in texts[:WARNING_COUNT_MAX]:
        left -= len(text)
        if left < 0:
            return
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        yield f'299 - "{escaped}"'


async def _aside(body: bytes, turn: Callable[[bytes], bytes]) -> bytes:
    """Turn a body into another; what takes long, while others are served."""
    if len(body) < ASIDE_BYTES:
        return turn(body) if body else body
    return await asyncio.to_thread(turn, body)


def wants_yaml(web_request: web.BaseRequest) -> bool:
    """Whether the client asks for YAML first."""
    accept: str = web_request.headers.get("Accept", "")
    return accept.partition(",")[0].partition(";")[0].strip() == YAML


def server_context(folder: Any) -> ssl.SSLContext:
    """TLS with the server's certificate; clients may show one of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context
