"""Quantities: what Kubernetes' own documentation and source promise, by named example."""

import pytest

from stower.model.quantity import (
    EXPONENT_MAX,
    FORMAT_WRONG,
    INT64_MAX,
    INT64_MIN,
    NUMERIC_WRONG,
    SUFFIX_WRONG,
    TEXT_LENGTH_MAX,
    Format,
    Quantity,
    QuantityError,
    parse_quantity,
    quantity_of,
)


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("0", 0, 0),
        ("2", 2, 2_000),
        ("250m", 1, 250),
        ("1500m", 2, 1_500),
        ("0.1", 1, 100),
        (".5", 1, 500),
        ("3.", 3, 3_000),
        ("+7", 7, 7_000),
        ("007", 7, 7_000),
        ("1u", 1, 1),
        ("1n", 1, 1),
        ("3k", 3_000, 3_000_000),
        ("5G", 5 * 10**9, 5 * 10**12),
        ("2Ki", 2048, 2_048_000),
        ("1.5Gi", 3 * 2**29, 3 * 2**29 * 1000),
        ("12e6", 12 * 10**6, 12 * 10**9),
        ("12E-2", 1, 120),
        ("1E", 10**18, 0),
    ],
)
def test_texts_read_as_rounded_up_numbers(text: str, value: int, milli: int) -> None:
    """Value and MilliValue round up; 1E in thousandths overflows, which upstream answers with 0."""
    assert (value, milli) == (parse_quantity(text).value(), parse_quantity(text).milli_value())


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("1024", "1024"),
        ("2000", "2k"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1025Mi", "1025Mi"),
        ("0.5Ki", "512"),
        ("0.1Ki", "102400m"),
        ("1000Ki", "1000Ki"),
        ("100e-2", "1"),
        ("1e3", "1e3"),
        ("12e4", "120e3"),
        ("0Mi", "0"),
        ("-0", "0"),
        ("-1500m", "-1500m"),
        ("0.1n", "1n"),
        ("99Ei", "9223372036854775807"),
    ],
)
def test_printed_text_loses_nothing_and_has_the_largest_suffix(text: str, printed: str) -> None:
    assert printed == str(parse_quantity(text))


@pytest.mark.parametrize("text", ["+5Ki", "005", "+5", "17k", "3e3"])
def test_text_that_is_canonical_enough_is_kept_as_it_was_written(text: str) -> None:
    """Upstream reuses such a text, plus signs and leading zeros included."""
    assert text == str(parse_quantity(text))


@pytest.mark.parametrize(
    "text", ["5x", "1..2", "1.2.3", " 1", "1 ", "1\n", "½", "١", "1e5x", "abc", ""]
)
def test_text_of_another_form_is_refused_in_upstreams_words(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_quantity(text)
    assert FORMAT_WRONG == str(error.value)


@pytest.mark.parametrize(
    "text", ["1K", "1mi", "1kk", "1ki", "1m5", "1e", "1ee3", "1e+", "1e99999999999999999999", "+-5"]
)
def test_unknown_suffixes_are_refused_in_upstreams_words(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_quantity(text)
    assert SUFFIX_WRONG == str(error.value)


@pytest.mark.parametrize("text", ["Ei", "-Ei", ".Ei", "e-10"])
def test_a_suffix_without_a_number_is_refused_in_upstreams_words(text: str) -> None:
    with pytest.raises(QuantityError) as error:
        parse_quantity(text)
    assert NUMERIC_WRONG == str(error.value)


@pytest.mark.parametrize("text", ["+", "-", ".", "k", "e5", ".Ki"])
def test_some_texts_without_a_digit_read_as_zero_as_upstream_reads_them(text: str) -> None:
    assert parse_quantity(text).is_zero


def test_a_text_beyond_every_meaning_is_refused() -> None:
    with pytest.raises(QuantityError, match=f"longer than {TEXT_LENGTH_MAX}"):
        parse_quantity("1" * (TEXT_LENGTH_MAX + 1))
    with pytest.raises(QuantityError, match=f"exponent beyond {EXPONENT_MAX}"):
        parse_quantity("1e2147483647")


def test_the_largest_readable_amounts_still_add_and_print() -> None:
    """Sums of the longest texts and exponents stay within the digits that Python prints."""
    large = parse_quantity("9" * (TEXT_LENGTH_MAX - 5) + f"e{EXPONENT_MAX}")
    small = parse_quantity("1e-9")
    assert str(large.add(small)).endswith("1e-9")


def test_an_overflow_in_one_multiplication_wraps_and_in_several_gives_zero() -> None:
    """positiveScaleInt64 hands on the product of its short cuts even where it overflowed."""
    assert 10**19 - 2**64 == parse_quantity("10000000000000000").milli_value()
    assert 0 == parse_quantity("10000000000000000k").scaled(-2)


def test_rounding_up_past_the_largest_int64_wraps() -> None:
    assert INT64_MIN == parse_quantity("9223372036854775807.5").value()


def test_negatives_round_away_from_zero_when_small_and_up_when_big() -> None:
    """The two forms differ; a nonzero negative below one in the big form even reaches +1."""
    assert -2 == parse_quantity("-1500m").value()
    assert 0 == parse_quantity("-1.5000000000").value()
    assert 1 == parse_quantity("-0.5000000000").value()


def test_a_binary_amount_is_capped_at_the_largest_int64() -> None:
    assert INT64_MAX == parse_quantity("8Ei").value()
    assert -INT64_MAX == parse_quantity("-9999Ei").value()


def test_a_sum_takes_the_format_of_the_first_that_is_not_zero() -> None:
    zero, mebi, mega = parse_quantity("0"), parse_quantity("1Mi"), parse_quantity("1M")
    assert Format.BINARY_SI is zero.add(mebi).format
    assert Format.BINARY_SI is mebi.add(mega).format
    assert "2048576" == str(mega.add(mebi))
    assert "1Mi" == str(mebi.add(zero))


@pytest.mark.parametrize(
    ("one", "other", "product"),
    [
        ("4", "2", "8"),
        ("3", "0.5", "1500m"),
        ("2Gi", "1", "2Gi"),
        ("1Gi", "500m", "512Mi"),
        ("1Ki", "0.1", "102400m"),
        ("3", "1Gi", "3221225472"),
        ("1n", "100m", "1n"),
        ("0", "5", "0"),
        ("2e3", "2", "4e3"),
    ],
)
def test_a_product_takes_the_format_of_the_first(one: str, other: str, product: str) -> None:
    """Rounded up to nanos, which is what a text can say."""
    assert product == str(parse_quantity(one).mul(parse_quantity(other)))


def test_a_difference_is_exact_and_a_negated_zero_is_zero() -> None:
    assert "-250m" == str(parse_quantity("750m").sub(parse_quantity("1")))
    assert parse_quantity("1Gi").sub(parse_quantity("1024Mi")).is_zero
    assert Quantity.of(0) == Quantity.of(0).neg()


def test_equal_amounts_are_equal_whatever_they_are_written_in() -> None:
    same = [
        parse_quantity(text)
        for text in ("1Ki", "1024", "1.024k", "1024000m", "1.0240000000000000000k")
    ]
    assert 1 == len(set(same))
    assert parse_quantity("1k") < parse_quantity("1Ki") <= parse_quantity("1024")
    assert parse_quantity("1") != 1


def test_numbers_of_json_read_as_their_text() -> None:
    assert 1500 == quantity_of(1.5).milli_value()
    assert 3 == quantity_of(3).value()
    assert 10**20 == quantity_of(10**20).scaled(2) * 100
    assert 1 == quantity_of(1e-07).scaled(-7)


def test_blanks_around_the_text_of_an_object_are_ignored() -> None:
    """UnmarshalJSON trims them, though ParseQuantity refuses them."""
    assert 2 == quantity_of(" 2\t").value()


def test_whole_and_milli_quantities_are_what_they_say() -> None:
    assert "5" == str(Quantity.of(5))
    assert "4Ki" == str(Quantity.of(4096, Format.BINARY_SI))
    assert "1500m" == str(Quantity.of_milli(1500))
    assert "Quantity('1')" == repr(Quantity.of_milli(1000))
