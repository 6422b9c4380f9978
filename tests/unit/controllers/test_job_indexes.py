"""Sets of completion indexes, as compressed as a Job's status tells them."""

from random import Random

import pytest

from stower.controllers.job_indexes import IndexSet, match_success_policy


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1), "0,1"), ((2, 1, 0, 5), "0-2,5"), ((4, 6, 7, 8), "4,6-8")],
)
def test_indexes_are_written_as_spans(numbers: tuple[int, ...], text: str) -> None:
    found = IndexSet.of(numbers)
    assert text == str(found)
    assert found.spans == IndexSet.parse(text, 10).spans


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("0-2,5", "0-2,5"),
        ("3-20", "3-9"),
        ("12", ""),
        ("1,x,3,-4,5-,٣", "1,3"),
        ("99999999999999999999", ""),
        ("0-5,2-3,9", "0-5,9"),
    ],
)
def test_what_is_no_index_is_left_out(text: str, read: str) -> None:
    assert read == str(IndexSet.parse(text, 10))


def test_index_sets_are_sets() -> None:
    """They agree with Python's own sets, of which they are the compressed form."""
    random = Random(1)
    for _ in range(300):
        most = random.choice((4, 12, 40))
        first, second = (
            {random.randrange(most) for _ in range(random.randrange(most))} for _ in range(2)
        )
        a, b = IndexSet.of(first), IndexSet.of(second)
        assert sorted(first | second) == sorted(i for i in range(most) if i in a | b)
        assert len(first & second) == a.count_common(b)
        assert len(first) == len(a)
        assert sorted(set(range(most)) - first) == list(a.missing(most))


def test_a_rule_that_names_no_index_is_never_met() -> None:
    rules = [{"succeededIndexes": "7-9"}, {"succeededIndexes": "", "succeededCount": 0}]
    assert match_success_policy({"rules": rules}, 5, IndexSet.of((0, 1))) is None
