"""Every order in which things can happen, in small worlds: nobody is bound without what it claims,
nothing goes on for ever, and each rule is there for a reason.

The worlds are those in which the rules were found; the whole list runs with `make test-more`.
"""

import pytest

from tests.negotiation_model import Setup, explore

TWO = {"c0": "D0", "c1": "D1"}
FOUR = {"c0": "D0", "c1": "D1", "c2": "D0", "c3": "D1"}
PAIRS = {"p0": ("c0", "c1"), "p1": ("c2", "c3")}
ONE_EACH = {"D0": {"n1": 1}, "D1": {"n1": 1}}
SHARED = {"p0": ("c0",), "p1": ("c0",)}
ALL = ("S", "D0", "D1")
LIVES = ("delete-pod p0", "make-pod p0", "delete-claim c0", "make-claim c0")
BOTH = {"D0": {"n1": 1, "n2": 1}, "D1": {"n1": 1, "n2": 1}}

# Complete: no state is left out, so the laws of progress are looked at, too.
SMALL = {
    "two claims, two drivers": Setup({"p0": ("c0", "c1")}, TWO, BOTH | {"D1": {"n2": 1}}),
    "the same, all caches lag": Setup(
        {"p0": ("c0", "c1")}, TWO, BOTH | {"D1": {"n2": 1}}, ALL
    ),
    "one candidate a round, all caches lag": Setup(
        {"p0": ("c0", "c1")}, TWO, {"D0": {"n2": 1, "n3": 1}, "D1": {"n1": 1, "n3": 1}}, ALL,
        nodes_max=1,
    ),
    "the node has one of two": Setup(
        {"p0": ("c0", "c1")}, {"c0": "D0", "c1": "D0"}, {"D0": {"n1": 1, "n2": 2}}, ("S",),
        ("restart S",),
    ),
    "a binding under way, and the claim deleted": Setup(
        {"p0": ("c0",)}, {"c0": "D0"}, {"D0": {"n1": 1}}, (), ("restart S", "delete-claim c0")
    ),
    "a shared claim, its pod and itself deleted": Setup(
        SHARED, {"c0": "D0"}, {"D0": {"n1": 1}}, (), ("delete-pod p0", "delete-claim c0")
    ),
    "a selection that is late, and another": Setup(
        {"p0": ("c0", "c1")}, TWO, BOTH, (), ("late p0", "late p0")
    ),
    "an allocation under way, and the pod deleted": Setup(
        {"p0": ("c0",)}, {"c0": "D0"}, {"D0": {"n1": 1}}, ("D0",), ("restart D0", "delete-pod p0")
    ),
}  # fmt: skip
# With so many states: all there are, or (round numbers) the first of them, in which safety alone is
# looked at.
LARGE = {
    "two pods, two claims each, one device of each": (Setup(PAIRS, FOUR, ONE_EACH), 30_679),
    "restarts, all caches lag": (
        Setup({"p0": ("c0", "c1")}, TWO, BOTH | {"D1": {"n2": 1}}, ALL,
              ("restart S", "restart D0")), 115_387),
    "two pods, one device, all caches lag": (
        Setup({"p0": ("c0",), "p1": ("c1",)}, {"c0": "D0", "c1": "D0"}, {"D0": {"n1": 1}},
              ("S", "D0"), ("restart S",)), 60_000),
    "a shared claim, all caches lag, a pod deleted": (
        Setup(SHARED, {"c0": "D0"}, {"D0": {"n1": 1}}, ("S", "D0"), ("delete-pod p0",)), 60_000),
    "a pod and its claim deleted and made anew": (
        Setup({"p0": ("c0",)}, {"c0": "D0"}, {"D0": {"n1": 1}}, ("S", "D0"),
              ("restart S", *LIVES)), 40_000),
    "the same, and the driver dies": (
        Setup({"p0": ("c0",)}, {"c0": "D0"}, {"D0": {"n1": 1}}, ("D0",),
              ("restart D0", *LIVES)), 40_000),
    "a node is lost": (
        Setup({"p0": ("c0", "c1")}, TWO, BOTH, ("D0", "D1"), ("lose n1",)), 50_000),
    "shared and own claims": (
        Setup({"p0": ("c0", "c1"), "p1": ("c0", "c2")}, {"c0": "D0", "c1": "D1", "c2": "D1"},
              {"D0": {"n1": 1, "n2": 1}, "D1": {"n1": 1, "n2": 2}}), 38_101),
    "shared and own claims, a node lost": (
        Setup({"p0": ("c0",), "p1": ("c0", "c1")}, TWO, BOTH | {"D1": {"n2": 1}}, (),
              ("restart S", "lose n2")), 40_000),
    "a shared claim, and its node lost": (
        Setup(SHARED, {"c0": "D0"}, {"D0": {"n1": 1, "n2": 1}}, (), ("lose n1",)), 21_735),
    "two schedulers, all caches lag, the claim deleted": (
        Setup({"p0": ("c0",)}, {"c0": "D0"}, {"D0": {"n1": 1}}, ("S", "T"),
              ("delete-claim c0",), ("S", "T")), 37_607),
    "two schedulers, two pods, two claims each": (
        Setup(PAIRS, FOUR, ONE_EACH, (), (), ("S", "T")), 40_000),
    "a selection that is late, the scheduler's cache lags, and it dies": (
        Setup({"p0": ("c0", "c1")}, TWO, ONE_EACH, ("S",), ("late p0", "restart S")), 64_323),
    "a selection that is late, all caches lag": (
        Setup({"p0": ("c0", "c1")}, TWO, ONE_EACH, ALL, ("late p0",)), 40_000),
    "a selection that is late, of two pods": (
        Setup(PAIRS, FOUR, ONE_EACH, (), ("late p0",)), 40_000),
    "three pods, two devices": (
        Setup({f"p{i}": (f"c{i}",) for i in range(3)}, {f"c{i}": "D0" for i in range(3)},
              {"D0": {"n1": 1, "n2": 1}}), 26_704),
}  # fmt: skip
LARGE_STATES = 200_000  # at least, all together

NOT_RESERVED = "p0 is bound, c0 is not reserved for it"
NOT_TAKEN = "c0 is reserved, and its device is not taken"
CYCLE = "a fair cycle"
# What happens without a rule, and where.
WITHOUT = {
    "S2": (Setup({"p0": ("c0", "c1")}, TWO, BOTH | {"D1": {"n2": 1}}, keeps=True),
           "c0 was allocated for nothing"),
    "S6": (SMALL["a shared claim, its pod and itself deleted"], NOT_TAKEN),
    "S7": (LARGE["two schedulers, all caches lag, the claim deleted"][0], NOT_RESERVED),
    "S7r": (SMALL["a binding under way, and the claim deleted"], NOT_RESERVED),
    "S8a": (Setup(PAIRS, FOUR, {"D0": {"n1": 2}, "D1": {"n1": 1}}), CYCLE),
    "S8c": (SMALL["a binding under way, and the claim deleted"], NOT_RESERVED),
    "S8own": (Setup({"p0": ("c0", "c1"), "p1": ("c0",)}, TWO, BOTH | {"D1": {"n2": 1}}), CYCLE),
    "S8lost": (LARGE["a shared claim, and its node lost"][0], "p0 is not bound, and could be"),
    "D4": (SMALL["an allocation under way, and the pod deleted"]._replace(stale=()), NOT_TAKEN),
    "D5": (Setup({"p0": ("c0", "c1")}, {"c0": "D0", "c1": "D0"}, {"D0": {"n1": 1}}), CYCLE),
    "D6": (Setup({"p0": ("c0",)}, {"c0": "D0"}, {"D0": {"n1": 1}}, (),
                 ("restart D0", "delete-claim c0")), NOT_TAKEN),
    "K1": (Setup({"p0": ("c0",)}, {"c0": "D0"}, {"D0": {"n1": 1}}, ("K",),
                 ("delete-pod p0", "make-pod p0")), NOT_RESERVED),
    "D7": (SMALL["an allocation under way, and the pod deleted"], NOT_TAKEN),
}  # fmt: skip
WITHOUT_MORE = {
    "S5": (LARGE["two pods, two claims each, one device of each"][0], CYCLE),
    "D3": (LARGE["two pods, two claims each, one device of each"][0], CYCLE),
    "S8held": (
        Setup({"p0": ("c0", "c1"), "p1": ("c0",)}, TWO, BOTH, (), ("lose n1",)),
        "p0 is not bound and has c1 for itself",
    ),
}
QUICK = ("S2", "S6", "S7r", "S8c", "S8lost", "D4", "D5", "D6", "D7", "K1")


@pytest.mark.behaviour("S0.27")
@pytest.mark.parametrize("name", SMALL)
def test_whatever_the_order_all_ends_well(name: str) -> None:
    found = explore(SMALL[name])
    assert (True, "") == (found.is_complete, found.fault), found.way


@pytest.mark.parametrize("rule", QUICK)
def test_without_a_rule_it_goes_wrong(rule: str) -> None:
    setup, what = WITHOUT[rule]
    found = explore(setup._replace(without=frozenset((rule,))))
    assert what in found.fault
    assert found.way


@pytest.mark.more
@pytest.mark.parametrize("name", LARGE)
def test_whatever_the_order_all_ends_well_more(name: str) -> None:
    setup, states = LARGE[name]
    found = explore(setup, states)
    assert "" == found.fault, found.way
    assert (states, states % 10_000 > 0) == (found.states, found.is_complete)


def test_the_large_worlds_are_large_enough() -> None:
    assert LARGE_STATES < sum(states for _, states in LARGE.values())


@pytest.mark.more
@pytest.mark.parametrize("rule", [r for r in {**WITHOUT, **WITHOUT_MORE} if r not in QUICK])
def test_without_a_rule_it_goes_wrong_more(rule: str) -> None:
    setup, what = {**WITHOUT, **WITHOUT_MORE}[rule]
    found = explore(setup._replace(without=frozenset((rule,))))
    assert what in found.fault
    assert found.way
