"""Stores objects in memory under one counter of revisions, with the history for resuming watches.

Records are immutable: the bytes of an object without kind and apiVersion (versions of one kind
share them), and the values that selectors read. Writers pass whole objects. Durable storage takes
the writes from `Store.pending` and reports the durable revision with `publish`; no later
revision is shown.

Must not know kinds, requests or disks.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

Object = dict[str, Any]
Key = str  # "namespace/name", or "name" where the resource is the cluster's: etcd's order
Reader = Callable[[Object], dict[str, str]]

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"

WINDOW_BYTES: Final = 256 * 1024 * 1024  # of history, over all collections; arbitrary
OBJECT_BYTES_MAX: Final = 1_572_864  # etcd's limit of a request
# Arbitrary: nearly all objects are smaller, and a few thousand of this size do no harm.
LARGE_BYTES: Final = 8 * 1024
LARGE_OBJECTS_BYTES: Final = 16 * 1024 * 1024  # beyond LARGE_BYTES each, of one namespace
UPDATES_FACTOR: Final = 1.25  # what is there may still be worked with
# Bytes that a write may add beyond limits: a condition, so that pods come to their end and may be
# evicted; what the server adds by itself, so that what is there can be bound and deleted.
STATUS_ALLOWANCE: Final = 4 * 1024
STATUSES_BYTES: Final = 8 * 1024 * 1024  # what all statuses of a full namespace may grow by
SERVER_ALLOWANCE: Final = 64 * 1024
# What upstream compacts etcd by: lists as of a revision are good for one to two of them.
COMPACTION_NS: Final = 5 * 60 * 10**9
_EVENT_BYTES: Final = 400  # beside the record's own bytes, roughly
_LABEL_BYTES: Final = 250  # of a label, decoded

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class TooLargeError(Exception):
    """The object has more bytes than a store keeps."""


class NamespaceFullError(Exception):
    """The namespace has as many bytes of large objects as a store keeps of one."""

    def __init__(self, namespace: str, size: int, limit: int) -> None:
        super().__init__(
            f"namespace {namespace!r} would have {size >> 10} KiB in objects of more than "
            f"{LARGE_BYTES >> 10} KiB each, beyond that size: limit is {limit >> 10} KiB; delete "
            "some, or start the server with a higher --large-objects-max"
        )


class Record:
    """One version of one object."""

    __slots__ = ("fields", "key", "labels", "raw", "revision", "uid")

    def __init__(
        self, key: Key, uid: str, revision: int, raw: bytes, labels: Object, fields: Object
    ) -> None:
        self.key = key
        self.uid = uid
        self.revision = revision
        self.raw = raw
        self.labels = labels
        self.fields = fields

    def decode(self) -> Object:
        """The object, without kind and apiVersion, for the caller to change."""
        return _decode(self.raw)  # type: ignore[no-any-return]


class Event:
    """One change of one object."""

    __slots__ = ("previous", "record", "revision", "type")

    def __init__(self, kind: str, revision: int, record: Record, previous: Record | None) -> None:
        self.type = kind
        self.revision = revision
        self.record = record  # as it is now, or as it was when it went
        self.previous = previous


# In the place of a forgotten event until the log is cut, so that its objects go at once.
_FORGOTTEN: Final = Event("", 0, Record("", "", 0, b"", {}, {}), None)


def _revision(event: Event) -> int:
    return event.revision


class Collection:
    """All objects of one resource."""

    def __init__(
        self, name: tuple[str, str], reader: Reader | None, large_bytes: dict[str, int]
    ) -> None:
        self.name = name
        self._large_bytes = large_bytes  # of the store
        self._reader = reader  # of the fields that can be selected by
        self.records: dict[Key, Record] = {}
        self.keys: list[Key] = []
        self.log: list[Event] = []
        self.start = 0  # events before this place are forgotten
        self.forgotten = 0  # the newest revision that is forgotten
        self.changes = 0  # of the records, also those that were undone

    def record(self, key: Key, item: Object, revision: int) -> Record:
        """A record of the object, whose resourceVersion is set."""
        metadata = item["metadata"]
        metadata["resourceVersion"] = str(revision)
        fields = self._reader(item) if self._reader is not None else {}
        labels = metadata.get("labels") or {}
        return Record(key, metadata["uid"], revision, _encode(item), labels, fields)

    @property
    def newest(self) -> int:
        """The revision of the last change; 0 where there was none."""
        return max(self.forgotten, self.log[-1].revision if self.log else 0)

    def events_after(self, revision: int) -> list[Event] | None:
        """What happened after a revision, or None where that is forgotten."""
        if revision < self.forgotten:
            return None
        return self.log[bisect_right(self.log, revision, lo=self.start, key=_revision) :]

    def keys_in(self, namespace: str, after: Key | None = None) -> list[Key]:
        """Keys in order, of a namespace or (empty) of all, from the one after `after`."""
        low = bisect_right(self.keys, after) if after is not None else 0
        if not namespace:
            return self.keys[low:] if low else self.keys
        low = max(low, bisect_left(self.keys, f"{namespace}/"))
        return self.keys[low : bisect_left(self.keys, f"{namespace}0")]  # "0" comes after "/"

    def records_at(self, revision: int) -> dict[Key, Record] | None:
        """The records as they were at a revision, or None where that is forgotten."""
        events = self.events_after(revision)
        if events is None:
            return None
        if not events:
            return self.records
        records = dict(self.records)
        for event in reversed(events):
            if event.previous is None:
                records.pop(event.record.key, None)
            else:
                records[event.record.key] = event.previous
        return records

    def _set(self, record: Record) -> None:
        self.changes += 1
        previous = self.records.get(record.key)
        if previous is None:
            insort(self.keys, record.key)
        if len(record.raw) > LARGE_BYTES or (
            previous is not None and len(previous.raw) > LARGE_BYTES
        ):
            self._count_large(record.key, excess(record) - excess(previous))
        self.records[record.key] = record

    def _drop(self, key: Key) -> None:
        self.changes += 1
        self._count_large(key, -excess(self.records.pop(key)))
        del self.keys[bisect_left(self.keys, key)]

    def _count_large(self, key: Key, grown: int) -> None:
        if not grown:
            return
        namespace = namespace_of(key)
        size = self._large_bytes.get(namespace, 0) + grown
        if size:
            self._large_bytes[namespace] = size
        else:
            del self._large_bytes[namespace]


def namespace_of(key: Key) -> str:
    """Returns the namespace, or nothing for objects of the cluster."""
    return key.partition("/")[0] if "/" in key else ""


def excess(record: Record | None) -> int:
    """Returns how many bytes the object has beyond LARGE_BYTES; none where there is no object."""
    return max(0, len(record.raw) - LARGE_BYTES) if record is not None else 0


class Store:
    """All collections."""

    def __init__(self, reader_of: Callable[[tuple[str, str]], Reader | None]) -> None:
        self.revision = 1
        self.collections: dict[tuple[str, str], Collection] = {}
        self._reader_of = reader_of
        self.large_bytes: dict[str, int] = {}  # namespace -> `excess` of its objects
        self.large_bytes_max = LARGE_OBJECTS_BYTES  # of one namespace
        self._order: deque[tuple[Collection, int]] = deque()
        self._window_bytes = 0
        self.window_bytes_max = WINDOW_BYTES
        self.durable = False  # writes wait in `pending` until `publish` is told
        self.pending: list[tuple[Collection, Event]] = []
        self.visible = 1  # nothing after this revision may be shown
        self.forgotten = 0
        self.compacted = 0  # no list is as of an earlier revision; watches may go back further
        self._marked = 0  # the revision at the last compaction
        self._marked_ns: int | None = None

    def compact(self, now_ns: int) -> None:
        """Forgets, every COMPACTION_NS, what lists were before the compaction before.

        Called with the time of each request, before it is carried out: nothing is written between
        requests. Source: apiserver pkg/storage/etcd3/compact.go.
        """
        if self._marked_ns is None:
            self._marked, self._marked_ns = self.visible, now_ns
            return
        turns = (now_ns - self._marked_ns) // COMPACTION_NS
        if turns > 0:
            self.compacted = self._marked if turns == 1 else self.visible
            self._marked = self.visible
            self._marked_ns += turns * COMPACTION_NS

    def collection(self, name: tuple[str, str]) -> Collection:
        """The collection of a resource, made when first asked for."""
        found = self.collections.get(name)
        if found is None:
            found = Collection(name, self._reader_of(name), self.large_bytes)
            found.forgotten = self.forgotten
            self.collections[name] = found
        return found

    def load(self, collection: Collection, key: Key, raw: bytes, revision: int) -> None:
        """Take over an object that was kept; no event."""
        item = _decode(raw)
        record = collection.record(key, item, revision)
        collection._set(record)

    def finish_load(self, revision: int) -> None:
        """All objects are taken over; history before this is forgotten."""
        self.revision = self.visible = revision
        self.forget()

    def put(
        self, collection: Collection, key: Key, item: Object, allowance: int = SERVER_ALLOWANCE
    ) -> Record:
        """Keeps a new or changed object under the next revision.

        `allowance`: by how many bytes the object may grow beyond any limit. Raises TooLargeError
        and NamespaceFullError.
        """
        record = collection.record(key, item, self.revision + 1)
        if len(record.raw) > LARGE_BYTES:
            self.check_size(collection, key, len(record.raw), allowance)
        previous = collection.records.get(key)
        self.revision += 1
        kind = MODIFIED if previous is not None else ADDED
        collection._set(record)
        self._log(collection, Event(kind, self.revision, record, previous))
        return record

    def check_size(self, collection: Collection, key: Key, size: int, allowance: int) -> None:
        """Raises TooLargeError and NamespaceFullError where `put` would not keep an object of so
        many bytes."""
        if size > OBJECT_BYTES_MAX + allowance:
            raise TooLargeError
        previous = collection.records.get(key)
        namespace = namespace_of(key)
        grown = max(0, size - LARGE_BYTES) - excess(previous)
        total = self.large_bytes.get(namespace, 0) + grown
        limit = self.large_bytes_max * (UPDATES_FACTOR if previous is not None else 1)
        if grown <= allowance < SERVER_ALLOWANCE:
            limit += STATUSES_BYTES
        elif grown <= allowance:
            return
        if namespace and grown > 0 and total > limit:
            raise NamespaceFullError(namespace, total, round(limit))

    def remove(self, collection: Collection, key: Key, item: Object) -> Record:
        """Remove an object; `item` is its last state."""
        record = collection.record(key, item, self.revision + 1)
        self.revision += 1
        previous = collection.records[key]
        collection._drop(key)
        self._log(collection, Event(DELETED, self.revision, record, previous))
        return record

    def _log(self, collection: Collection, event: Event) -> None:
        collection.log.append(event)
        record = event.record
        size = len(record.raw) + _EVENT_BYTES + _LABEL_BYTES * len(record.labels)
        self._order.append((collection, size))
        self._window_bytes += size
        if self.durable:
            self.pending.append((collection, event))
        else:
            self.visible = event.revision
        while self._window_bytes > self.window_bytes_max and len(self._order) > 1:
            collection, size = self._order[0]
            if collection.log[collection.start].revision > self.visible:
                break  # `undo` may need it
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        collection, size = self._order.popleft()
        self._window_bytes -= size
        collection.forgotten = collection.log[collection.start].revision
        collection.log[collection.start] = _FORGOTTEN
        collection.start += 1
        if collection.start > 1024 and collection.start * 2 > len(collection.log):
            del collection.log[: collection.start]
            collection.start = 0

    def forget(self) -> None:
        """Forget all history: whoever asks for older revisions is answered 410."""
        self._order.clear()
        self._window_bytes = 0
        self.forgotten = self.revision
        for collection in self.collections.values():
            collection.log.clear()
            collection.start = 0
            collection.forgotten = self.revision

    def take_pending(self, limit: int) -> list[tuple[Collection, Event]]:
        """The oldest writes that are not durable yet, for one commit."""
        taken = self.pending[:limit]
        del self.pending[:limit]
        return taken

    def publish(self, revision: int) -> None:
        """Everything up to the revision is durable, and may be shown."""
        self.visible = revision

    def undo(self, lost: list[tuple[Collection, Event]]) -> None:
        """Take back writes that could not be made durable, and all that came after them."""
        for collection, event in reversed([*lost, *self.pending]):
            collection.log.pop()
            _, size = self._order.pop()
            self._window_bytes -= size
            if event.previous is None:
                collection._drop(event.record.key)
            else:
                collection._set(event.previous)
        self.pending.clear()
        # Nobody was told of these numbers: what is not durable is not answered with.
        self.revision = self.visible

    def all_records(self) -> Iterator[tuple[Collection, Record]]:
        """Every object there is."""
        for collection in self.collections.values():
            for record in collection.records.values():
                yield collection, record
