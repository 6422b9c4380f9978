"""Parses and formats times as the API does: RFC 3339 in UTC, in seconds or microseconds."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_PLAIN: Final = re.compile(r"\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\dZ\Z")
_FULL: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))\Z"
)
_MICRO: Final = re.compile(r"[^.,]*[.,]\d{6}\D")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECOND_NS: Final = 1_000_000_000
_UNITS_NS: Final = {
    "h": 3600 * SECOND_NS, "m": 60 * SECOND_NS, "s": SECOND_NS, "ms": 1_000_000,
    "us": 1_000, "\u00b5s": 1_000, "\u03bcs": 1_000, "ns": 1,
}  # fmt: skip
_PART: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|us|\u00b5s|\u03bcs|ns|h|m|s)")
_DURATION: Final = re.compile(rf"0|(?:{_PART.pattern})+")


def parse_time(text: str) -> datetime | None:
    """The moment, or None where the text is no RFC 3339 time."""
    found = _FULL.match(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = found.groups()
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second),
            int((fraction or "0")[:6].ljust(6, "0")), tzinfo=UTC,
        )  # fmt: skip
        if sign:
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            moment = moment - offset if sign == "+" else moment + offset
    except (ValueError, OverflowError):
        return None
    return moment


@lru_cache(1024)
def seconds_time(text: str) -> str | None:
    """The time in canonical form, cut to seconds; None where it is none."""
    moment = parse_time(text)
    if moment is None:
        return None
    return text if _PLAIN.match(text) else _text(moment) + "Z"


def micro_time(text: str) -> str | None:
    """The time in canonical form; None where it is none with six digits of a second."""
    moment = parse_time(text) if _MICRO.match(text) else None
    return None if moment is None else f"{_text(moment)}.{moment.microsecond:06d}Z"


def _text(moment: datetime) -> str:
    return moment.replace(tzinfo=None, microsecond=0).isoformat()


def time_text(now_ns: int) -> str:
    """The moment as the API writes it."""
    return _second_text(now_ns // SECOND_NS)


@lru_cache(64)
def _second_text(second: int) -> str:
    return _text(_EPOCH + timedelta(seconds=second)) + "Z"


def micro_time_text(now_ns: int) -> str:
    """The moment as the API writes a MicroTime."""
    return f"{time_text(now_ns)[:-1]}.{now_ns % SECOND_NS // 1000:06}Z"


def time_ns(text: str | None) -> int | None:
    """Nanoseconds since the epoch of a time in canonical form."""
    moment = parse_time(text) if text else None
    if moment is None:
        return None
    return int((moment - _EPOCH) / timedelta(microseconds=1)) * 1000


def age(now_ns: int, text: str | None) -> str:
    """How long ago, in kubectl's short form. Source: apimachinery duration.HumanDuration."""
    then = time_ns(text)
    return "<unknown>" if then is None else short_duration((now_ns - then) // SECOND_NS)


def short_duration(seconds: int) -> str:
    """Seconds as kubectl prints a duration."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(0, seconds)
    minutes, hours = seconds // 60, seconds // 3600
    days, years = hours // 24, hours // 24 // 365
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return f"{years}y" + (f"{days % 365}d" if days % 365 else "")
    return f"{years}y"


def duration_ns(value: str) -> int | None:
    """A duration as Go writes it; None where it is none."""
    if not _DURATION.fullmatch(value):
        return None
    parts = _PART.findall(value)
    return sum(round(float(number) * _UNITS_NS[unit]) for number, unit in parts)
