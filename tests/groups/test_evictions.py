"""Whom trees evict, against trying all sets of units: the best set leaves, and the tree is placed
where they were.

`make test-more` has the problems of 400 seeds, `make long` of 2,000; in a third, somebody has to
leave.
"""

from typing import Final

import pytest

from stower.assembly import build_engine
from stower.framework.events import Listed
from stower.framework.writes import DeletePod
from tests.device_builders import Agreeing
from tests.groups.made_up.answers import truths, viewed
from tests.groups.made_up.evictions import Crowded, crowded, objects, sets, without

CHUNK: Final = 100


def outcome(problem: Crowded) -> tuple[set[str], bool]:
    """The units that the tree evicts for its minimum, and whether that is placed once they are
    gone."""
    found = [viewed(data) for data in objects(problem)]
    api = Agreeing(build_engine())
    api.objects = {obj.metadata.uid: obj for obj in found}
    api.tell(Listed(tuple(found)))
    gone = {write.name for write in api.writes if isinstance(write, DeletePod)}
    for pod in [o for o in found if o.metadata.uid.startswith("Pod-") and o.metadata.name in gone]:
        api.remove(pod)
    for seconds in (5, 30):
        api.wait(seconds)
    assert not api.engine.errors.counts
    return {name.rpartition("-")[0] for name in gone}, bool(api.bound)


def check_evictions(seeds: range) -> int:
    """Asserts that the best set leaves; returns in how many problems anybody does."""
    problems = [found for seed in seeds if (found := crowded(seed)) is not None]
    count = 0
    for first in range(0, len(problems), CHUNK):
        some = problems[first : first + CHUNK]
        chosen = [list(sets(problem)) for problem in some]
        told = iter(
            truths(without(p, one) for p, every in zip(some, chosen, strict=True) for one in every)
        )
        for problem, every in zip(some, chosen, strict=True):
            is_enough = [next(told) for _ in every]
            best = next((s for s, fits in zip(every, is_enough, strict=True) if fits), None)
            want = {problem.units[i].name for i in best or ()}
            assert (want, best is not None) == outcome(problem), problem.empty.name
            count += bool(want)
    return count


@pytest.mark.more
def test_the_best_set_of_units_leaves() -> None:
    assert check_evictions(range(10_000, 10_400)) > 20


@pytest.mark.long
def test_the_best_set_of_units_leaves_long() -> None:
    assert check_evictions(range(20_000, 22_000)) > 100
