"""One resource's objects as the server has them: list, then watch from there, for ever.

The list comes as the beginning of the watch where the server does that (KEP-3157), in pages where
it does not. Resumes where a stream was cut, lists again where history is forgotten (410), and tells
of each change in the server's order. Objects are read a few at a time, so that nobody waits long
for the loop.
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
from stower.model.errors import InvalidObject
from stower.model.raw import decode

log = logging.getLogger(__name__)

PAGE_SIZE: Final = 500
BATCH_SIZE: Final = 100  # objects that are read before others have their turn: a millisecond or two
# A server that does not begin watches with what there is says so in one of these ways.
WATCH_LIST_UNSUPPORTED: Final = (400, 406, 422)
INITIAL_EVENTS_ANNOTATION: Final = "k8s.io/initial-events-end"
GONE: Final = 410
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
FATAL_STATUSES: Final = (401, FORBIDDEN, NOT_FOUND)
NOT_SERVED_RETRY_SECONDS: Final = (
    60.0  # between looks for a resource that the server does not serve
)
WATCH_TIMEOUT_SECONDS: Final = (300, 600)  # between these, so that not all streams end at once
SHORT_WATCH_SECONDS: Final = 1.0  # a stream that ends sooner, and without a word, is a failure
BACKOFF_SECONDS: Final = 0.2
BACKOFF_SECONDS_MAX: Final = 30.0

Changes = list[tuple[WatchType, Any]]


class MalformedObject(msgspec.Struct, frozen=True, rename="camel"):
    """What can be told of an object that is none of its kind."""

    class Meta(msgspec.Struct, frozen=True, rename="camel"):
        """Which one it is."""

        uid: str
        name: str = ""
        namespace: str = ""
        resource_version: str = ""

    class Spec(msgspec.Struct, frozen=True, rename="camel"):
        """Of a pod: whose it is."""

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
    """How objects are held: as typed views, or as what JSON makes of them."""

    def decode_object(self, data: bytes) -> Any:
        """The object. Raises InvalidObject."""

    def uid(self, obj: Any) -> str:
        """Its uid."""

    def resource_version(self, obj: Any) -> str:
        """Its resourceVersion."""


class TypedDecoder:
    """Objects as one typed view."""

    def __init__(self, view: type[Any]) -> None:
        self._view = view

    def decode_object(self, data: bytes) -> Any:
        """The view of the object. Raises InvalidObject."""
        return decode(data, self._view)

    def uid(self, obj: Any) -> str:
        """Its uid."""
        return str(obj.metadata.uid)

    def resource_version(self, obj: Any) -> str:
        """Its resourceVersion."""
        return str(obj.metadata.resource_version)


class UnstructuredDecoder:
    """Objects as dictionaries; those of a list are told their kind, as elsewhere."""

    def __init__(self, api_version: str, kind: str) -> None:
        self._type = {"apiVersion": api_version, "kind": kind}

    def decode_object(self, data: bytes) -> Any:
        """The whole object. Raises InvalidObject."""
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


class ListError(Exception):
    """The server does not let us list; trying again will not help."""


class Reflector:
    """The objects of one resource."""

    def __init__(
        self,
        client: Client,
        path: str,
        decoder: ObjectDecoder,
        chance: random.Random,
        *,
        selector: str = "",
        optional: bool = False,
        ignore_forbidden: bool = False,
        other_paths: Sequence[str] = (),
        on_list: Callable[[], None],
        on_changes: Callable[[Changes], None],
        has_room: asyncio.Event | None = None,
        on_malformed: Callable[[MalformedObject, str], None] = lambda obj, why: None,
    ) -> None:
        """`optional`: a server that does not know the resource has none of it; `may_be_hidden`: nor
        has one that does not show it to us; `also`: where it is in other versions. `on_list` is
        told when `objects` is new as a whole, `on_changes` of changes to it; no more of these are
        read while `has_room` is not set. `on_unreadable`: an object, and why it cannot be read."""
        self._on_malformed = on_malformed
        self._has_room = has_room
        self.path = path
        self.objects: dict[str, Any] = {}
        self.has_synced = False
        self.relist_count = 0
        self.interruption_count = 0
        self._client = client
        self._decoder = decoder
        self._chance = chance
        self._selector = selector
        self._optional = optional
        self._paths = (path, *other_paths)
        self._empty_statuses = (NOT_FOUND, FORBIDDEN) if ignore_forbidden else (NOT_FOUND,)
        self._on_list = on_list
        self._on_changes = on_changes
        self._version = ""
        self._failures = 0
        self._has_watch_list = True  # whether lists come as watches
        self._is_served = False
        self._is_unpaged = False  # the next list is asked for at once: pages took too long
        self._initial_objects: dict[str, Any] | None = (
            None  # what a stream that is a list has told so far
        )

    async def run(self) -> None:
        """Until cancelled. Raises ListRefused where the server refuses the first list for good."""
        is_cut = False
        while True:
            try:
                if not self._version and not (
                    self._has_watch_list and not is_cut and self._is_path_known
                ):
                    await self._list()
                    is_cut = False
                    if not self._version:
                        await asyncio.sleep(NOT_SERVED_RETRY_SECONDS)
                        continue
                began_s = asyncio.get_running_loop().time()
                if not await self._watch(began_s):
                    await self._backoff()  # a server that ends each at once would be asked for ever
            except WatchInterrupted as error:
                self.interruption_count += 1
                is_cut = self._initial_objects is not None  # pages get further on such a line
                log.info("watch of %s was cut: %s", self.path, error)
                await self._backoff()
            except WatchStatusError as error:
                if self._initial_objects is not None:
                    self._has_watch_list &= error.status not in WATCH_LIST_UNSUPPORTED
                    is_cut = True  # a list tells more of what is wrong
                    continue
                if error.status == GONE or (error.status == NOT_FOUND and self._optional):
                    self._version = ""
                else:
                    log.warning("watch of %s: %s %s", self.path, error.status, error)
                await self._backoff(error.retry_after_s)
            except AccessError as error:
                log.warning("%s", error)
                await self._backoff()

    @property
    def _is_path_known(self) -> bool:
        """Whether it is known where the resource is."""
        return self._is_served or not self._optional

    async def _backoff(self, min_s: float = 0.0) -> None:
        """Longer each time, and never all at once; and as long as the server asks for."""
        self._failures += 1
        longest = min(BACKOFF_SECONDS * 2 ** min(self._failures - 1, 10), BACKOFF_SECONDS_MAX)
        pause_s = self._chance.uniform(longest / 2, longest)
        await asyncio.sleep(min(max(pause_s, min_s), BACKOFF_SECONDS_MAX))

    async def _list(self) -> None:
        while True:
            for path in self._paths:
                self.path = path
                answer, objects, version = await self._list_pages()
                if answer.status != NOT_FOUND:
                    break
            if answer.status == 200:
                self._is_served = True
                break
            if answer.status in self._empty_statuses and self._optional:
                if answer.status == FORBIDDEN:
                    log.warning("list of %s: %s: taken for none", self.path, answer.message)
                break  # none of it, until it is served one day
            if answer.status in FATAL_STATUSES and not self.has_synced:
                raise ListError(f"{self.path}: {answer.status} {answer.message}")
            self._is_unpaged = answer.status == GONE
            log.warning("list of %s: %s", self.path, answer.message or answer.status)
            await self._backoff(answer.retry_after_s)
        self._is_unpaged = False
        self._replace(objects, version)

    def _replace(self, objects: dict[str, Any], version: str) -> None:
        """All there is, as of this version."""
        is_news = not self.has_synced or bool(self.objects) or bool(version)
        self.relist_count += self.has_synced and bool(version)
        self.objects, self._version, self.has_synced = objects, version, True
        if is_news:
            self._on_list()

    @property
    def resource_version(self) -> str:
        """The resourceVersion up to which all is known; "" where there is none."""
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
            answer = await self._client.request("GET", f"{self.path}?{urlencode(query)}")
            if answer.status != 200:
                return answer, {}, ""
            try:
                page = _list_decoder.decode(answer.body)
            except DECODE_ERRORS as error:
                return Response(0, f"no list: {error}".encode()), {}, ""
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
        """The object, or what can be told of one that cannot be read; None: nothing at all."""
        try:
            return self._decoder.decode_object(data)
        except InvalidObject as error:
            log.warning("an object of %s cannot be read: %s", self.path, error)
            try:
                found = _malformed_decoder.decode(data)
            except DECODE_ERRORS:
                return None
            self._on_malformed(found, str(error))
            return found

    async def _watch(self, began_s: float) -> bool:
        """Until the stream ends; whether it was of any use."""
        useful = False
        query = {
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._chance.randint(*WATCH_TIMEOUT_SECONDS)),
        }
        if self._version:
            query["resourceVersion"] = self._version
        else:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if self._selector:
            query["fieldSelector"] = self._selector
        self._initial_objects = None if self._version else {}
        async for lines in self._client.watch(self.path, query):
            if lines:  # a stream that told something and was cut is asked for again at once
                self._failures, useful = 0, True
            for at in range(0, len(lines), BATCH_SIZE):
                if self._has_room is not None:
                    await self._has_room.wait()
                self._handle_lines(lines[at : at + BATCH_SIZE])
                if at + BATCH_SIZE < len(lines):
                    await asyncio.sleep(0)
        if self._initial_objects is not None:
            raise WatchInterrupted("it ended before all was told that there is")
        if asyncio.get_running_loop().time() >= began_s + SHORT_WATCH_SECONDS:
            self._failures, useful = 0, True
        return useful

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
                    begun, self._initial_objects = self._initial_objects, None
                    self._replace(begun, meta.resource_version)
                return
            kind = WatchType(event.type)
        except (*DECODE_ERRORS, ValueError) as error:
            raise WatchInterrupted(f"no watch event: {error}") from None
        obj = self._decode(bytes(event.object))
        if obj is None:
            return
        objects = self.objects if self._initial_objects is None else self._initial_objects
        if isinstance(obj, MalformedObject):
            if self._initial_objects is None:
                self._version = obj.metadata.resource_version or self._version
            # What it was before stands, until it is gone.
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
