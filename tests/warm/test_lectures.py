"""When lectures start, by the clocks of their time zones."""

from datetime import date

import pytest

from stower.model.kinds.warm_pool import DAYS, Lecture, Placeholders, WarmPoolSpec, pool_faults
from stower.model.selectors import LabelSelector
from stower.model.times import SECOND_NS, time_ns, time_text
from stower.warm.target import starts_ns


@pytest.mark.parametrize(
    ("clock", "day", "zone", "want"),
    [
        ("09:00", "2026-03-28", "Europe/Berlin", "2026-03-28T08:00:00Z"),
        ("09:00", "2026-03-29", "Europe/Berlin", "2026-03-29T07:00:00Z"),  # an hour less to sleep
        ("02:30", "2026-03-29", "Europe/Berlin", "2026-03-29T01:30:00Z"),  # there is no such hour
        ("02:30", "2026-10-25", "Europe/Berlin", "2026-10-25T00:30:00Z"),  # the first of two
        ("09:00", "2026-10-25", "Europe/Berlin", "2026-10-25T08:00:00Z"),
        ("08:00", "2026-07-01", "America/New_York", "2026-07-01T12:00:00Z"),
        ("23:30", "2026-07-01", "Pacific/Kiritimati", "2026-07-01T09:30:00Z"),
        ("09:00", "2026-07-01", "", "2026-07-01T09:00:00Z"),
    ],
)
def test_a_lecture_starts_by_the_clocks_of_its_time_zone(
    clock: str, day: str, zone: str, want: str
) -> None:
    at_ns = time_ns(want)
    assert at_ns is not None
    weekday = DAYS[date.fromisoformat(day).weekday()]
    lecture = Lecture(start=clock, time_zone=zone, days=(weekday,))
    for hours in (-11, 0, 11):
        starts = starts_ns(lecture, at_ns + hours * 3600 * SECOND_NS)
        assert [want] == [time_text(one) for one in starts], "of that day alone"


def test_a_time_zone_that_there_is_not_is_refused() -> None:
    lectures = (Lecture(start="09:00", time_zone="Europe/Bonn"),)
    placeholders = Placeholders(lectures=lectures)
    spec = WarmPoolSpec(users=LabelSelector({"a": "b"}), placeholders=placeholders)
    (fault,) = pool_faults(spec)
    path = "placeholders.lectures[0].timeZone"
    assert (path, "Europe/Bonn", "must be an IANA name, as Europe/Berlin") == fault
