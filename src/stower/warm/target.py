"""Computes the wanted number of placeholders: fixed, by users, arrivals, lectures and surges.

Computed from the existing pods and their creation times. Source: seed 001; the numbers behind the
rules are in docs/measurements.md.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, time, timedelta
from math import ceil
from typing import Final

import msgspec

from stower.model.kinds import Pod
from stower.model.kinds.warm_pool import DAYS, Lecture, Placeholders, starts_at, zone_of
from stower.model.selectors import LabelSelector
from stower.model.times import SECOND_NS, parse_time

HOUR_NS: Final = 3600 * SECOND_NS
# Users who come a little before a lecture come for it.
EARLY_NS: Final = 60 * SECOND_NS
SURGE_BASE_SECONDS: Final = 10
HOLD_NS: Final = 60 * SECOND_NS


def count_wanted(
    placeholders: Placeholders,
    users: Mapping[str, Pod],
    came_ns: Mapping[str, int],
    now_ns: int,
    profiled: int = 0,
) -> int:
    """The number, at most `replicas_max`. `users` and when they came, by uid; `profiled`: how many
    the profile of other days wants."""
    base = max(
        placeholders.replicas,
        profiled,
        ceil(len(users) * placeholders.percent_of_users / 100),
        _count_arriving(placeholders, came_ns, now_ns),
    )  # fmt: skip
    announced = _count_announced(placeholders.lectures or (), users, came_ns, now_ns)
    surge = placeholders.replicas + _surge(placeholders, came_ns.values(), now_ns)
    return min(placeholders.replicas_max, max(base + announced, surge))


def _count_arriving(placeholders: Placeholders, came_ns: Mapping[str, int], now_ns: int) -> int:
    """Who comes while a node gets ready, at the rate of the last hour."""
    if not placeholders.readiness_seconds:
        return 0
    came = _count_since(came_ns.values(), now_ns - HOUR_NS, now_ns)
    return ceil(came * placeholders.readiness_seconds / 3600)


def _count_since(came_ns: Iterable[int], since_ns: int, now_ns: int) -> int:
    return sum(since_ns <= one <= now_ns for one in came_ns)


def _surge(placeholders: Placeholders, came_ns: Iterable[int], now_ns: int) -> int:
    surge = placeholders.surge
    if not (surge.hold_seconds and surge.window_seconds):
        return 0
    window_ns = surge.window_seconds * SECOND_NS
    came = most = 0
    # The most of any window that ended a while ago at most: who comes in fits and starts does not
    # have placeholders made and deleted all the time.
    arrivals = sorted(one for one in came_ns if now_ns - window_ns - HOLD_NS < one <= now_ns)
    first = 0
    for at_ns in arrivals:
        came += 1
        while arrivals[first] <= at_ns - window_ns:
            first, came = first + 1, came - 1
        most = max(most, came)
    if most * SURGE_BASE_SECONDS < surge.arrivals_least * surge.window_seconds:
        return 0
    return ceil(surge.hold_seconds * most / surge.window_seconds)


def _count_announced(
    lectures: Iterable[Lecture], users: Mapping[str, Pod], came_ns: Mapping[str, int], now_ns: int
) -> int:
    """Of lectures that are about to start, or have started: who is still to come. Lectures whose
    users nothing tells apart are looked at together: nobody who has come counts for two."""
    # By selector: whose they are, how many, and since when.
    expected: dict[bytes, tuple[LabelSelector | None, int, int]] = {}
    for lecture in lectures:
        for start_ns in starts_ns(lecture, now_ns):
            first_ns = start_ns - lecture.lead_seconds * SECOND_NS
            if first_ns <= now_ns <= start_ns + lecture.tail_seconds * SECOND_NS:
                theirs = lecture.selector
                key = msgspec.json.encode(theirs, order="deterministic")
                _, count, since_ns = expected.get(key, (theirs, 0, start_ns))
                count += ceil(lecture.enrolment * lecture.percent / 100)
                expected[key] = theirs, count, min(since_ns, start_ns)
                break
    missing = 0
    for theirs, count, since_ns in expected.values():
        seen = sum(
            since_ns - EARLY_NS <= came_ns[uid] <= now_ns
            and (theirs is None or theirs.matches(pod.metadata.labels or {}))
            for uid, pod in users.items()
        )
        missing += max(0, count - seen)
    return missing


def starts_ns(lecture: Lecture, now_ns: int) -> list[int]:
    """When it starts: once, or about now, day by day, by the clocks of its time zone: at the same
    hour before and after they are changed, and at the next one that there is where they leave it
    out."""
    once = parse_time(lecture.start)
    if once is not None:
        return [_ns(once)]
    minutes, zone = starts_at(lecture.start), zone_of(lecture.time_zone)
    if minutes is None or zone is None:
        return []
    today = datetime.fromtimestamp(now_ns // SECOND_NS, zone).date()
    clock = time(minutes // 60, minutes % 60, tzinfo=zone)
    days = [datetime.combine(today + timedelta(days=d), clock) for d in (-1, 0, 1)]
    return [_ns(d) for d in days if not lecture.days or DAYS[d.weekday()] in lecture.days]


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * SECOND_NS
