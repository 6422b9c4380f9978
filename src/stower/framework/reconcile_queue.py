"""A reconcile queue: hands out objects to reconcile in the order in which they are due, and never
one object twice at a time.

An object's key is its kind and uid. An event for a queued object is merged into the queued item; an
event for an object that is being processed is deferred until processing ends. The wait of an object
whose reconciliation fails grows with each failure.

Must not know what reconciling an object means.
Source: seed 004; neondatabase/autoscaling pkg/plugin/reconcile.
"""

from enum import Enum
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from stower.model.errors import InvariantError
from stower.model.times import SECOND_NS

BACKOFF_INITIAL_NS: Final = SECOND_NS // 10
BACKOFF_FACTOR: Final = 2.03  # from 0.1 s to 60 s in ten failures
BACKOFF_MAX_NS: Final = 60 * SECOND_NS


class EventKind(Enum):
    """The kind of a change. EPHEMERAL: the object was added and deleted before it was processed."""

    ADDED = "Added"
    MODIFIED = "Modified"
    DELETED = "Deleted"
    EPHEMERAL = "Ephemeral"


class MergeError(InvariantError):
    """Raised for two events of which the newer cannot follow the older."""


def merge_events(older: EventKind, newer: EventKind) -> EventKind:
    """Returns one event that combines both. Raises MergeError."""
    if EventKind.EPHEMERAL not in (older, newer):
        if older is EventKind.MODIFIED:
            return newer
        if newer is EventKind.MODIFIED:
            return older
        if older is not newer:
            return EventKind.EPHEMERAL
        raise MergeError(f"cannot merge({older.value}, {newer.value})")
    raise MergeError(f"cannot merge({older.value}, {newer.value}) involving an ephemeral event")


class Key(NamedTuple):
    """Identifies an object."""

    kind: str
    uid: str


class Item(NamedTuple):
    """An object to reconcile, as of the last event for it. `sequence` orders items that are due at
    the same time."""

    due_ns: int
    sequence: int
    key: Key
    event: EventKind
    object: Any


class Result(NamedTuple):
    """The result of reconciling an object. `requeue_after_ns`: when to reconcile the object again,
    from now, 0 for never; `error`: why reconciliation failed, "" where it succeeded."""

    requeue_after_ns: int = 0
    error: str = ""


class BackoffEntry(NamedTuple):
    """The backoff of an object: its number of failures in a row, and its last wait."""

    failure_count: int
    wait_ns: int


class ReconcileQueue:
    """The queued, deferred and processed objects of some kinds, and the backoff of those that
    fail."""

    def __init__(self) -> None:
        self._heap: list[Item] = []  # with outdated items, which `first` removes
        self._queued: dict[Key, Item] = {}
        self._deferred: dict[Key, Item] = {}
        self._processing: dict[Key, Item] = {}
        self._sequence = 0
        self.backoff_entries: dict[str, dict[str, BackoffEntry]] = {}  # by kind and uid

    @property
    def queued_count(self) -> int:
        """The number of objects that wait until they are due."""
        return len(self._queued)

    @property
    def deferred_count(self) -> int:
        """The number of objects with an event that waits until their processing ends."""
        return len(self._deferred)

    @property
    def processing_count(self) -> int:
        """The number of objects that are being processed."""
        return len(self._processing)

    @property
    def first(self) -> Item | None:
        """The item that is due first, now or later; None where the queue is empty."""
        while self._heap and self._queued.get(self._heap[0].key) is not self._heap[0]:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    @property
    def next_due_ns(self) -> int | None:
        """The time at which the first item is due; None if the queue is empty."""
        first = self.first
        return first.due_ns if first is not None else None

    def enqueue(self, kind: str, uid: str, event: EventKind, obj: Any, now_ns: int) -> None:
        """Queues the object to be reconciled as soon as possible. Raises MergeError, with nothing
        changed."""
        key = Key(kind, uid)
        item = Item(now_ns, self._sequence, key, event, obj)
        if key in self._processing:
            deferred = self._deferred.get(key)
            self._deferred[key] = item if deferred is None else _merge(deferred, item)
        else:
            queued = self._queued.get(key)
            self._push(item if queued is None else _merge(queued, item))

    def _push(self, item: Item) -> None:
        self._sequence += 1
        item = item._replace(sequence=self._sequence)
        self._queued[item.key] = item
        heappush(self._heap, item)

    def dequeue(self, now_ns: int) -> Item | None:
        """Returns the next object that is due, None where none is. The object counts as being
        processed until `finish`."""
        item = self.first
        if item is None or item.due_ns > now_ns:
            return None
        heappop(self._heap)
        del self._queued[item.key]
        self._processing[item.key] = item
        return item

    def finish(self, item: Item, result: Result, now_ns: int) -> Result:
        """Ends the processing of an object, and queues it again where the result or a deferred
        event asks for that. Returns the result with the backoff of a failed object applied to
        `requeue_after_ns`. Raises MergeError."""
        result = self._apply_backoff(item.key, result)
        del self._processing[item.key]
        deferred = self._deferred.pop(item.key, None)
        if result.requeue_after_ns:
            requeued = item._replace(due_ns=now_ns + result.requeue_after_ns)
            self._push(requeued if deferred is None else _merge(requeued, deferred))
        elif deferred is not None:
            self._push(deferred)
        return result

    def _apply_backoff(self, key: Key, result: Result) -> Result:
        entries = self.backoff_entries.setdefault(key.kind, {})
        if not result.error:
            entries.pop(key.uid, None)
            return result
        last = entries.get(key.uid)
        wait_ns = BACKOFF_INITIAL_NS
        if last is not None:
            wait_ns = min(BACKOFF_MAX_NS, int(last.wait_ns * BACKOFF_FACTOR))
        if result.requeue_after_ns:
            # Where the result names a wait, the backoff must not grow beyond it.
            wait_ns = min(result.requeue_after_ns, wait_ns)
        entries[key.uid] = BackoffEntry(last.failure_count + 1 if last is not None else 1, wait_ns)
        return result._replace(requeue_after_ns=max(result.requeue_after_ns, wait_ns))


def _merge(older: Item, newer: Item) -> Item:
    """Returns the newer object with both events merged, due at the earlier of both times."""
    event = merge_events(older.event, newer.event)
    return newer._replace(due_ns=min(older.due_ns, newer.due_ns), event=event)
