"""Parses cron schedules and computes the next time that a schedule is due, in its time zone.

A schedule has five fields, or is a name such as @daily, or @every with a duration.
Source: github.com/robfig/cron v3 (parser.go, spec.go), as Kubernetes 1.36 uses it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from stower.model.times import SECOND_NS, duration_ns

EVERY: Final = "@every "
ZONE_PREFIXES: Final = ("TZ=", "CRON_TZ=")
SECONDS_MAX: Final = 10 * 365 * 86400
DIGITS_MAX: Final = 18  # of numbers that Go reads
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
YEARS_AHEAD: Final = 5
EPOCH: Final = datetime(1970, 1, 1)
MINUTE: Final = 60
HOUR: Final = 3600
YEAR_MAX: Final = 9990  # Python's calendar ends with 9999


class Field(NamedTuple):
    """The values that one field takes."""

    values: frozenset[int]
    is_any: bool  # it has a * or ? without a step


def find_zone(name: str) -> tzinfo | None:
    """The time zone of an IANA name, UTC for an empty name; None where there is none."""
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def zone_fault(name: str) -> str:
    """What is wrong with the name of a time zone; empty if nothing is."""
    if find_zone(name) is not None:
        return ""
    text = f"unknown time zone {name}"
    if find_zone("Etc/UTC") is None:
        text += ": this machine has no time zone database, install tzdata"
    return text


class Schedule:
    """When a cron line is due."""

    def __init__(self, line: str, zone: tzinfo = UTC) -> None:
        """`zone`: of a line that names none. Raises ValueError with upstream's text."""
        self.zone = zone
        if not line:
            raise ValueError("empty spec string")
        if line.startswith(ZONE_PREFIXES):
            name, space, rest = line.partition("=")[2].partition(" ")
            if not space:
                text = "invalid schedule format: runtime error: slice bounds out of range [:-1]"
                raise ValueError(text)
            if zone_fault(name):
                raise ValueError(f"provided bad location {name}: {zone_fault(name)}")
            self.zone = find_zone(name) or UTC
            line = rest.strip()
        self._every_ns = 0
        if line.startswith(EVERY):
            self._every_ns = _every_ns(line)
            line = "* * * * *"
        elif line.startswith("@"):
            if line not in NAMED:
                raise ValueError(f"unrecognized descriptor: {line}")
            line = NAMED[line]
        fields = line.split()
        if len(fields) != len(BOUNDS):
            shown = " ".join(fields)
            raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{shown}]")
        parts = [_field(*each) for each in zip(fields, BOUNDS, WORDS)]
        self.minutes, self.hours, self.days, self.months, self.weekdays = (p.values for p in parts)
        self._any_day = parts[2].is_any or parts[4].is_any

    def next_ns(self, after_ns: int) -> int | None:
        """The first moment after that one, None where there is none within five years."""
        if self._every_ns:
            return after_ns // SECOND_NS * SECOND_NS + self._every_ns
        if not (self.minutes and self.hours and self.months):
            return None  # a field with commas alone
        found = self._next(after_ns // SECOND_NS + 1)
        return None if found is None else found * SECOND_NS

    def _next(self, at: int) -> int | None:
        """The first moment that is due from `at` on, both in seconds. As upstream searches, so that
        the hours that a change of clocks skips or repeats are treated alike."""
        limit = min(self._local(at).year + YEARS_AHEAD, YEAR_MAX)
        is_start = False  # of the month, day or hour that was moved to
        while True:
            local = self._local(at)
            if local.year > limit:
                return None
            if local.month not in self.months:
                start = local if is_start else local.replace(hour=0, minute=0, second=0)
                at, is_start = self._at(_next_month(start)), True
            elif not self._is_on(local):
                start = local if is_start else local.replace(hour=0, minute=0, second=0)
                at, is_start = self._midnight(self._at(start + timedelta(days=1))), True
            else:
                at, is_whole = self._in_day(at, is_start)
                if is_whole:
                    return at
                is_start = True

    def _in_day(self, at: int, is_start: bool) -> tuple[int, bool]:
        """The first moment that is due from `at` on, and true; or the start of the next day or
        hour, from which the search goes on, and false."""
        while (local := self._local(at)).hour not in self.hours:
            if not is_start:
                at, is_start = self._at(local.replace(minute=0, second=0)), True
            at += HOUR
            if self._local(at).hour == 0:
                return at, False
        while (local := self._local(at)).minute not in self.minutes or local.second:
            at += MINUTE - at % MINUTE
            if self._local(at).minute == 0:
                return at, False
        return at, True

    def _midnight(self, at: int) -> int:
        """The start of a day whose midnight a change of clocks may have moved."""
        hour = self._local(at).hour
        return at + (24 - hour) * HOUR if hour > 12 else at - hour * HOUR

    def _offset(self, at: int) -> int:
        """Seconds by which local time is ahead of UTC."""
        moment = (EPOCH + timedelta(seconds=at)).replace(tzinfo=UTC).astimezone(self.zone)
        return int((moment.utcoffset() or timedelta()).total_seconds())

    def _local(self, at: int) -> datetime:
        """Local time without a zone."""
        return EPOCH + timedelta(seconds=at + self._offset(at))

    def _at(self, local: datetime) -> int:
        """The moment of a local time; of one that does not exist, what Go's time.Date takes."""
        seconds = (local - EPOCH) // timedelta(seconds=1)
        return seconds - self._offset(seconds - self._offset(seconds))

    def _is_on(self, day: datetime) -> bool:
        in_month, in_week = day.day in self.days, (day.weekday() + 1) % 7 in self.weekdays
        # Where both are given, either will do.
        return in_month and in_week if self._any_day else in_month or in_week


def _next_month(day: datetime) -> datetime:
    """The first day of the next month, at the same time of day."""
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _every_ns(line: str) -> int:
    """The duration of a line with @every, in whole seconds and at least one."""
    text = line[len(EVERY) :]
    found = duration_ns(text)
    if found is None:
        what = "missing unit in" if text[-1:].isdecimal() else "invalid"
        raise ValueError(f'failed to parse duration {line}: time: {what} duration "{text}"')
    return max(1, min(found // SECOND_NS, SECONDS_MAX)) * SECOND_NS


def _field(text: str, bounds: tuple[int, int], words: Mapping[str, int]) -> Field:
    found: set[int] = set()
    is_any = False
    for part in text.split(","):
        if part:
            values, is_star = _range(part, bounds, words)
            found.update(values)
            is_any = is_any or is_star
    return Field(frozenset(found), is_any)


def _range(part: str, bounds: tuple[int, int], words: Mapping[str, int]) -> tuple[range, bool]:
    """The values of one range, and whether it is a star without a step."""
    low, high = bounds
    span, *steps = part.split("/")
    ends = span.split("-")
    is_star = ends[0] in ("*", "?")
    first, last = low, high
    if not is_star:
        first = last = _number(ends[0], words)
        if len(ends) > 2:
            raise ValueError(f"too many hyphens: {part}")
        if len(ends) == 2:
            last = _number(ends[1], words)
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {part}")
    step = _number(steps[0], {}) if steps else 1
    if steps and len(ends) == 1:
        last = high
    if first < low:
        raise ValueError(f"beginning of range ({first}) below minimum ({low}): {part}")
    if last > high:
        raise ValueError(f"end of range ({last}) above maximum ({high}): {part}")
    if first > last:
        raise ValueError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {part}")
    return range(first, last + 1, step), is_star and step == 1


def _number(text: str, words: Mapping[str, int]) -> int:
    """A name or a number as Go's strconv.Atoi reads it."""
    if text.lower() in words:
        return words[text.lower()]
    digits = text[1:] if text[:1] in ("+", "-") else text
    wrong = "" if digits.isascii() and digits.isdecimal() else "invalid syntax"
    if not wrong and len(digits.lstrip("0")) > DIGITS_MAX:
        wrong = "value out of range"
    if wrong:
        raise ValueError(
            f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": {wrong}'
        )
    value = int(digits)
    if text.startswith("-") and value:
        raise ValueError(f"negative number (-{value}) not allowed: {text}")
    return value
