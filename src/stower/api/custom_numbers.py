"""Reads numbers in custom resources as Go's decoder does, and validates them against schemas.

Source: apimachinery pkg/util/json (UnmarshalCaseSensitivePreserveInts); kube-openapi
pkg/validation/validate/{validator,values}.go, Kubernetes 1.36.
"""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from stower.api.errors import INVALID, FieldError, go_float

Object = dict[str, Any]
Number = int | float
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
WHOLE_MAX: Final = (1 << 53) - 1  # maxJSONFloat
_EPSILON: Final = 1e-9  # of relative errors
_RANGES: Final = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (INT64_MIN, INT64_MAX)}
_FLOAT_MAX: Final = 3.4028234663852886e38
_BOUNDS: Final = (
    # keyword, keyword that excludes the bound itself, name, texts
    ("minimum", "exclusiveMinimum", "Minimum boundary", "greater than or equal to", "greater than"),
    ("maximum", "exclusiveMaximum", "Maximum boundary", "less than or equal to", "less than"),
)


def with_go_numbers(value: Any) -> Any:
    """Returns a JSON value with its numbers as Go has them after it wrote them once: whole ones are
    integers, and those beyond 64 bits are not. Changes the value in place. Raises OverflowError."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if type(inner) is not str:
                value[name] = with_go_numbers(inner)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            if type(inner) is not str:
                value[i] = with_go_numbers(inner)
    elif type(value) is float:
        return int(value) if value == value // 1 and abs(value) <= WHOLE_MAX else value
    elif type(value) is int:
        return value if INT64_MIN <= value <= INT64_MAX else float(value)
    return value


def is_whole(value: float) -> bool:
    """Whether a number counts as an integer: it is one, but for an error of calculation, and small
    enough to be exact."""
    if not math.isfinite(value) or abs(value) > WHOLE_MAX:
        return False
    near = float(int(value))
    return value == near or abs(value - near) / (abs(value) + abs(near)) < _EPSILON


def number_faults(
    schema: Object, value: Number, path: str, kind: str, form: str
) -> Iterator[FieldError]:
    """Yields what a schema has against a number. `kind`: the type, where it is the only one;
    `form`: a format of that type."""
    if fault := _range_fault(value, path, kind, form, "Checked"):
        yield fault
    factor = schema.get("multipleOf")
    if factor is not None:
        fault = _range_fault(factor, path, kind, form, "MultipleOf")
        if fault:
            yield fault
        own = float(value) if fault else value
        if factor <= 0 or (type(own) is int and int(factor) <= 0):
            text = f"factor MultipleOf declared for {path} must be positive: {go_float(factor)}"
            yield FieldError(INVALID, path or "<nil>", factor, text)
        elif not _is_multiple(own, factor):
            shown = int(factor) if type(own) is int else factor
            text = f"{path} in body should be a multiple of {go_float(shown)}"
            yield FieldError(INVALID, path or "<nil>", value, text)
    for word, excludes, name, inclusive, exclusive in _BOUNDS:
        bound = schema.get(word)
        if bound is None:
            continue
        fault = _range_fault(bound, path, kind, form, name)
        if fault:
            yield fault
        own = value = float(value) if fault else value
        bound = int(bound) if type(own) is int else float(bound)
        beyond = own - bound if word == "maximum" else bound - own
        if beyond > 0 or (schema.get(excludes) and beyond == 0):
            text = exclusive if schema.get(excludes) else inclusive
            text = f"{path} in body should be {text} {go_float(bound)}"
            yield FieldError(INVALID, path or "<nil>", value, text)


def _range_fault(value: Number, path: str, kind: str, form: str, name: str) -> FieldError | None:
    """Returns the error of a number that its type cannot express, which has no field."""
    if kind == "integer":
        low, high = _RANGES[form or "int64"]
        exact = Decimal(repr(value))
        fits = low <= exact <= high and exact == int(exact)
    else:
        fits = form != "float" or abs(value) <= _FLOAT_MAX
    if fits:
        return None
    what = f"with format {form}" if form else "(default format)"
    return FieldError(INVALID, "<nil>", "", f"{name} value must be of type {kind} {what} in {path}")


def _is_multiple(value: Number, factor: Number) -> bool:
    if type(value) is int:
        return value % int(factor) == 0
    return is_whole(1 / factor * value if factor < 1 else value / factor)
