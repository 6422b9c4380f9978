"""Converts HTTP requests to requests of the API, and its responses and watches to HTTP.

A response waits until every revision that it shows is durable. All watchers of one selection share
one buffer. A watcher that falls behind is served from its position in the history, and gets 410
when the history no longer has that position.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from stower.api.errors import ApiError, bad_request, internal
from stower.api.impersonation import EXTRA, PREFIX, Headers
from stower.api.request_info import Query, RequestInfo
from stower.api.requests import APPLY_PATCH, JSON, Request, Response, refusal
from stower.api.server import Api
from stower.api.users import ACCOUNT_PREFIX, UserInfo
from stower.api.watches import Feed, Watch
from stower.apiserver.audit import Audit
from stower.apiserver.authentication import Access, Authenticator
from stower.apiserver.database import Committer
from stower.apiserver.documents import UnreadableYamlError, YamlBody, read_yaml, to_yaml
from stower.apiserver.http import Connection, Message
from stower.apiserver.protobuf import MEDIA_TYPE as PROTOBUF
from stower.apiserver.protobuf import BadProtobufError, Decoder
from stower.apiserver.targets import read_target
from stower.apiserver.yaml_turns import YamlTurns

WATCH_SECONDS: Final = 3600  # where the client does not say
WATCH_SECONDS_MAX: Final = 24 * 3600
BOOKMARK_SECONDS: Final = 60.0
# A pod whose namespace has no default account yet is tried again, as upstream's admission does.
TRIES_MAX: Final = 10
RETRY_SECONDS: Final = 0.15
BEHIND_BYTES: Final = 512 * 1024  # unsent, from where a watcher is served by its position
PIECES_MAX: Final = 4  # of an answer that goes out at once; longer ones are streamed
YAML: Final = "application/yaml"
NO_CHUNKS: Final = "a watch requires HTTP/1.1, got HTTP/1.0"
YAML_BYTES_MAX: Final = 2 * 1024 * 1024  # of JSON that is written as YAML, some seconds
ASIDE_BYTES: Final = 16 * 1024  # of YAML, from where it is read and written in a thread
WARNING_MAX: Final = 256  # characters of one warning where there are too many
WARNING_COUNT_MAX: Final = 64  # Python's http.client takes 100 headers
WARNINGS_MAX: Final = 4096  # characters of all warnings of an answer
REASONS: Final = {
    400: "BadRequest", 401: "Unauthorized", 405: "MethodNotAllowed", 408: "Timeout",
    413: "RequestEntityTooLarge", 429: "TooManyRequests",
}  # fmt: skip
IMPERSONATE: Final = PREFIX.encode()
CACHE: Final = b"Cache-Control: no-cache, private\r\n"
JSON_HEADERS: Final = b"Content-Type: application/json\r\n" + CACHE

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Received:
    """What the headers of a request say. `user` is None where it is not authenticated; `acting` is
    whom the user may impersonate, once that is known."""

    info: RequestInfo
    path: str
    query: Query
    now_ns: int
    user: UserInfo | None = None
    acting: UserInfo | None = None
    impersonation: Headers = ()
    decision: str = ""
    yaml: YamlBody | None = None  # the body, where it was read already


T = TypeVar("T")


def _client_of(user: UserInfo) -> str:
    """Returns whose limits count: for a service account, those of its namespace."""
    return user.name.rpartition(":")[0] if user.name.startswith(ACCOUNT_PREFIX) else user.name


class Stream:
    """One watcher."""

    __slots__ = ("behind", "connection", "wake", "watch")

    def __init__(self, watch: Watch, connection: Connection) -> None:
        self.watch = watch
        self.connection = connection
        self.behind = True  # served by its own task, from its position
        self.wake = asyncio.Event()


def chunk(data: bytes) -> bytes:
    """A piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Handler:
    """Turns HTTP requests into the API's, and its answers into HTTP."""

    def __init__(
        self,
        api: Api,
        access: Access,
        clock: Callable[[], int] = time.time_ns,
        audit: Audit | None = None,
    ) -> None:
        self.api = api
        self.audit = audit
        self._authenticator = Authenticator(api, access)
        self.clock = clock
        self.decoder = Decoder(api.registry)
        self.committer: Committer | None = None
        self.streams: dict[Feed, list[Stream]] = {}
        self.closing = asyncio.Event()
        self._yaml = YamlTurns()
        self.requests = 0
        self.events_sent = 0
        self._tasks: set[asyncio.Task[None]] = set()

    # Requests

    def __call__(self, connection: Connection, message: Message) -> None:
        """Answer one request, now or later."""
        self.requests += 1
        if _is_long_yaml(message):
            self._start_task(connection, self._read_in_thread(connection, message))
        else:
            self._carry_out(connection, message, bytes(message.body))

    def _start_task(self, connection: Connection, work: Any) -> None:
        """An answer that takes time; where it breaks off, so does the connection."""

        def on_end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                connection.abort()
                if not isinstance(error, ConnectionError):
                    log.error(
                        "cannot send the rest of a response; the connection is closed",
                        exc_info=error,
                    )

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(on_end)

    async def _read_in_thread(self, connection: Connection, message: Message) -> None:
        try:
            found = await self._in_turn(connection, message, read_yaml, bytes(message.body))
        except ApiError as error:
            self._refuse(connection, message, error)
            return
        message.context.yaml = found
        self._carry_out(connection, message, found.json)

    async def _in_turn(
        self,
        connection: Connection,
        message: Message,
        work: Callable[[bytes], T],
        text: bytes,
    ) -> T:
        def is_wanted() -> bool:
            return not connection.transport.is_closing()

        return await self._yaml.run(message.client, is_wanted, work, text)

    async def _send_yaml(
        self, connection: Connection, message: Message, response: Response, headers: bytes
    ) -> None:
        """YAML that takes long to write, while others are served."""
        try:
            text = await self._in_turn(connection, message, _to_yaml, response.body)
        except ApiError as error:
            self._refuse(connection, message, error)
            return
        connection.reply(message, response.status, headers, text)

    def admit(self, connection: Connection, message: Message) -> None:
        """Decides by the headers alone whether a request is read. See http.Admit."""
        try:
            info, path, query = read_target(message.method, message.target)
            message.context = received = Received(info, path, query, self.clock())
            received.user = self._authenticate(connection, message, received.now_ns)
            message.client = _client_of(received.user)
            received.impersonation = _read_impersonation(message)
            if message.has_body and self.api.rbac is not None:
                # Again when it is carried out: requests before it may change roles.
                received.decision = "forbid"
                acting = self.api.acting_user(received.user, received.impersonation)
                received.acting = acting if received.impersonation else None
                self.api.authorize(acting, info)
                received.decision = ""
        except ApiError as error:
            message.fault = (error.code, error.message)
            message.error = error

    def _authenticate(self, connection: Connection, message: Message, now_ns: int) -> UserInfo:
        """Returns the user of a request. Raises ApiError 401."""
        sent = message.headers.get(b"authorization", b"")
        known, user = connection.known
        if user is not None and sent == known:
            return user  # type: ignore[no-any-return]
        user = self._authenticator.user_of(sent, connection.peer_certificate, now_ns)
        if self.api.rbac is None:  # accounts' tokens run out
            connection.known = (sent, user)
        return user

    def _carry_out(self, connection: Connection, message: Message, body: bytes) -> None:
        try:
            request = self._request(message, body)
        except ApiError as error:
            self._refuse(connection, message, error)
            return
        self._handle(connection, message, request)

    def _handle(
        self, connection: Connection, message: Message, request: Request, tries: int = 1
    ) -> None:
        committer = self.committer
        assert committer is not None
        if tries > 1 and connection.transport.is_closing():
            return
        try:
            response = self.api.handle(request)
        except Exception as error:  # a fault of ours must not take the connection with it
            log.exception("internal error in %s %s", request.method, request.path)
            response = refusal(internal(f"{type(error).__name__}: {error}"))
        finally:
            committer.on_write()
        if isinstance(response, Watch):
            if message.version == "1.0":
                self._answer(connection, message, refusal(bad_request(NO_CHUNKS)), request)
            else:
                self._record(message, 200, request)
                self._start_task(connection, self._stream(connection, message, response))
        elif response.may_end and tries < TRIES_MAX:
            again = connection, message, request, tries + 1
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._handle, *again)
        elif committer.is_durable(response.revision):
            self._answer(connection, message, response, request)
        else:
            kept = response

            def durable(failure: str) -> None:
                answer = make_write_error(failure) if failure else kept
                self._answer(connection, message, answer, request)

            committer.call_when_durable(kept.revision, durable)

    def _answer(
        self, connection: Connection, message: Message, response: Response, request: Request
    ) -> None:
        """Answers a request that the API has carried out, or tried to."""
        if self.audit is not None:
            self._record(message, response.status, request)
        self._send(connection, message, response)

    def _refuse(self, connection: Connection, message: Message, error: ApiError) -> None:
        """Answers a request that does not get as far as the API."""
        self._record(message, error.code, None)
        self._send(connection, message, refusal(error))

    def _record(self, message: Message, code: int, request: Request | None) -> None:
        """Writes the audit log's line of a request; of one whose target is none, there is none."""
        received: Received | None = message.context
        if self.audit is None or received is None:
            return
        user, acting = received.user, received.acting
        if request is not None and request.impersonator is not None:
            user, acting = request.impersonator, request.user
        try:
            self.audit.record(
                received.info,
                message.target.decode("utf-8", "replace"),
                user.to_object() if user is not None else {},
                acting.to_object() if acting is not None else None,
                message.header(b"user-agent"),
                code,
                received.now_ns,
                self.clock(),
                request.decision if request is not None else received.decision,
            )  # fmt: skip
        except OSError as error:  # it must not take the answer with it
            log.error("cannot write the audit log: %s", error.strerror)

    def _request(self, message: Message, body: bytes) -> Request:
        """Returns the request as the API takes it. Raises ApiError."""
        if message.fault is not None:
            status, text = message.fault
            error = message.error or ApiError(status, REASONS[status], text)
            if status == 429:
                error.headers["Retry-After"] = "1"
            raise error
        received: Received = message.context
        assert received.user is not None
        content_type = message.header(b"content-type")
        yaml_faults = ("", "")
        if content_type != JSON:
            media = media_type(message)
            if media == PROTOBUF:
                body, content_type = self._from_protobuf(body), JSON
            elif media in (YAML, APPLY_PATCH) and body:
                found, fault = received.yaml or YamlBody(body), ""
                if received.yaml is None:
                    try:
                        found = read_yaml(body)
                    except UnreadableYamlError as error:
                        fault = error.why
                body, yaml_faults = found.json, (fault, found.repeats)
            if media == YAML:
                content_type = JSON
        return Request(
            message.method,
            received.path,
            self.clock(),
            received.query,
            body,
            content_type,
            message.header(b"accept"),
            received.user,
            tuple(received.impersonation),
            message.header(b"user-agent"),
            message.header(b"host"),
            received.info,
            yaml_faults,
        )

    def _from_protobuf(self, body: bytes) -> bytes:
        try:
            return self.decoder.decode(body)
        except BadProtobufError as error:
            raise bad_request(f"cannot decode the body as protobuf: {error}") from None

    # Answers

    def _send(self, connection: Connection, message: Message, response: Response) -> None:
        long = len(response.parts) > PIECES_MAX
        headers = JSON_HEADERS
        yaml = response.content_type == JSON and not long and wants_yaml(message)
        if yaml or response.content_type != JSON or response.headers or response.warnings:
            headers = header_lines(response, YAML if yaml else response.content_type)
        if long:
            self._start_task(connection, _send_pieces(connection, message, response, headers))
            return
        body = response.body
        if yaml and len(body) >= ASIDE_BYTES:
            aside = self._send_yaml(connection, message, response, headers)
            self._start_task(connection, aside)
        else:
            connection.reply(message, response.status, headers, _to_yaml(body) if yaml else body)

    async def _stream(self, connection: Connection, message: Message, watch: Watch) -> None:
        """Send what a watch has to say until its time is over."""
        assert self.committer is not None
        loop = asyncio.get_running_loop()
        seconds = watch.timeout_seconds
        limit = WATCH_SECONDS if not seconds or seconds < 0 else min(seconds, WATCH_SECONDS_MAX)
        end = loop.time() + limit
        bookmark_at = loop.time() + BOOKMARK_SECONDS
        stream = Stream(watch, connection)
        connection.lost = stream.wake.set
        connection.start(message, 200, JSON_HEADERS, None)
        group = self.streams.setdefault(watch.feed, [])
        group.append(stream)
        try:
            while not self.closing.is_set():
                frames = watch.poll()
                if frames:
                    self.events_sent += len(frames)
                    connection.write(chunk(b"".join(frames)))
                    await connection.drain()
                    await asyncio.sleep(0)  # others first
                    continue
                if watch.ended:
                    break
                now = loop.time()
                if now >= end:
                    break
                if watch.bookmarks and now >= bookmark_at:
                    bookmark_at = now + BOOKMARK_SECONDS
                    position = max(watch.position, self.api.store.visible)
                    connection.write(chunk(watch.bookmark(position)))
                stream.wake.clear()
                stream.behind = False
                pause = min(end, bookmark_at if watch.bookmarks else end) - loop.time()
                try:
                    await asyncio.wait_for(stream.wake.wait(), max(0.0, pause))
                except TimeoutError:
                    pass
                finally:
                    stream.behind = True
                if connection.transport.is_closing():
                    return
            connection.write(b"0\r\n\r\n")
        finally:
            connection.lost = None
            group.remove(stream)
            if not group:
                self.streams.pop(watch.feed, None)
            connection.end(message)

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
                if watch.collection.newest <= start:
                    watch.position = visible
                    continue
                made = buffers.get(start)
                if made is None:
                    made = buffers[start] = join_events(feed, watch, visible)
                data, count = made
                transport = stream.connection.transport
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
        self._yaml.close()
        self.closing.set()
        for streams in self.streams.values():
            for stream in streams:
                stream.wake.set()


def make_write_error(failure: str) -> Response:
    """The answer to a write that could not be kept."""
    text = f"the write was rolled back: the database cannot commit it: {failure}"
    return refusal(ApiError(500, "InternalError", text, {"causes": [{"message": text}]}))


async def _send_pieces(
    connection: Connection, message: Message, response: Response, headers: bytes
) -> None:
    """A long answer, as the client takes it."""
    try:
        connection.start(message, response.status, headers, sum(map(len, response.parts)))
        for part in response.parts:
            connection.write(part)
            await connection.drain()
            await asyncio.sleep(0)  # others first: a long list must not hold up a bind
    finally:
        connection.end(message)


def _to_yaml(body: bytes) -> bytes:
    """Returns JSON as YAML; as it is, which is YAML too, if it is nested too deeply or long."""
    try:
        return to_yaml(body) if 0 < len(body) <= YAML_BYTES_MAX else body
    except RecursionError:
        return body


def join_events(feed: Feed, watch: Watch, visible: int) -> tuple[bytes, int]:
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


def _read_impersonation(message: Message) -> tuple[tuple[str, str], ...]:
    """Returns the Impersonate headers. Raises ApiError 400 for one that is not UTF-8."""
    for name in message.headers:
        if name.startswith(IMPERSONATE):
            break
    else:
        return ()
    try:
        return tuple(
            (_read_header_name(name.decode()), value.decode())
            for name, value in (*message.headers.items(), *message.repeated)
            if name.startswith(IMPERSONATE)
        )
    except UnicodeDecodeError:
        raise bad_request("an Impersonate header is not UTF-8") from None


def _read_header_name(name: str) -> str:
    """Returns the name with its extra key decoded, which may have characters of no header."""
    key = name.removeprefix(EXTRA)
    return name if key == name else EXTRA + unquote(key, errors="strict")


def header_lines(response: Response, content_type: str) -> bytes:
    """The headers of an answer."""
    lines = [f"Content-Type: {content_type}\r\n"]
    lines += [f"{name}: {value}\r\n" for name, value in response.headers.items()]
    lines += [f"Warning: {text}\r\n" for text in warning_texts(response.warnings)]
    return "".join(lines).encode() + CACHE


def media_type(message: Message) -> str:
    """What the body is, without parameters."""
    return message.header(b"content-type").partition(";")[0].strip().lower()


def _is_long_yaml(message: Message) -> bool:
    if message.size < ASIDE_BYTES or message.fault is not None:
        return False
    return media_type(message) in (YAML, APPLY_PATCH)


def wants_yaml(message: Message) -> bool:
    """Whether the client asks for YAML first."""
    accept = message.headers.get(b"accept", b"")
    return accept.partition(b",")[0].partition(b";")[0].strip() == b"application/yaml"


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


def server_context(folder: Any) -> ssl.SSLContext:
    """TLS with the server's certificate; clients may show one of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context
