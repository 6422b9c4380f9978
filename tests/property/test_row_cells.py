"""The choice by cells of rows against the choice among all rows."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stower.engine.cycle import row_cells, scheduling_cycle
from stower.engine.cycle.evaluation import SCALAR_ROWS_MAX
from stower.engine.cycle.row_cells import INFEASIBLE, CellMaxima, Layouts
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.plugin import ExtensionPoint
from stower.framework.profile import Profile
from stower.model.kinds.pod import TopologySpreadConstraint
from stower.model.selectors import parse_selector
from stower.plugins.pod_topology_spread import PodTopologySpread
from stower.plugins.priority_sort import PrioritySort
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from tests.builders import make_node, make_pod
from tests.property.strategies import nodes, pods
from tests.property.test_evaluation import PROFILES
from tests.property.worlds import operations, questions

SOFT = "ScheduleAnyway"


@pytest.fixture(scope="module", autouse=True)
def small_cells() -> Iterator[None]:
    """Cells for clusters of a few nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling_cycle, "ROWS_MIN", 1)
        patch.setattr(row_cells, "CELL_ROWS", 2)
        patch.setattr(row_cells, "ROWS_PER_DOMAIN_MIN", 0)
        patch.setattr(row_cells, "TIED_CELLS_MAX", 2)
        patch.setattr(scheduling_cycle, "CELLS_SKIPPED", 1)
        yield


def without_terms(pod: Any) -> Any:
    """The pod without terms about other pods, which give each node a score of its own."""
    affinity = pod.spec.affinity and replace(
        pod.spec.affinity, pod_affinity=None, pod_anti_affinity=None
    )
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


@st.composite
def plain_operations(draw: st.DrawFn) -> tuple[Any, ...]:
    """An operation, in which few pods have such terms."""
    kind, *args = draw(operations())
    if kind == "pod" and draw(st.integers(0, 9)):
        return kind, without_terms(args[0])
    return kind, *args


@st.composite
def spread_pods(draw: st.DrawFn, uid: str) -> Any:
    """A pod, mostly with one soft constraint over a key that is no hostname."""
    pod = without_terms(draw(pods(uid)))
    if draw(st.integers(0, 3)) == 0:
        return replace(pod, spec=replace(pod.spec, topology_spread_constraints=None))
    constraint = TopologySpreadConstraint(
        max_skew=draw(st.integers(1, 3)),
        topology_key=draw(st.sampled_from(("zone", "zone", "disk", "absent"))),
        when_unsatisfiable=SOFT,
        label_selector=draw(st.sampled_from((parse_selector("app=web"), parse_selector("app")))),
        node_taints_policy=draw(st.sampled_from((None, "Honor"))),
    )
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=(constraint,)))


def chosen(cycle: SchedulingCycle, state: ClusterState, profile: Any, entry: PodEntry) -> str:
    row = cycle.choose(profile, entry)
    return state.node_names[row] if row >= 0 else ""


def chosen_among_all(state: ClusterState, profile: Any, entry: PodEntry) -> str:
    """What a cycle without cells or caches chooses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduling_cycle, "ROWS_MIN", 1 << 30)
        return chosen(SchedulingCycle(state, 0), state, profile, entry)


@settings(max_examples=150)
@given(
    st.lists(st.lists(plain_operations(), max_size=6), min_size=1, max_size=8),
    st.lists(spread_pods("candidate"), min_size=1, max_size=3),
    st.sampled_from(PROFILES),
)
def test_cells_choose_as_all_rows_do(
    steps: list[list[tuple[Any, ...]]], candidates: list[Any], profile: Any
) -> None:
    """Whatever happens between two choices: nodes come, go and change their labels."""
    cycle: SchedulingCycle | None = None
    for state, entry in questions(steps, candidates):
        cycle = cycle or SchedulingCycle(state, 0)
        expected = chosen_among_all(state, profile, entry)
        assert chosen(cycle, state, profile, entry) == expected


@st.composite
def changes(draw: st.DrawFn) -> tuple[str, int, Any]:
    """A pod that comes to a row or goes; a node of another kind in the place of one; many nodes
    that join; a pod that is nominated, or no longer."""
    kind = draw(st.sampled_from(("place", "place", "go", "node", "join", "nominate")))
    return kind, draw(st.integers(0, 79)), draw(pods("x")) if kind == "place" else None


@settings(max_examples=60)
@given(
    st.lists(nodes(), min_size=2, max_size=4),
    st.lists(st.lists(changes(), min_size=1, max_size=2 * SCALAR_ROWS_MAX), max_size=4),
    st.lists(spread_pods("candidate"), min_size=1, max_size=2),
    st.sampled_from(PROFILES),
)
def test_cells_follow_many_changed_rows(
    kinds: list[Any], rounds: list[list[tuple[str, int, Any]]], candidates: list[Any], profile: Any
) -> None:
    """Eighty nodes of few kinds, with many ties; few and many rows change between choices."""
    state = ClusterState()

    def set_node(i: int, node: Any) -> None:
        state.set_node(replace(node, metadata=replace(node.metadata, name=f"n{i}", uid=f"n{i}")))

    for i in range(80):
        set_node(i, kinds[i % len(kinds)])
    cycle, number = SchedulingCycle(state, 0), 0
    waiting = state.add_pending(make_pod("waiting", priority=100))
    there: list[PodEntry] = []
    for step in rounds:
        for i, candidate in enumerate(candidates):
            for uid in ("a", "b", "c"):  # each chooses among ties in its own way
                pod = replace(candidate, metadata=replace(candidate.metadata, uid=f"{uid}{i}"))
                entry = PodEntry(pod, state.shapes.intern(pod))
                expected = chosen_among_all(state, profile, entry)
                assert chosen(cycle, state, profile, entry) == expected
        for kind, row, pod in step:
            if kind == "node":
                set_node(row, kinds[row % 3 % len(kinds)])
            elif kind == "join":
                for i in range(2 * SCALAR_ROWS_MAX if row % 2 else 1):
                    set_node(100 * row + i, kinds[i % len(kinds)])
            elif kind == "nominate":
                state.nominate(waiting, "" if waiting.nominated_node_name else f"n{row}")
            elif kind == "place":
                number += 1
                own = replace(without_terms(pod), metadata=replace(pod.metadata, uid=f"u{number}"))
                there.append(state.add_pending(own))
                state.assume(there[-1], row)
            elif there:
                state.remove_pod(there.pop(row % len(there)))


@settings(max_examples=100)
@given(st.integers(0, 1 << 32), st.integers(1, 60), st.sampled_from(("", "zone")))
def test_kept_maxima_equal_a_look_at_all_rows(seed: int, count: int, key: str) -> None:
    """Any scores, of few values; single rows, many rows and labels change."""
    rng, state = random.Random(seed), ClusterState()

    def set_node(i: int) -> None:
        zone = rng.choice(("a", "b", "c", None))
        state.set_node(make_node(f"n{i}", labels={"zone": zone} if zone else {}))

    def draw() -> int:
        return rng.choice((INFEASIBLE, 0, 1, 2, 3, 3))

    for i in range(count):
        set_node(i)
    scores = np.full(state.capacity, INFEASIBLE)
    scores[:count] = [draw() for _ in range(count)]
    layouts = Layouts(state)
    kept: CellMaxima | None = None
    for _ in range(12):
        layout = layouts.get(key)
        if layout is None:
            return  # no node has a zone
        if kept is None or kept.layout is not layout:
            kept = CellMaxima(layout, scores)
        points = np.array([rng.randint(0, 2) for _ in range(layout.code_count)])
        codes = state.labels.codes("zone", state.all_rows) if key else np.zeros(count, np.int64)
        total = scores[:count] + points[codes]
        tied = total == total.max()
        for pod in (0, rng.getrandbits(32), (1 << 32) - 1):
            expected = state.tie_breaker.pick(tied, pod) if total.max() >= 0 else -1
            assert kept.pick(points, pod) == expected
        feasible = [bool((scores[:count][codes == c] >= 0).any()) for c in range(len(points))]
        assert kept.feasible_codes.tolist() == feasible
        rows, best = kept.top(points, 4)
        assert sorted(best.tolist())[-4:] == sorted(total.tolist())[-4:][-len(best) :]
        assert (total[rows] == best).all()
        if rng.random() < 0.3:
            set_node(rng.randrange(count))
        if rng.random() < 0.6:
            row, new = rng.randrange(count), draw()
            old, scores[row] = int(scores[row]), new
            kept.change(row, old, new)
        else:
            some = np.array([rng.randrange(count) for _ in range(rng.randint(1, count))])
            many = np.array([draw() for _ in range(count)])[some]  # repeated rows: equal scores
            before = scores[some]
            scores[some] = many
            kept.change_many(some, before, many)


def test_nodes_that_join_are_in_no_cell_yet() -> None:
    """Cells were kept, and then more nodes join than are looked at one by one."""
    state = ClusterState()
    for i in range(40):
        state.set_node(make_node(f"n{i}", labels={"zone": "ab"[i % 2]}))
    constraint = TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable=SOFT,
        label_selector=parse_selector("app=web"),
    )  # fmt: skip
    pod = make_pod("p", cpu="1")
    pod = replace(pod, spec=replace(pod.spec, topology_spread_constraints=(constraint,)))
    cycle, entry = SchedulingCycle(state, 0), state.add_pending(pod)
    for step in range(3):
        expected = chosen_among_all(state, PROFILES[0], entry)
        assert chosen(cycle, state, PROFILES[0], entry) == expected
        for i in range(2 * SCALAR_ROWS_MAX):
            state.set_node(make_node(f"new-{step}-{i}", labels={"zone": "ab"[i % 2]}))


def test_scores_that_a_subclass_replaces_are_not_taken_by_domain() -> None:
    class Own(PodTopologySpread):
        name = "Own"

        def score_pod(self, pod: Any, shape: Any, state: Any, feasible: Any) -> Any:
            return np.arange(len(feasible)) % 7

    points: dict[Any, Any] = dict.fromkeys(ExtensionPoint, ())
    points |= {ExtensionPoint.QUEUE_SORT: (PrioritySort(),), ExtensionPoint.SCORE: (Own(),)}
    assert not Profile("default-scheduler", points, {"Own": 1}).domain_scoring
    points[ExtensionPoint.SCORE] = (PodTopologySpread(),)
    known = Profile("default-scheduler", points, {"PodTopologySpread": 1}).domain_scoring
    assert {"PodTopologySpread"} == known
