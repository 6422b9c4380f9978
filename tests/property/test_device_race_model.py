"""Every order in which schedulers that know nothing of each other can allocate the same device: no
device has two bound users, no bound pod loses its device, all that fits is bound, and each rule is
there for a reason.
"""

import pytest

from tests.device_race_model import Setup, explore

EACH = {"p0": "c0", "p1": "c1"}
TWO = {"p0": "S", "p1": "T"}
SHARED = {"p0": "c0", "p1": "c1", "p2": "c1"}
# Complete: no state is left out. With how many states there are.
SMALL = {
    "two schedulers": (Setup(EACH, TWO), 684),
    "one restarts": (Setup(EACH, TWO, restarts=("S",)), 8_345),
    "a claim that both share": (Setup(SHARED, {"p0": "S", "p1": "T", "p2": "S"}), 12_227),
}
LARGE = {
    "both restart": (Setup(EACH, TWO, restarts=("S", "T")), 98_612),
    "two devices, both restart": (Setup(EACH, TWO, ("d", "e"), ("S", "T")), 306_274),
    "three pods, two devices": (
        Setup({"p0": "c0", "p1": "c1", "p2": "c2"}, TWO | {"p2": "T"}, ("d", "e")), 327_670),
    "pods of one scheduler share a claim": (
        Setup(SHARED, TWO | {"p2": "T"}, restarts=("T",)), 1_118_166),
}  # fmt: skip

TWICE = "d has two bound users"
NONE = "is bound, and has no device"
# What happens without a rule, and where.
WITHOUT = {
    "look": ("two schedulers", TWICE),
    "in order": ("two schedulers", TWICE),
    "doubt": ("one restarts", TWICE),
    "touch": ("one restarts", NONE),
    "mark": ("one restarts", NONE),
    "bind version": ("one restarts", NONE),
}


@pytest.mark.parametrize("name", SMALL)
def test_whatever_the_order_no_device_is_given_twice(name: str) -> None:
    setup, states = SMALL[name]
    found = explore(setup)
    assert found.fault == "", found.way
    assert found.states == states


@pytest.mark.parametrize("rule", WITHOUT)
def test_without_a_rule_a_device_is_lost_or_given_twice(rule: str) -> None:
    name, what = WITHOUT[rule]
    found = explore(SMALL[name][0]._replace(without=frozenset((rule,))))
    assert what in found.fault
    assert found.way


@pytest.mark.more
@pytest.mark.parametrize("name", LARGE)
def test_whatever_the_order_no_device_is_given_twice_more(name: str) -> None:
    setup, states = LARGE[name]
    found = explore(setup)
    assert found.fault == "", found.way
    assert found.states == states


@pytest.mark.more
def test_what_is_taken_back_is_what_was_seen() -> None:
    setup = LARGE["two devices, both restart"][0]
    found = explore(setup._replace(without=frozenset(("version",))))
    assert NONE in found.fault
