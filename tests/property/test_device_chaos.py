"""Whatever goes wrong: no device twice, nothing left over, and nobody who could run waits."""

import pytest

from stower.assembly import build_engine
from stower.framework.events import Listed
from stower.model.kinds import Pod
from tests.property.device_chaos import Chaos

# In the minute in which nothing more goes wrong, and nobody comes who was not there before.
WITHDRAWN_MAX = 1


def check(seed: int) -> int:
    """One run. Returns how many pods have a node in the end."""
    run = Chaos(seed)
    for _ in range(run.chance.randint(50, 400)):
        run.happen(chaos=True)
    run.settle()
    assert max(run.withdrawn.values(), default=0) <= WITHDRAWN_MAX, f"{seed}: preempted for ever"
    lived = run.engine.state
    assert not lived.devices.has_assumptions, seed
    fresh = build_engine()
    fresh.step(Listed(tuple(run.objects.values())), run.now_ns)
    told = [
        claim.metadata.key for claim in fresh.state.devices.claims() if claim.status.reserved_for
    ]
    known = [claim.metadata.key for claim in lived.devices.claims() if claim.status.reserved_for]
    assert sorted(told) == sorted(known), f"{seed}: a new engine finds devices for others"
    return sum(bool(o.spec.node_name) for o in run.objects.values() if isinstance(o, Pod))


@pytest.mark.behaviour("S2.26", "S2.27")
def test_no_device_twice_and_nobody_forgotten() -> None:
    assert sum(check(seed) for seed in range(100)) > 100


@pytest.mark.more
def test_no_device_twice_and_nobody_forgotten_in_2000_runs() -> None:
    for seed in range(100, 2_100):
        check(seed)
