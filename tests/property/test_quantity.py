"""Quantities against a twin that follows upstream's arithmetic step by step, on exact fractions."""

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stower.model.quantity import (
    EXPONENT_MAX,
    FORMAT_WRONG,
    NUMERIC_WRONG,
    SUFFIX_WRONG,
    Format,
    Quantity,
    QuantityError,
    parse_quantity,
)

MOST = 2**63 - 1
LEAST = -(2**63)
DIGITS = "0123456789"
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
SCALES = (-9, -6, -4, -3, -1, 0, 1, 3, 9)


@dataclass
class Twin:
    """An amount, the power of ten it is counted in, and upstream's form of it."""

    amount: Fraction
    scale: int
    is_small: bool
    format: Format
    written: str | None = None

    @property
    def count(self) -> int:
        """The amount in units of 10 ** scale."""
        units = self.amount / Fraction(10) ** self.scale
        assert units.denominator == 1
        return units.numerator

    def scaled(self, scale: int) -> int:
        """ScaledValue."""
        if self.is_small:
            if self.scale < scale:
                units = self.amount / Fraction(10) ** scale
                up = -(-abs(units) // 1)
                return int(up if units >= 0 else -up)
            return scaled_up(self.count, self.scale - scale)[0]
        shift = scale - self.scale
        if shift == 0:
            return low_64_bits(self.count)
        if shift < 0:
            power = 10**-shift
            return low_64_bits(low_64_bits(self.count) * (power if power <= MOST else LEAST))
        if self.count < MOST and shift < 19:
            kept = low_64_bits(self.count)
            quotient = abs(kept) // 10**shift
            quotient = quotient if kept >= 0 else -quotient
            return quotient + 1 if kept % 10**shift else quotient
        quotient, rest = divmod(self.count, 10**shift)
        return low_64_bits(low_64_bits(quotient) + 1) if rest else low_64_bits(quotient)

    def plus(self, other: "Twin") -> "Twin":
        """Add."""
        format = other.format if self.amount == 0 else self.format
        total = self.amount + other.amount
        if self.is_small and other.is_small:
            if other.amount == 0:
                return Twin(self.amount, self.scale, True, format)
            if self.amount == 0:
                return Twin(other.amount, other.scale, True, format)
            scale = min(self.scale, other.scale)
            left, left_fits = scaled_up(self.count, self.scale - scale)
            right, right_fits = scaled_up(other.count, other.scale - scale)
            if left_fits and right_fits and LEAST <= left + right <= MOST:
                return Twin(total, scale, True, format)
        return Twin(total, min(self.scale, other.scale), False, format)

    def canonical(self) -> str:
        """CanonicalizeBytes."""
        if self.amount == 0:
            return "0"
        format = self.format
        if format is Format.BINARY_SI and (abs(self.amount) < 1024 or self.amount % 1 != 0):
            format = Format.DECIMAL_SI
        if format is Format.BINARY_SI:
            number, power = self.amount, 0
            while number % 1024 == 0:
                number, power = number / 1024, power + 10
            suffixes = {power: text for text, power in BINARY.items()}
            return f"{number}{suffixes.get(power, '')}"
        power = -9
        while (self.amount / Fraction(10) ** (power + 3)).denominator == 1:
            power += 3
        number = self.amount / Fraction(10) ** power
        if format is Format.DECIMAL_EXPONENT:
            return f"{number}e{power}" if power else f"{number}"
        suffixes = {power: text for text, power in DECIMAL.items()}
        return f"{number}{suffixes.get(power, '')}"


def low_64_bits(number: int) -> int:
    bits = number & (2**64 - 1)
    return bits - 2**64 if bits > MOST else bits


def scaled_up(count: int, shift: int) -> tuple[int, bool]:
    """positiveScaleInt64: what it returns, and whether that is right."""
    if shift in (1, 2, 3, 6, 9):
        product = count * 10**shift
        return low_64_bits(product), product == low_64_bits(product)
    for _ in range(shift):
        count *= 10
        if count != low_64_bits(count):
            return 0, False
    return count, True


def parse_twin(text: str) -> Twin:
    """ParseQuantity; raises ValueError with the message."""
    if not text:
        raise ValueError(FORMAT_WRONG)
    rest = text
    is_positive = not rest.startswith("-")
    if rest[0] in "+-":
        rest = rest[1:]
    value = ""
    while rest and rest[0] in DIGITS:
        value, rest = value + rest[0], rest[1:]
    has_digits = value != ""
    whole, fraction = value.lstrip("0") or "0", ""
    if rest.startswith("."):
        rest = rest[1:]
        while rest and rest[0] in DIGITS:
            fraction, rest = fraction + rest[0], rest[1:]
        has_digits = has_digits or fraction != ""
    suffix = rest
    tail = rest.lstrip("eEinumkKMGTP")
    tail = tail[1:] if tail and tail[0] in "+-" else tail
    if tail.strip(DIGITS):
        raise ValueError(FORMAT_WRONG)
    base, exponent, format = interpret(suffix)
    sign = 1 if is_positive else -1
    digits = Fraction(int(whole + fraction), 10 ** len(fraction))
    exact = sign * digits * Fraction(base) ** exponent
    if base == 10:
        is_small = len(whole + fraction) <= 18 and exponent - len(fraction) >= -9
        scale = exponent - len(fraction)
        keeps = scale % 3 == 0 and not (whole + fraction).endswith("000") and whole[0] != "0"
    else:
        is_small = not fraction and len(whole) + exponent * 3 // 10 <= 14
        scale = 0 if is_small else -len(fraction)
        keeps = int(whole) % 8 != 0
    if text == "0" or is_small:
        return Twin(exact, scale, True, format, text if keeps or text == "0" else None)
    if not has_digits:
        raise ValueError(NUMERIC_WRONG)
    if exact != 0:
        nanos = -(-abs(exact) * 10**9 // 1)
        exact, scale = sign * Fraction(nanos, 10**9), -9
    if format is Format.BINARY_SI:
        if abs(exact) > MOST:
            exact, scale = Fraction(sign * MOST), 0
        elif 0 < abs(exact) < 1:
            format = Format.DECIMAL_SI
    return Twin(exact, scale, False, format)


def interpret(suffix: str) -> tuple[int, int, Format]:
    if suffix in DECIMAL:
        return 10, DECIMAL[suffix], Format.DECIMAL_SI
    if suffix in BINARY:
        return 2, BINARY[suffix], Format.BINARY_SI
    number = suffix[1:]
    unsigned = number[1:] if number[:1] in ("+", "-") else number
    if suffix[0] not in "eE" or not unsigned or unsigned.strip(DIGITS):
        raise ValueError(SUFFIX_WRONG)
    exponent = int(number)
    if not LEAST <= exponent <= MOST:
        raise ValueError(SUFFIX_WRONG)
    exponent = (exponent + 2**31) % 2**32 - 2**31
    if abs(exponent) > EXPONENT_MAX:
        raise ValueError(f"exponent beyond {EXPONENT_MAX}")
    return 10, exponent, Format.DECIMAL_EXPONENT


def facts(quantity: Quantity | Twin) -> tuple[object, ...]:
    """All that can be seen of a quantity."""
    is_small = quantity.is_small if isinstance(quantity, Twin) else not quantity.big
    return (
        quantity.format,
        is_small,
        quantity.canonical(),
        tuple(quantity.scaled(scale) for scale in SCALES),
    )


digits = st.one_of(
    st.text(DIGITS, max_size=4),
    st.text(DIGITS, min_size=14, max_size=21),
    st.builds(lambda n, zeros: f"{n}{'0' * zeros}", st.integers(1, 4096), st.integers(0, 18)),
    st.integers(MOST - 2, MOST + 2).map(str),
    st.integers(0, 70).map(lambda power: str(2**power)),
)
exponents = st.one_of(
    st.integers(-12, 24),
    st.integers(-60, 60),
    st.sampled_from(
        (-EXPONENT_MAX, EXPONENT_MAX, EXPONENT_MAX + 1, 2**31, 2**32 + 3, 2**63, 2**99)
    ),
)
exponent_suffixes = st.builds(
    lambda letter, sign, exponent: f"{letter}{sign if exponent >= 0 else ''}{exponent}",
    st.sampled_from("eE"),
    st.sampled_from(("", "+", "0", "+00")),
    exponents,
)
suffixes = st.one_of(st.sampled_from((*DECIMAL, *BINARY)), exponent_suffixes)
texts = st.builds(
    lambda *parts: "".join(parts),
    st.sampled_from(("", "", "", "-", "+")),
    st.sampled_from(("", "", "0", "000")),
    digits,
    st.one_of(st.just(""), st.just("."), st.text(DIGITS, max_size=20).map(lambda d: f".{d}")),
    suffixes,
)
garbage = st.one_of(
    st.text("0123456789.eEinumkKMGTP+- x", max_size=12),
    st.text(max_size=5),
    st.builds(
        lambda text, extra: text + extra, texts, st.sampled_from(("i", "K", " ", "\n", "-1"))
    ),
)


def outcome(text: str) -> tuple[object, ...]:
    try:
        quantity = parse_quantity(text)
    except QuantityError as error:
        return (str(error),)
    return (*facts(quantity), str(quantity))


def expected_outcome(text: str) -> tuple[object, ...]:
    try:
        twin = parse_twin(text)
    except ValueError as error:
        return (str(error),)
    return (*facts(twin), twin.written or twin.canonical())


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(st.one_of(texts, texts, garbage), min_size=6, max_size=6))
@example(["", "+", "-", ".", "+.", "Ei"])
@example(["10000000000000000", "10000000000000000k", "1E", "9223372036854775807.5", "9P", "9E"])
@example(["-1.5Gi", "-0.5", "-1.0000000001", "0.1n", "-7Ei", "8Ei"])
@example(["1000E", "1e21", "0e100", ".5Ki", "0.0Ei", "+5Ki"])
@example(["+8Ki", "+1024Ki", "0004Mi", "+1000", "+1001", "+1500m"])
def test_a_text_means_what_upstream_reads(some: list[str]) -> None:
    """Form, format, canonical text, text kept, every rounding and every error are upstream's."""
    for text in some:
        assert expected_outcome(text) == outcome(text), text


def readable(text: str) -> bool:
    try:
        parse_twin(text)
    except ValueError:
        return False
    return True


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(texts.filter(readable), min_size=2, max_size=5))
@example(["900000000000000000E", "900000000000000000E", "900000000000000000E"])
@example(["4Ei", "4Ei", "1016Ei", "0.5"])
@example(["0Ki", "1m", "-1m", "1e3"])
def test_a_sum_is_what_upstream_adds_up_to(terms: list[str]) -> None:
    """Adding agrees after every term, overflow into the big form and borrowed formats included."""
    quantity, twin = parse_quantity(terms[0]), parse_twin(terms[0])
    for term in terms[1:]:
        quantity, twin = quantity.add(parse_quantity(term)), twin.plus(parse_twin(term))
        assert facts(twin) == facts(quantity), terms


@settings(max_examples=200, derandomize=True, deadline=None)
@given(texts.filter(readable), texts.filter(readable))
@example("1Ki", "1024")
@example("1e3", "1000000m")
@example("-1", "-1.0000000000")
def test_quantities_compare_as_their_exact_amounts(one: str, other: str) -> None:
    """Order, equality, hash and sign depend on the amount alone, never on the form or format."""
    left, right = parse_quantity(one), parse_quantity(other)
    exact_left, exact_right = parse_twin(one).amount, parse_twin(other).amount
    order = (exact_left > exact_right) - (exact_left < exact_right)
    assert order == left.cmp(right)
    assert -order == right.cmp(left)
    assert (order == 0) == (left == right)
    assert order != 0 or hash(left) == hash(right)
    assert (exact_left > 0) - (exact_left < 0) == left.sign
    assert (exact_left == 0) == left.is_zero
    assert order == left.sub(right).sign


@settings(max_examples=200, derandomize=True, deadline=None)
@given(texts.filter(readable))
def test_canonical_text_reads_back_as_the_same_amount(text: str) -> None:
    """Upstream drops a decimal suffix that it has no letter for; nothing else is lost."""
    quantity = parse_quantity(text)
    if parse_twin(text).amount >= 10**18 and quantity.format is Format.DECIMAL_SI:
        return
    again = parse_quantity(quantity.canonical())
    if quantity.is_zero or len(quantity.canonical()) < 900:
        assert quantity == again


@pytest.mark.parametrize("exponent", [1_001, -1_001, 2**31 - 1, -(2**31)])
def test_an_exponent_that_would_fill_the_memory_is_refused(exponent: int) -> None:
    with pytest.raises(QuantityError, match=f"exponent beyond {EXPONENT_MAX}"):
        parse_quantity(f"1e{exponent}")
