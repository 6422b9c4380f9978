"""A pool learns at which hours users arrive, and holds room for them."""

import random
from math import ceil, sqrt

import pytest

from stower.model.kinds import Pod, WarmPool
from stower.model.kinds.warm_pool import DayProfile
from stower.model.times import SECOND_NS
from stower.warm.day_profile import HOUR_NS, ArrivalCounter, profile_of_hours
from tests.warm.rig import START_NS, TEMPLATE, USER, Hub

DAY_NS = 24 * HOUR_NS
MIDNIGHT_NS = 20_000 * DAY_NS


def counted(arrivals_ns: list[int], until_ns: int) -> DayProfile:
    """What is kept of these, where somebody looks every ten minutes."""
    counter = ArrivalCounter(None)
    at_ns = MIDNIGHT_NS
    counter.advance(at_ns)
    for i, came_ns in enumerate(sorted(arrivals_ns)):
        while at_ns + 600 * SECOND_NS <= came_ns:
            at_ns += 600 * SECOND_NS
            counter.advance(at_ns)
        counter.count(f"u{i}", came_ns, came_ns)
    while at_ns < until_ns:
        at_ns += 600 * SECOND_NS
        counter.advance(at_ns)
    return counter.profile


@pytest.mark.parametrize("seed", range(10))
def test_hours_are_the_means_of_days(seed: int) -> None:
    chance = random.Random(seed)
    days = chance.randint(1, 7)
    came = [
        MIDNIGHT_NS + chance.randrange(days * 24 * 3600) * SECOND_NS for _ in range(200)
    ]  # fmt: skip
    found = counted(came, MIDNIGHT_NS + days * DAY_NS)
    for hour in range(24):
        here = sum((one - MIDNIGHT_NS) // HOUR_NS % 24 == hour for one in came)
        assert found.days[hour] == days
        assert found.hours[hour] == pytest.approx(100 * here / days, abs=days)


def test_old_days_are_forgotten() -> None:
    """A term with ten users at nine, and then a break."""
    nine_ns = MIDNIGHT_NS + 9 * HOUR_NS
    came = [nine_ns + day * DAY_NS + i * SECOND_NS for day in range(7) for i in range(10)]
    assert 1000 == counted(came, MIDNIGHT_NS + 7 * DAY_NS).hours[9]
    assert counted(came, MIDNIGHT_NS + 30 * DAY_NS).hours[9] < 60


def test_nobody_is_counted_twice_or_left_out_in_a_restart() -> None:
    came = [MIDNIGHT_NS + 60 * i * SECOND_NS for i in range(20)]
    one = ArrivalCounter(None)
    one.advance(MIDNIGHT_NS)
    for i, came_ns in enumerate(came[:12]):
        one.count(f"u{i}", came_ns, came_ns)
        one.count(f"u{i}", came_ns, came_ns)  # it is seen again
    other = ArrivalCounter(one.profile)
    now_ns = came[-1]
    for i, came_ns in enumerate(came):
        if i != 11:  # the second of the last that was counted is over
            other.count(f"u{i}", came_ns, now_ns)
    assert 20 == other.profile.count


def test_those_of_one_second_are_all_counted() -> None:
    counter = ArrivalCounter(None)
    for i in range(30):
        counter.count(f"u{i}", MIDNIGHT_NS, MIDNIGHT_NS)
    assert 30 == counter.profile.count


def test_hours_when_nobody_looked_are_not_known() -> None:
    counter = ArrivalCounter(profile_of_hours([5] * 24))
    counter.advance(MIDNIGHT_NS)
    counter.count("u", MIDNIGHT_NS, MIDNIGHT_NS)
    counter.advance(MIDNIGHT_NS + 10 * HOUR_NS)
    assert ((500,) * 24, 0) == (counter.profile.hours, counter.profile.count)


def test_what_is_held_is_for_those_who_come_soon() -> None:
    hours = [0.0] * 24
    hours[9], hours[10] = 60, 120
    counter = ArrivalCounter(profile_of_hours(hours))
    half_past_ns = MIDNIGHT_NS + 9 * HOUR_NS + 1800 * SECOND_NS
    assert ceil(10 + sqrt(10) + 0.5) == counter.reserve(half_past_ns, 600)
    # Ten minutes before ten: ten of nine's, and 20 of ten's.
    ten_to_ns = MIDNIGHT_NS + 10 * HOUR_NS - 600 * SECOND_NS
    assert ceil(30 + sqrt(30) + 0.5) == counter.reserve(ten_to_ns, 1200)
    assert 1 == counter.reserve(MIDNIGHT_NS, 600)
    assert 0 == ArrivalCounter(None).reserve(MIDNIGHT_NS, 600)


@pytest.mark.parametrize(
    "odd",
    [
        DayProfile((-5,) * 90, (-1,) * 90, -3, "yesterday"),
        DayProfile((10**30,), (10**30,), 10**30, "9999-12-31T23:59:59Z"),
        DayProfile((), (), 0, "1969-01-01T00:00:00Z"),
    ],
)
def test_whatever_stands_in_a_status(odd: DayProfile) -> None:
    counter = ArrivalCounter(odd)
    for hour in range(50):
        counter.count(f"u{hour}", MIDNIGHT_NS + hour * HOUR_NS, MIDNIGHT_NS + hour * HOUR_NS)
        counter.reserve(MIDNIGHT_NS + hour * HOUR_NS, 86_400)
    assert 24 == len(counter.profile.hours)
    assert 1 == counter.profile.count


def test_it_is_kept_in_the_status_and_a_restart_loses_nothing() -> None:
    hub = Hub(placeholders={"template": TEMPLATE, "profileSeconds": 600, "replicas": 1})
    hub.node("n1", 50)
    for _ in range(2):
        hub.advance(HOUR_NS / SECOND_NS)
        for _ in range(12):
            hub.user(f"u{hub.now_ns}-{len(hub.names(USER))}")
            hub.advance(10)
    hub.advance(HOUR_NS / SECOND_NS)
    learned = hub.server.get(WarmPool, "default/users").status.profile
    assert learned is not None
    assert [1200, 1200] == sorted(learned.hours)[-2:]
    hub.restart()
    hub.advance(20)
    again = hub.server.get(WarmPool, "default/users").status.profile
    assert learned.hours == again.hours
    # A day later it is time for those of the first hour: two of twelve, and as many more.
    until_ns = START_NS // HOUR_NS * HOUR_NS + DAY_NS + HOUR_NS
    for pod in [*hub.server.all(Pod).values()]:
        if pod.metadata.labels == USER:
            hub.server.remove(pod)
    while hub.now_ns < until_ns:
        hub.advance(600)
    assert (
        ceil(2 + sqrt(2) + 0.5) == hub.pool.wanted == len(hub.names(TEMPLATE["metadata"]["labels"]))
    )


def test_a_pool_that_does_not_ask_for_it_keeps_nothing() -> None:
    hub = Hub()
    hub.node("n1")
    hub.user()
    hub.advance(20)
    assert "profile" not in hub.status
