"""Extenders through the engine's one entry: questions are writes, answers events."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.framework.decisions import Outcome
from stower.framework.events import ExtenderAnswered, Listed, Observed, WatchType, WriteOk
from stower.framework.writes import Bind, CallExtender, DeletePod, PatchPodStatus, Write
from stower.model.kinds import Node, Pod
from tests.builders import make_node, make_pod

ADDED, DELETED = WatchType.ADDED, WatchType.DELETED


def extender(**fields: Any) -> dict[str, Any]:
    return {"urlPrefix": "http://extender", "nodeCacheCapable": True, **fields}


def engine_with(extenders: list[dict[str, Any]], *objects: Node | Pod) -> Engine:
    engine = build_engine({"extenders": extenders})
    engine.step(Listed(objects or (make_node("n1"), make_node("n2"), make_node("n3"))), 0)
    return engine


def add(engine: Engine, pod: Pod) -> list[Write]:
    return engine.step(Observed(ADDED, pod), engine.now_ns)


def question(writes: list[Write]) -> CallExtender:
    (asked,) = [w for w in writes if isinstance(w, CallExtender)]
    return asked


def answer(engine: Engine, asked: CallExtender, value: Any = None, error: str = "") -> list[Write]:
    body = b"" if value is None else msgspec.json.encode(value)
    return engine.step(ExtenderAnswered(asked.id, body, error), engine.now_ns)


def bound(writes: list[Write]) -> list[tuple[str, str]]:
    return [(w.name, w.node_name) for w in writes if isinstance(w, Bind)]


def message(writes: list[Write]) -> str:
    (patch,) = [w for w in writes if isinstance(w, PatchPodStatus)]
    assert patch.condition is not None
    return patch.condition.message


def test_the_pod_goes_where_the_extender_lets_it() -> None:
    engine = engine_with([extender(filterVerb="filter", nodeCacheCapable=True)])
    asked = question(add(engine, make_pod("p1")))
    assert ("filter", "p1", ("n1", "n2", "n3")) == (asked.verb, asked.name, asked.nodes)
    assert [("p1", "n2")] == bound(answer(engine, asked, {"NodeNames": ["n2"]}))


def test_no_other_pod_is_tried_while_an_answer_is_awaited() -> None:
    engine = engine_with([extender(filterVerb="filter")])
    asked = question(add(engine, make_pod("p1")))
    assert [] == add(engine, make_pod("p2"))
    assert engine.next_wake_ns is None
    nodes = {"nodes": {"items": [{"metadata": {"name": "n3"}}]}}
    writes = answer(engine, asked, nodes)
    assert [("p1", "n3")] == bound(writes)
    assert "p2" == question(writes).name


def test_extenders_are_asked_one_after_another_about_what_is_left() -> None:
    engine = engine_with([extender(filterVerb="a"), extender(filterVerb="b")])
    first = question(add(engine, make_pod("p1")))
    second = question(answer(engine, first, {"nodenames": ["n1", "n2"]}))
    assert (1, ("n1", "n2")) == (second.extender, second.nodes)
    assert [("p1", "n1")] == bound(answer(engine, second, {"nodenames": ["n1"]}))


def test_why_an_extender_refuses_is_told_like_all_other_reasons() -> None:
    engine = engine_with([extender(filterVerb="filter")])
    asked = question(add(engine, make_pod("p1")))
    failed = {"n1": "no license", "n2": "no license"}
    writes = answer(engine, asked, {
        "nodeNames": [], "failedNodes": failed, "failedAndUnresolvableNodes": {"n3": "too old"},
    })  # fmt: skip
    assert message(writes).startswith("0/3 nodes are available: 1 too old, 2 no license.")
    # Nobody knows what changes its mind: any event may.
    assert "p1" == question(engine.step(Observed(DELETED, make_node("n3")), 1)).name


def test_points_count_ten_times_and_by_weight() -> None:
    many = [make_node(f"n{i}", cpu="4") for i in (1, 2)]
    full = make_pod("full", cpu="3", node="n2")
    engine = engine_with([extender(prioritizeVerb="score", weight=5)], *many, full)
    asked = question(add(engine, make_pod("p1")))
    assert "prioritize" == asked.verb
    points = [{"Host": "n2", "Score": 10}, {"Host": "n1", "Score": 0}]
    assert [("p1", "n2")] == bound(answer(engine, asked, points))


@pytest.mark.parametrize(
    ("value", "error", "why"),
    [
        (None, "filter: no answer within 5 s", "filter: no answer within 5 s"),
        ({"error": "out of licenses"}, "", "out of licenses"),
        ({"nodeNames": ["n9"]}, "", 'claims a filtered node "n9" which is not found in'),
        ([], "", "invalid response: Expected `object`, got `array`"),
        ({"NodeNames": [{}]}, "", "invalid response: Expected `str`, got `object`"),
        ({"NodeNames": 5}, "", "invalid response: Expected `array | null`, got `int`"),
        ({"FailedNodes": "x"}, "", "invalid response: Expected `object | null`"),
    ],
)
def test_an_extender_that_fails_fails_the_pod_unless_it_is_ignorable(
    value: Any, error: str, why: str
) -> None:
    engine = engine_with([extender(filterVerb="filter")])
    writes = answer(engine, question(add(engine, make_pod("p1"))), value, error)
    assert message(writes).startswith(f'extender "http://extender": {why}')
    assert [Outcome.ERROR] == [d.outcome for d in engine.drain()]
    engine = engine_with([extender(filterVerb="filter", ignorable=True)])
    writes = answer(engine, question(add(engine, make_pod("p1"))), value, error)
    assert ["p1"] == [name for name, _ in bound(writes)]


def test_scores_that_do_not_come_do_no_harm() -> None:
    engine = engine_with([extender(prioritizeVerb="score", weight=1)])
    asked = question(add(engine, make_pod("p1")))
    assert ["p1"] == [name for name, _ in bound(answer(engine, asked, error="gone"))]


def test_only_pods_that_ask_for_its_resources_are_its_business() -> None:
    managed = [{"name": "example.com/license", "ignoredByScheduler": True}]
    engine = engine_with([extender(filterVerb="filter", managedResources=managed)])
    assert ["plain"] == [name for name, _ in bound(add(engine, make_pod("plain")))]
    licensed = make_pod("licensed", requests={"example.com/license": "1"})
    asked = question(add(engine, licensed))  # though no node has any: it counts itself
    assert [("licensed", "n1")] == bound(answer(engine, asked, {"nodeNames": ["n1"]}))


def test_an_extender_may_bind() -> None:
    engine = engine_with([extender(bindVerb="bind")], make_node("n1"))
    asked = question(add(engine, make_pod("p1")))
    assert ("bind", ("n1",)) == (asked.verb, asked.nodes)
    (event,) = answer(engine, asked, {})
    assert "Successfully assigned default/p1 to n1" == event.note  # type: ignore[union-attr]


@pytest.mark.parametrize("ignorable", [False, True])
def test_an_extender_that_cannot_bind(ignorable: bool) -> None:
    engine = engine_with([extender(bindVerb="bind", ignorable=ignorable)], make_node("n1"))
    writes = answer(engine, question(add(engine, make_pod("p1"))), {"Error": "no"})
    if ignorable:
        assert [("p1", "n1")] == bound(writes)
    else:
        assert "no" == message(writes)


def test_what_changed_meanwhile_counts() -> None:
    """The node that the extender left is gone when it says so."""
    engine = engine_with([extender(filterVerb="filter")])
    asked = question(add(engine, make_pod("p1")))
    engine.step(Observed(DELETED, make_node("n2")), 1)
    assert [] == bound(answer(engine, asked, {"nodeNames": ["n2"]}))
    engine = engine_with([extender(filterVerb="filter")])
    asked = question(add(engine, make_pod("p1")))
    engine.step(Observed(DELETED, make_pod("p1")), 1)
    assert [] == answer(engine, asked, {"nodeNames": ["n2"]})
    assert ["p2"] == [w.name for w in add(engine, make_pod("p2"))]  # the next one's turn


def test_extenders_say_whom_to_spare() -> None:
    low = [make_pod("a", cpu="4", node="n1"), make_pod("b", cpu="4", node="n2", priority=1)]
    engine = engine_with([extender(preemptVerb="preempt")], make_node("n1"), make_node("n2"), *low)
    asked = question(add(engine, make_pod("high", cpu="4", priority=9)))
    uid_a, uid_b = (pod.metadata.uid for pod in low)
    assert {"n1": ([uid_a], 0), "n2": ([uid_b], 0)} == asked.victims
    left = {"NodeNameToMetaVictims": {"n2": {"Pods": [{"UID": uid_b}], "NumPDBViolations": 0}}}
    writes = answer(engine, asked, left)
    patches = [w for w in writes if isinstance(w, PatchPodStatus)]
    assert ["high", "b"] == [w.name for w in patches]
    assert "n2" == patches[0].nominated_node_name
    (gone,) = [w for p in patches for w in engine.step(WriteOk(p.id), 1)]
    assert isinstance(gone, DeletePod)


def test_where_all_are_spared_nobody_is_evicted() -> None:
    engine = engine_with(
        [extender(preemptVerb="preempt")], make_node("n1"), make_pod("a", cpu="4", node="n1")
    )
    asked = question(add(engine, make_pod("high", cpu="4", priority=9)))
    writes = answer(engine, asked, {"nodeNameToMetaVictims": {}})
    assert message(writes).endswith("preemption: no candidate node for preemption")


def test_what_happens_while_an_answer_is_awaited_is_not_lost() -> None:
    """A node comes that nobody was asked about: the pod that was refused is tried again."""
    engine = engine_with([extender(filterVerb="filter")], make_node("n1"))
    asked = question(add(engine, make_pod("p1")))
    assert [] == engine.step(Observed(ADDED, make_node("n2")), 1)
    again = question(answer(engine, asked, {"nodeNames": []}))
    assert ("n1", "n2") == again.nodes
    # Nothing has happened since: now it waits.
    writes = answer(engine, again, {"nodeNames": []})
    assert [] == [w for w in writes if isinstance(w, CallExtender)]


def test_an_extender_that_is_ignorable_is_asked_last() -> None:
    engine = engine_with(
        [extender(filterVerb="a", ignorable=True), extender(filterVerb="b")], make_node("n1")
    )
    asked = question(add(engine, make_pod("p1")))
    assert 1 == asked.extender
    assert 0 == question(answer(engine, asked, {"nodeNames": ["n1"]})).extender


def test_scores_beyond_all_measure_are_as_good_as_the_largest() -> None:
    engine = engine_with([extender(prioritizeVerb="p", weight=2**40)])
    asked = question(add(engine, make_pod("p1")))
    points = [{"Host": "n2", "Score": 2**40}, {"Host": "n2", "Score": 2**40}]
    assert [("p1", "n2")] == bound(answer(engine, asked, points))


@pytest.mark.parametrize("gone", ["n1", "low"])
def test_who_is_gone_by_the_time_of_the_answer_is_no_candidate(gone: str) -> None:
    node, low = make_node("n1", cpu="1"), make_pod("low", cpu="1", node="n1")
    full = (make_node("n2", cpu="1"), make_pod("high", cpu="1", node="n2", priority=100))
    engine = engine_with([extender(preemptVerb="preempt", ignorable=True)], node, low, *full)
    asked = question(add(engine, make_pod("p1", cpu="1", priority=10)))
    engine.step(Observed(DELETED, node if gone == "n1" else low), 0)
    writes = answer(engine, asked, error="timeout")
    assert [] == [w for w in writes if isinstance(w, PatchPodStatus) and w.name == "low"]
    assert {"p1"} == {w.name for w in writes}
