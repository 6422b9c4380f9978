"""Reads decimal numbers of any length from text that users wrote.

int() raises ValueError above 4,300 digits and accepts digits of all scripts.
"""


def parse_decimal(text: str, bits: int = 63) -> int | None:
    """Returns a number without sign; None for any other text, and for 2**bits and more."""
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    number = int(digits) if len(digits) <= 39 else 1 << 128
    return number if number < 1 << bits else None


def parse_signed(text: str, bits: int = 64) -> int | None:
    """Returns a number that may have a sign; None for any other text, and beyond that many bits.

    Source: strconv.ParseInt of Go with base 10.
    """
    digits = text[1:] if text[:1] in ("-", "+") else text
    number = parse_decimal(digits, bits)
    if number is None:
        return None
    if text[:1] == "-":
        number = -number
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None
