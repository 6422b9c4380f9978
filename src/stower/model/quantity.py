"""Quantity: amounts of resources, parsed, rounded, compared and printed exactly as Kubernetes does.

Source: apimachinery pkg/api/resource (quantity.go, amount.go, math.go, suffix.go), Kubernetes 1.36.

Upstream holds an amount in one of two forms and its answers depend on which: a *small* one (an
int64 and a decimal scale) and a *big* one (arbitrary precision). They differ where a value is
rounded below zero and where it overflows, so the form is kept here too. The text is kept where
upstream keeps it: a quantity that was already canonical enough prints as it was written.

Must not know what a resource is.
"""

import re
from enum import Enum
from functools import lru_cache
from typing import Final

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
NANO: Final = -9
MILLI: Final = -3

FORMAT_WRONG: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
NUMERIC_WRONG: Final = "unable to parse numeric part of quantity"
SUFFIX_WRONG: Final = "unable to parse quantity's suffix"

# Longest text that is looked at. Upstream has no limit; a number of this length is already beyond
# every meaning, and big-integer conversion is quadratic.
TEXT_LENGTH_MAX: Final = 1_000
# Largest decimal exponent, either way. Upstream has no limit and would try to build 10^(2^31); with
# this one and the one on the text, every sum still prints within Python's 4300 digits.
EXPONENT_MAX: Final = 1_000
# Up-scalings that upstream does in one multiplication, whose overflowed product it then uses
# (positiveScaleInt64); by any other power of ten it multiplies step by step and gives up with 0.
_ONE_STEP: Final = (1, 2, 3, 6, 9)


class QuantityError(ValueError):
    """The text is not a quantity; the message is upstream's own."""


class Format(Enum):
    """How a quantity was written, and so how it is printed."""

    DECIMAL_EXPONENT = "DecimalExponent"
    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"


_DECIMAL_SUFFIX: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SUFFIX: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_TEXT: Final = {exponent: text for text, exponent in _DECIMAL_SUFFIX.items()}
_BINARY_TEXT: Final = {exponent: text for text, exponent in _BINARY_SUFFIX.items()}

# Sign, leading zeros, numerator, denominator, suffix with its exponent.
_SCAN: Final = re.compile(
    r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?[0-9]*+)", re.ASCII
)
_EXPONENT: Final = re.compile(r"[eE][+-]?[0-9]+", re.ASCII)


class Quantity:
    """An exact amount: `mantissa * 10 ** scale`. Immutable; equal and hashed by amount.

    `big` says which of upstream's two forms holds it; it changes rounding of negatives and
    overflow.
    """

    __slots__ = ("big", "format", "mantissa", "scale", "text")

    def __init__(
        self, mantissa: int, scale: int, format: Format, big: bool = False, text: str | None = None
    ) -> None:
        self.mantissa = mantissa
        self.scale = scale
        self.format = format
        self.big = big
        self.text = text

    @classmethod
    def of(cls, value: int, format: Format = Format.DECIMAL_SI) -> "Quantity":
        """A whole number of base units (bytes, cores, devices)."""
        return cls(value, 0, format)

    @classmethod
    def of_milli(cls, milli: int, format: Format = Format.DECIMAL_SI) -> "Quantity":
        """A number of thousandths, as for CPU."""
        return cls(milli, MILLI, format)

    def value(self) -> int:
        """In base units, rounded up as upstream's Value(); wraps or is 0 where upstream
        overflows.
        """
        return self.scaled(0)

    def milli_value(self) -> int:
        """In thousandths, rounded up as upstream's MilliValue()."""
        return self.scaled(MILLI)

    def scaled(self, scale: int) -> int:
        """In units of 10 ** scale, as upstream's ScaledValue(): an int64."""
        if self.big:
            return _scaled_big(self.mantissa, self.scale - scale)
        if self.scale < scale:
            return _divide_away(self.mantissa, _power(scale - self.scale))[0]
        shift = self.scale - scale
        result: int = self.mantissa * _power(shift)
        if INT64_MIN <= result <= INT64_MAX:
            return result
        return _wrap(result) if shift in _ONE_STEP and self.mantissa != INT64_MIN else 0

    def round_up(self, scale: int) -> int:
        """In units of 10 ** scale, exactly, rounded away from zero: no int64 is involved."""
        shift = self.scale - scale
        if shift >= 0:
            return self.mantissa * _power(shift)
        return _divide_away(self.mantissa, _power(-shift))[0]

    def add(self, other: "Quantity") -> "Quantity":
        """The sum; it takes the other's format where self is zero."""
        format = other.format if self.mantissa == 0 else self.format
        if not self.big and not other.big:
            if other.mantissa == 0:
                return Quantity(self.mantissa, self.scale, format)
            if self.mantissa == 0:
                return Quantity(other.mantissa, other.scale, format)
        scale = min(self.scale, other.scale)
        left = self.mantissa * 10 ** (self.scale - scale)
        right = other.mantissa * 10 ** (other.scale - scale)
        fits = all(INT64_MIN <= n <= INT64_MAX for n in (left, right, left + right))
        return Quantity(left + right, scale, format, self.big or other.big or not fits)

    def mul(self, other: "Quantity") -> "Quantity":
        """The product in self's format, rounded up to nanos as a parsed text is."""
        mantissa, scale = self.mantissa * other.mantissa, self.scale + other.scale
        if scale < NANO:
            mantissa, scale = _divide_away(mantissa, _power(NANO - scale))[0], NANO
        return Quantity(mantissa, scale, self.format, big=True)

    def neg(self) -> "Quantity":
        """The amount with its sign changed."""
        return Quantity(-self.mantissa, self.scale, self.format, self.big)

    def sub(self, other: "Quantity") -> "Quantity":
        """The difference; it takes the other's format where self is zero."""
        return self.add(other.neg())

    def cmp(self, other: "Quantity") -> int:
        """-1, 0 or 1 as self is less than, equal to or more than the other."""
        scale = min(self.scale, other.scale)
        left = self.mantissa * _power(self.scale - scale)
        right = other.mantissa * _power(other.scale - scale)
        return (left > right) - (left < right)

    @property
    def is_zero(self) -> bool:
        return self.mantissa == 0

    @property
    def sign(self) -> int:
        return (self.mantissa > 0) - (self.mantissa < 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.cmp(other) == 0

    def __hash__(self) -> int:
        mantissa, times = _strip(self.mantissa, 10) if self.mantissa else (0, -self.scale)
        return hash((mantissa, self.scale + times))

    def __lt__(self, other: "Quantity") -> bool:
        return self.cmp(other) < 0

    def __le__(self, other: "Quantity") -> bool:
        return self.cmp(other) <= 0

    def __str__(self) -> str:
        """Canonical text: no fraction, the largest suffix that loses nothing."""
        return self.text if self.text else self.canonical()

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def canonical(self) -> str:
        """Canonical text even where the text as written would be kept."""
        if self.mantissa == 0:
            return "0"
        format = self.format
        whole = 0
        if format is Format.BINARY_SI:
            one_kibi = Quantity(1024, 0, format)
            if self.cmp(one_kibi) < 0 and self.cmp(one_kibi.neg()) > 0:
                format = Format.DECIMAL_SI
            else:
                whole, exact = self._whole()
                if not exact:
                    format = Format.DECIMAL_SI
        if format is Format.BINARY_SI:
            number, times = _strip(whole, 1024)
            return f"{number}{_BINARY_TEXT.get(times * 10, '')}"
        number, times = _strip(self.mantissa, 10)
        exponent = self.scale + times
        # Go's remainder has the sign of the dividend; the exponent always moves down.
        surplus = exponent % 3
        number *= 10**surplus
        exponent -= surplus
        if format is Format.DECIMAL_SI:
            return f"{number}{_DECIMAL_TEXT.get(exponent, '')}"
        return f"{number}e{exponent}" if exponent else str(number)

    def _whole(self) -> tuple[int, bool]:
        if self.scale >= 0:
            return self.mantissa * 10**self.scale, True
        return _divide_away(self.mantissa, 10**-self.scale)


def _power(exponent: int) -> int:
    """10 ** exponent, for an exponent of at least 0."""
    return int(10**exponent)


def _divide_away(number: int, divisor: int) -> tuple[int, bool]:
    """The quotient rounded away from zero, and whether it was exact."""
    quotient, rest = divmod(abs(number), divisor)
    quotient += rest != 0
    return (quotient if number >= 0 else -quotient), rest == 0


def _strip(number: int, base: int) -> tuple[int, int]:
    """`number` without its factors of `base`, and how many there were. Sign kept."""
    times = 0
    left = abs(number)
    while left >= base and left % base == 0:
        left //= base
        times += 1
    return (left if number >= 0 else -left), times


def _wrap(number: int) -> int:
    """`number` as Go's int64 would hold its low 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


def _scaled_big(unscaled: int, shift: int) -> int:
    """Upstream's scaledValue of the big form; adds 1 after any remainder, below zero too."""
    if shift >= 0:
        # Beyond int64, Go on amd64 turns the float 10 ** shift into the lowest int64.
        factor = _power(shift) if shift < 19 else INT64_MIN
        return _wrap(_wrap(unscaled) * factor)
    divisor = _power(-shift)
    if unscaled < INT64_MAX and -shift < 19:
        small = _wrap(unscaled)
        quotient = abs(small) // divisor
        quotient = quotient if small >= 0 else -quotient
        return quotient + (small % divisor != 0)
    return _wrap(unscaled // divisor + (unscaled % divisor != 0))


@lru_cache(maxsize=65_536)
def parse_quantity(text: str) -> Quantity:
    """The quantity that `text` writes; raises QuantityError in upstream's words.

    Cached: a cluster repeats few texts, and quantities are immutable.
    """
    if text == "":
        raise QuantityError(FORMAT_WRONG)
    if text == "0":
        return Quantity(0, 0, Format.DECIMAL_SI, text=text)
    if len(text) > TEXT_LENGTH_MAX:
        raise QuantityError(f"longer than {TEXT_LENGTH_MAX} characters")
    found = _SCAN.fullmatch(text)
    if found is None:
        raise QuantityError(FORMAT_WRONG)
    sign, zeros, numerator, denominator, suffix = found.groups(default="")
    positive = sign != "-"
    number_text = numerator or "0"
    base, exponent, format = _suffix(suffix)

    precision = 18 - len(number_text) - len(denominator)
    scale, multiplier = exponent, 1
    if base == 2:
        scale, precision = 0, -1
        if not denominator:
            multiplier = 1 << exponent
            precision = 15 - len(number_text) - int(exponent * 3 / 10) - 1
    if precision >= 0 and scale - len(denominator) >= NANO:
        scale -= len(denominator)
        shifted = number_text + denominator
        value = int(shifted)
        result = value * multiplier
        if result <= INT64_MAX:
            if format is Format.BINARY_SI:
                as_written = exponent % 10 == 0 and value & 7 != 0
            else:
                as_written = scale % 3 == 0 and not shifted.endswith("000") and shifted[0] != "0"
            return Quantity(
                result if positive else -result, scale, format, text=text if as_written else None
            )
    if not zeros and not numerator and not denominator:
        raise QuantityError(NUMERIC_WRONG)
    return _parse_big(positive, number_text, denominator, base, exponent, format)


def _parse_big(
    positive: bool, numerator: str, denominator: str, base: int, exponent: int, format: Format
) -> Quantity:
    """The big form: rounded up to nanos, capped where binary, never rounded to nothing."""
    mantissa = int(numerator + denominator)
    scale = -len(denominator)
    if base == 10:
        scale += exponent
    else:
        mantissa <<= exponent
    if mantissa and scale < NANO:
        mantissa, scale = _divide_away(mantissa, 10 ** (NANO - scale))[0], NANO
    elif mantissa and scale > NANO:
        # Upstream rounds to nanos, which also spells the number out at that scale.
        mantissa, scale = mantissa * 10 ** (scale - NANO), NANO
    amount = Quantity(mantissa, scale, format, big=True)
    if format is Format.BINARY_SI:
        if amount.cmp(Quantity(INT64_MAX, 0, format)) > 0:
            mantissa, scale = INT64_MAX, 0
        elif mantissa and amount.cmp(Quantity(1, 0, format)) < 0:
            format = Format.DECIMAL_SI
    return Quantity(mantissa if positive else -mantissa, scale, format, big=True)


def _suffix(text: str) -> tuple[int, int, Format]:
    """Base (10 or 2), exponent and format of a suffix."""
    if text in _DECIMAL_SUFFIX:
        return 10, _DECIMAL_SUFFIX[text], Format.DECIMAL_SI
    if text in _BINARY_SUFFIX:
        return 2, _BINARY_SUFFIX[text], Format.BINARY_SI
    if _EXPONENT.fullmatch(text):
        exponent = int(text[1:])
        if not INT64_MIN <= exponent <= INT64_MAX:
            raise QuantityError(SUFFIX_WRONG)
        # Upstream keeps the low 32 bits.
        exponent = (exponent + 2**31) % 2**32 - 2**31
        if abs(exponent) > EXPONENT_MAX:
            raise QuantityError(f"exponent beyond {EXPONENT_MAX}")
        return 10, exponent, Format.DECIMAL_EXPONENT
    raise QuantityError(SUFFIX_WRONG)


def quantity_of(value: str | int | float) -> Quantity:
    """The quantity of a JSON value: a string, or a number as its JSON text."""
    return parse_quantity(value.strip() if isinstance(value, str) else repr(value))
