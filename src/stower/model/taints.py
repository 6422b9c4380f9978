"""Taints and tolerations, and whether a toleration tolerates a taint.

Source: core/v1 toleration.go (1.36); KEP-5471 for Lt and Gt, which a feature gate switches on.
"""

import re
from typing import Final

import msgspec

from stower.model.numbers import Int64
from stower.model.selectors import parse_int64

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"

_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)


class Taint(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What keeps pods away from a node, unless they tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """As kubectl takes it."""
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


TOLERATION_OPERATORS: Final = ("", "Equal", "Exists", "Lt", "Gt")


def tolerates(toleration: Toleration, taint: Taint, comparisons: bool = False) -> bool:
    """Whether the toleration covers the taint; `comparisons` admits Lt and Gt (KEP-5471)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt" if comparisons:
            bound, value = _number(toleration.value), _number(taint.value)
            if bound is None or value is None:
                return False
            return value < bound if toleration.operator == "Lt" else value > bound
    return False


def is_tolerated(
    tolerations: tuple[Toleration, ...], taint: Taint, comparisons: bool = False
) -> bool:
    """Whether any of the tolerations covers the taint."""
    return any(tolerates(t, taint, comparisons) for t in tolerations)


def _number(text: str) -> int | None:
    """A decimal integer without leading zeros or a plus sign, as KEP-5471 wants it."""
    return parse_int64(text) if _DECIMAL.fullmatch(text) else None
