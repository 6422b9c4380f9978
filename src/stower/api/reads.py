"""Get, list and watch.

Source: apiserver pkg/endpoints/handlers, pkg/storage/cacher, Kubernetes 1.36.
"""

from collections import OrderedDict
from typing import Any, Final

import msgspec

from stower.api import conversion
from stower.api.calls import Call
from stower.api.content_negotiation import LIST, OBJECT, WATCH, Format, choose_format
from stower.api.errors import ApiError, Object, gone
from stower.api.printers import columns_of, row_of
from stower.api.registry import Resource
from stower.api.requests import (
    ListOptions,
    Response,
    encode,
    list_options,
    make_token,
    parse_revision,
    read_token,
)
from stower.api.selectors import (
    FieldRequirement,
    Selector,
    check_fields,
    matches,
    parse_fields,
    parse_labels,
)
from stower.api.store import ADDED, DELETED, MODIFIED, Event, Record

SLICE: Final = 64  # items that a list hands over at once
FRAMES_MAX: Final = 256  # frames kept for watchers of the same selection
EVENTS_MAX: Final = 64  # events that one poll of a watch takes
INITIAL_END: Final = "k8s.io/initial-events-end"

_decode = msgspec.json.decode


def head(resource: Resource) -> bytes:
    """How an object of the resource begins."""
    return b'{"kind":%b,"apiVersion":%b,' % (encode(resource.kind), encode(resource.api_version))


def whole(resource: Resource, raw: bytes) -> bytes:
    """A stored object as a client of this version sees it."""
    converter = conversion.out_of_store(resource)
    if converter is not None:
        raw = encode(converter(_decode(raw)))
    return head(resource) + raw[1:]


def bare(resource: Resource, raw: bytes) -> bytes:
    """The same without kind, as items of lists are; custom resources have it there too."""
    if resource.custom is not None:
        return head(resource) + raw[1:]
    converter = conversion.out_of_store(resource)
    return raw if converter is None else encode(converter(_decode(raw)))


def object_response(
    call: Call, raw: bytes, status: int = 200, warnings: tuple[str, ...] = ()
) -> Response:
    """A stored object in the form that the client asks for."""
    form = choose_format(call.request, OBJECT, call.resource)
    if not form.name:
        return Response(status, [whole(call.resource, raw)], warnings=warnings)
    if form.name == "Table":
        item = _decode(raw)
        version = item["metadata"].get("resourceVersion", "")
        meta = {"resourceVersion": version} if version else {}
        body = encode(table(call, [item], meta, form, headed=True))
    else:
        body = encode(partial(_decode(raw), form))
    return Response(status, [body], warnings=warnings)


def partial(item: Object, form: Format) -> Object:
    """Only the metadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": form.api_version,
        "metadata": item["metadata"],
    }


def table(call: Call, items: list[Object], meta: Object, form: Format, headed: bool) -> Object:
    """Objects as a Table; `headed`: with the definitions of its columns."""
    rows = []
    converter = conversion.out_of_store(call.resource)
    for item in items:
        row: Object = {"cells": _cells(call, item)}
        if form.include == "Metadata":
            row["object"] = partial(item, form)
        elif form.include == "Object":
            shown = converter(item) if converter is not None else item
            row["object"] = {
                "kind": call.resource.kind,
                "apiVersion": call.resource.api_version,
                **shown,
            }
        else:
            row["object"] = None
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": form.api_version,
        "metadata": meta,
        "columnDefinitions": columns_of(call.resource) if headed else None,
        "rows": rows,
    }


def _cells(call: Call, item: Object) -> list[Any]:
    """The cells of a row; an object that no rule looked at may lack what they show."""
    try:
        return row_of(call.resource, item, call.request.now_ns)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return [item["metadata"].get("name", ""), *[None] * (len(columns_of(call.resource)) - 1)]


def get(call: Call) -> Response:
    """One object."""
    form = choose_format(call.request, OBJECT, call.resource)
    wanted = parse_revision(call.request.value("resourceVersion"))
    if wanted is not None and wanted > call.api.store.revision:
        raise _too_large(call, wanted)
    record = call.record()
    if not form.name:
        return Response(200, [whole(call.resource, record.raw)])
    return object_response(call, record.raw)


class Selection:
    """Which objects of a resource a list or watch is about."""

    __slots__ = ("fields", "labels", "name", "namespace")

    def __init__(self, call: Call, options: ListOptions) -> None:
        self.namespace = call.namespace
        self.labels: Selector = parse_labels(options.labels) if options.labels else ()
        self.fields: tuple[FieldRequirement, ...] = ()
        self.name = call.name
        if options.fields:
            self.fields = parse_fields(options.fields)
            check_fields(self.fields, call.resource.key, call.resource.group)

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return bool(self.namespace or self.labels or self.fields or self.name)

    def takes(self, record: Record) -> bool:
        """Whether the object is among them."""
        key = record.key
        if self.namespace and not key.startswith(f"{self.namespace}/"):
            return False
        if self.name and key.rpartition("/")[2] != self.name:
            return False
        return self.takes_content(record)

    def takes_content(self, record: Record) -> bool:
        """Whether labels and fields are right; the namespace is not looked at."""
        if self.labels and not matches(self.labels, record.labels):
            return False
        for field, equal, value in self.fields:
            if field == "metadata.name":
                found = record.key.rpartition("/")[2]
            elif field == "metadata.namespace":
                found = record.key.rpartition("/")[0]
            else:
                found = record.fields.get(field, "")
            if (found == value) != equal:
                return False
        return True


TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


def _snapshot(call: Call, options: ListOptions) -> tuple[dict[str, Record], int, str | None]:
    """Records, their revision and the key after which to start."""
    store, collection = call.api.store, call.collection
    after: str | None = None
    revision = store.revision
    if options.token:
        wanted, after = read_token(options.token)
        if wanted >= 0:
            revision = wanted
    elif options.revision is not None and options.revision > store.revision:
        raise _too_large(call, options.revision)
    elif options.revision and (
        options.match == "Exact" or (options.limit and options.match != "NotOlderThan")
    ):
        revision = options.revision
    records = collection.at(revision)
    if records is None:
        if options.token:
            assert after is not None
            error = gone(TOO_OLD)
            body = error.status()
            body["metadata"] = {"continue": make_token(-1, after)}
            raise _WithBody(error, body)
        raise gone("The resourceVersion for the provided list is too old.")
    return records, revision, after


class _WithBody(ApiError):
    """An error whose Status says more than usual."""

    def __init__(self, error: ApiError, body: Object) -> None:
        super().__init__(error.code, error.reason, error.message)
        self._body = body

    def status(self) -> Object:
        return self._body


def _too_large(call: Call, revision: int) -> ApiError:
    text = f"Timeout: Too large resource version: {revision}, current: {call.api.store.revision}"
    return ApiError(
        504,
        "Timeout",
        text,
        {
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
        {"Retry-After": "1"},
    )


def list_objects(call: Call, options: ListOptions) -> Response:
    """A list, or a page of one."""
    form = choose_format(call.request, LIST, call.resource)
    selection = Selection(call, options)
    if options.revision == 0 and not options.token:
        options.limit = 0  # whoever takes any version gets all of it, as from a cache
    records, revision, after = _snapshot(call, options)
    chosen, left = _choose(call, selection, records, after, options.limit)
    meta: Object = {"resourceVersion": str(revision)}
    if left is not None:
        meta["continue"] = make_token(revision, chosen[-1].key)
        if not selection.labels and not selection.fields:
            meta["remainingItemCount"] = left
    if form.name == "Table":
        items = [_decode(record.raw) for record in chosen]
        return Response(200, [encode(table(call, items, meta, form, headed=True))])
    if form.name:
        items = [partial(_decode(record.raw), form) for record in chosen]
        return Response(200, [encode(_list(form.name, form.api_version, meta, items))])
    resource = call.resource
    start = b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (
        encode(f"{resource.kind}List"),
        encode(resource.api_version),
        encode(meta),
    )
    return Response(200, _parts(resource, start, chosen))


def _parts(resource: Resource, start: bytes, chosen: list[Record]) -> list[bytes]:
    plain = resource.custom is None and conversion.out_of_store(resource) is None
    parts = [start]
    for i in range(0, len(chosen), SLICE):
        some = chosen[i : i + SLICE]
        raws = [r.raw for r in some] if plain else [bare(resource, r.raw) for r in some]
        parts.append((b"," if i else b"") + b",".join(raws))
    parts.append(b"]}")
    return parts


def _list(kind: str, version: str, meta: Object, items: list[Object]) -> Object:
    return {"kind": kind, "apiVersion": version, "metadata": meta, "items": items}


def _choose(
    call: Call, selection: Selection, records: dict[str, Record], after: str | None, limit: int
) -> tuple[list[Record], int | None]:
    """The records of the page in order, and how many come after it (None: it is the last)."""
    collection = call.collection
    if records is collection.records:
        keys = collection.keys_in(selection.namespace, after)
    else:
        prefix = f"{selection.namespace}/" if selection.namespace else ""
        keys = sorted(k for k in records if k.startswith(prefix) and (after is None or k > after))
    content = bool(selection.labels or selection.fields or selection.name)
    if not content and (not limit or len(keys) <= limit):
        return [records[key] for key in keys], None
    if not content:
        return [records[key] for key in keys[:limit]], len(keys) - limit
    chosen: list[Record] = []
    for i, key in enumerate(keys):
        record = records[key]
        if selection.takes(record):
            chosen.append(record)
            if limit and len(chosen) == limit:
                # The next page may be empty: nobody has looked.
                more = not selection.name and i + 1 < len(keys)
                return chosen, 0 if more else None
    return chosen, None


# Watch


class Feed:
    """Frames for all watchers of the same selection in the same form."""

    def __init__(self, call: Call, selection: Selection, form: Format) -> None:
        self.call = call
        self.selection = selection
        self.form = form
        self._everything = not selection
        self._frames: OrderedDict[int, bytes | None] = OrderedDict()
        self._head = b'"object":' + head(call.resource)
        resource = call.resource
        self._plain = not form.name and conversion.out_of_store(resource) is None

    def frame(self, event: Event, headed: bool = False) -> bytes | None:
        """What a watcher is told of an event, or None."""
        if headed:
            return self._make(event, headed)
        frames = self._frames
        revision = event.revision
        if revision in frames:
            return frames[revision]
        made = self._make(event, False)
        frames[revision] = made
        if len(frames) > FRAMES_MAX:
            frames.popitem(last=False)
        return made

    def _make(self, event: Event, headed: bool) -> bytes | None:
        record, kind = event.record, event.type
        if not self._everything:
            was = event.previous is not None and self.selection.takes(event.previous)
            now = kind != DELETED and self.selection.takes(record)
            if not was and not now:
                return None
            if now:
                kind = MODIFIED if was else ADDED
            elif kind != DELETED:
                kind = DELETED
                assert event.previous is not None
                item = event.previous.decode()
                item["metadata"]["resourceVersion"] = str(event.revision)
                return self.encoded(DELETED, encode(item), headed)
        return self.encoded(kind, record.raw, headed)

    def encoded(self, kind: str, raw: bytes, headed: bool = False) -> bytes:
        """One line of the stream."""
        if self._plain:
            return b'{"type":"%b",%b%b}\n' % (kind.encode(), self._head, raw[1:])
        item = _decode(raw)
        if self.form.name == "Table":
            meta = {"resourceVersion": item["metadata"]["resourceVersion"]}
            shown = encode(table(self.call, [item], meta, self.form, headed))
        elif self.form.name:
            shown = encode(partial(item, self.form))
        else:
            shown = whole(self.call.resource, raw)
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), shown)


class Watch:
    """A watch: what is shown at once, then a position in the history."""

    def __init__(self, call: Call, options: ListOptions, feed: Feed) -> None:
        self.feed = feed
        self.store = call.api.store
        self.collection = call.collection
        self.timeout_seconds = options.timeout_seconds
        self.bookmarks = options.bookmarks
        self.resource = call.resource
        self.initial: list[bytes] = []
        self.ended = False
        self._headed = feed.form.name == "Table"
        self.position = self._start(call, options)

    def _start(self, call: Call, options: ListOptions) -> int:
        revision = options.revision
        current = self.store.visible
        initial = options.initial_events
        if initial and revision is not None and revision > self.store.revision:
            self._end_mark = False
            self._fail(_too_large(call, revision))
            return current
        if initial or (initial is None and not revision):
            records = self.collection.at(current)
            if records is None:  # so much waits for the disk that history was cut short of it
                self._end_mark = False
                self._expire(current)
                return current
            # One frame at a time, and only when it can be sent.
            selection = self.feed.selection
            prefix = f"{selection.namespace}/" if selection.namespace else ""
            keys = sorted(k for k in records if k.startswith(prefix))
            self.initial = [records[k].raw for k in keys if selection.takes(records[k])]
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

    expired = False
    error = b""

    def poll(self, limit: int = EVENTS_MAX) -> list[bytes]:
        """The next lines of the stream; empty when there is nothing to tell now."""
        frames: list[bytes] = []
        while self.initial and len(frames) < limit:
            frames.append(self.feed.encoded(ADDED, self.initial.pop(), self._take_head()))
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
        """A line that says how far the watcher has seen."""
        resource = self.resource
        meta: Object = {"resourceVersion": str(revision)}
        if annotations:
            meta["annotations"] = annotations
        if self.feed.form.name:
            item = partial({"metadata": meta}, self.feed.form)
        else:
            from stower.api.schema import skeleton

            bones = skeleton(resource.type) if resource.type is not None else {}
            item = {
                "kind": resource.kind,
                "apiVersion": resource.api_version,
                **bones,
                "metadata": meta,
            }
        return b'{"type":"BOOKMARK","object":%b}\n' % encode(item)


def watch(call: Call, options: ListOptions) -> Watch:
    """A watch of the call's resource."""
    form = choose_format(call.request, WATCH, call.resource)
    selection = Selection(call, options)
    signature = (
        call.resource.group, call.resource.version, call.resource.plural, selection.namespace,
        selection.labels, selection.fields, selection.name, form,
    )  # fmt: skip
    feeds = call.api.feeds
    feed = feeds.get(signature)
    # A Table shows ages, which are as of the request.
    if feed is None or form.name == "Table":
        feed = Feed(call, selection, form)
        if not form.name:
            feeds[signature] = feed
    return Watch(call, options, feed)


def get_or_list(call: Call) -> Response | Watch:
    """The GET of a resource."""
    if call.name:
        return get(call)
    options = list_options(call.request)
    if options.watch:
        return watch(call, options)
    return list_objects(call, options)
