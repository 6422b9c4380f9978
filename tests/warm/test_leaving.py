"""Users gather where a node is in use for one more for the shortest time."""

import math
import random
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from stower.model.kinds import Pod
from stower.model.kinds.warm_pool import Packing
from stower.model.times import SECOND_NS, time_text
from stower.warm.leaving import PART_S, STEP_S, STEPS, extra_seconds
from tests.warm.rig import USER, Hub

NOTE = "hub.jupyter.org/last-activity"


def idle(hub: Hub, name: str, seconds: float, node: str = "", **meta: Any) -> None:
    """A user who was last active so long ago."""
    at = time_text(hub.now_ns - int(seconds * SECOND_NS))
    hub.pod(name, USER, node, annotations={NOTE: at}, **meta)


def two_nodes(hub: Hub, *idle_seconds: float) -> Hub:
    """Three who were last active so long ago, and two of whom nothing is known."""
    hub.node("n1")
    hub.node("n2")
    for i, seconds in enumerate(idle_seconds):
        idle(hub, f"idle{i}", seconds, "n1")
    for i in range(2):
        hub.pod(f"active{i}", USER, "n2")
    return hub


def test_a_user_goes_beside_those_who_stay() -> None:
    assert "n2" == two_nodes(Hub(), 3000, 3300, 3500).user()


def test_a_pool_may_want_the_most_users() -> None:
    assert "n1" == two_nodes(Hub(packing={"mode": "Users"}), 3000, 3300, 3500).user()


def test_who_was_active_just_now_stays_as_long_as_anybody() -> None:
    assert "n1" == two_nodes(Hub(), 0, 60, 290).user()


def test_who_should_be_gone_long_since_is_not_culled() -> None:
    assert "n1" == two_nodes(Hub(), 9_000, 90_000, 900_000).user()


def test_a_time_that_is_none_or_is_to_come_says_nothing() -> None:
    hub = Hub()
    two_nodes(hub)
    for i, at in enumerate(("yesterday", "", "9999-12-31T23:59:59Z")):
        hub.pod(f"odd{i}", USER, "n1", annotations={NOTE: at})
    assert "n1" == hub.user()


def test_who_comes_back_is_active_again() -> None:
    hub = two_nodes(Hub(), 3000, 3300, 3500)
    for i in range(3):
        hub.server.remove(hub.server.get(Pod, f"default/idle{i}"))
        hub.pod(f"idle{i}", USER, "n1", uid=f"idle{i}")
    assert "n1" == hub.user()


def test_the_annotation_has_the_name_that_the_pool_says() -> None:
    hub = two_nodes(Hub(packing={"lastActivityAnnotation": "example.com/seen"}), 3000, 3300, 3500)
    assert "n1" == hub.user()


def survival(how: Packing, age_s: float) -> float:
    ratio = math.log(max(age_s, 1) / how.session_seconds) / 0.8
    return max(1e-9, 1 - NormalDist().cdf(ratio))


def slow_gone(how: Packing, age_s: float, at_s: float) -> float:
    """The chance that a user who is active at an age is gone after a time."""

    def stopped(seconds: float) -> float:
        return 1 - survival(how, age_s + seconds) / survival(how, age_s)

    culled = stopped(max(0.0, at_s - how.cull_seconds - how.cull_every_seconds / 2))
    own = how.stop_percent / 100
    return own * stopped(at_s) + (1 - own) * culled


def slow_extra_seconds(how: Packing, idle_s: list[float], ages_s: list[float]) -> float:
    """How long one more is alone, by the definition."""
    total = 0.0
    for step in range(STEPS):
        at_s = (step + 0.5) * STEP_S
        all_gone = math.prod(slow_gone(how, age_s // STEP_S * STEP_S, at_s) for age_s in ages_s)
        for one in idle_s:
            chance = (one + at_s - how.cull_seconds) / how.cull_every_seconds
            all_gone *= min(1.0, max(0.0, chance))
        total += all_gone * (1 - slow_gone(how, 0, at_s)) * STEP_S
    return total


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_time_for_which_one_more_is_alone(seed: int) -> None:
    chance = random.Random(seed)
    hub = Hub(packing={"sessionSeconds": chance.choice((600, 3600, 7200)),
                       "stopPercent": chance.choice((0, 30, 100))})  # fmt: skip
    want = []
    for n in range(4):
        hub.node(f"n{n}", 20)
        idle_s = [chance.uniform(300, 4700) // 1 for _ in range(chance.randint(0, 5))]
        ages_s = [chance.uniform(0, 30_000) // 1 for _ in range(chance.randint(0, 4))]
        for i, seconds in enumerate(idle_s):
            idle(hub, f"idle{n}-{i}", seconds, f"n{n}")
        for i, age_s in enumerate(ages_s):
            at = time_text(hub.now_ns - int(age_s * SECOND_NS))
            hub.pod(f"active{n}-{i}", USER, f"n{n}", creationTimestamp=at)
        ages_s = [min(age_s, (STEPS - 1) * STEP_S) for age_s in ages_s]
        want.append(slow_extra_seconds(hub.pool.spec.packing, idle_s, ages_s))
    state = hub.engine.state
    rows = np.array([state.row_of(f"n{n}") for n in range(4)])
    found = extra_seconds(state, hub.pool, (hub.pool,), rows)
    assert np.allclose(found, want, atol=PART_S + 1)
