"""Histories of objects in which parts of the engine raise, at every point that has a guard.

Laws: nothing is raised out of `step`. Once nothing is raised any more and the longest wait is over,
the pods of another namespace have their node, no object is ignored, and the state is what its
objects say. Once everything is deleted, nothing is kept but what is bounded.

`make test` has a sample, `make test-more` 1,000 histories.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.framework.events import Tick
from stower.model.errors import InvariantError
from stower.state.cluster import ClusterState
from stower.state.comparison import differences, rebuilt
from tests.fuzz.cluster import Act, Cluster, Laws
from tests.fuzz.kept import check_nothing_kept
from tests.fuzz.test_histories import ACTS, FIRST
from tests.unit.engine.test_guards import CASES

SAMPLE: Final = 60
MORE: Final = 1_000
ACTS_MAX: Final = 25
# Longer than the longest wait of an entity that has provoked errors, thrice.
WAIT_NS: Final = 1_300 * SECOND_NS
WAITS: Final = 3
# Methods that are no part of a step, or whose own record is lost where they raise; `begin_step`
# also begins the state that is built again: where that fails, nothing can go on.
LEFT_OUT: Final = ("begin_step", "displaceable_pods", "handle_answer", "metrics", "on_step")
POINTS: Final = list(dict.fromkeys(
    (case.plant.owner, case.plant.name)
    for cases in CASES.values() for case in cases.values()
    if case.plant.name not in LEFT_OUT
))  # fmt: skip
ERRORS: Final[tuple[Callable[[str], Exception], ...]] = (IndexError, KeyError, InvariantError)


class Failure(NamedTuple):
    """What raises: a point, of which calls, whether before or after the call does its work, how
    often at most, and which error."""

    point: int
    percent: int
    is_after: bool
    times: int
    error: int
    seed: int


FAILURES = st.builds(
    Failure, st.integers(0, len(POINTS) - 1), st.sampled_from((2, 20, 100)), st.booleans(),
    st.sampled_from((1, 3, 1_000)), st.integers(0, len(ERRORS) - 1), st.integers(0, 99),
)  # fmt: skip


class FailingCluster(Cluster):
    """A cluster whose engine fails: errors are no breach, and pods of the other namespace may wait
    for the engine to recover."""

    def _check_errors(self) -> None:
        pass

    def _check_calls(self, about: str) -> None:
        self._calls.clear()

    def _check_bystander(self, uid: str, act: Act) -> None:
        pass


@contextmanager
def failing(failure: Failure) -> Iterator[None]:
    """The point raises while this lasts."""
    owner, name = POINTS[failure.point]
    inner = getattr(owner, name)
    rng, left = random.Random(failure.seed), [failure.times]

    def raising(*args: Any, **kwargs: Any) -> Any:
        call = inner.fget if isinstance(inner, property) else inner
        if not left[0] or rng.randrange(100) >= failure.percent:
            return call(*args, **kwargs)
        if failure.is_after:
            call(*args, **kwargs)
        left[0] -= 1
        raise ERRORS[failure.error]("planted")

    with patch.object(owner, name, property(raising) if isinstance(inner, property) else raising):
        yield


def check_contained(first: Act, acts: list[Act], failure: Failure) -> None:
    """All acts while the point fails, then calm, then nothing. Raises Laws."""
    cluster = FailingCluster()
    with failing(failure):
        cluster.act(first)
        for act in acts:
            cluster.act(act)
    for _ in range(WAITS):
        cluster.now_ns += WAIT_NS
        cluster.step(Tick())
        cluster.settle()
    cluster.calm()
    engine = cluster.engine
    if engine.left_out_count:
        raise Laws(f"{engine.left_out_count} objects are ignored")
    # No API server takes a pod's node away; where an act has done so, the running engine has kept
    # the pod where it was.
    if not any(_has_lost_its_node(entry) for entry in engine.state.pods.values()):
        found = differences(engine.state, rebuilt(engine.state, engine.other_objects))
        if found:
            raise Laws(f"the state differs from its objects in {found}")
    cluster.empty(by_list=len(acts) % 2 == 0)
    _forget_offenders(engine)
    check_nothing_kept(engine)


def _has_lost_its_node(entry: Any) -> bool:
    return entry.row >= 0 and not entry.is_assumed and not entry.pod.spec.node_name


def _forget_offenders(engine: Engine) -> None:
    """These tables are bounded by OFFENDERS_MAX and NAMESPACES_MAX."""
    engine.errors.counts.clear()
    for table in (engine._recovery.offenders, engine._recovery.costs):
        table._counts.clear()
        table.due_ns.clear()


def histories(count: int) -> Any:
    """The test over so many examples, the same each time."""

    @settings(
        max_examples=count, deadline=None, suppress_health_check=[*HealthCheck],
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )  # fmt: skip
    @given(first=FIRST, acts=st.lists(ACTS, max_size=ACTS_MAX), failure=FAILURES)
    def test(first: Act, acts: list[Act], failure: Failure) -> None:
        """See the module."""
        check_contained(first, acts, failure)

    return test


test_errors_are_contained = pytest.mark.internal_errors(histories(SAMPLE))
test_errors_are_contained_more = pytest.mark.internal_errors(pytest.mark.more(histories(MORE)))


def test_columns_of_hundreds_of_placeholders_are_kept() -> None:
    """As long as there were pods at once is their bound."""
    check_contained(Act("scene", 7, 0, 1759), [], Failure(0, 2, False, 1, 0, 0))


def test_the_laws_see_a_pod_that_is_counted_twice() -> None:
    """As it was when an offender whose Bind was under way was tried again."""
    cluster = FailingCluster()
    cluster.act(Act("bystander"))
    (entry,) = cluster.engine.state.pods.values()
    ClusterState._place(cluster.engine.state, entry, entry.row)
    found = differences(cluster.engine.state, rebuilt(cluster.engine.state, []))
    assert "nodes" in found
