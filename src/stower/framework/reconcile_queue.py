"""A reconcile queue: objects that are to be looked at, each by one at a time, in the order in which
they are due.

Key: kind and uid. What comes for an object that waits is merged into what waits; what comes while
it is being looked at is held until that has ended. Whoever fails waits longer each time.

Must not know what looking at an object means.
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
    """What has happened to an object. EPHEMERAL: it came and went before anybody looked."""

    ADDED = "Added"
    MODIFIED = "Modified"
    DELETED = "Deleted"
    EPHEMERAL = "Ephemeral"


class MergeError(InvariantError):
    """Two events of which one cannot follow the other."""


def merge_events(older: EventKind, newer: EventKind) -> EventKind:
    """Both as one. Raises CannotMerge."""
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
    """Which object."""

    kind: str
    uid: str


class Item(NamedTuple):
    """One object that is to be looked at, as it was when that was asked for last."""

    due_ns: int
    sequence: int
    key: Key
    event: EventKind
    object: Any


class Result(NamedTuple):
    """What came of it. `retry_ns`: after how long it is to be looked at again, 0 for never;
    `error`: why it has failed, "" where it has not."""

    requeue_after_ns: int = 0
    error: str = ""


class BackoffEntry(NamedTuple):
    """An object that fails: how often in a row, and how long it was made to wait last."""

    failure_count: int
    wait_ns: int


class ReconcileQueue:
    """All objects of some kinds."""

    def __init__(self) -> None:
        self._heap: list[Item] = []  # with old ones in it
        self._queued: dict[Key, Item] = {}
        self._deferred: dict[Key, Item] = {}
        self._processing: dict[Key, Item] = {}
        self._sequence = 0
        self.backoff_entries: dict[str, dict[str, BackoffEntry]] = {}  # by kind and uid

    @property
    def queued_count(self) -> int:
        """How many wait for their time."""
        return len(self._queued)

    @property
    def deferred_count(self) -> int:
        """How many wait for their object to be let go."""
        return len(self._deferred)

    @property
    def processing_count(self) -> int:
        """How many are being looked at."""
        return len(self._processing)

    @property
    def first(self) -> Item | None:
        """What is due first, be it now or later."""
        while self._heap and self._queued.get(self._heap[0].key) is not self._heap[0]:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    @property
    def next_due_ns(self) -> int | None:
        """When it is due."""
        first = self.first
        return first.due_ns if first is not None else None

    def enqueue(self, kind: str, uid: str, event: EventKind, obj: Any, now_ns: int) -> None:
        """Look at the object as soon as possible. Raises CannotMerge, with nothing changed."""
        key = Key(kind, uid)
        item = Item(now_ns, self._sequence, key, event, obj)
        if key in self._processing:
            held = self._deferred.get(key)
            self._deferred[key] = item if held is None else _merge(held, item)
        else:
            queued = self._queued.get(key)
            self._push(item if queued is None else _merge(queued, item))

    def _push(self, item: Item) -> None:
        self._sequence += 1
        item = item._replace(sequence=self._sequence)
        self._queued[item.key] = item
        heappush(self._heap, item)

    def dequeue(self, now_ns: int) -> Item | None:
        """The next object that is due: it is held by whoever asks, until `finish`."""
        item = self.first
        if item is None or item.due_ns > now_ns:
            return None
        heappop(self._heap)
        del self._queued[item.key]
        self._processing[item.key] = item
        return item

    def finish(self, item: Item, result: Result, now_ns: int) -> Result:
        """It was looked at. What becomes of it: `retry_ns` with the wait of those that fail.
        Raises CannotMerge."""
        result = self._count(item.key, result)
        del self._processing[item.key]
        held = self._deferred.pop(item.key, None)
        if result.requeue_after_ns:
            again = item._replace(due_ns=now_ns + result.requeue_after_ns)
            self._push(again if held is None else _merge(again, held))
        elif held is not None:
            self._push(held)
        return result

    def _count(self, key: Key, result: Result) -> Result:
        failing = self.backoff_entries.setdefault(key.kind, {})
        if not result.error:
            failing.pop(key.uid, None)
            return result
        before = failing.get(key.uid)
        wait_ns = BACKOFF_INITIAL_NS
        if before is not None:
            wait_ns = min(BACKOFF_MAX_NS, int(before.wait_ns * BACKOFF_FACTOR))
        if result.requeue_after_ns:
            # Whoever says when to come again is not kept waiting for much longer than that.
            wait_ns = min(result.requeue_after_ns, wait_ns)
        failing[key.uid] = BackoffEntry(
            before.failure_count + 1 if before is not None else 1, wait_ns
        )
        return result._replace(requeue_after_ns=max(result.requeue_after_ns, wait_ns))


def _merge(older: Item, newer: Item) -> Item:
    """The newer object, at the earlier of both times."""
    event = merge_events(older.event, newer.event)
    return newer._replace(due_ns=min(older.due_ns, newer.due_ns), event=event)
