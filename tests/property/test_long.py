"""The same laws over longer histories and more of them: for `make test-more`."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property import test_engine, test_evaluation, test_pods_about_pods, test_state
from tests.property.strategies import nodes, pods, social_pods
from tests.property.test_engine import actions
from tests.property.worlds import operations

pytestmark = pytest.mark.more

histories = st.lists(operations(), max_size=120)


def law(test: Any) -> Any:
    """What a property test checks, without its own choice of examples."""
    return test.hypothesis.inner_test


@settings(max_examples=600)
@given(histories)
def test_state_equals_a_rebuild(history: list[Any]) -> None:
    law(test_state.test_state_equals_a_rebuild_from_the_objects)(history)


@settings(max_examples=400)
@given(histories, histories, histories)
def test_rollback_restores(before: list[Any], inside: list[Any], nested: list[Any]) -> None:
    law(test_state.test_rollback_restores_every_array)(before, inside, nested)


@settings(max_examples=400)
@given(
    st.lists(st.lists(operations(), max_size=20), max_size=12),
    st.lists(pods("candidate"), min_size=1, max_size=4),
    st.sampled_from(test_evaluation.PROFILES),
)
def test_cache_equals_plain(steps: list[Any], candidates: list[Any], profile: Any) -> None:
    law(test_evaluation.test_cached_cycle_equals_plain_cycle)(steps, candidates, profile)


@settings(max_examples=600)
@given(st.lists(actions, max_size=200))
def test_no_pod_is_forgotten(history: list[Any]) -> None:
    law(test_engine.test_no_pod_is_ever_forgotten)(history)


@settings(max_examples=400)
@given(st.lists(nodes(), min_size=1, max_size=5), st.lists(actions, max_size=200))
def test_no_node_is_overcommitted(fixed: list[Any], history: list[Any]) -> None:
    law(test_engine.test_no_node_is_overcommitted_by_placing)(fixed, history)


@settings(max_examples=400)
@given(st.lists(actions, max_size=200))
def test_restart_changes_nothing(history: list[Any]) -> None:
    law(test_engine.test_restarted_engine_decides_as_the_one_that_lived_on)(history)


@settings(max_examples=2000, deadline=None)
@given(test_pods_about_pods.worlds(), social_pods("candidate"))
def test_spreading(world: Any, pod: Any) -> None:
    law(test_pods_about_pods.test_spreading_is_as_the_model_says)(world, pod)


@settings(max_examples=2000, deadline=None)
@given(test_pods_about_pods.worlds(), social_pods("candidate"))
def test_affinity(world: Any, pod: Any) -> None:
    law(test_pods_about_pods.test_affinity_is_as_the_model_says)(world, pod)
