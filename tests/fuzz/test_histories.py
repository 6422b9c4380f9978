"""Objects of every kind that scheduling reads, which refer to each other, in histories of changes,
answers, lost watches and lists (cluster.py has the acts, objects.py the objects).

Laws: nothing is raised out of `step`; no internal error is recorded, contained or not; a pod of
another namespace is bound in the step in which it comes, or when the engine next wakes; a step
calls no more than so many functions; once all works again, all those pods have their node; once
everything is deleted, the engine writes nothing more, keeps nothing but caches and logs of bounded
size, and decides as one that was built anew.

`make test` has a sample, `make test-more` 1,000 histories, `make long ROWS=histories` 20,000.
"""

import os
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from stower.framework.events import Listed
from tests.fuzz.cluster import CODES, DRAWN, WHATS, Act, Cluster
from tests.fuzz.kept import check_like_new, check_nothing_kept
from tests.fuzz.mutants import Change

SAMPLE: Final = 60
MORE: Final = 1_000
LONG: Final = 20_000
ACTS_MAX: Final = 40

MUTATIONS = st.one_of(
    st.just(()),
    st.builds(
        lambda *numbers: (Change(*numbers),),
        st.integers(0, 999), st.integers(0, 9), st.integers(0, 999),
    ),
)  # fmt: skip
ODDITIES = st.sampled_from((0, 0, 0, 1, 3, 10))
ACTS = st.builds(
    Act, st.sampled_from(WHATS), st.integers(0, len(DRAWN) - 1), st.integers(0, 99),
    st.integers(0, 10**6), ODDITIES, st.integers(0, len(CODES) - 1), MUTATIONS,
)  # fmt: skip
FIRST = st.builds(
    lambda kind, variant, oddity, code: Act("scene", kind, 0, variant, oddity, code),
    st.integers(0, 99), st.integers(0, 10**6), ODDITIES, st.integers(0, 99),
)  # fmt: skip


def check_history(first: Act, acts: list[Act]) -> None:
    """All acts, then calm, then nothing; then all objects once more. Raises Laws."""
    cluster = Cluster()
    cluster.act(first)
    for act in acts:
        cluster.act(act)
    cluster.calm()
    objects = tuple(cluster.server.list_objects())
    cluster.empty(by_list=len(acts) % 2 == 0)
    check_nothing_kept(cluster.engine)
    cluster.step(Listed(()))
    check_like_new(cluster, objects)


def histories(count: int) -> Any:
    """The test over so many examples, the same each time."""

    @settings(
        max_examples=count, deadline=None, suppress_health_check=[*HealthCheck],
        phases=[phase for phase in Phase if phase is not Phase.explain],
    )  # fmt: skip
    @given(first=FIRST, acts=st.lists(ACTS, max_size=ACTS_MAX))
    def test(first: Act, acts: list[Act]) -> None:
        """See the module."""
        check_history(first, acts)

    return test


test_histories = histories(SAMPLE)
test_histories_more = pytest.mark.more(histories(MORE))
# In parts, which workers share.
PARTS: Final = int(os.environ.get("PARTS", "4"))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_histories_long(part: int) -> None:
    """20,000 in all; each part draws from a seed of its own."""
    seed(part)(histories(LONG // PARTS))()
