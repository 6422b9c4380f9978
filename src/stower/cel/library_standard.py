"""The standard functions: arithmetic, conversions, sizes, texts, times.

Sources: CEL specification; cel-go common/types, ext/strings.go (version 2); regular expressions are
RE2's. An implementation is given its values, the target first, and looks at their types: a value
that the checker could not know may be anything.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final
from zoneinfo import ZoneInfo

import re2  # type: ignore[import-untyped]

from stower.cel.values import (
    NO_OVERLOAD,
    CelError,
    CidrValue,
    Duration,
    Timestamp,
    TypeName,
    Uint,
    compare,
    equal,
    is_same,
    key_of,
    type_name,
)

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
_SECOND: Final = 10**9
_TIME_MIN: Final = -62135596800 * _SECOND  # 0001-01-01T00:00:00Z
_TIME_MAX: Final = 253402300800 * _SECOND - 1

Function = Callable[..., Any]


def no_overload(*_: Any) -> CelError:
    """The values are of types that the function does not take."""
    return CelError(NO_OVERLOAD)


# ------------------------------------------------------------------------------------ arithmetic


def _whole(result: int, kind: type) -> Any:
    if kind is Uint:
        if not 0 <= result <= UINT_MAX:
            raise CelError("unsigned integer overflow")
        return Uint(result)
    if not INT_MIN <= result <= INT_MAX:
        raise CelError("integer overflow")
    return result


def _span(ns: int) -> Duration:
    if not INT_MIN <= ns <= INT_MAX:
        raise CelError("integer overflow")
    return Duration(ns)


def _time(ns: int) -> Timestamp:
    if not _TIME_MIN <= ns <= _TIME_MAX:
        raise CelError("timestamp overflow")
    return Timestamp(ns)


def add(a: Any, b: Any) -> Any:
    """`a + b`."""
    kind, other = type(a), type(b)
    if kind is other:
        if kind is int or kind is Uint:
            return _whole(int(a) + int(b), kind)
        if kind in (float, str, bytes, list):
            return a + b
        if kind is Duration:
            return _span(a.ns + b.ns)
    if kind is Duration and other is Timestamp:
        return _time(a.ns + b.ns)
    if kind is Timestamp and other is Duration:
        return _time(a.ns + b.ns)
    raise no_overload()


def subtract(a: Any, b: Any) -> Any:
    """`a - b`."""
    kind, other = type(a), type(b)
    if kind is other:
        if kind is int or kind is Uint:
            return _whole(int(a) - int(b), kind)
        if kind is float:
            return a - b
        if kind is Duration or kind is Timestamp:
            return _span(a.ns - b.ns)
    if kind is Timestamp and other is Duration:
        return _time(a.ns - b.ns)
    raise no_overload()


def multiply(a: Any, b: Any) -> Any:
    """`a * b`."""
    kind = type(a)
    if kind is type(b) and kind in (int, Uint):
        return _whole(int(a) * int(b), kind)
    if kind is float and type(b) is float:
        return a * b
    raise no_overload()


def divide(a: Any, b: Any) -> Any:
    """`a / b`: whole numbers towards zero."""
    kind = type(a)
    if kind is not type(b) or kind not in (int, Uint, float):
        raise no_overload()
    if kind is float:
        if b == 0:
            return (
                math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
            )
        return a / b
    if b == 0:
        raise CelError("division by zero")
    quotient = abs(int(a)) // abs(int(b))
    return _whole(quotient if (a < 0) == (b < 0) else -quotient, kind)


def modulo(a: Any, b: Any) -> Any:
    """`a % b`, with the sign of a."""
    kind = type(a)
    if kind is not type(b) or kind not in (int, Uint):
        raise no_overload()
    if b == 0:
        raise CelError("modulus by zero")
    if kind is int and a == INT_MIN and b == -1:
        raise CelError("integer overflow")
    rest = abs(int(a)) % abs(int(b))
    return kind(-rest if a < 0 else rest)


def negate(a: Any) -> Any:
    """`-a`."""
    if type(a) is int:
        return _whole(-a, int)
    if type(a) is float:
        return -a
    raise no_overload()


def inverted(a: Any) -> Any:
    """`!a`."""
    if type(a) is bool:
        return not a
    raise no_overload()


def ordered(*wanted: int) -> Function:
    """A comparison that holds for these outcomes of `compare`."""

    def comparison(a: Any, b: Any) -> bool:
        return compare(a, b) in wanted

    return comparison


def contained(item: Any, container: Any) -> bool:
    """`item in container`."""
    if isinstance(container, dict):
        return key_of(item) in container
    if type(container) is list:
        return any(is_same(item, other) for other in container)
    raise no_overload()


def size(value: Any) -> int:
    """How many characters, bytes, items or entries."""
    if type(value) in (str, bytes, list) or isinstance(value, dict):
        return len(value)
    raise no_overload()


# ----------------------------------------------------------------------------------- conversions


def _cannot(value: Any, wanted: str) -> CelError:
    return CelError(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def to_bool(value: Any) -> bool:
    """bool(value)."""
    if type(value) is bool:
        return value
    if type(value) is str:
        if value in ("1", "t", "T", "TRUE", "true", "True"):
            return True
        if value in ("0", "f", "F", "FALSE", "false", "False"):
            return False
    raise _cannot(value, "bool")


def to_bytes(value: Any) -> bytes:
    """bytes(value)."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    raise _cannot(value, "bytes")


_FLOAT: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)\Z", re.I | re.A
)
_INT: Final = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


def to_double(value: Any) -> float:
    """double(value)."""
    if type(value) in (int, Uint, float):
        return float(value)
    if type(value) is str and _FLOAT.match(value):
        return float(value)
    raise _cannot(value, "double")


def to_int(value: Any) -> int:
    """int(value)."""
    kind = type(value)
    if kind is int:
        return int(value)
    if kind is Uint:
        return int(_whole(int(value), int))
    if kind is float:
        if not -(2.0**63) < value < 2.0**63:
            raise CelError("integer overflow")
        return int(value)
    if kind is str and _INT.match(value) and INT_MIN <= int(value) <= INT_MAX:
        return int(value)
    if kind is Timestamp:
        return int(value.ns // _SECOND)
    if kind is Duration:
        return int(value.ns)
    raise _cannot(value, "int")


def to_uint(value: Any) -> Uint:
    """uint(value)."""
    kind = type(value)
    if kind is Uint:
        return Uint(value)
    if kind is int:
        return Uint(_whole(value, Uint))
    if kind is float:
        if not 0 <= value < 2.0**64:
            raise CelError("unsigned integer overflow")
        return Uint(int(value))
    if kind is str and value.isascii() and value.isdigit() and int(value) <= UINT_MAX:
        return Uint(int(value))
    raise _cannot(value, "uint")


def to_string(value: Any) -> str:
    """string(value)."""
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return go_float(value)
    if kind is bytes:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind is Duration:
        return span_text(value)
    if kind is Timestamp:
        return time_text(value)
    if kind is IPv4Address or kind is IPv6Address:
        return str(value)
    if kind is CidrValue:
        return f"{value.address}/{value.network.prefixlen}"
    raise _cannot(value, "string")


def go_float(value: float) -> str:
    """As Go's %g with the least digits that tell the number."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if math.isnan(value):
        return "NaN"
    digits = repr(value)
    mantissa, _, exponent_text = digits.partition("e")
    sign = "-" if mantissa[0] == "-" else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    fraction = "" if fraction == "0" else fraction
    number = (whole + fraction).lstrip("0")
    exponent = len(whole) - 1 + int(exponent_text or 0)
    if whole == "0":
        exponent = -(len(fraction) - len(fraction.lstrip("0"))) - 1 + int(exponent_text or 0)
    if not number:
        return f"{sign}0"
    number = number.rstrip("0")
    if -4 <= exponent < 6:
        if exponent < 0:
            return f"{sign}0.{'0' * (-exponent - 1)}{number}"
        padded = number.ljust(exponent + 1, "0")
        rest = padded[exponent + 1 :]
        return f"{sign}{padded[: exponent + 1]}{'.' + rest if rest else ''}"
    tail = f".{number[1:]}" if len(number) > 1 else ""
    return f"{sign}{number[0]}{tail}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def span_text(value: Duration) -> str:
    """Seconds, in as many digits as it takes."""
    whole, fraction = divmod(abs(value.ns), _SECOND)
    tail = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{'-' if value.ns < 0 else ''}{whole}{tail}s"


_SPAN: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS: Final = {
    "ns": 1, "us": 1_000, "µs": 1_000, "μs": 1_000, "ms": 1_000_000, "s": _SECOND,
    "m": 60 * _SECOND, "h": 3_600 * _SECOND,
}  # fmt: skip


def to_duration(value: Any) -> Duration:
    """duration(value)."""
    if type(value) is Duration:
        return value
    if type(value) is str:
        text = value.lstrip("+-") if value[:1] in ("+", "-") else value
        if len(value) - len(text) <= 1:
            total, at = 0, 0
            while text != "0" and (match := _SPAN.match(text, at)):
                whole, _, fraction = match[1].partition(".")
                unit = _UNITS[match[2]]
                total += int(whole or 0) * unit
                if fraction:
                    total += int(fraction) * unit // 10 ** len(fraction)
                at = match.end()
            if text == "0" or (at == len(text) and at):
                total = -total if value[0] == "-" else total
                if INT_MIN <= total <= INT_MAX:
                    return Duration(total)
    raise _cannot(value, "google.protobuf.Duration")


_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})\Z",
    re.ASCII,
)


def to_timestamp(value: Any) -> Timestamp:
    """timestamp(value): from a text of RFC 3339 or seconds."""
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return _time(value * _SECOND)
    match = _TIME.match(value) if type(value) is str else None
    if match is not None:
        fraction = int((match[7] or "0")[:9].ljust(9, "0"))
        zone = match[8]
        offset = 0
        if zone != "Z":
            offset = (int(zone[1:3]) * 3600 + int(zone[4:6]) * 60) * (1 if zone[0] == "+" else -1)
        try:
            moment = datetime(*(int(match[i]) for i in range(1, 7)), tzinfo=UTC)  # type: ignore[arg-type,misc]
        except ValueError:
            raise _cannot(value, "google.protobuf.Timestamp") from None
        seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) - offset
        return _time(seconds * _SECOND + fraction)
    raise _cannot(value, "google.protobuf.Timestamp")


def time_text(value: Timestamp) -> str:
    """RFC 3339, in UTC."""
    moment = _moment(value, UTC)
    fraction = value.ns % _SECOND
    tail = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}{tail}Z"


def _moment(value: Timestamp, zone: tzinfo) -> datetime:
    start = datetime(1970, 1, 1, tzinfo=UTC)
    return (start + timedelta(seconds=value.ns // _SECOND)).astimezone(zone)


_OFFSET: Final = re.compile(r"([+-]?)([0-9]{1,2}):([0-9]{2})\Z", re.ASCII)


def _zone(name: str) -> tzinfo:
    match = _OFFSET.match(name)
    if match is not None:
        minutes = int(match[2]) * 60 + int(match[3])
        return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise CelError(f"unknown time zone {name}") from None


def part_of_time(of_time: Callable[[datetime], int], unit_ns: int | None = None) -> Function:
    """A getter of a timestamp, in a zone; of a duration too, in whole units."""

    def getter(value: Any, zone: Any = "UTC") -> int:
        if type(value) is Timestamp and type(zone) is str:
            if unit_ns == 1_000_000:
                return value.ns % _SECOND // 1_000_000
            return of_time(_moment(value, _zone(zone)))
        if type(value) is Duration and unit_ns is not None:
            return value.ns // unit_ns if value.ns >= 0 else -(-value.ns // unit_ns)
        raise no_overload()

    return getter


# ----------------------------------------------------------------------------------------- texts


def texts(function: Function, *others: type) -> Function:
    """A function of a text, and of values of these types (the rest, where given, is optional)."""

    def checked(target: Any, *args: Any) -> Any:
        if type(target) is not str or len(args) > len(others):
            raise no_overload()
        if any(type(arg) is not other for arg, other in zip(args, others)):
            raise no_overload()
        return function(target, *args)

    return checked


@lru_cache(maxsize=256)
def pattern(text: str) -> Any:
    """The compiled regular expression. CelError in Go's words where there is none."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        said = error.args[0]
        said = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        raise CelError(f"error parsing regexp: {said}") from None


def _matches(text: str, regex: str) -> bool:
    return pattern(regex).search(text) is not None


def _find(text: str, regex: str) -> str:
    match = pattern(regex).search(text)
    return "" if match is None else str(match[0])


def _find_all(text: str, regex: str, most: int = -1) -> list[str]:
    found = [str(match[0]) for match in pattern(regex).finditer(text)]
    return found if most < 0 else found[:most]


def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if not 0 <= start < max(len(text), 1):
        raise CelError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if not part:
        return len(text) if start is None else start
    if start is None:
        return text.rfind(part)
    if not 0 <= start < max(len(text), 1):
        raise CelError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    return text.replace(old, new, most)


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if most == 1:
        return [text]
    if separator:
        return text.split(separator, most - 1 if most > 0 else -1)
    if most < 0 or most >= len(text):
        return list(text)
    return [*text[: most - 1], text[most - 1 :]]


def _substring(text: str, start: int, end: int | None = None) -> str:
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    if end is None:
        return text[start:]
    if not 0 <= end <= len(text):
        raise CelError(f"index out of range: {end}")
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _ascii(lower: bool) -> Function:
    first, last, shift = ("A", "Z", 32) if lower else ("a", "z", -32)
    table = {code: code + shift for code in range(ord(first), ord(last) + 1)}
    return lambda text: text.translate(table)


_SPACES: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_QUOTED: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def _quote(text: str) -> str:
    return '"' + "".join(_QUOTED.get(c, c) for c in text) + '"'


def _join(items: Any, separator: Any = "") -> str:
    if type(items) is not list or type(separator) is not str:
        raise no_overload()
    if any(type(item) is not str for item in items):
        raise no_overload()
    return separator.join(items)


def to_type(value: Any) -> TypeName:
    """type(value)."""
    return TypeName(type_name(value))


FUNCTIONS: Final[dict[str, Function]] = {
    "!_": inverted, "-_": negate, "_+_": add, "_-_": subtract, "_*_": multiply, "_/_": divide,
    "_%_": modulo, "_==_": equal, "_!=_": lambda a, b: not is_same(a, b), "_<_": ordered(-1),
    "_<=_": ordered(-1, 0), "_>_": ordered(1), "_>=_": ordered(1, 0), "@in": contained,
    "size": size, "type": to_type, "bool": to_bool, "bytes": to_bytes, "double": to_double,
    "duration": to_duration, "dyn": lambda value: value, "int": to_int, "string": to_string,
    "timestamp": to_timestamp, "uint": to_uint,
    "contains": texts(lambda text, part: part in text, str),
    "endsWith": texts(lambda text, part: text.endswith(part), str),
    "startsWith": texts(lambda text, part: text.startswith(part), str),
    "matches": texts(_matches, str), "find": texts(_find, str),
    "findAll": texts(_find_all, str, int),
    "getFullYear": part_of_time(lambda t: t.year),
    "getMonth": part_of_time(lambda t: t.month - 1),
    "getDayOfYear": part_of_time(lambda t: t.timetuple().tm_yday - 1),
    "getDayOfMonth": part_of_time(lambda t: t.day - 1),
    "getDate": part_of_time(lambda t: t.day),
    "getDayOfWeek": part_of_time(lambda t: t.isoweekday() % 7),
    "getHours": part_of_time(lambda t: t.hour, 3_600 * _SECOND),
    "getMinutes": part_of_time(lambda t: t.minute, 60 * _SECOND),
    "getSeconds": part_of_time(lambda t: t.second, _SECOND),
    "getMilliseconds": part_of_time(lambda t: t.microsecond // 1000, 1_000_000),
    "charAt": texts(_char_at, int), "lowerAscii": texts(_ascii(True)),
    "upperAscii": texts(_ascii(False)), "trim": texts(lambda text: text.strip(_SPACES)),
    "replace": texts(_replace, str, str, int), "split": texts(_split, str, int),
    "substring": texts(_substring, int, int), "strings.quote": texts(_quote), "join": _join,
}  # fmt: skip

INDEX_OF: Final = texts(_index_of, str, int)
LAST_INDEX_OF: Final = texts(_last_index_of, str, int)
