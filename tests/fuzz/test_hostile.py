"""A user of one namespace cannot keep another one's pods waiting by what is in the objects: pods of
the same priority, for which there is room, are bound within a bounded amount of work, also while
objects change a hundred times a second. Work is counted (hostile.py), not timed.

How many attempts of others come first, where each is as costly as it may be, is a matter of a fair
order of namespaces in the queue, which is not there yet: the costliest scene has few pods.
"""

import pytest

from tests.fuzz.hostile import SCENES, waits

# Virtual seconds, at 1 us for each function called. Together with the scene: all its pods are tried
# once before, as they came first. The most measured is 14.3 (claims), 1.5 otherwise.
FIRST_S_MAX = 20.0
# Later: beside those that are tried again. The most measured is 0.1.
LATER_S_MAX = 1.0
STEP_CALLS_MAX = 3_000_000  # most measured: 1,786,225


@pytest.mark.parametrize("name", SCENES)
def test_pods_of_others_are_bound_meanwhile(name: str) -> None:
    """The first comes with the scene, the others four seconds after each other."""
    (first, *later), longest = waits(name)
    assert first.seconds < FIRST_S_MAX
    assert max(wait.seconds for wait in later) < LATER_S_MAX
    assert max(wait.steps for wait in later) < 500
    assert longest < STEP_CALLS_MAX
