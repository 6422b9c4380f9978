"""Whoever works, crashes or goes in whatever order: nothing is lost, nothing is taken twice, and
who can run does. What is checked at each step is in laws.py, what in the end in chaos.py.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.negotiation.chaos import DEEDS, Deed, World, run

NUMBERS = st.integers(0, 63)
DEED = st.tuples(st.integers(0, len(DEEDS) - 1), NUMBERS, NUMBERS)
HISTORIES = st.lists(DEED, max_size=60)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """One to three nodes and drivers, one to four pods."""
    nodes, drivers = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    few = st.integers(0, 2)

    def tuples(of: st.SearchStrategy[int], least: int, most: int) -> st.SearchStrategy[tuple[int]]:
        return st.lists(of, min_size=least, max_size=most).map(tuple)

    cpus = draw(tuples(st.integers(1, 3), nodes, nodes))
    devices = tuple(draw(tuples(few, nodes, nodes)) for _ in range(drivers))
    claims = tuple(draw(st.lists(st.tuples(few, st.booleans()), max_size=3)))
    pod = st.tuples(st.integers(0, 1), tuples(few, 0, 3), tuples(few, 0, 2))
    pods = tuple(draw(st.lists(pod, min_size=1, max_size=4)))
    return World(cpus, devices, claims, pods, draw(st.integers(1, 2)))


@pytest.mark.behaviour("S0.14", "S0.19", "S0.22", "S0.26", "S0.27", "S0.35", "S0.36")
@settings(max_examples=70)
@given(worlds(), HISTORIES, st.booleans())
def test_nothing_is_lost_and_who_can_run_does(
    world: World, history: list[Deed], lands: bool
) -> None:
    run(world, history, lands)


def drawn(seed: int) -> tuple[World, list[Deed], bool]:
    """Longer histories than those above, with more that goes wrong."""
    chance = random.Random(seed)
    nodes, drivers = chance.randint(1, 3), chance.randint(1, 3)

    def some(least: int, most: int, top: int) -> tuple[int, ...]:
        return tuple(chance.randrange(top) for _ in range(chance.randint(least, most)))

    cpus = tuple(1 + n for n in some(nodes, nodes, 3))
    devices = tuple(some(nodes, nodes, 3) for _ in range(drivers))
    claims = tuple((n, chance.random() < 0.2) for n in some(0, 3, drivers))
    pods = tuple(
        (chance.randrange(2), some(0, 3, drivers), some(0, 2, 3))
        for _ in range(chance.randint(1, 4))
    )
    count = chance.randint(0, chance.choice([20, 100, 400]))
    history = [
        (chance.randrange(len(DEEDS)), chance.randrange(64), chance.randrange(64))
        for _ in range(count)
    ]
    world = World(cpus, devices, claims, pods, chance.choice([1, 1, 1, 2]))
    return world, history, chance.random() < 0.5


def test_nothing_is_lost_in_long_histories() -> None:
    assert sum(run(*drawn(seed)) for seed in range(25)) > 15


@pytest.mark.more
@settings(max_examples=700)
@given(worlds(), HISTORIES, st.booleans())
def test_nothing_is_lost_in_more_worlds(world: World, history: list[Deed], lands: bool) -> None:
    run(world, history, lands)


@pytest.mark.long
def test_nothing_is_lost_in_800_long_histories() -> None:
    for seed in range(25, 825):
        run(*drawn(seed))
