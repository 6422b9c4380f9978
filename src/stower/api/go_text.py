"""Prints JSON values as Go's fmt prints what its decoder makes of them, for texts that quote them.

Source: fmt (%v, %#v, %T), strconv.
"""

from decimal import Decimal
from typing import Any, Final

from stower.api.errors import go_quote

Value = Any
MAP: Final = "map[string]interface {}"
LIST: Final = "[]interface {}"
_TYPES: Final = {str: "string", bool: "bool", int: "int64", float: "float64", dict: MAP, list: LIST}
_WORDS: Final = {None: "<nil>", True: "true", False: "false"}
EXPONENT_MAX: Final = 6  # of floats that are printed without an exponent: below it


def go_type(value: Value) -> str:
    """The type, as %T prints it."""
    if type(value) is int and not _is_int64(value):
        return "float64"
    return _TYPES.get(type(value), "%!s(<nil>)")


def go_text(value: Value) -> str:
    """The value as %v prints it."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{go_text(v)}" for k, v in sorted(value.items())) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(go_text, value)) + "]"
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, float) or (isinstance(value, int) and not _is_int64(value)):
        return _float(float(value))
    return str(value)


def go_syntax(value: Value) -> str:
    """The value as %#v prints it."""
    if isinstance(value, dict):
        inner = ", ".join(f"{go_quote(k)}:{go_syntax(v)}" for k, v in sorted(value.items()))
        return f"{MAP}{{{inner}}}"
    if isinstance(value, list):
        return f"{LIST}{{{', '.join(map(go_syntax, value))}}}"
    if value is None:
        return "interface {}(nil)"
    return go_quote(value) if isinstance(value, str) else go_text(value)


def _is_int64(value: int) -> bool:
    """Whether Go's decoder makes an integer of it, and not a float."""
    return -(2**63) <= value < 2**63


def _float(value: float) -> str:
    """%g with as many digits as the value needs."""
    text = repr(value).removesuffix(".0")
    if "e" in text or abs(value) < 10**EXPONENT_MAX:
        return text
    digits, _, exponent = f"{Decimal(text).normalize():e}".partition("e")
    return f"{digits}e{int(exponent):+03d}"
