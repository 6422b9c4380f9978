"""Parses cron schedules and computes the next time that a schedule is due, in UTC.

A schedule has five fields, or is a name such as @daily, or @every with a duration.
Source: github.com/robfig/cron ParseStandard, as Kubernetes 1.36 uses it.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from stower.model.times import SECOND_NS

EVERY: Final = re.compile(r"@every\s+(\S+)")
SECONDS_MAX: Final = 10 * 365 * 86400
NAMED: Final = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
BOUNDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec"
DAYS: Final = "sun mon tue wed thu fri sat"
WORDS: Final[tuple[dict[str, int], ...]] = (
    {},
    {},
    {},
    {month: number for number, month in enumerate(MONTHS.split(), 1)},
    {day: number for number, day in enumerate(DAYS.split())},
)
DAYS_AHEAD: Final = 366 * 5


class Schedule:
    """When a cron line is due."""

    def __init__(self, line: str) -> None:
        """Raises ValueError."""
        every = EVERY.fullmatch(line.strip())
        self._every_ns = 0 if every is None else _duration_ns(every[1])
        fields = NAMED.get(line.strip().lower(), "* * * * *" if every else line).split()
        if len(fields) != len(BOUNDS):
            shown = " ".join(fields)
            raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{shown}]")
        parts = [_field(*each) for each in zip(fields, BOUNDS, WORDS)]
        self.minutes, self.hours, self.days, self.months, self.weekdays = parts
        self._any_day = fields[2] in ("*", "?"), fields[4] in ("*", "?")

    def next_ns(self, after_ns: int) -> int | None:
        """The first moment after that one, None where there is none within five years."""
        if self._every_ns:
            return after_ns // SECOND_NS * SECOND_NS + self._every_ns
        start = datetime.fromtimestamp(after_ns // SECOND_NS // 60 * 60, UTC) + timedelta(minutes=1)
        day = start.replace(hour=0, minute=0)
        for _ in range(DAYS_AHEAD):
            if self._is_on(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        moment = day.replace(hour=hour, minute=minute)
                        if moment >= start:
                            return int(moment.timestamp()) * SECOND_NS
            day += timedelta(days=1)
        return None

    def _is_on(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, (day.weekday() + 1) % 7 in self.weekdays
        # Where both are given, either will do.
        return in_month and in_week if any(self._any_day) else in_month or in_week


def _duration_ns(text: str) -> int:
    """A duration as Go writes it, in whole seconds and at least one."""
    if not re.fullmatch(r"(\d+[hms])+", text):
        raise ValueError(f"failed to parse duration @every {text}")
    units = {"h": 3600, "m": 60, "s": 1}
    seconds = sum(int(n) * units[u] for n, u in re.findall(r"(\d+)([hms])", text))
    return max(1, min(seconds, SECONDS_MAX)) * SECOND_NS


def _field(text: str, bounds: tuple[int, int], words: dict[str, int]) -> frozenset[int]:
    low, high = bounds
    found: set[int] = set()

    def number(word: str) -> int:
        value = words.get(word.lower())
        if value is None:
            value = int(word)
        return 0 if bounds == (0, 6) and value == 7 else value

    for part in text.split(","):
        span, _, step = part.partition("/")
        if span in ("*", "?"):
            first, last = low, high
        else:
            one, dash, other = span.partition("-")
            first = number(one)
            last = number(other) if dash else high if step else first
        if not (low <= first <= last <= high) or int(step or 1) < 1:
            raise ValueError(f"{text!r}: out of {low}-{high}")
        found |= set(range(first, last + 1, int(step or 1)))
    return frozenset(found)
