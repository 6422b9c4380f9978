"""Produces the lines of a watch: changes of a collection from a position in its history.

Must not know requests or connections. Source: apiserver pkg/storage/cacher, Kubernetes 1.36.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from stower.api import conversion
from stower.api.content_negotiation import Format
from stower.api.errors import ApiError, Object, gone, too_large_resource_version
from stower.api.registry import Resource
from stower.api.representations import encode_object, object_head, partial_metadata, table
from stower.api.requests import ListOptions, encode
from stower.api.schema import skeleton
from stower.api.selection import Selection
from stower.api.store import ADDED, DELETED, MODIFIED, Collection, Event, Store

FRAMES_MAX: Final = 256  # frames kept for watchers of the same selection
FRAMES_BYTES_MAX: Final = 4 * 1024 * 1024  # and so many bytes, beside the newest
EVENTS_MAX: Final = 64  # events that one poll of a watch takes
INITIAL_END: Final = "k8s.io/initial-events-end"

_decode = msgspec.json.decode


class Feed:
    """The frames of all watchers of one selection in one form.

    A frame is one line of the stream. Frames without column definitions are kept and shared by the
    watchers. The cells of a Table show ages as of `now_ns`.
    """

    def __init__(self, resource: Resource, selection: Selection, form: Format, now_ns: int) -> None:
        self.selection = selection
        self.form = form
        self._resource = resource
        self._now_ns = now_ns
        self._everything = not selection
        self._frames: OrderedDict[int, bytes | None] = OrderedDict()
        self._frames_bytes = 0
        self._head = b'"object":' + object_head(resource)
        self._plain = not form.name and conversion.out_of_store(resource) is None

    def frame(self, event: Event, headed: bool = False) -> bytes | None:
        """Returns the frame of an event; None where the selection leaves the object out.

        `headed`: whether a Table includes the definitions of its columns.
        """
        if headed:
            return self._make(event, headed)
        frames = self._frames
        revision = event.revision
        if revision in frames:
            return frames[revision]
        made = self._make(event, False)
        frames[revision] = made
        self._frames_bytes += len(made or b"")
        while len(frames) > FRAMES_MAX or (
            self._frames_bytes > FRAMES_BYTES_MAX and len(frames) > 1
        ):
            _, dropped = frames.popitem(last=False)
            self._frames_bytes -= len(dropped or b"")
        return made

    def _make(self, event: Event, headed: bool) -> bytes | None:
        record, kind = event.record, event.type
        if not self._everything:
            was = event.previous is not None and self.selection.selects(event.previous)
            now = kind != DELETED and self.selection.selects(record)
            if not was and not now:
                return None
            if now:
                kind = MODIFIED if was else ADDED
            elif kind != DELETED:
                kind = DELETED
                assert event.previous is not None
                item = event.previous.decode()
                item["metadata"]["resourceVersion"] = str(event.revision)
                return self.encode(DELETED, encode(item), headed)
        return self.encode(kind, record.raw, headed)

    def encode(self, kind: str, raw: bytes, headed: bool = False) -> bytes:
        """Returns the frame of a stored object under an event type."""
        if self._plain:
            return b'{"type":"%b",%b%b}\n' % (kind.encode(), self._head, raw[1:])
        item = _decode(raw)
        if self.form.name == "Table":
            meta = {"resourceVersion": item["metadata"]["resourceVersion"]}
            made = table(self._resource, [item], meta, self.form, self._now_ns, headed)
            shown = encode(made)
        elif self.form.name:
            shown = encode(partial_metadata(item, self.form))
        else:
            shown = encode_object(self._resource, raw)
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), shown)


class Watch:
    """One watch: the objects that it sends first, then a position in the history."""

    def __init__(
        self,
        store: Store,
        collection: Collection,
        resource: Resource,
        options: ListOptions,
        feed: Feed,
    ) -> None:
        self.feed = feed
        self.store = store
        self.collection = collection
        self.timeout_seconds = options.timeout_seconds
        self.bookmarks = options.bookmarks
        self.resource = resource
        self.initial: list[bytes] = []
        self.ended = False
        self.expired = False
        self.error = b""
        self._headed = feed.form.name == "Table"
        self.position = self._start(options)

    def _start(self, options: ListOptions) -> int:
        revision = options.revision
        current = self.store.visible
        initial = options.initial_events
        if initial and revision is not None and revision > self.store.revision:
            self._end_mark = False
            self._fail(too_large_resource_version(revision, self.store.revision))
            return current
        if initial or (initial is None and not revision):
            records = self.collection.records_at(current)
            if records is None:  # writes waiting for the disk have cut the history short of it
                self._end_mark = False
                self._expire(current)
                return current
            # One frame at a time, and only when it can be sent.
            selection = self.feed.selection
            prefix = f"{selection.namespace}/" if selection.namespace else ""
            keys = sorted(k for k in records if k.startswith(prefix))
            self.initial = [records[k].raw for k in keys if selection.selects(records[k])]
            self.initial.reverse()
            self._end_mark = bool(initial) and self.bookmarks
            return current
        self._end_mark = False
        if initial is False and not revision:
            return current
        assert revision is not None
        if revision < self.collection.forgotten:
            self._expire(revision)
        return revision

    def _expire(self, revision: int) -> None:
        oldest = self.collection.forgotten
        self._fail(gone(f"too old resource version: {revision} ({oldest})"))

    def _fail(self, error: ApiError) -> None:
        self.error = b'{"type":"ERROR","object":%b}\n' % encode(error.status())
        self.expired = True

    def poll(self, limit: int = EVENTS_MAX) -> list[bytes]:
        """Returns the next lines of the stream, at most `limit` and the marks between them.

        An empty list means that there is nothing to send now.
        """
        frames: list[bytes] = []
        while self.initial and len(frames) < limit:
            frames.append(self.feed.encode(ADDED, self.initial.pop(), self._take_head()))
        if self.initial:
            return frames
        if self._end_mark:
            self._end_mark = False
            frames.append(self.bookmark(self.position, {INITIAL_END: "true"}))
        if self.expired and not self.ended:
            self.ended = True
            return [*frames, self.error]
        if self.ended or self.position >= self.store.visible:
            return frames
        events = self.collection.events_after(self.position)
        if events is None:
            self._expire(self.position)
            return self.poll(limit)
        visible = self.store.visible
        for event in events:
            if event.revision > visible:
                break
            if len(frames) >= limit:
                return frames
            self.position = event.revision
            frame = self.feed.frame(event, self._headed)
            if frame is not None:
                self._headed = False
                frames.append(frame)
        self.position = max(self.position, visible)
        return frames

    def _take_head(self) -> bool:
        headed, self._headed = self._headed, False
        return headed

    def bookmark(self, revision: int, annotations: Object | None = None) -> bytes:
        """Returns a BOOKMARK line: the client has seen every change up to the revision."""
        resource = self.resource
        meta: Object = {"resourceVersion": str(revision)}
        if annotations:
            meta["annotations"] = annotations
        if self.feed.form.name:
            item = partial_metadata({"metadata": meta}, self.feed.form)
        else:
            bones = skeleton(resource.type) if resource.type is not None else {}
            item = {
                "kind": resource.kind,
                "apiVersion": resource.api_version,
                **bones,
                "metadata": meta,
            }
        return b'{"type":"BOOKMARK","object":%b}\n' % encode(item)
