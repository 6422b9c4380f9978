"""A warm pool under all faults: its laws hold whoever dies, whatever gets lost."""

import pytest

from stower.model.times import SECOND_NS
from stower.sim.trial import Trial, script_of

ACTIVE_NS = 300 * SECOND_NS
SEEDS = 5
SEEDS_MORE = 35
CHUNK = 5


def said(seed: int) -> str:
    found = Trial(script_of(seed, active_ns=ACTIVE_NS, parts=("devices", "warm"))).run()
    return f"seed {seed}, {found.faults}: {found.law} {found.what}" if found.law else ""


@pytest.mark.behaviour("S1.17", "S1.5", "S1.11")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_law_is_broken(first: int) -> None:
    assert [] == [text for seed in range(first, first + CHUNK) if (text := said(seed))]


@pytest.mark.more
@pytest.mark.parametrize("first", range(SEEDS, SEEDS_MORE, CHUNK))
def test_no_law_is_broken_more(first: int) -> None:
    test_no_law_is_broken(first)
