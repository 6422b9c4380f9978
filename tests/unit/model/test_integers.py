"""Decimal numbers in texts of users."""

import pytest

from stower.model.integers import parse_decimal


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0", 0), ("7", 7), ("007", 7), ("0" * 10_000, 0), ("0" * 10_000 + "12", 12),
        (str(2**63 - 1), 2**63 - 1), (str(2**63), None), ("9" * 10_000, None),
        ("", None), ("-1", None), ("+1", None), ("1_0", None), (" 1", None), ("1.0", None),
        ("0x1", None), ("\u0663", None), ("\u00b2", None),
    ],
)  # fmt: skip
def test_a_number_is_read_whatever_its_length(text: str, want: int | None) -> None:
    assert want == parse_decimal(text)


def test_the_bound_is_a_power_of_two() -> None:
    assert (255, None) == (parse_decimal("255", bits=8), parse_decimal("256", bits=8))
    assert 2**64 - 1 == parse_decimal(str(2**64 - 1), bits=64)
