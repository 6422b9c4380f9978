"""Days of a hub: the rules of warm capacity hold at every moment, and the figures are good."""

from statistics import fmean
from typing import Any

import pytest
from msgspec.structs import replace

from stower.framework.post_filter import PostFilterResult
from stower.plugins.default_preemption import DefaultPreemption
from stower.plugins.image_readiness import ImageReadiness
from stower.plugins.node_resources_fit import NodeResourcesFit
from stower.plugins.warm_capacity import WarmCapacity
from stower.sim import autoscaler
from stower.sim.autoscaler import NodeGroup
from stower.sim.hub import HubDay
from stower.sim.hub_day import draw_day
from stower.sim.hub_policies import Policy, Scenario
from stower.state.pod_entry import PodEntry
from stower.warm.moves import NO_PLAN, Planner
from stower.warm.placeholders import PlaceholderManager
from stower.warm.pools import Pool
from stower.warm.repositioning import Repositioner

SEEDS = 1
SEEDS_MORE = 3
SEEDS_LONG = 12


@pytest.mark.behaviour("S1.17", "S1.21", "S1.28", "S1.31", "S1.33")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_ordinary_days(seed: int) -> None:
    day = draw_day(seed, lectures=False)
    ours = HubDay(day, Scenario("f", nodes_max=40), Policy("ours", "stower", 10)).run()
    theirs = HubDay(day, Scenario("f", nodes_max=40), Policy("theirs", "z2jh", 10)).run()
    soon = [fmean(wait <= 10 for wait in one.waits_s) for one in (ours, theirs)]
    assert soon[0] >= 0.985
    assert soon[0] > soon[1]
    assert ("", 0, True) == (ours.broken, ours.cold, ours.moves_in_a_minute <= 6)
    assert ours.node_hours <= 1.02 * theirs.node_hours  # 0.97 of it on average
    assert ours.evicted / 24 <= 20
    assert ours.moved / 24 <= 6


@pytest.mark.more
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS_MORE))
def test_ordinary_days_more(seed: int) -> None:
    test_ordinary_days(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(SEEDS_MORE, SEEDS_LONG))
def test_ordinary_days_long(seed: int) -> None:
    test_ordinary_days(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_days_on_which_a_tenth_of_the_nodes_never_have_their_images(seed: int) -> None:
    """What waits on these is no headroom; users went there after 300 s, and never started."""
    day = draw_day(seed, lectures=False)
    found = HubDay(day, Scenario("d", dead=0.1), Policy("ours", "stower", 10)).run()
    assert ("", 0) == (found.broken, found.cold)
    assert fmean(wait <= 10 for wait in found.waits_s) >= 0.985
    assert max(found.waits_s) < 900
    healthy = HubDay(day, Scenario("f"), Policy("ours", "stower", 10)).run()
    assert found.node_hours <= 1.1 * healthy.node_hours


@pytest.mark.more
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS_MORE))
def test_days_with_dead_nodes_more(seed: int) -> None:
    test_days_on_which_a_tenth_of_the_nodes_never_have_their_images(seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_two_hubs_on_the_same_nodes_are_like_one(seed: int) -> None:
    """Users of both are users, and they drain nodes together."""
    day = draw_day(seed, lectures=False)
    both = HubDay(day, Scenario("two", hubs=2), Policy("ours", "stower", 10)).run()
    one = HubDay(day, Scenario("one"), Policy("ours", "stower", 10)).run()
    assert ("", 0) == (both.broken, both.cold)
    assert fmean(wait <= 10 for wait in both.waits_s) >= 0.985
    assert both.node_hours <= 1.05 * one.node_hours  # 0.99 of it on average


@pytest.mark.more
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS_MORE))
def test_two_hubs_on_the_same_nodes_are_like_one_more(seed: int) -> None:
    test_two_hubs_on_the_same_nodes_are_like_one(seed)


@pytest.mark.more
def test_lectures_that_are_announced() -> None:
    day = draw_day(3, lectures=True)
    whole = HubDay(day, Scenario("t"), Policy("ours", "stower", 5, told=True)).run()
    assert whole.broken == ""
    assert fmean(wait <= 10 for wait in whole.waits_s) >= 0.99


@pytest.mark.more
@pytest.mark.behaviour("S1.31")
def test_an_autoscaler_has_its_bounds() -> None:
    day = draw_day(0, lectures=False)
    small = HubDay(day, Scenario("f", nodes_max=13), Policy("ours", "stower", 10))
    most, least, order, remove = 0, 99, small._order, small._remove

    def ordered(group: NodeGroup, warm: bool = False) -> None:
        nonlocal most
        order(group, warm)
        most = max(most, len(small.machines))

    def removed(machine: Any) -> None:
        nonlocal least
        assert machine.pulled_ns <= small.agenda.now_ns  # never one that pulls
        remove(machine)
        least = min(least, len(small.machines))

    scaler = small.autoscaler
    scaler._order, scaler._remove = ordered, removed
    small.run()
    assert (13, True) == (most, least >= 1)


@pytest.mark.more
@pytest.mark.behaviour("S1.31")
def test_a_provider_that_has_no_nodes_is_told_of_and_asked_again_later() -> None:
    day = draw_day(1, lectures=False)
    noon, evening = 8 * 3600.0, 12 * 3600.0
    group = replace(Scenario("f").node_groups()[0], outages=((noon, evening),))
    out = HubDay(day, Scenario("o", groups=(group,)), Policy("ours", "stower", 5)).run()
    # Every five minutes at most, not at every look.
    assert 1 <= out.orders_failed <= (evening - noon) / 300 + 1
    assert fmean(wait <= 10 for wait in out.waits_s) < 0.95


def test_the_same_day_gives_the_same_figures() -> None:
    day = draw_day(1, lectures=False)
    day = replace(day, users=day.users[:150])
    one, other = (HubDay(day, Scenario("f"), Policy("o", "stower", 10)).run() for _ in range(2))
    assert one == other


def nothing(*_: object) -> None:
    """What a plugin that has no say says."""


def count_all(_: object, pool: Pool, entries: list[PodEntry], nodes: object) -> int:
    """Placeholders count wherever they are."""
    return len(entries)


# Bugs, and the law that tells each.
BUGS: dict[str, tuple[str, list[tuple[Any, str, Any]]]] = {
    "placeholders give no way": (
        "nobody waits for placeholders",
        [
            (WarmCapacity, "displaceable_pods", lambda *_: ()),
            (DefaultPreemption, "post_filter", lambda *_: PostFilterResult()),
        ],
    ),
    "images are there before they are": (
        "ready nodes", [(ImageReadiness, "filter_pod", nothing)],
    ),
    "moves have no limit": ("moves", [(Repositioner, "_recent_moves", lambda *_: ([], []))]),
    "nothing is drained": ("emptied", [(Planner, "plan_drain", lambda *_: NO_PLAN)]),
    "nodes are unneeded at once": ("pulling", [(autoscaler, "UNNEEDED_NS", 0)]),
    "dead nodes hold headroom": (
        "headroom", [(PlaceholderManager, "count_useful", count_all)],
    ),
    "nodes are never full": (
        "room", [(NodeResourcesFit, f, nothing) for f in ("filter", "passes", "filter_row")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_breaks_its_law(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law, mended = BUGS[bug]
    for owner, name, other in mended:
        monkeypatch.setattr(owner, name, other)
    broken = ""
    for seed in range(4):
        day = draw_day(seed, lectures=True)
        dead = 0.3 if law == "headroom" else 0.0
        broken = HubDay(day, Scenario("t", dead=dead), Policy("ours", "stower", 20)).run().broken
        if broken:
            break
    assert law == broken.partition(": ")[2].partition(": ")[0]
