"""The standard functions of CEL: arithmetic, comparison, conversions, sizes and strings.

A function gets its values, the target first, and checks their types, because the type of a value
may be unknown to the checker (dyn). Sources: CEL specification; cel-go common/types, ext/strings.go
(version 2); regular expressions are RE2's.
"""

import math
import re
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from stower.cel.library_times import (
    GETTERS,
    INT_MAX,
    INT_MIN,
    SECOND,
    Function,
    moment,
    span,
    span_text,
    time_text,
    to_duration,
    to_timestamp,
)
from stower.cel.patterns import BadPatternError, Pattern, compile_pattern
from stower.cel.values import (
    CelError,
    CidrValue,
    Duration,
    Timestamp,
    TypeName,
    Uint,
    charge,
    charge_text,
    compare,
    conversion_error,
    equal,
    is_same,
    joined,
    lookup_key,
    no_overload,
    type_name,
)
from stower.model.integers import parse_decimal

UINT_MAX: Final = 2**64 - 1


# ------------------------------------------------------------------------------------ arithmetic


def _check_range(result: int, kind: type) -> Any:
    if kind is Uint:
        if not 0 <= result <= UINT_MAX:
            raise CelError("unsigned integer overflow")
        return Uint(result)
    if not INT_MIN <= result <= INT_MAX:
        raise CelError("integer overflow")
    return result


def add(a: Any, b: Any) -> Any:
    """`a + b`."""
    kind, other = type(a), type(b)
    if isinstance(a, list) and isinstance(b, list):
        charge((len(a) + len(b)) >> 2)
        return joined(a, b)
    if kind is other:
        if kind is int or kind is Uint:
            return _check_range(int(a) + int(b), kind)
        if kind is float:
            return a + b
        if kind in (str, bytes):
            charge_text(len(a) + len(b))
            return a + b
        if kind is Duration:
            return span(a.ns + b.ns)
    if kind is Duration and other is Timestamp:
        return moment(a.ns + b.ns, b.offset)
    if kind is Timestamp and other is Duration:
        return moment(a.ns + b.ns, a.offset)
    raise no_overload()


def subtract(a: Any, b: Any) -> Any:
    """`a - b`."""
    kind, other = type(a), type(b)
    if kind is other:
        if kind is int or kind is Uint:
            return _check_range(int(a) - int(b), kind)
        if kind is float:
            return a - b
        if kind is Duration or kind is Timestamp:
            return span(a.ns - b.ns)
    if kind is Timestamp and other is Duration:
        return moment(a.ns - b.ns, a.offset)
    raise no_overload()


def multiply(a: Any, b: Any) -> Any:
    """`a * b`."""
    kind = type(a)
    if kind is type(b) and kind in (int, Uint):
        return _check_range(int(a) * int(b), kind)
    if kind is float and type(b) is float:
        return a * b
    raise no_overload()


def divide(a: Any, b: Any) -> Any:
    """`a / b`: integers are truncated towards zero."""
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
    return _check_range(quotient if (a < 0) == (b < 0) else -quotient, kind)


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
        return _check_range(-a, int)
    if type(a) is float:
        return -a
    raise no_overload()


def inverted(a: Any) -> Any:
    """`!a`."""
    if type(a) is bool:
        return not a
    raise no_overload()


def make_comparison(*wanted: int) -> Function:
    """Returns a comparison that is true for these results of `compare`."""

    def comparison(a: Any, b: Any) -> bool:
        return compare(a, b) in wanted

    return comparison


def is_contained(item: Any, container: Any) -> bool:
    """`item in container`."""
    if isinstance(container, dict):
        return lookup_key(item) in container
    if isinstance(container, list):
        charge(len(container))
        return any(is_same(item, other) for other in container)
    raise no_overload()


def size(value: Any) -> int:
    """size(value): the number of characters, bytes, items or entries."""
    if isinstance(value, str | bytes | list | dict):
        return len(value)
    raise no_overload()


# ----------------------------------------------------------------------------------- conversions


def to_bool(value: Any) -> bool:
    """bool(value)."""
    if type(value) is bool:
        return value
    if type(value) is str:
        if value in ("1", "t", "T", "TRUE", "true", "True"):
            return True
        if value in ("0", "f", "F", "FALSE", "false", "False"):
            return False
    raise conversion_error(value, "bool")


def to_bytes(value: Any) -> bytes:
    """bytes(value)."""
    if type(value) is bytes:
        return value
    if type(value) is str:
        return value.encode()
    raise conversion_error(value, "bytes")


# As Go writes them: a single underscore may stand between digits.
_DIGITS: Final = "(?:[0-9](?:_?[0-9])*+)"
_HEX: Final = "(?:[0-9a-f](?:_?[0-9a-f])*+)"
_FLOAT: Final = re.compile(
    rf"(?:[+-]?(?:(?:{_DIGITS}(?:\.{_DIGITS}?)?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?|inf|infinity)|nan)\Z",
    re.I | re.A,
)
_HEX_FLOAT: Final = re.compile(
    rf"[+-]?0x_?(?:{_HEX}(?:\.{_HEX}?)?|\.{_HEX})p[+-]?{_DIGITS}\Z", re.I | re.A
)


def to_double(value: Any) -> float:
    """double(value)."""
    if type(value) in (int, Uint, float):
        return float(value)
    if type(value) is str and (number := _parsed_double(value)) is not None:
        return number
    raise conversion_error(value, "double")


def _parsed_double(text: str) -> float | None:
    """Parses a double like Go's strconv.ParseFloat: too large a number is an error."""
    plain = text.replace("_", "")
    if _FLOAT.match(text):
        number = float(plain)
        return None if math.isinf(number) and "n" not in plain.lower() else number
    try:
        return float.fromhex(plain) if _HEX_FLOAT.match(text) else None
    except OverflowError:
        return None


def to_int(value: Any) -> int:
    """int(value)."""
    kind = type(value)
    if kind is int:
        return int(value)
    if kind is Uint:
        return int(_check_range(int(value), int))
    if kind is float:
        if not -(2.0**63) < value < 2.0**63:
            raise CelError("integer overflow")
        return int(value)
    if kind is str and (number := _parsed_int(value)) is not None:
        return number
    if kind is Timestamp:
        return int(value.ns // SECOND)
    if kind is Duration:
        return int(value.ns)
    raise conversion_error(value, "int")


def _parsed_int(text: str) -> int | None:
    """Parses an integer like Go's strconv.ParseInt."""
    number = parse_decimal(text[1:] if text[:1] in ("+", "-") else text, bits=64)
    if number is None:
        return None
    number = -number if text[0] == "-" else number
    return number if INT_MIN <= number <= INT_MAX else None


def to_uint(value: Any) -> Uint:
    """uint(value)."""
    kind = type(value)
    if kind is Uint:
        return Uint(value)
    if kind is int:
        return Uint(_check_range(value, Uint))
    if kind is float:
        if not 0 <= value < 2.0**64:
            raise CelError("unsigned integer overflow")
        return Uint(int(value))
    if kind is str and (number := parse_decimal(value, 64)) is not None:
        return Uint(number)
    raise conversion_error(value, "uint")


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
    raise conversion_error(value, "string")


def go_float(value: float) -> str:
    """Formats a double like Go's %g, with the fewest digits that identify the number."""
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


# ----------------------------------------------------------------------------------------- texts


def texts(function: Function, *others: type) -> Function:
    """Returns a function of a string and of values of these types, with type checks; the last ones
    are optional."""

    def call_checked(target: Any, *args: Any) -> Any:
        if type(target) is not str or len(args) > len(others):
            raise no_overload()
        if any(type(arg) is not other for arg, other in zip(args, others)):
            raise no_overload()
        charge_text(len(target))
        return function(target, *args)

    return call_checked


def pattern(text: str) -> Pattern:
    """Returns the compiled regular expression. Raises CelError with Go's message if it is
    invalid."""
    try:
        return compile_pattern(text)
    except BadPatternError as error:
        raise CelError(str(error)) from None


def _matches(text: str, regex: str) -> bool:
    found = pattern(regex)
    charge_search(found, len(text))
    return found.regexp.search(text) is not None


def _find(text: str, regex: str) -> str:
    found = _compile_regex(regex)
    charge_search(found, len(text))
    match = found.regexp.search(text)
    return "" if match is None else str(match[0])


def _compile_regex(regex: str) -> Pattern:
    try:
        return pattern(regex)
    except CelError as error:
        raise CelError(f"Illegal regex: {error}") from None


def _find_all(text: str, regex: str, most: int = -1) -> list[str]:
    wanted, found = _compile_regex(regex), list[str]()
    charge_search(wanted, len(text))
    for match in wanted.regexp.finditer(text) if most else ():
        found.append(str(match[0]))
        if len(found) == most:
            break
        charge(1)
        # Each further match is a search of its own, which may go through all that is left.
        charge_search(wanted, len(text) - match.end())
    return found


def charge_search(wanted: Pattern, length: int) -> None:
    """Counts the search in a text of this length: each instruction may be tried at each place."""
    charge(wanted.size * length >> 8)


def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise CelError(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise CelError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if not part:
        return len(text) if start is None else start
    if start is None:
        return text.rfind(part)
    if start < 0:
        raise CelError(f"index out of range: {start}")
    # Beyond the end is nowhere, and not the end.
    return text.rfind(part, 0, start + len(part)) if start < len(text) else -1


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    count = text.count(old)
    if most >= 0:
        count = min(count, most)
    charge_text(len(text) + count * max(0, len(new) - len(old)))
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
    if end is not None and start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    for at in (start, end):
        if at is not None and not 0 <= at <= len(text):
            raise CelError(f"index out of range: {at}")
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
    if not isinstance(items, list) or type(separator) is not str:
        raise no_overload()
    if any(type(item) is not str for item in items):
        raise no_overload()
    charge_text(sum(map(len, items)) + len(items) * len(separator))
    return separator.join(items)


def to_type(value: Any) -> TypeName:
    """type(value)."""
    return TypeName(type_name(value))


FUNCTIONS: Final[dict[str, Function]] = {
    "!_": inverted, "-_": negate, "_+_": add, "_-_": subtract, "_*_": multiply, "_/_": divide,
    "_%_": modulo, "_==_": equal, "_!=_": lambda a, b: not is_same(a, b),
    "_<_": make_comparison(-1), "_<=_": make_comparison(-1, 0), "_>_": make_comparison(1),
    "_>=_": make_comparison(1, 0), "@in": is_contained,
    "size": size, "type": to_type, "bool": to_bool, "bytes": to_bytes, "double": to_double,
    "duration": to_duration, "dyn": lambda value: value, "int": to_int, "string": to_string,
    "timestamp": to_timestamp, "uint": to_uint,
    "contains": texts(lambda text, part: part in text, str),
    "endsWith": texts(lambda text, part: text.endswith(part), str),
    "startsWith": texts(lambda text, part: text.startswith(part), str),
    "matches": texts(_matches, str), "find": texts(_find, str),
    "findAll": texts(_find_all, str, int),
    **GETTERS,
    "charAt": texts(_char_at, int), "lowerAscii": texts(_ascii(True)),
    "upperAscii": texts(_ascii(False)), "trim": texts(lambda text: text.strip(_SPACES)),
    "replace": texts(_replace, str, str, int), "split": texts(_split, str, int),
    "substring": texts(_substring, int, int), "strings.quote": texts(_quote), "join": _join,
}  # fmt: skip

INDEX_OF: Final = texts(_index_of, str, int)
LAST_INDEX_OF: Final = texts(_last_index_of, str, int)
