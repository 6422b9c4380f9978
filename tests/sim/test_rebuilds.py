"""A state that is built again in the middle of everything: nothing is lost, and nothing twice."""

import random

import pytest

from stower.engine.engine import Engine
from stower.model.times import SECOND_NS
from stower.sim.checkers import CHECKERS
from stower.sim.trial import Trial, script_of

SHARE = 0.03  # of the steps
# For these laws a rebuild is a restart, which counts as a change: all waiting pods are tried again.
CHECKED = [c for c in CHECKERS if c.law not in ("attempts", "evictions", "preemptions")]


@pytest.mark.parametrize("seed", range(4))
def test_laws_hold_while_the_state_is_built_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an internal error, while bindings, evictions and reservations are under way."""
    inner, chance, rebuilt = Engine._run_cycles, random.Random(seed), [0]

    def run_cycles(engine: Engine) -> bool:
        if not engine._recovery.rebuild_count and chance.random() < SHARE:
            rebuilt[0] += 1
            engine._recovery.rebuild()
        return inner(engine)

    monkeypatch.setattr(Engine, "_run_cycles", run_cycles)
    parts = ("devices", "groups", "warm")
    found = Trial(script_of(seed, None, 30 * SECOND_NS, parts=parts), checkers=CHECKED).run()
    assert "" == found.law, found.what
    assert rebuilt[0]
