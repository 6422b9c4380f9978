"""The state against a slow, obvious model of the same objects."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stower.state.cluster import ClusterState
from tests.property.worlds import TALLIES, Model, apply, arrays, by_node, operations

histories = st.lists(operations(), max_size=25)


def started(history: list[tuple[Any, ...]]) -> tuple[ClusterState, Model]:
    """State and model after the history, tallies registered from the start."""
    state, model = Model().rebuilt(), Model()
    for operation in history:
        apply(state, model, operation)
    return state, model


@settings(max_examples=100)
@given(histories)
def test_state_equals_a_rebuild_from_the_objects(history: list[tuple[Any, ...]]) -> None:
    """After any history, everything known is what the objects of now say."""
    state, model = started(history)
    assert by_node(model.rebuilt()) == by_node(state)


@settings(max_examples=100)
@given(histories, histories, histories)
def test_rollback_restores_every_array(
    before: list[tuple[Any, ...]], inside: list[tuple[Any, ...]], nested: list[tuple[Any, ...]]
) -> None:
    """A trial, with one nested in it, leaves no trace; and the nested one none in the outer one."""
    state, model = started(before)
    outside = arrays(state)
    with state.trial():
        trial_model = model.copied()
        for operation in inside:
            apply(state, trial_model, operation)
        between = arrays(state)
        with state.trial():
            nested_model = trial_model.copied()
            for operation in nested:
                apply(state, nested_model, operation)
        assert between == arrays(state)
    assert outside == arrays(state)
    assert 0 == len(state.journal)


@settings(max_examples=50)
@given(histories, histories)
def test_a_kept_trial_is_as_if_there_had_been_none(
    before: list[tuple[Any, ...]], inside: list[tuple[Any, ...]]
) -> None:
    """keep() makes the changes stay, and they equal those made without a trial."""
    state, model = started(before)
    with state.trial() as trial:
        for operation in inside:
            apply(state, model, operation)
        trial.keep()
    assert by_node(model.rebuilt()) == {
        **by_node(state),
        "nodes": {
            name: facts
            for name, facts in by_node(state)["nodes"].items()
            # A node that was removed in the trial keeps its empty row until it is needed.
            if facts[0] or facts[5]
        },
    }


@settings(max_examples=40)
@given(histories)
def test_a_tally_registered_late_counts_what_is_there(history: list[tuple[Any, ...]]) -> None:
    """Registering a tally after the pods came gives the same counts as before."""
    early, _ = started(history)
    late, model = ClusterState(is_counting_claims=True), Model()
    for operation in history:
        apply(late, model, operation)
    for namespaces, selector in TALLIES:
        late.tally((namespaces, selector)).domain_counts("zone")
    assert by_node(early) == by_node(late)
