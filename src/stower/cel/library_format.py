"""`text.format(values)`: %s %d %f %e %b %x %X %o and %%.

Source: cel-go ext/formatting.go (version 1, in the language en_US).
"""

import math
import re
from typing import Any, Final

from stower.cel.library_standard import Function, go_float, no_overload, span_text, time_text
from stower.cel.values import CelError, Duration, Timestamp, TypeName, Uint, type_name, value_of

_CLAUSE: Final = re.compile(r"(?:\.([0-9]+))?([a-zA-Z%])")
_SUPERSCRIPT: Final = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)


def _format(text: Any, values: Any) -> str:
    if type(text) is not str or type(values) is not list:
        raise no_overload()
    said: list[str] = []
    at = used = 0
    while at < len(text):
        percent = text.find("%", at)
        if percent < 0:
            said.append(text[at:])
            break
        said.append(text[at:percent])
        if percent + 1 == len(text):
            raise CelError("unexpected end of string")
        match = _CLAUSE.match(text, percent + 1)
        if match is None:
            raise CelError(
                "could not parse formatting clause: unrecognized formatting clause "
                f'"{text[percent + 1]}"'
            )
        at = match.end()
        if match[2] == "%":
            said.append("%")
            continue
        if match[2] not in "sdfebxXo":
            raise CelError(
                f'could not parse formatting clause: unrecognized formatting clause "{match[2]}"'
            )
        if used >= len(values):
            raise CelError(f"index {used} out of range")
        precision = int(match[1]) if match[1] else 6
        said.append(_clause(match[2], values[used], min(precision, 1000)))
        used += 1
    return "".join(said)


def _wrong(message: str, value: Any) -> CelError:
    return CelError(f"error during formatting: {message}, was given {type_name(value)}")


def _clause(clause: str, value: Any, precision: int) -> str:
    kind = type(value)
    is_whole = kind in (int, Uint)
    if clause == "s":
        return _shown(value, False)
    if clause == "d":
        if not is_whole:
            raise _wrong("decimal clause can only be used on integers", value)
        return str(int(value))
    if clause in "fe":
        name = "fixed-point" if clause == "f" else "scientific"
        if kind is not float:
            raise _wrong(f"{name} clause can only be used on doubles", value)
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
        if clause == "f":
            return f"{value:,.{precision}f}"
        mantissa, _, exponent = f"{value:.{precision}e}".partition("e")
        power = str(int(exponent)).translate(_SUPERSCRIPT)
        return f"{mantissa}\u202f×\u202f10{power}"
    if clause == "b":
        if not is_whole and kind is not bool:
            raise _wrong("only integers and bools can be formatted as binary", value)
        return f"{int(value):b}"
    if clause == "o":
        if not is_whole:
            raise _wrong("octal clause can only be used on integers", value)
        return f"{int(value):o}"
    if is_whole:
        return f"{int(value):{clause}}"
    if kind is str or kind is bytes:
        text: str = (value.encode() if kind is str else value).hex()
        return text.upper() if clause == "X" else text
    raise _wrong("only integers, byte buffers, and strings can be formatted as hex", value)


def _shown(value: Any, nested: bool) -> str:
    kind = type(value)
    if kind is str:
        return f'"{value}"' if nested else value
    if kind is bool:
        return "true" if value else "false"
    if kind in (int, Uint):
        return str(int(value))
    if kind is float:
        return f"{value:.6f}" if nested and math.isfinite(value) else go_float(value)
    if kind is bytes:
        text = value.decode(errors="replace")
        return f'b"{text}"' if nested else text
    if value is None:
        return "null"
    if kind is list:
        return f"[{', '.join(_shown(item, True) for item in value)}]"
    if isinstance(value, dict):
        entries = sorted((_shown(value_of(k), True), _shown(v, True)) for k, v in value.items())
        return f"{{{', '.join(f'{key}:{item}' for key, item in entries)}}}"
    if kind is TypeName:
        return str(value.name)
    if kind is Duration:
        text = span_text(value)
        return f'duration("{text}")' if nested else text
    if kind is Timestamp:
        text = time_text(value)
        return f'timestamp("{text}")' if nested else text
    raise _wrong(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
        "types, durations, and timestamps",
        value,
    )


FUNCTIONS: Final[dict[str, Function]] = {"format": _format}
