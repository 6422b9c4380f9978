"""A warm pool under all faults: its laws hold whoever dies, whatever gets lost."""

from typing import Any

import pytest

from stower.framework.post_filter import Remedy
from stower.model.times import SECOND_NS
from stower.plugins.default_preemption import DefaultPreemption
from stower.plugins.image_readiness import ImageReadiness
from stower.plugins.warm_capacity import WarmCapacity
from stower.sim.trial import Trial, script_of
from stower.warm.keeping import Keeping
from stower.warm.repositioning import Repositioner

ACTIVE_NS = 300 * SECOND_NS
SEEDS = 20
SEEDS_MORE = 120
CHUNK = 10


def said(seed: int) -> str:
    found = Trial(script_of(seed, active_ns=ACTIVE_NS, warm=True)).run()
    return f"seed {seed}, {found.faults}: {found.law} {found.what}" if found.law else ""


@pytest.mark.behaviour("S1.17", "S1.5", "S1.11")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_law_is_broken(first: int) -> None:
    assert [] == [text for seed in range(first, first + CHUNK) if (text := said(seed))]


@pytest.mark.more
@pytest.mark.parametrize("first", range(SEEDS, SEEDS_MORE, CHUNK))
def test_no_law_is_broken_more(first: int) -> None:
    test_no_law_is_broken(first)


# Bugs, and what the law says of them.
BUGS: dict[str, tuple[str, list[tuple[Any, str, Any]]]] = {
    "who begins may move at once": (
        "moves in a minute",
        [(Repositioner, "_lately", lambda *_: ([], []))],
    ),
    "images are there before they are": (
        "has not its images",
        [(ImageReadiness, "filter_pod", lambda *_: None)],
    ),
    "placeholders give no way": (
        "has room",
        [
            (WarmCapacity, "give_way", lambda *_: ()),
            (DefaultPreemption, "post_filter", lambda *_: Remedy()),
        ],
    ),
    "too few are made": ("are wanted", [(Keeping, "made_up_for", lambda *_: [])]),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_breaks_the_law(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, mended = BUGS[bug]
    for owner, name, other in mended:
        monkeypatch.setattr(owner, name, other)
    found = (said(seed) for seed in range(40))
    assert any("warmth" in text and words in text for text in found)
