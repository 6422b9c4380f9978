"""A reflector holds the objects of one resource as the API server has them: it lists, then watches.

The list comes as the start of the watch where the server supports that (KEP-3157), and otherwise
in pages. The reflector resumes an interrupted watch, lists again when the server no longer has the
history (410), and reports every change in the server's order. It decodes objects in small batches,
so that the event loop stays responsive. It does not know what the objects are used for.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import msgspec

from stower.framework.events import WatchType
from stower.live.access import AccessError
from stower.live.client import Client, Response, WatchInterrupted, WatchStatusError
from stower.live.outages import Outages
from stower.model.errors import InvalidObject
from stower.model.raw import decode

log = logging.getLogger(__name__)

PAGE_SIZE: Final = 500
BATCH_SIZE: Final = 100  # objects decoded before other tasks run: a millisecond or two
# The statuses with which servers refuse a watch that starts with a list.
WATCH_LIST_UNSUPPORTED: Final = (400, 406, 422)
INITIAL_EVENTS_ANNOTATION: Final = "k8s.io/initial-events-end"
GONE: Final = 410
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
FATAL_STATUSES: Final = (401, FORBIDDEN, NOT_FOUND)
LIST, WATCH, ACCESS = "cannot list", "cannot watch", "no credentials for"
NOT_SERVED_RETRY_SECONDS: Final = 60.0  # between lists of a resource that is not served
# Objects with nothing but their metadata, where the server can.
METADATA: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
WATCH_TIMEOUT_SECONDS: Final = (300, 600)  # a range, so that not all watches end at once
SHORT_WATCH_SECONDS: Final = 1.0  # a watch that ends sooner, and without an event, is a failure
BACKOFF_SECONDS: Final = 0.2
BACKOFF_SECONDS_MAX: Final = 30.0

Changes = list[tuple[WatchType, Any]]


class MalformedObject(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of an object that can be read although the object does not fit its kind."""

    class Meta(msgspec.Struct, frozen=True, rename="camel"):
        """The identity of the object."""

        uid: str
        name: str = ""
        namespace: str = ""
        resource_version: str = ""

    class Spec(msgspec.Struct, frozen=True, rename="camel"):
        """The scheduler and the node of a pod."""

        scheduler_name: str = ""
        node_name: str = ""

    metadata: Meta
    spec: Spec = Spec()


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    annotations: dict[str, str] | None = None


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Versioned(msgspec.Struct):
    metadata: _Meta


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_list_decoder = msgspec.json.Decoder(_List)
_event_decoder = msgspec.json.Decoder(_Event)
_malformed_decoder = msgspec.json.Decoder(MalformedObject)
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class ObjectDecoder(Protocol):
    """Decodes the objects of a reflector, as typed views or as dictionaries."""

    def decode_object(self, data: bytes) -> Any:
        """Returns the object. Raises InvalidObject."""

    def uid(self, obj: Any) -> str:
        """Its uid."""

    def resource_version(self, obj: Any) -> str:
        """Its resourceVersion."""


class TypedDecoder:
    """Decodes objects as one typed view."""

    def __init__(self, view: type[Any]) -> None:
        self._view = view

    def decode_object(self, data: bytes) -> Any:
        """Returns the view of the object. Raises InvalidObject."""
        return decode(data, self._view)

    def uid(self, obj: Any) -> str:
        """Its uid."""
        return str(obj.metadata.uid)

    def resource_version(self, obj: Any) -> str:
        """Its resourceVersion."""
        return str(obj.metadata.resource_version)


class UnstructuredDecoder:
    """Decodes objects as dictionaries; adds apiVersion and kind, which the items of a list lack."""

    def __init__(self, api_version: str, kind: str) -> None:
        self._type = {"apiVersion": api_version, "kind": kind}

    def decode_object(self, data: bytes) -> Any:
        """Returns the whole object. Raises InvalidObject."""
        try:
            return {**self._type, **msgspec.json.decode(data)}
        except (*DECODE_ERRORS, TypeError) as error:
            raise InvalidObject("$", data[:40].decode("utf-8", "replace"), str(error)) from None

    def uid(self, obj: Any) -> str:
        """Its uid."""
        return str(obj["metadata"]["uid"])

    def resource_version(self, obj: Any) -> str:
        """Its resourceVersion."""
        return str(obj["metadata"]["resourceVersion"])


class Available(Protocol):
    """Says where an optional resource can be listed (availability.py)."""

    async def paths(self) -> Sequence[str]:
        """Returns its paths in all versions that are served, the preferred first; none if it is not
        to be listed, and thus counts as empty."""

    async def wait(self) -> None:
        """Waits until `paths` may be others."""

    async def refuse(self, path: str, answer: Response) -> bool | None:
        """The list or watch was answered so. Returns whether the resource counts as empty, False if
        it is tried again; None: the answer counts as that for any resource."""


class TriedEveryMinute:
    """Of a resource that is listed at one path until it is served there."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def paths(self) -> Sequence[str]:
        """See Available."""
        return (self._path,)

    async def wait(self) -> None:
        """See Available."""
        await asyncio.sleep(NOT_SERVED_RETRY_SECONDS)

    async def refuse(self, path: str, answer: Response) -> bool | None:
        """See Available."""
        return True if answer.status == NOT_FOUND else None


class ListError(Exception):
    """The server refuses the list for good: another try does not help."""


class Reflector:
    """Lists and watches one resource. Owns `objects`, its objects by uid."""

    def __init__(
        self,
        client: Client,
        path: str,
        decoder: ObjectDecoder,
        rng: random.Random,
        *,
        selector: str = "",
        available: Available | None = None,
        is_metadata: bool = False,
        on_list: Callable[[], None],
        on_changes: Callable[[Changes], None],
        has_room: asyncio.Event | None = None,
        on_malformed: Callable[[MalformedObject, str], None] = lambda obj, why: None,
        outages: Outages | None = None,
    ) -> None:
        """`available`: of an optional resource; None: it is served at `path`. `is_metadata`: only
        the metadata of the objects is asked for.

        `on_list` is called when `objects` is replaced as a whole, `on_changes` with the changes to
        it. While `has_room` is not set, no more changes are read. `on_malformed` is called with an
        object that cannot be decoded, and the reason. `outages`: shared with others of the client.
        """
        self._outages = outages or Outages()
        self._on_malformed = on_malformed
        self._has_room = has_room
        self.path = path
        self.objects: dict[str, Any] = {}
        self.has_synced = False
        self.relist_count = 0
        self.interruption_count = 0
        self._client = client
        self._decoder = decoder
        self._rng = rng
        self._selector = selector
        self._available = available
        self._tried: dict[str, None] = {}  # all paths that were listed
        self._list_accept = METADATA.format("List") if is_metadata else ""
        self._watch_accept = METADATA.format("") if is_metadata else ""
        self._on_list = on_list
        self._on_changes = on_changes
        self._version = ""
        self._failures = 0
        self._has_watch_list = True  # whether the server serves lists as watches
        self._is_served = False
        self._is_unpaged = False  # whether the next list is without pages, as pages took too long
        # The objects of a list that comes as a watch; None when the list is complete.
        self._initial_objects: dict[str, Any] | None = None

    async def run(self) -> None:
        """Runs until cancelled. Raises ListError if the server refuses the first list for good."""
        needs_paged_list = False
        while True:
            try:
                if not self._version and not (
                    self._has_watch_list and not needs_paged_list and self._is_path_known
                ):
                    is_listed = await self._list()
                    needs_paged_list = False
                    if self._available is not None and not is_listed:
                        await self._available.wait()
                        continue
                started_s = asyncio.get_running_loop().time()
                if not await self._watch(started_s):
                    # The server may end every watch at once: it gets no requests without a pause.
                    await self._backoff()
            except WatchInterrupted as error:
                self.interruption_count += 1
                # Over a connection that breaks, pages get further than a streamed list.
                needs_paged_list = self._initial_objects is not None
                self._outages.meet(WATCH, self.path, str(error), level=logging.INFO)
                await self._backoff()
            except WatchStatusError as error:
                if self._initial_objects is not None:
                    self._has_watch_list &= error.status not in WATCH_LIST_UNSUPPORTED
                    needs_paged_list = True  # the error of a list is more specific
                    continue
                if error.status == GONE:
                    self._version = ""
                elif self._available is not None and error.status in (FORBIDDEN, NOT_FOUND):
                    if await self._available.refuse(self.path, error.answer):
                        self._give_up()
                else:
                    self._outages.meet(WATCH, self.path, str(error), error.status)
                await self._backoff(error.retry_after_s)
            except AccessError as error:
                self._outages.meet(ACCESS, self.path, str(error))
                await self._backoff()

    @property
    def _is_path_known(self) -> bool:
        """Whether it is known that the resource is served at `path`."""
        return self._is_served or self._available is None

    async def _backoff(self, min_s: float = 0.0) -> None:
        """Sleeps for a random pause that grows with each failure.

        The pause is at least `min_s` (Retry-After), and at most BACKOFF_SECONDS_MAX.
        """
        self._failures += 1
        max_s = min(BACKOFF_SECONDS * 2 ** min(self._failures - 1, 10), BACKOFF_SECONDS_MAX)
        pause_s = self._rng.uniform(max_s / 2, max_s)
        await asyncio.sleep(min(max(pause_s, min_s), BACKOFF_SECONDS_MAX))

    async def _list(self) -> bool:
        """Replaces all objects; returns False where the resource is not to be listed, and empty."""
        while True:
            paths = [self.path] if self._available is None else await self._available.paths()
            if not paths:
                self._give_up()
                return False
            for path in paths:
                self.path = path
                self._tried[path] = None
                answer, objects, version = await self._list_pages()
                if answer.status != NOT_FOUND:
                    break
            if answer.status == 200:
                self._outages.end(self.path, LIST, ACCESS)
                self._is_served = True
                break
            is_empty = None
            if self._available is not None:
                is_empty = await self._available.refuse(self.path, answer)
            if is_empty:
                self._give_up()
                return False
            is_first = not self.has_synced and is_empty is None
            if answer.status in FATAL_STATUSES and is_first:
                raise ListError(f"{self.path}: {answer.status} {answer.message}")
            self._is_unpaged = answer.status == GONE
            self._outages.meet(LIST, self.path, answer.message, answer.status)
            await self._backoff(answer.retry_after_s)
        self._is_unpaged = False
        self._replace(objects, version)
        return True

    def _give_up(self) -> None:
        """There are no objects until the resource is available."""
        self._is_served = False
        for path in (self.path, *self._tried):
            self._outages.end(path, LIST, WATCH, ACCESS)
        self._replace({}, "")

    def _replace(self, objects: dict[str, Any], version: str) -> None:
        """Replaces all objects by those of a list at this resourceVersion."""
        is_change = not self.has_synced or bool(self.objects) or bool(version)
        self.relist_count += self.has_synced and bool(version)
        self.objects, self._version, self.has_synced = objects, version, True
        if is_change:
            self._on_list()

    @property
    def resource_version(self) -> str:
        """The resourceVersion up to which all changes are in `objects`; "" if there is none."""
        return self._version

    async def _list_pages(self) -> tuple[Response, dict[str, Any], str]:
        objects: dict[str, Any] = {}
        token = ""
        while True:
            query = {} if self._is_unpaged else {"limit": str(PAGE_SIZE)}
            if token:
                query["continue"] = token
            if self._selector:
                query["fieldSelector"] = self._selector
            answer = await self._client.request(
                "GET", f"{self.path}?{urlencode(query)}", accept=self._list_accept
            )
            if answer.status != 200:
                return answer, {}, ""
            try:
                page = _list_decoder.decode(answer.body)
            except DECODE_ERRORS as error:
                return Response(0, f"the answer is not a list: {error}".encode()), {}, ""
            for i, raw in enumerate(page.items or (), 1):
                obj = self._decode(bytes(raw))
                if obj is not None and not isinstance(obj, MalformedObject):
                    objects[self._decoder.uid(obj)] = obj
                if i % BATCH_SIZE == 0:
                    await asyncio.sleep(0)
            token = page.metadata.continue_
            if not token:
                return answer, objects, page.metadata.resource_version

    def _decode(self, data: bytes) -> Any:
        """Returns the object, its MalformedObject if it does not fit, or None if it has no uid."""
        try:
            return self._decoder.decode_object(data)
        except InvalidObject as error:
            text = "cannot decode an object of %s (%s): %s"
            try:
                malformed = _malformed_decoder.decode(data)
            except DECODE_ERRORS:
                log.warning(text, self.path, "name unknown", error)
                return None
            meta = malformed.metadata
            key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
            log.warning(text, self.path, key, error)
            self._on_malformed(malformed, str(error))
            return malformed

    async def _watch(self, started_s: float) -> bool:
        """Watches until the stream ends. Returns whether it had events or lasted long enough.

        Raises WatchInterrupted and WatchStatusError.
        """
        was_useful = False
        query = {
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(*WATCH_TIMEOUT_SECONDS)),
        }
        if self._version:
            query["resourceVersion"] = self._version
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if self._selector:
            query["fieldSelector"] = self._selector
        self._initial_objects = None if self._version else {}
        # What is accepted may be ended with an error at once.
        stands = asyncio.get_running_loop().call_later(SHORT_WATCH_SECONDS, self._end_outages)
        try:
            async for lines in self._client.watch(self.path, query, self._watch_accept):
                for start in range(0, len(lines), BATCH_SIZE):
                    if self._has_room is not None:
                        await self._has_room.wait()
                    self._handle_lines(lines[start : start + BATCH_SIZE])
                    if start + BATCH_SIZE < len(lines):
                        await asyncio.sleep(0)
                if lines:  # a watch that had events is resumed without a pause
                    self._failures, was_useful = 0, True
                    self._end_outages()
        finally:
            stands.cancel()
        if self._initial_objects is not None:
            raise WatchInterrupted("the watch ended before the initial list was complete")
        if asyncio.get_running_loop().time() >= started_s + SHORT_WATCH_SECONDS:
            self._failures, was_useful = 0, True
        return was_useful

    def _end_outages(self) -> None:
        self._outages.end(self.path, WATCH, ACCESS)

    def _handle_lines(self, lines: Sequence[bytes]) -> None:
        changes: Changes = []
        try:
            for line in lines:
                self._handle_line(line, changes)
        finally:
            if changes:
                self._on_changes(changes)

    def _handle_line(self, line: bytes, changes: Changes) -> None:
        try:
            event = _event_decoder.decode(line)
            if event.type == "ERROR":
                status = msgspec.json.decode(event.object, type=_Status)
                raise WatchStatusError(Response(status.code, status.message.encode()))
            if event.type == "BOOKMARK":
                meta = msgspec.json.decode(event.object, type=_Versioned).metadata
                if self._initial_objects is None:
                    self._version = meta.resource_version
                elif (meta.annotations or {}).get(INITIAL_EVENTS_ANNOTATION) == "true":
                    listed, self._initial_objects = self._initial_objects, None
                    self._replace(listed, meta.resource_version)
                return
            kind = WatchType(event.type)
        except (*DECODE_ERRORS, ValueError) as error:
            raise WatchInterrupted(f"cannot decode a watch event: {error}") from None
        obj = self._decode(bytes(event.object))
        if obj is None:
            return
        objects = self.objects if self._initial_objects is None else self._initial_objects
        if isinstance(obj, MalformedObject):
            if self._initial_objects is None:
                self._version = obj.metadata.resource_version or self._version
            # The last readable state of the object stays until the object is deleted.
            obj = objects.get(obj.metadata.uid)
            if kind is WatchType.DELETED and obj is not None:
                del objects[self._decoder.uid(obj)]
                if self._initial_objects is None:
                    changes.append((kind, obj))
            return
        uid = self._decoder.uid(obj)
        if kind is WatchType.DELETED:
            objects.pop(uid, None)
        else:
            objects[uid] = obj
        if self._initial_objects is None:
            self._version = self._decoder.resource_version(obj)
            changes.append((kind, obj))
