"""Validates texts of completion indexes such as `0-2,5`. Source: pkg/apis/batch/validation."""

from collections.abc import Iterator

from stower.api.errors import go_quote
from stower.model.integers import parse_decimal


class IndexFault(ValueError):
    """A text is no list of indexes, in upstream's words."""


def count_indexes(text: str, completions: int) -> int:
    """How many indexes the text names, in increasing order. Raises IndexFault."""
    total, last = 0, None
    for first, end in spans_of(text, completions):
        if last is not None and last >= first:
            raise IndexFault(f"non-increasing order, previous: {last}, current: {first}")
        total, last = total + end - first + 1, end
    return total


def spans_of(text: str, completions: int) -> Iterator[tuple[int, int]]:
    """First and last index of each part. Raises IndexFault."""
    for part in text.split(",") if text else ():
        ends = part.split("-")
        if len(ends) > 2:
            raise IndexFault(
                f"the fragment {go_quote(part)} violates the requirement that an index interval "
                "can have at most two parts separated by '-'"
            )
        first, *rest = (_index(end, completions) for end in ends)
        if rest and first >= rest[0]:
            raise IndexFault(f"non-increasing order, previous: {first}, current: {rest[0]}")
        yield first, rest[0] if rest else first


def _index(text: str, completions: int) -> int:
    digits = text.removeprefix("+")
    value = parse_decimal(digits) if digits.isascii() and digits.isdecimal() else None
    if value is None:
        raise IndexFault(f"cannot convert string to integer for index: {go_quote(text)}")
    if value >= completions:
        raise IndexFault(f"too large index: {go_quote(text)}")
    return value


def find_overlap(completed: str, failed: str, completions: int) -> int | None:
    """An index that is in both texts, or None; parts that are not well-formed are left out."""
    ours, theirs = _well_formed(completed, completions), _well_formed(failed, completions)
    one = other = 0
    while one < len(ours) and other < len(theirs):
        (first, last), (low, high) = ours[one], theirs[other]
        if first <= high and low <= last:
            return max(first, low)
        if first <= low:
            one += 1
        else:
            other += 1
    return None


def _well_formed(text: str, completions: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for part in text.split(",") if text else ():
        try:
            found += spans_of(part, completions)
        except IndexFault:
            continue
    return found
