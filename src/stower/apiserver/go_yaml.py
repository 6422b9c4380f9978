"""Reads plain scalars of YAML as Go's library does, and orders keys as it writes them.

Source: go.yaml.in/yaml v2 (resolve.go, sorter.go), which sigs.k8s.io/yaml builds on.
"""

import re
from functools import cmp_to_key
from typing import Any, Final

TRUE: Final = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
FALSE: Final = frozenset(
    ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
)
NULL: Final = frozenset(("", "~", "null", "Null", "NULL"))
INFINITE: Final = {
    ".nan": "NaN", ".NaN": "NaN", ".NAN": "NaN", ".inf": "+Inf", ".Inf": "+Inf", ".INF": "+Inf",
    "+.inf": "+Inf", "+.Inf": "+Inf", "+.INF": "+Inf", "-.inf": "-Inf", "-.Inf": "-Inf",
    "-.INF": "-Inf",
}  # fmt: skip
_INTEGER: Final = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]{1,16}|0[oO]?[0-7]{1,22}|0[bB][01]{1,64}|0|[1-9][0-9]{0,19})\Z"
)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z")
_TIMESTAMP: Final = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?(?:Z|[-+][0-9]{2}:[0-9]{2})"
    r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?)?\Z"
)
DIGITS_MAX: Final = 400  # of a number with a fraction; more is text
INT64: Final = 1 << 63
UINT64: Final = 1 << 64


class Infinite(str):
    """A number that JSON does not have."""

    __slots__ = ()


def resolve(text: str) -> Any:
    """The value of a plain scalar: text, bool, int, float, None or Infinite.

    A time stays text.
    """
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    if text in NULL:
        return None
    if text in INFINITE:
        return Infinite(INFINITE[text])
    first = text[0]
    if first == ".":
        return float(text) if _FLOAT.match(text) and len(text) <= DIGITS_MAX else text
    if first not in "+-0123456789" or _TIMESTAMP.match(text):
        return text
    plain = text.replace("_", "")
    if _INTEGER.match(plain) and (number := _integer(plain)) is not None:
        return number
    if _FLOAT.match(plain) and len(plain) <= DIGITS_MAX:
        return float(plain)
    return text


def _integer(text: str) -> int | None:
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-").lower()
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2])
    if base is not None:
        number = int(digits[2:], base)
    else:
        number = int(digits, 8 if len(digits) > 1 and digits[0] == "0" else 10)
    number *= sign
    limit = INT64 if text[0] in "+-" else UINT64
    return number if -INT64 <= number < limit else None


def is_time(text: str) -> bool:
    """Whether the text is a date or a time."""
    return _TIMESTAMP.match(text) is not None


def is_text(text: str) -> bool:
    """Whether a plain scalar of this text is text to all parsers: no number, time or key of a
    merge. (Parsers other than Go's have a type for "=".)"""
    if text in ("<<", "=") or _TIMESTAMP.match(text) or _BASE_60.match(text):
        return False
    return type(resolve(text)) is str


def key_text(value: Any) -> str | None:
    """The key of a JSON object for a value; None: it can be none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Infinite):
        return {"NaN": ".nan", "+Inf": ".inf", "-Inf": "-.inf"}[value]
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    return None if value is None else f"{value:.7g}"


def sorted_keys(keys: Any) -> list[str]:
    """Keys in the order of Go's library: numbers in them by value, letters last."""
    return sorted(keys, key=cmp_to_key(_compare))


def _compare(one: str, other: str) -> int:
    if one == other:
        return 0
    return -1 if _is_less(one, other) else 1


def _is_less(one: str, other: str) -> bool:
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a == b:
            continue
        if a.isalpha() and b.isalpha():
            return a < b
        if a.isalpha() or b.isalpha():
            return b.isalpha()
        m, n = _digits_at(one, i), _digits_at(other, i)
        has_lead = (a == "0" or b == "0") and _has_lead(one, i)
        left, right = (int(f"{'1' if has_lead else '0'}{digits}") for digits in (m, n))
        if left != right:
            return left < right
        if len(m) != len(n):
            return len(m) < len(n)
        return a < b
    return len(one) < len(other)


def _digits_at(text: str, at: int) -> str:
    end = at
    while end < len(text) and text[end].isdecimal() and end - at < DIGITS_MAX:
        end += 1
    return text[at:end]


def _has_lead(text: str, at: int) -> bool:
    """Whether a digit other than zero stands before this place in the same number."""
    for character in reversed(text[:at]):
        if not character.isdecimal():
            return False
        if character != "0":
            return True
    return False
