"""The CEL functions of durations and timestamps: parsing, formatting, limits, and getters.

Texts are parsed like in Go's time package, which accepts more than RFC 3339. A timestamp keeps the
UTC offset that it was written with; only its text shows the offset.

Sources: cel-go common/types (duration, timestamp, overflow); Go's time package.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo

from stower.cel.values import CelError, Duration, Timestamp, conversion_error, no_overload
from stower.model.integers import parse_decimal

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
SECOND: Final = 10**9
TIME_MIN: Final = -62135596800 * SECOND  # 0001-01-01T00:00:00Z
_TIME_MAX: Final = 253402300800 * SECOND - 1
_YEAR: Final = 366 * 86_400 * SECOND
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# After so many years the calendar repeats, weekdays included.
_CYCLE_YEARS: Final = 400
_CYCLE: Final = timedelta(days=146097)

Function = Callable[..., Any]


def span(ns: int) -> Duration:
    """Returns a duration. Raises CelError if it is out of range."""
    if not INT_MIN <= ns <= INT_MAX:
        raise CelError("integer overflow")
    return Duration(ns)


def moment(ns: int, offset: int = 0) -> Timestamp:
    """Returns a timestamp. Raises CelError outside of the years 1 to 9999."""
    if not TIME_MIN <= ns <= _TIME_MAX:
        raise CelError("timestamp overflow")
    return Timestamp(ns, offset)


# ------------------------------------------------------------------------------------- durations


def span_text(value: Duration) -> str:
    """Formats a duration in seconds, with the fewest digits that identify the double."""
    text = format(Decimal(repr(_units(value.ns, SECOND))), "f")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}s"


def _units(ns: int, unit: int) -> float:
    """Returns the number of units as a double, computed like in Go: whole units and the rest
    separately."""
    whole, rest = divmod(abs(ns), unit)
    amount = float(whole) + rest / float(unit)
    return -amount if ns < 0 else amount


_SPAN: Final = re.compile(r"([0-9]*+)\.?([0-9]*+)(?<=[0-9.])(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": SECOND,
    "m": 60 * SECOND, "h": 3_600 * SECOND,
}  # fmt: skip


def to_duration(value: Any) -> Duration:
    """duration(value)."""
    if type(value) is Duration:
        return value
    ns = _parsed_span(value) if type(value) is str else None
    if ns is None:
        raise conversion_error(value, "google.protobuf.Duration")
    return Duration(ns)


def _parsed_span(value: str) -> int | None:
    """Parses a duration like Go's time.ParseDuration."""
    text = value[1:] if value[:1] in ("+", "-") else value
    if text == "0":
        return 0
    total = at = 0
    while (match := _SPAN.match(text, at)) and (match[1] or match[2]):
        unit = _UNITS[match[3]]
        whole = parse_decimal(match[1] or "0")
        if whole is None:
            return None
        total += whole * unit + _part_of(match[2], unit)
        at = match.end()
    if at < len(text) or not at:
        return None
    total = -total if value[0] == "-" else total
    return total if INT_MIN <= total <= INT_MAX else None


def _part_of(digits: str, unit: int) -> int:
    """Returns the value of the digits after the point, in doubles; digits beyond an int64 are
    ignored."""
    number, scale = 0, 1.0
    for digit in digits:
        if number > INT_MAX // 10 or number * 10 + int(digit) > INT_MAX + 1:
            break
        number, scale = number * 10 + int(digit), scale * 10
    return int(float(number) * (float(unit) / scale)) if number else 0


# ------------------------------------------------------------------------------------ timestamps

_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))\Z",
    re.ASCII,
)


def to_timestamp(value: Any) -> Timestamp:
    """timestamp(value), of an RFC 3339 text or of seconds."""
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return moment(value * SECOND)
    match = _TIME.match(value) if type(value) is str else None
    if match is None:
        raise conversion_error(value, "google.protobuf.Timestamp")
    offset = 0
    if match[8]:
        hours, minutes = int(match[9]), int(match[10])
        if hours > 24 or minutes > 60:  # sic
            raise conversion_error(value, "google.protobuf.Timestamp")
        offset = (hours * 3600 + minutes * 60) * (1 if match[8] == "+" else -1)
    year, *rest = (int(match[i]) for i in range(1, 7))
    try:
        # Python has no year 0, and its last year ends too soon for some offsets.
        there = datetime(year + _CYCLE_YEARS if year < 5000 else year, *rest, tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError:
        raise conversion_error(value, "google.protobuf.Timestamp") from None
    since = there - _EPOCH - (_CYCLE if year < 5000 else timedelta())
    fraction = int((match[7] or "0")[:9].ljust(9, "0"))
    return moment((since // timedelta(seconds=1) - offset) * SECOND + fraction, offset)


def time_text(value: Timestamp) -> str:
    """Formats a timestamp as RFC 3339, with the offset that it was written with."""
    there, years = _at(value, value.offset)
    fraction = value.ns % SECOND
    tail = f".{fraction:09d}".rstrip("0") if fraction else ""
    hours, minutes = divmod(abs(value.offset) // 60, 60)
    zone = f"{'-' if value.offset < 0 else '+'}{hours:02d}:{minutes:02d}"
    return f"{there.year + years:04d}-{there:%m-%dT%H:%M:%S}{tail}{zone if value.offset else 'Z'}"


def _at(value: Timestamp, zone: int | ZoneInfo) -> tuple[datetime, int]:
    """Returns the date and time in a time zone or at an offset in seconds, and a number of years to
    add.

    Years that Python lacks are replaced by a year of another 400-year cycle. Zones by name have a
    history, which does not repeat, and are converted only at both ends of the range of times.
    """
    since = timedelta(seconds=value.ns // SECOND)
    years = 0
    is_plain = isinstance(zone, int)
    if value.ns < (0 if is_plain else TIME_MIN + _YEAR):
        since, years = since + _CYCLE, -_CYCLE_YEARS
    elif value.ns > (0 if is_plain else _TIME_MAX - _YEAR):
        since, years = since - _CYCLE, _CYCLE_YEARS
    if isinstance(zone, int):
        return _EPOCH + since + timedelta(seconds=zone), years
    return (_EPOCH + since).astimezone(zone), years


def _zone(name: str) -> int | ZoneInfo:
    """Parses a time zone: a text with a colon is an offset, which is returned in seconds."""
    hours, colon, minutes = name.partition(":")
    if colon:
        east = _parse_integer(hours) * 60
        east = east - _parse_integer(minutes) if name[0] == "-" else east + _parse_integer(minutes)
        return east * 60
    if name in ("", "UTC", "Local"):
        return 0
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise CelError(f"unknown time zone {name}") from None


def _parse_integer(text: str) -> int:
    """Parses an integer like Go's strconv.Atoi, within the range of the calendar."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdigit() or not digits.isascii():
        raise CelError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    number = parse_decimal(digits)
    if number is None or number > 1_000_000:
        raise CelError(f'strconv.Atoi: parsing "{text}": value out of range')
    return -number if text[0] == "-" else number


def _getter(of_time: Callable[[datetime, int], int], unit_ns: int | None = None) -> Function:
    """Returns a getter of a timestamp in a time zone, and, in whole units, of a duration."""

    def getter(value: Any, zone: Any = "") -> int:
        if type(value) is Timestamp and type(zone) is str:
            at = _zone(zone)
            if unit_ns == 1_000_000:
                return value.ns % SECOND // 1_000_000
            return of_time(*_at(value, at))
        if type(value) is Duration and unit_ns is not None:
            if unit_ns == 1_000_000:
                return value.ns // unit_ns if value.ns >= 0 else -(-value.ns // unit_ns)
            return int(_units(value.ns, unit_ns))
        raise no_overload()

    return getter


GETTERS: Final[dict[str, Function]] = {
    "getFullYear": _getter(lambda t, years: t.year + years),
    "getMonth": _getter(lambda t, _: t.month - 1),
    "getDayOfYear": _getter(lambda t, _: t.timetuple().tm_yday - 1),
    "getDayOfMonth": _getter(lambda t, _: t.day - 1),
    "getDate": _getter(lambda t, _: t.day),
    "getDayOfWeek": _getter(lambda t, _: t.isoweekday() % 7),
    "getHours": _getter(lambda t, _: t.hour, 3_600 * SECOND),
    "getMinutes": _getter(lambda t, _: t.minute, 60 * SECOND),
    "getSeconds": _getter(lambda t, _: t.second, SECOND),
    "getMilliseconds": _getter(lambda t, _: 0, 1_000_000),
}
