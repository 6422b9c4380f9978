"""Why a group has no place, and the smallest change with which it has one."""

from typing import Any

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.explain.group_explanation import GroupExplanation
from stower.engine.explain.probe import explain_tree
from stower.framework.events import Hold, Listed
from stower.state.comparison import differences, rebuilt
from tests.builders import make_node, make_pod
from tests.group_builders import RACK, make_composite, make_group, members


def held(*objects: Any) -> Engine:
    """An engine that knows these objects and has tried nothing."""
    engine = build_engine()
    engine.step(Hold(True), 0)
    engine.step(Listed(objects), 0)
    return engine


def explained(engine: Engine, key: str = "default/g", kind: str = "") -> GroupExplanation:
    found = explain_tree(engine, kind, key)
    assert found is not None
    return found


def racks(**cpu: str) -> list[Any]:
    return [make_node(name, cpu=cpu[name], labels={RACK: name[0]}) for name in cpu]


def test_a_group_that_fits_is_told_where() -> None:
    found = explained(held(*racks(a0="4"), make_group("g", 2), *members("g", 2)))
    assert ("fits", 2) == (found.answer, found.pods)
    assert {"default/g-0": "a0", "default/g-1": "a0"} == found.nodes


def test_the_smallest_change_is_proposed_first_and_each_is_verified() -> None:
    objects = (*racks(a0="4", b0="3"), make_group("g", 6, key=RACK), *members("g", 6, cpu="1"))
    engine = held(*objects)
    found = explained(engine)
    assert "impossible" == found.answer
    assert "needs 6 pods in one rack, 4 fit: Insufficient cpu" in found.message
    assert [
        "1 more node like a0",
        "minCount of PodGroup default/g: 6 -> 4",
        "PodGroup default/g need not share one rack",
    ] == [change.what for change in found.changes]
    assert not differences(engine.state, rebuilt(engine.state, [])), "nothing has changed"
    more = make_node("a1", cpu="4", labels={RACK: "a"})
    assert "fits" == explained(held(more, *objects)).answer


def test_a_group_is_explained_with_its_tree() -> None:
    tree = [make_composite("c", 2), *(make_group(name, 2, parent="c") for name in "gh")]
    engine = held(*racks(a0="3"), *tree, *members("g", 2, cpu="1"), *members("h", 2, cpu="1"))
    found = explained(engine)
    assert ("PodGroup default/g", "CompositePodGroup default/c") == (found.group, found.root)
    assert "minGroupCount of CompositePodGroup default/c: 2 -> 1" in [
        change.what for change in found.changes
    ]
    assert "impossible" == explained(engine, "default/c", "CompositePodGroup").answer
    assert explain_tree(engine, "PodGroup", "default/c") is None


def test_a_group_that_lacks_something_is_told_what() -> None:
    engine = held(*racks(a0="3"), make_group("g", 3, parent="c"), *members("g", 2))
    found = explained(engine)
    assert "invalid" == found.answer
    assert 'waiting for composite pod group "c" to appear' == found.message
    waiting = explained(held(*racks(a0="3"), make_group("g", 3), *members("g", 2)))
    assert "waiting" == waiting.answer
    assert "waiting for minCount pods" in waiting.message
    assert "waiting" == explained(held(make_group("g", 1))).answer


def test_a_group_that_is_placed_is_so() -> None:
    found = explained(held(*racks(a0="3"), make_group("g", 1), *members("g", 1, node="a0")))
    assert ("placed", 1) == (found.answer, found.placed)


def test_a_group_for_which_others_would_leave_is_told_who() -> None:
    low = make_pod("low", cpu="2", node="a0", priority=0)
    pods = members("g", 2, cpu="1", priority=10)
    engine = held(*racks(a0="2"), low, make_group("g", 2, priority=10), *pods)
    found = explained(engine)
    assert "evicting" == found.answer
    assert "default/low; then it is placed" in found.message
    assert {"default/g-0": "a0", "default/g-1": "a0"} == found.nodes
    assert () == found.changes
    assert not differences(engine.state, rebuilt(engine.state, []))


def test_a_second_explanation_remembers_nothing_of_the_first() -> None:
    """Of the same pods, on nodes of which only the model says that they are too small, then not."""
    low = [make_pod(f"low-{i}", cpu="2", node=f"a{i}", priority=0) for i in range(2)]
    sizes = enumerate(("3", "3", "2"))
    pods = [members("g", 1, first=i, cpu=cpu, priority=10)[0] for i, cpu in sizes]
    answers = []
    for cpu in ("4", "5"):
        group = make_group("g", 3, priority=10, key=RACK)
        answers.append(explained(held(*racks(a0=cpu, a1=cpu), *low, group, *pods)).answer)
    assert ["impossible", "evicting"] == answers


def test_only_nodes_that_the_tree_may_use_are_proposed() -> None:
    """Neither the largest one of all, nor one with a taint."""
    taint = [{"key": "t", "value": "v", "effect": "NoSchedule"}]
    nodes = [
        make_node("large", cpu="64"),
        make_node("tainted", cpu="64", example_com__gpu="8", taints=taint),
        make_node("gpu", cpu="8", example_com__gpu="4"),
    ]
    pods = members("g", 2, cpu="1", requests={"example.com/gpu": "4"})
    found = explained(held(*nodes, make_group("g", 2), *pods))
    assert ["1 more node like gpu", "minCount of PodGroup default/g: 2 -> 1"] == [
        change.what for change in found.changes
    ]
    assert [2, 1] == [change.placed for change in found.changes]
