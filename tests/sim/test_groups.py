"""Trees of groups under all faults: in each of these seeds there are some."""

import pytest

from stower.model.times import SECOND_NS
from stower.sim.trial import Trial, script_of

ACTIVE_NS = 300 * SECOND_NS
SEEDS = 6
SEEDS_MORE = 36
CHUNK = 6


def said(seed: int) -> str:
    found = Trial(script_of(seed, active_ns=ACTIVE_NS, parts=("devices", "groups"))).run()
    return f"seed {seed}, {found.faults}: {found.law} {found.what}" if found.law else ""


@pytest.mark.behaviour("S3.7", "S3.33")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_law_is_broken(first: int) -> None:
    assert [] == [text for seed in range(first, first + CHUNK) if (text := said(seed))]


@pytest.mark.more
@pytest.mark.parametrize("first", range(SEEDS, SEEDS_MORE, CHUNK))
def test_no_law_is_broken_more(first: int) -> None:
    test_no_law_is_broken(first)
