"""The CEL function `text.format(values)` with the verbs %s %d %f %e %b %x %X %o and %%.

Source: cel-go ext/formatting.go (version 1, in the language en_US).
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

from stower.cel.library_standard import to_string
from stower.cel.library_times import Function
from stower.cel.values import (
    CelError,
    Duration,
    Timestamp,
    TypeName,
    Uint,
    charge,
    charge_text,
    no_overload,
    type_name,
    value_of,
)
from stower.model.integers import parse_decimal

_WANTED: Final = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
    "types, durations, and timestamps",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
    "X": "only integers, byte buffers, and strings can be formatted as hex",
    "o": "octal clause can only be used on integers",
}
_SUPERSCRIPT: Final = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
# The names of these doubles may be formatted as doubles.
_UNWRITABLE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def clauses(text: str, has_value: Callable[[int], bool]) -> Iterator[str | tuple[str, int | None]]:
    """Returns the parts of a format string: texts, and clauses (letter, precision), one for each
    value.

    Raises CelError if the format is invalid, or if a clause has no value.
    """
    at = used = 0
    while (percent := text.find("%", at)) >= 0:
        yield text[at:percent]
        if text[percent + 1 : percent + 2] == "%":
            yield "%"
            at = percent + 2
            continue
        if percent + 1 == len(text) and has_value(used):
            raise CelError("unexpected end of string")
        if not has_value(used):
            raise CelError(f"index {used} out of range")
        letter, precision, at = _clause_at(text, percent + 1)
        yield letter, precision
        used += 1
    yield text[at:]


def _clause_at(text: str, at: int) -> tuple[str, int | None, int]:
    precision = None
    if text[at] == ".":
        start = at = at + 1
        while text[at : at + 1].isdigit() and text[at].isascii():
            at += 1
        said = "could not parse formatting clause: error while parsing precision: "
        if at == len(text):
            raise CelError(f"{said}could not find end of precision specifier")
        if at == start:
            said += "error while converting precision to integer: "
            raise CelError(f'{said}strconv.Atoi: parsing "": invalid syntax')
        precision = parse_decimal(text[start:at])
        if precision is None:
            said += "error while converting precision to integer: "
            raise CelError(f'{said}strconv.Atoi: parsing "{text[start:at]}": value out of range')
    if text[at] not in _WANTED:
        first = chr(text[at].encode(errors="replace")[0])  # upstream reads bytes
        raise CelError(
            f'could not parse formatting clause: unrecognized formatting clause "{first}"'
        )
    return text[at], precision, at + 1


def _format(text: Any, values: Any) -> str:
    if type(text) is not str or not isinstance(values, list):
        raise no_overload()
    said: list[str] = []
    used = 0
    for part in clauses(text, lambda at: at < len(values)):
        if isinstance(part, tuple):
            precision = 6 if part[1] is None else min(part[1], 1000)
            part = _clause(part[0], values[used], precision)
            used += 1
        charge_text(len(part))
        said.append(part)
    return "".join(said)


def refusal_text(letter: str, type_: str) -> str:
    """Returns the error message for a clause that does not accept values of this type."""
    return f"error during formatting: {_WANTED[letter]}, was given {type_}"


def _value_error(letter: str, value: Any) -> CelError:
    return CelError(refusal_text(letter, type_name(value)))


def _clause(clause: str, value: Any, precision: int) -> str:
    kind = type(value)
    is_whole = kind in (int, Uint)
    if clause == "s":
        return _show(value, False)
    if clause in "fe":
        if kind is str:
            value = _UNWRITABLE.get(value, value)
        if type(value) is not float:
            raise _value_error(clause, value)
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
        if clause == "f":
            return f"{value:,.{precision}f}"
        mantissa, _, exponent = f"{value:.{precision}e}".partition("e")
        power = str(int(exponent)).translate(_SUPERSCRIPT)
        return f"{mantissa}\u202f×\u202f10{power}"
    if is_whole:
        return f"{int(value):{clause}}"
    if clause == "b" and kind is bool:
        return f"{int(value):b}"
    if clause in "xX" and kind in (str, bytes):
        text: str = (value.encode() if kind is str else value).hex()
        return text.upper() if clause == "X" else text
    raise _value_error(clause, value)


def _quoted(text: str) -> str:
    """Returns the text quoted like Go's %q."""
    said = []
    for sign in text:
        if sign in _ESCAPED:
            said.append(_ESCAPED[sign])
        elif sign == " " or sign.isprintable():
            said.append(sign)
        elif ord(sign) < 0x80:
            said.append(f"\\x{ord(sign):02x}")
        else:
            said.append(f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}")
    return f'"{"".join(said)}"'


_ESCAPED: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip


def _show(value: Any, nested: bool) -> str:
    kind = type(value)
    charge(1)
    if kind is str:
        charge_text(len(value))
        return _quoted(value) if nested else value
    if kind is float and nested:
        if math.isfinite(value):
            return f"{value:.6f}"
        return '"NaN"' if math.isnan(value) else '"+Inf"' if value > 0 else '"-Inf"'
    if kind is bytes:
        try:
            text = str(value, "utf-8")
        except UnicodeDecodeError:
            raise CelError(
                "error during formatting: could not convert argument "
                '"invalid UTF-8 in bytes, cannot convert to string" to string'
            ) from None
        return f"b{_quoted(text)}" if nested else text
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(_show(item, True) for item in value)}]"
    if isinstance(value, dict):
        entries = sorted((_show(value_of(k), True), _show(v, True)) for k, v in value.items())
        return f"{{{', '.join(f'{key}:{item}' for key, item in entries)}}}"
    if kind is TypeName:
        return str(value.name)
    if kind in (bool, int, Uint, float, Duration, Timestamp):
        text = to_string(value)
        called = {Duration: "duration", Timestamp: "timestamp"}.get(kind)
        return f'{called}("{text}")' if nested and called else text
    if nested:
        raise CelError(f"error during formatting: no formatting function for {type_name(value)}")
    raise _value_error("s", value)


FUNCTIONS: Final[dict[str, Function]] = {"format": _format}
