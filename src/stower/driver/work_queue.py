"""The work queue of a driver's controller: keys of objects to reconcile now, after a delay, or
after a backoff that grows with each failure.

The methods have the names of client-go's workqueue. Must not know what a key stands for.
"""

from heapq import heappop, heappush
from typing import Final

from stower.driver.objects import Key
from stower.driver.outbox import Outbox
from stower.model.times import SECOND_NS

BACKOFF_NS: Final = SECOND_NS
BACKOFF_NS_MAX: Final = 60 * SECOND_NS


class WorkQueue:
    """Keys that are due, in the order in which they were added, and timers."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._due: dict[Key, None] = {}
        self._timers: list[tuple[int, int, Key]] = []
        self._next_timer = 0  # orders timers of the same time
        self._failures: dict[Key, int] = {}
        self._backoff_until_ns: dict[Key, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no key is due. Timers do not count."""
        return not self._due

    @property
    def next_timer_ns(self) -> int | None:
        """The time of the first timer; None if there is none."""
        return self._timers[0][0] if self._timers else None

    def add(self, key: Key) -> None:
        """Queues the key for this step."""
        self._due[key] = None

    def add_after(self, key: Key, delay_ns: int) -> None:
        """Starts a timer: `pop_due_timer` returns the key once the delay has passed."""
        self._next_timer += 1
        heappush(self._timers, (self._outbox.now_ns + delay_ns, self._next_timer, key))

    def add_rate_limited(self, key: Key) -> None:
        """Delays the key's next action by a backoff, which doubles with each failure in a row."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        backoff_ns = min(BACKOFF_NS << min(failures - 1, 10), BACKOFF_NS_MAX)
        self._backoff_until_ns[key] = self._outbox.now_ns + backoff_ns
        self.add_after(key, backoff_ns)

    def forget(self, key: Key) -> None:
        """Resets the key's backoff after its work succeeded."""
        self._failures.pop(key, None)

    def is_backing_off(self, key: Key) -> bool:
        """Returns whether the key's last work failed and its backoff has not passed."""
        until_ns = self._backoff_until_ns.get(key)
        if until_ns is not None and until_ns <= self._outbox.now_ns:
            del self._backoff_until_ns[key]
        return key in self._backoff_until_ns

    def get(self) -> Key | None:
        """Removes and returns the first key that is due; None if there is none."""
        key = next(iter(self._due), None)
        if key is not None:
            del self._due[key]
        return key

    def pop_due_timer(self) -> Key | None:
        """Removes the first timer that is due and returns its key; None if there is none."""
        if self._timers and self._timers[0][0] <= self._outbox.now_ns:
            return heappop(self._timers)[2]
        return None
