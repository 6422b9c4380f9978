"""Days of a hub: the rules of warm capacity hold at every moment, and the figures are good."""

from statistics import fmean
from typing import Any

import pytest

from stower.model.kinds import Node, Pod
from stower.model.times import SECOND_NS
from stower.sim.autoscaler import NodeGroup
from stower.sim.hub import HubDay, Outcome
from stower.sim.hub_day import drawn_day
from stower.sim.hub_policies import Policy, Scenario

LOOK_NS = 10 * SECOND_NS
SEEDS = 2
SEEDS_MORE = 6
# A node that users have left is drained by now, where it can be spared: moves have a budget.
EMPTIED_NS = 600 * SECOND_NS


class Watched(HubDay):
    """A day, and what must never be so."""

    def run(self) -> Outcome:
        """Look every ten seconds."""
        self.draining_since_ns: dict[str, int] = {}
        self.agenda.after(LOOK_NS + SECOND_NS, self._look)
        return super().run()

    def _look(self) -> None:
        assert self._warm is not None
        pool = self._warm.pools["hub/users"]
        now_ns = self.agenda.now_ns
        pods = self.server.all(Pod).values()
        waiting = [p for p in pods if p.metadata.name in self._waiting]
        for machine in self.machines.values():
            here = self.server.pods_on(machine.name).values()
            users = [p for p in here if p.metadata.name.startswith("jupyter-")]
            assert len(here) <= self.scenario.slots
            if machine.pulled_ns <= now_ns:
                # No user waits while evicting placeholders would let one in.
                assert not waiting or len(users) == self.scenario.slots, machine.name
        for name in [*self.draining_since_ns]:
            if name not in pool.draining:
                del self.draining_since_ns[name]
        for name in pool.draining:
            node, since_ns = self.server.get(Node, name), self.draining_since_ns
            if node is not None and self.server.pods_on(name):
                assert now_ns - since_ns.setdefault(name, now_ns) <= EMPTIED_NS, name
            else:
                since_ns.pop(name, None)
        self.agenda.after(LOOK_NS, self._look)


@pytest.mark.behaviour("S1.17", "S1.21", "S1.28", "S1.31", "S1.33")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_ordinary_days(seed: int) -> None:
    day = drawn_day(seed, lectures=False)
    ours = Watched(day, Scenario("f", nodes_max=40), Policy("ours", "stower", 10)).run()
    theirs = HubDay(day, Scenario("f", nodes_max=40), Policy("theirs", "z2jh", 10)).run()
    soon = [fmean(wait <= 10 for wait in one.waits_s) for one in (ours, theirs)]
    assert soon[0] >= 0.985
    assert soon[0] > soon[1]
    assert (0, True) == (ours.cold, ours.moves_in_a_minute <= 6)
    assert ours.node_hours <= 1.02 * theirs.node_hours  # 0.97 of it on average
    assert ours.evicted / 24 <= 20
    assert ours.moved / 24 <= 6


@pytest.mark.more
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS_MORE))
def test_ordinary_days_more(seed: int) -> None:
    test_ordinary_days(seed)


def test_lectures_that_are_announced() -> None:
    day = drawn_day(3, lectures=True)
    whole = Watched(day, Scenario("t"), Policy("ours", "stower", 5, told=True)).run()
    assert fmean(wait <= 10 for wait in whole.waits_s) >= 0.99


@pytest.mark.more
@pytest.mark.behaviour("S1.31")
def test_an_autoscaler_has_its_bounds() -> None:
    day = drawn_day(0, lectures=False)
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


def test_the_same_day_gives_the_same_figures() -> None:
    day = drawn_day(1, lectures=False)
    one, other = (HubDay(day, Scenario("f"), Policy("o", "stower", 10)).run() for _ in range(2))
    assert one == other
