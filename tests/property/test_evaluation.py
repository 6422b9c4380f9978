"""Every cache against the plain cycle, and every scalar function against its vectorised twin."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stower.assembly import build_profiles
from stower.engine.cycle import reference
from stower.engine.cycle.evaluation import SCALAR_ROWS_MAX
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.configuration import read_configuration
from stower.framework.plugin import Features, Scope
from stower.framework.profile import Profile
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from tests.property.strategies import NODE_NAMES, nodes, pods
from tests.property.worlds import Model, apply, operations, questions


def profile(fit: dict[str, Any] | None = None, balanced: list[str] | None = None) -> Profile:
    """The default profile with these arguments."""
    config: list[dict[str, Any]] = []
    if fit:
        config.append({"name": "NodeResourcesFit", "args": fit})
    if balanced:
        args = {"resources": [{"name": name, "weight": 1} for name in balanced]}
        config.append({"name": "NodeResourcesBalancedAllocation", "args": args})
    document = {"profiles": [{"pluginConfig": config}]}
    return build_profiles(read_configuration(document), Features())["default-scheduler"]


RESOURCES = [
    {"name": n, "weight": w} for n, w in (("cpu", 3), ("memory", 1), ("example.com/gpu", 5))
]
PROFILES = (
    profile(),
    profile({"scoringStrategy": {"type": "MostAllocated", "resources": RESOURCES}}),
    profile(
        {
            "ignoredResourceGroups": ["example.com"],
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "resources": RESOURCES,
                "requestedToCapacityRatio": {
                    "shape": [
                        {"utilization": 0, "score": 2},
                        {"utilization": 70, "score": 10},
                        {"utilization": 100, "score": 0},
                    ]
                },
            },
        },
        ["cpu", "memory", "example.com/gpu"],
    ),
)


def plain_best(state: ClusterState, profile: Profile, entry: PodEntry) -> dict[str, int]:
    """Totals of the feasible nodes by name, from scratch."""
    verdict = reference.judge(profile, state, entry.shape, entry.pod)
    if verdict.pre_filter is not None:
        return {}
    feasible = verdict.feasible
    totals = reference.total_score(
        reference.scores(profile, state, entry.shape, entry.pod, feasible), len(feasible)
    )
    return {state.node_names[row]: int(totals[row]) for row in np.flatnonzero(feasible)}


def cached_best(
    state: ClusterState, cycle: SchedulingCycle, profile: Profile, entry: PodEntry
) -> dict[str, int]:
    """The same from the cache, but for scores that are equal on all nodes."""
    best = cycle.scores_of(profile, entry)
    return {state.node_names[row]: int(best[row]) for row in np.flatnonzero(best >= 0)}


def gaps(totals: dict[str, int]) -> dict[str, int]:
    """Totals relative to the highest: what decides, whatever is equal on all nodes."""
    highest = max(totals.values(), default=0)
    return {name: highest - total for name, total in totals.items()}


@settings(max_examples=100)
@given(
    st.lists(st.lists(operations(), max_size=6), max_size=8),
    st.lists(pods("candidate"), min_size=1, max_size=3),
    st.sampled_from(PROFILES),
)
def test_cached_cycle_equals_plain_cycle(
    steps: list[list[tuple[Any, ...]]], candidates: list[Any], profile: Profile
) -> None:
    """Whatever happens between two questions, the cache answers as if it had none."""
    cycle: SchedulingCycle | None = None
    for state, entry in questions(steps, candidates):
        cycle = cycle or SchedulingCycle(state, 0)
        expected = plain_best(state, profile, entry)
        assert gaps(expected) == gaps(cached_best(state, cycle, profile, entry))


placements = st.tuples(st.integers(0, 79), pods("x"))


@settings(max_examples=25)
@given(
    st.lists(nodes(), min_size=3, max_size=5),
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 79), pods("x")), min_size=1, max_size=2 * SCALAR_ROWS_MAX
        ),
        max_size=3,
    ),
    pods("candidate"),
    st.sampled_from(PROFILES),
)
def test_cache_follows_many_changed_rows(
    kinds: list[Any], rounds: list[list[tuple[int, Any]]], candidate: Any, profile: Profile
) -> None:
    """Few changed rows, many and most are refreshed in different ways, all to the same answer."""
    from msgspec.structs import replace

    state = ClusterState()
    for i in range(80):
        node = kinds[i % len(kinds)]
        state.set_node(replace(node, metadata=replace(node.metadata, name=f"n{i}", uid=f"n{i}")))
    cycle, entry = SchedulingCycle(state, 0), PodEntry(candidate, state.shapes.intern(candidate))
    number = 0
    for placed in rounds:
        for row, pod in placed:
            number += 1
            own = replace(pod, metadata=replace(pod.metadata, uid=f"pod-{number}"))
            state.assume(state.add_pending(own), row)
        expected = plain_best(state, profile, entry)
        assert gaps(expected) == gaps(cached_best(state, cycle, profile, entry))


@settings(max_examples=200)
@given(st.lists(operations(), max_size=30), pods("candidate"), st.sampled_from(PROFILES))
def test_scalar_functions_equal_their_vectorised_twins(
    history: list[tuple[Any, ...]], candidate: Any, profile: Profile
) -> None:
    """filter_row equals filter and passes, score_row equals score, on every row with a node."""
    state, model = ClusterState(), Model()
    for operation in history:
        apply(state, model, operation)
    shape = state.shapes.intern(candidate)
    for plugin in (*profile.node_filters, *profile.usage_filters):
        codes = plugin.filter(shape, state, state.all_rows)
        passes = plugin.passes(shape, state, state.all_rows)
        assert (codes is None) == (passes is None)
        for row in state.present_rows():
            expected = 0 if codes is None else int(codes[row])
            if passes is not None:
                assert (expected == 0) == bool(passes[row])
            if plugin.scope is Scope.USAGE:
                check = plugin.filter_row(shape, state)
                assert expected == (check(row) if check is not None else 0)
    for plugin, _ in (*profile.node_scores, *profile.usage_scores, *profile.normalized_scores):
        scores = plugin.score(shape, state, state.all_rows)
        if plugin.scope is Scope.USAGE:
            scalar = plugin.score_row(shape, state)
            assert (scores is None) == (scalar is None)
            if scores is not None and scalar is not None:
                for row in state.present_rows():
                    assert int(scores[row]) == scalar(row)


@settings(max_examples=150)
@given(st.permutations(NODE_NAMES), st.data(), pods("candidate"))
def test_order_of_nodes_changes_nothing(order: list[str], data: Any, candidate: Any) -> None:
    """The same nodes in another order: same totals, and the same node is chosen among equals."""
    made = {name: data.draw(nodes(name)) for name in NODE_NAMES}
    chosen, totals = [], []
    for names in (NODE_NAMES, order):
        state = ClusterState()
        for name in names:
            state.set_node(made[name])
        entry = state.add_pending(candidate)
        row = SchedulingCycle(state, seed=7).choose(PROFILES[0], entry)
        chosen.append(state.node_names[row] if row >= 0 else "")
        totals.append(plain_best(state, PROFILES[0], entry))
    assert chosen[0] == chosen[1]
    assert totals[0] == totals[1]
