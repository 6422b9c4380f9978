"""Limits the work for claims in one attempt and per second, so that slow selectors and searches do
not delay other pods.

The cost of a selector on one device is bounded (cel/values.py), and so is a search on one node; all
devices of a cluster together may take minutes. The budget counts units of CEL work: a fixed amount
at once, refilled at a fixed rate per second of event time. Each attempt has a small budget of its
own even where others have used up the common one, so that no pod waits for ever. Results are kept:
the next attempt continues after them.
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
