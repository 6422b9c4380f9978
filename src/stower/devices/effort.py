"""How much may be done for claims in one go: selectors and searches that take long hold up nobody.

What is asked of one device is bounded (cel/values.py), and so is a search on one node; of all
devices of a cluster together it may be minutes. So much is done at once, and so much each second on
average; a little is left to each attempt even where others have used that up, so that nobody waits
for ever because of them. What was found out is kept, and the next attempt goes on from there. Time
is that of the events.
"""

from typing import Final, Self

SECOND_NS: Final = 1_000_000_000
# In units of work of CEL: some 0.4 µs each.
AT_ONCE: Final = 1_500_000
PER_SECOND: Final = 1_000_000
EACH: Final = 100_000  # of each attempt, whatever others have done: some 40 ms
# A choice of a search, in these units.
STEP: Final = 20
COMPARISON: Final = 3  # of one device, where a search looks whether it has been here before
# Choices of a search on one node, at most.
STEPS_ON_NODE_MAX: Final = 100_000


class OutOfEffort(Exception):
    """It goes on another time."""


class Effort:
    """What may be done now."""

    def __init__(self) -> None:
        self._left = AT_ONCE
        self._stop = 0
        self._at_ns = 0
        self._is_limited = False

    def at(self, now_ns: int) -> Self:
        """`with effort.at(now_ns):` what is spent inside counts."""
        gained = (now_ns - self._at_ns) * PER_SECOND // SECOND_NS
        if gained > 0:
            self._left = min(AT_ONCE, self._left + gained)
            self._at_ns = now_ns
        self._left = max(self._left, -AT_ONCE)
        self._stop = min(0, self._left - EACH)
        return self

    def __enter__(self) -> None:
        self._is_limited = True

    def __exit__(self, *_: object) -> None:
        self._is_limited = False

    def check(self) -> None:
        """Before something that may take long. Raises OutOfEffort."""
        if self._is_limited and self._left < self._stop:
            raise OutOfEffort

    def spend(self, units: int) -> None:
        """So much was done."""
        if self._is_limited:
            self._left -= units
