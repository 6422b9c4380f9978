"""Learns at which hours of the day users arrive, for the number of placeholders.

Kept in the pool's status, so that a restart loses nothing: a mean of the last days for each hour
(UTC), and how many came in the hour that runs. Source: the reserve that a day's profile wants,
docs/measurements.md.
"""

from math import ceil, sqrt
from typing import Final

from stower.model.kinds.warm_pool import DayProfile
from stower.model.times import SECOND_NS, time_ns, time_text

HOUR_NS: Final = 3600 * SECOND_NS
HOURS: Final = 24
DAYS: Final = 7  # so many days count for a mean
NUMBER_MAX: Final = 10**9
PARTS: Final = 100  # of an arrival, in a status


class ArrivalCounter:
    """Of one pool. Arrivals are counted once, by when the pods of users were made."""

    def __init__(self, profile: DayProfile | None) -> None:
        known = profile or DayProfile()
        self._hours, self._days = _whole(known.hours), _whole(known.days)
        until_ns = time_ns(known.until) or 0
        self._until_ns = until_ns
        self._hour = until_ns // HOUR_NS
        self._count = min(max(known.count, 0), NUMBER_MAX)
        self._at_until: set[str] = set()  # who came in the very second of `until`
        self._kept_ns = until_ns  # who came until then was counted before a restart

    @property
    def profile(self) -> DayProfile:
        """As it is kept."""
        until = time_text(self._until_ns) if self._until_ns else ""
        return DayProfile(tuple(self._hours), tuple(self._days), self._count, until)

    def count(self, uid: str, came_ns: int, now_ns: int) -> None:
        """A user came, or is seen again."""
        self.advance(now_ns)
        if not self._until_ns <= came_ns <= now_ns or uid in self._at_until:
            return
        if came_ns == self._kept_ns:
            return
        if came_ns > self._until_ns:
            self._until_ns = came_ns
            self._at_until.clear()
        self._at_until.add(uid)
        self._count += came_ns // HOUR_NS == self._hour

    def advance(self, now_ns: int) -> None:
        """Time has passed: hours that are over go into the means. Where nobody looked for longer
        than an hour, the hour that ran then is not known, nor those after it."""
        hour = now_ns // HOUR_NS
        if hour + 1 < self._hour:  # a time that is to come was kept
            self._hour, self._count, self._until_ns = hour, 0, now_ns // SECOND_NS * SECOND_NS
        if hour <= self._hour:
            return
        if hour == self._hour + 1:
            at = self._hour % HOURS
            days = self._days[at] = min(DAYS, self._days[at] + 1)
            self._hours[at] += round((self._count * PARTS - self._hours[at]) / days)
        self._hour, self._count = hour, 0
        self._until_ns = max(self._until_ns, hour * HOUR_NS)
        self._at_until.clear()

    def reserve(self, now_ns: int, seconds: int) -> int:
        """How many placeholders do for those who come within so many seconds: the mean, and as
        much more as chance may add. 0 where no day was seen."""
        if not any(self._days):
            return 0
        mean, at_ns, left_ns = 0.0, now_ns, seconds * SECOND_NS
        while left_ns > 0:
            part_ns = min(left_ns, HOUR_NS - at_ns % HOUR_NS)
            mean += self._hours[at_ns // HOUR_NS % HOURS] / PARTS * part_ns / HOUR_NS
            at_ns, left_ns = at_ns + part_ns, left_ns - part_ns
        return ceil(mean + sqrt(mean) + 0.5)


def _whole(numbers: tuple[int, ...]) -> list[int]:
    """One for each hour, whatever somebody has written there."""
    known = [min(max(number, 0), NUMBER_MAX) for number in numbers[:HOURS]]
    return known + [0] * (HOURS - len(known))


def profile_of_hours(arrivals: list[float]) -> DayProfile:
    """A profile that has seen days with so many arrivals in each hour."""
    return DayProfile(tuple(round(n * PARTS) for n in arrivals), (DAYS,) * HOURS)
