"""Entities that have provoked an internal error: how often, and until when each has to wait.

An offender waits twice as long each time, up to a limit; the wait grows with the number of
offenders that wait too, so that many of them provoke no more errors than a few. An offender that
has been quiet for the longest wait begins anew. Must not know what the entities are.
"""

from collections.abc import Hashable
from typing import Final

from stower.engine.limits import Limits

# So many offenders may be tried again within one delay.
SHARE: Final = 8
# Offenders that are remembered; the oldest is forgotten first.
OFFENDERS_MAX: Final = 16_384


class Offenders:
    """All offenders, by key. `due_ns`: until when each waits, or has waited."""

    __slots__ = ("_counts", "_limits", "due_ns")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._counts: dict[Hashable, int] = {}
        self.due_ns: dict[Hashable, int] = {}

    def blame(self, key: Hashable, now_ns: int) -> int:
        """Records an error that the entity has provoked. Returns until when it has to wait."""
        limits = self._limits
        count, last_ns = self._counts.pop(key, 0), self.due_ns.pop(key, 0)
        if now_ns - last_ns > limits.offender_wait_max_ns:
            count = 0
        if len(self._counts) >= OFFENDERS_MAX:
            self.forget(next(iter(self._counts)))
        self._counts[key] = count + 1
        delay_ns = min(limits.backoff_initial_ns << min(count, 40), limits.offender_wait_max_ns)
        waiting_count = sum(due_ns > now_ns for due_ns in self.due_ns.values())
        due_ns = self.due_ns[key] = now_ns + delay_ns * (1 + waiting_count // SHARE)
        return due_ns

    def waits(self, key: Hashable, now_ns: int) -> bool:
        """Returns whether the entity has to wait still."""
        return self.due_ns.get(key, 0) > now_ns

    def forget(self, key: Hashable) -> None:
        """Forgets an entity that does not exist any more."""
        self._counts.pop(key, None)
        self.due_ns.pop(key, None)
