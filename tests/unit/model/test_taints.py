"""Which tolerations cover which taints."""

import itertools

import pytest

from stower.model.taints import Taint, Toleration, is_tolerated, tolerates

DEDICATED = Taint("dedicated", "gpu", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration("dedicated", "Equal", "gpu", "NoSchedule"), True),
        (Toleration("dedicated", "", "gpu", "NoSchedule"), True),
        (Toleration("dedicated", "Equal", "cpu", "NoSchedule"), False),
        (Toleration("dedicated", "Equal", "gpu", "NoExecute"), False),
        (Toleration("dedicated", "Equal", "gpu"), True),
        (Toleration("other", "Equal", "gpu"), False),
        (Toleration("dedicated", "Exists"), True),
        (Toleration("dedicated", "Exists", "", "NoExecute"), False),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", "", "NoExecute"), False),
        (Toleration("", "", "gpu"), True),
        (Toleration(), False),
        (Toleration("dedicated", "equal", "gpu"), False),
    ],
)
def test_key_value_and_effect_decide_whether_a_taint_is_covered(
    toleration: Toleration, covers: bool
) -> None:
    """An empty effect or key stands for all of them; an empty operator for Equal."""
    assert covers is tolerates(toleration, DEDICATED)


def test_the_empty_toleration_covers_a_taint_without_a_value() -> None:
    """Upstream compares the values, which are both empty."""
    assert tolerates(Toleration(), Taint("dedicated", "", "NoSchedule"))


def test_exists_covers_every_value_and_equal_only_its_own() -> None:
    for one, other in itertools.product(("", "a", "b"), repeat=2):
        taint = Taint("k", other, "NoExecute")
        assert tolerates(Toleration("k", "Exists", one), taint)
        assert (one == other) is tolerates(Toleration("k", "Equal", one), taint)


@pytest.mark.parametrize(
    ("operator", "bound", "value", "covers"),
    [
        ("Gt", "900", "950", True),
        ("Gt", "900", "900", False),
        ("Lt", "900", "850", True),
        ("Lt", "900", "900", False),
        ("Lt", "5", "-5", True),
        ("Gt", "9", "10", True),
        ("Gt", "x", "10", False),
        ("Gt", "9", "x", False),
        ("Gt", "9", "", False),
        ("Gt", "1.5", "2", False),
        ("Gt", "-9223372036854775808", "9223372036854775807", True),
        ("Gt", "0", "9223372036854775808", False),
        ("Lt", "99999999999999999999", "0", False),
    ],
)
def test_numeric_tolerations_compare_where_the_gate_allows_them(
    operator: str, bound: str, value: str, covers: bool
) -> None:
    """The taint's value is compared with the toleration's, as 64-bit integers."""
    toleration = Toleration("sla", operator, bound)
    assert covers is tolerates(toleration, Taint("sla", value, "NoSchedule"), comparisons=True)


def test_numeric_tolerations_cover_nothing_while_the_gate_is_off() -> None:
    taint = Taint("sla", "950", "NoSchedule")
    assert not tolerates(Toleration("sla", "Gt", "900"), taint)
    assert not tolerates(Toleration("sla", "Lt", "999"), taint)


def test_one_covering_toleration_is_enough() -> None:
    wrong, right = Toleration("other", "Exists"), Toleration("dedicated", "Exists")
    assert is_tolerated((wrong, right), DEDICATED)
    assert not is_tolerated((wrong,), DEDICATED)
    assert not is_tolerated((), DEDICATED)


def test_tolerated_passes_the_gate_on() -> None:
    numeric = (Toleration("sla", "Gt", "1"),)
    assert is_tolerated(numeric, Taint("sla", "2", "NoSchedule"), comparisons=True)
    assert not is_tolerated(numeric, Taint("sla", "2", "NoSchedule"))
