"""Preemption through the engine's one entry: who leaves, what is written, and in which order."""

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import Bind, CreateEvent, DeletePod, PatchPodStatus, Write
from stower.model.kinds import Node, Pod, PodDisruptionBudget
from tests.builders import make_node, make_pod

ADDED, MODIFIED, DELETED = WatchType.ADDED, WatchType.MODIFIED, WatchType.DELETED


def engine_with(*objects: Node | Pod | PodDisruptionBudget) -> Engine:
    engine = build_engine()
    engine.step(Listed(objects), 0)
    return engine


def add(engine: Engine, pod: Pod) -> list[Write]:
    return engine.step(Observed(ADDED, pod), engine.now_ns)


def budget(allowed: int, **labels: str) -> PodDisruptionBudget:
    data = {
        "metadata": {"name": "pdb", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(data, PodDisruptionBudget)


def said(writes: list[Write]) -> list[tuple[str, ...]]:
    """What is written to whom, Events left out."""
    result: list[tuple[str, ...]] = []
    for write in writes:
        if isinstance(write, PatchPodStatus):
            kind = write.condition.type if write.condition is not None else "-"
            promise = () if write.nominated_node_name is None else (write.nominated_node_name,)
            result.append(("patch", write.name, kind, *promise))
        elif isinstance(write, DeletePod):
            result.append(("delete", write.name))
        elif isinstance(write, Bind):
            result.append(("bind", write.name, write.node_name))
    return result


def ok(engine: Engine, writes: list[Write]) -> list[Write]:
    """What follows when all of these are carried out."""
    return [w for write in writes for w in engine.step(WriteOk(write.id), engine.now_ns)]


def test_preemptor_is_promised_the_node_then_the_victim_is_told_then_deleted() -> None:
    low = make_pod("low", cpu="3", node="n1")
    engine = engine_with(make_node("n1", cpu="4"), low)
    first = add(engine, make_pod("high", cpu="3", priority=10))
    assert [("patch", "high", "PodScheduled", "n1"), ("patch", "low", "DisruptionTarget")] == said(
        first
    )
    told = [w for w in first if isinstance(w, PatchPodStatus)][1].condition
    assert told is not None
    assert ("True", "PreemptionByScheduler") == (told.status, told.reason)
    assert "default-scheduler: preempting to accommodate a higher priority pod" == told.message
    second = ok(engine, first)
    assert [("delete", "low")] == said(second)
    (event,) = ok(engine, second)
    assert isinstance(event, CreateEvent)
    assert ("low", "Normal", "Preempted", "Preempting") == (
        event.name, event.type, event.reason, event.action
    )  # fmt: skip
    assert "Preempted by pod uid-of-default-high on node n1" == event.note
    assert [("bind", "high", "n1")] == said(engine.step(Observed(DELETED, low), 5))


def test_the_last_victim_is_told_after_all_others_are_deleted() -> None:
    lows = [make_pod(f"low{i}", cpu="1", node="n1", priority=i) for i in range(3)]
    engine = engine_with(make_node("n1", cpu="3"), *lows)
    first = add(engine, make_pod("high", cpu="3", priority=10))
    assert [("low2",), ("low1",)] == [w[1:2] for w in said(first)[1:]]
    second = ok(engine, first)
    assert [("delete", "low2"), ("delete", "low1")] == said(second)
    third = ok(engine, second)
    assert [("patch", "low0", "DisruptionTarget")] == said(third)
    assert [("delete", "low0")] == said(ok(engine, third))


def test_preemptor_is_not_tried_while_its_victims_are_being_sent_away() -> None:
    lows = [make_pod(f"low{i}", cpu="1", node="n1") for i in range(2)]
    engine = engine_with(make_node("n1", cpu="2"), *lows)
    first = add(engine, make_pod("high", cpu="2", priority=10))
    for low in lows:  # gone before any answer came
        assert [] == said(engine.step(Observed(DELETED, low), 1))
    writes = first
    bound = []
    while writes := ok(engine, writes):
        bound += [w for w in said(writes) if w[0] == "bind"]
    assert [("bind", "high", "n1")] == bound


def test_a_preemptor_is_tried_when_the_last_victim_is_gone_whoever_was_in_its_way() -> None:
    lows = [make_pod("port", ports=[80], node="n1"), make_pod("big", cpu="3", node="n1")]
    engine = engine_with(make_node("n1", cpu="4"), *lows)
    writes = add(engine, make_pod("high", cpu="3", ports=[80], priority=10))
    while writes := ok(engine, writes):
        pass
    assert [] == said(engine.step(Observed(DELETED, lows[0]), 5 * SECOND_NS))
    writes = engine.step(Observed(DELETED, lows[1]), 6 * SECOND_NS)
    assert [("bind", "high", "n1")] == said(writes)


def test_fewest_and_least_important_victims() -> None:
    engine = engine_with(
        make_node("n1", cpu="4"),
        make_node("n2", cpu="4"),
        make_node("n3", cpu="4"),
        make_pod("a", cpu="4", node="n1", priority=5),
        make_pod("b", cpu="2", node="n2", priority=1),
        make_pod("c", cpu="2", node="n2", priority=1),
        make_pod("d", cpu="4", node="n3", priority=1),
    )
    assert ("patch", "d", "DisruptionTarget") in said(
        add(engine, make_pod("high", cpu="4", priority=9))
    )


def test_budgets_choose_the_node_that_breaks_none() -> None:
    engine = engine_with(
        make_node("n1", cpu="4"),
        make_node("n2", cpu="4"),
        make_pod("kept", cpu="4", node="n1", labels={"app": "db"}),
        make_pod("low", cpu="4", node="n2", priority=5),
        budget(0, app="db"),
    )
    assert ("patch", "low", "DisruptionTarget") in said(
        add(engine, make_pod("high", cpu="4", priority=9))
    )


def test_never_preempts_nobody() -> None:
    engine = engine_with(make_node("n1", cpu="1"), make_pod("low", cpu="1", node="n1"))
    writes = add(engine, make_pod("high", cpu="1", priority=9, preemptionPolicy="Never"))
    assert [("patch", "high", "PodScheduled")] == said(writes)
    (decision,) = engine.drain()
    assert decision.message.endswith("preemption: not eligible due to preemptionPolicy=Never.")


def test_preemptor_keeps_its_promise_while_a_victim_takes_its_time_to_end() -> None:
    low = make_pod("low", cpu="3", node="n1")
    engine = engine_with(make_node("n1", cpu="4"), low, make_node("n2", cpu="1"))
    high = make_pod("high", cpu="3", priority=10)
    ok(engine, ok(engine, ok(engine, add(engine, high))))
    told = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    leaving = make_pod("low", cpu="3", node="n1", deletion="2026-01-01T00:00:00Z", conditions=told)
    engine.step(Observed(MODIFIED, leaving), 1)
    promised = make_pod("high", cpu="3", priority=10, nominated="n1")
    engine.step(Observed(MODIFIED, promised), 2)
    engine.drain()
    writes = engine.step(Tick(), 301 * SECOND_NS)
    assert [("patch", "high", "PodScheduled")] == said(writes)  # the promise stays
    assert ["not eligible due to a terminating pod on the nominated node."] == [
        d.message.partition("preemption: ")[2] for d in engine.drain()
    ]
    assert [("bind", "high", "n1")] == said(
        engine.step(Observed(DELETED, leaving), 302 * SECOND_NS)
    )


def test_nobody_else_is_evicted_while_a_victim_leaves_a_node_that_the_promise_has_left() -> None:
    engine = engine_with(
        make_node("n1", cpu="2"),
        make_node("n2", cpu="1"),
        make_node("n3", cpu="2", unschedulable=True),
        make_pod("low", cpu="2", node="n1"),
        make_pod("least", cpu="2", node="n3", priority=-1),
    )
    first = add(engine, make_pod("high", cpu="2", priority=10))
    assert ["low"] == [name for _, name, *_ in said(first) if name != "high"]
    ok(engine, ok(engine, ok(engine, first)))
    moved = make_pod("high", cpu="2", priority=10, nominated="n2")
    engine.step(Observed(MODIFIED, moved), 1)
    engine.drain()
    writes = engine.step(Observed(MODIFIED, make_node("n3", cpu="2")), 301 * SECOND_NS)
    assert [] == [name for _, name, *_ in said(writes) if name != "high"]
    assert ["not eligible as pods that were evicted for it are still terminating."] == [
        d.message.partition("preemption: ")[2] for d in engine.drain()
    ]
    unpromised = Observed(MODIFIED, make_pod("high", cpu="2", priority=10))
    writes = engine.step(unpromised, 302 * SECOND_NS) + engine.step(Tick(), 700 * SECOND_NS)
    assert ["least"] == [name for _, name, *_ in said(writes) if name != "high"]


def test_nobody_waits_for_a_victim_on_a_node_that_is_gone() -> None:
    n1 = make_node("n1", cpu="2")
    engine = engine_with(
        n1,
        make_node("n2", cpu="1"),
        make_node("n3", cpu="2", unschedulable=True),
        make_pod("low", cpu="2", node="n1"),
        make_pod("least", cpu="2", node="n3", priority=-1),
    )
    first = add(engine, make_pod("high", cpu="2", priority=10))
    ok(engine, ok(engine, ok(engine, first)))
    engine.step(Observed(MODIFIED, make_pod("high", cpu="2", priority=10, nominated="n2")), 1)
    engine.step(Observed(DELETED, n1), 2)
    writes = engine.step(Observed(MODIFIED, make_node("n3", cpu="2")), 301 * SECOND_NS)
    assert ["least"] == [name for _, name, *_ in said(writes) if name != "high"]


def test_promises_of_lower_priority_on_the_node_are_taken_back() -> None:
    low = make_pod("low", cpu="4", node="n1")
    mid = make_pod("mid", cpu="4", priority=5, nominated="n1")
    engine = engine_with(make_node("n1", cpu="4"), low, mid)
    writes = add(engine, make_pod("high", cpu="4", priority=9))
    assert ("patch", "mid", "-", "") in said(writes)


def test_a_promise_whose_taking_back_was_lost_is_taken_back_with_the_next_attempt() -> None:
    low = make_pod("low", cpu="4", node="n1")
    mid = make_pod("mid", cpu="4", priority=5, nominated="n1", preemptionPolicy="Never")
    engine = engine_with(make_node("n1", cpu="4"), low)
    ok(engine, add(engine, mid))
    writes = add(engine, make_pod("high", cpu="4", priority=9))
    (lost,) = (w for w in writes if isinstance(w, PatchPodStatus) and w.name == "mid")
    engine.step(WriteFailed(lost.id, 409, "conflict"), SECOND_NS)
    engine.step(Observed(ADDED, make_node("n2", cpu="1")), SECOND_NS)
    again = engine.step(Tick(), 400 * SECOND_NS)
    assert [("patch", "mid", "PodScheduled", "")] == [w for w in said(again) if w[1] == "mid"]


@pytest.mark.parametrize("stage", [0, 1])
def test_preemptor_is_tried_again_if_a_victim_could_not_be_sent_away(stage: int) -> None:
    engine = engine_with(make_node("n1", cpu="1"), make_pod("low", cpu="1", node="n1"))
    writes = add(engine, make_pod("high", cpu="1", priority=9))
    if stage:
        writes = ok(engine, writes)
    failing = next(
        w for w in writes if isinstance(w, DeletePod | PatchPodStatus) and w.name == "low"
    )
    engine.drain()
    again = engine.step(WriteFailed(failing.id, 403, "no"), SECOND_NS)
    assert ("patch", "low", "DisruptionTarget") in said(again)
    assert ["high"] == [d.name for d in engine.drain()]


def test_victim_that_is_gone_already_counts_as_sent_away() -> None:
    low = make_pod("low", cpu="1", node="n1")
    engine = engine_with(make_node("n1", cpu="1"), low)
    writes = add(engine, make_pod("high", cpu="1", priority=9))
    patch = next(w for w in writes if isinstance(w, PatchPodStatus) and w.name == "low")
    assert [] == engine.step(WriteFailed(patch.id, 404, "gone"), 1)
    assert [("bind", "high", "n1")] == said(engine.step(Observed(DELETED, low), 2))


def test_preemptors_do_not_count_on_room_that_others_of_their_priority_were_promised() -> None:
    lows = [make_pod(f"low{i}", cpu="1", node=f"n{i}") for i in range(2)]
    engine = engine_with(make_node("n0", cpu="1"), make_node("n1", cpu="1"), *lows)
    promised = {
        w[3]
        for i in range(2)
        for w in said(add(engine, make_pod(f"high{i}", cpu="1", priority=9)))
        if len(w) > 3
    }
    assert {"n0", "n1"} == promised


def test_a_cluster_that_has_lost_all_nodes_goes_on() -> None:
    node, pods = make_node("n1"), [make_pod(f"p{i}", node="n1") for i in range(3)]
    engine = engine_with(node, *pods)
    engine.step(Observed(DELETED, node), 0)
    add(engine, make_pod("x"))
    for i, pod in enumerate(pods, 1):
        engine.step(Observed(DELETED, pod), i * 20 * SECOND_NS)
    writes = engine.step(Observed(ADDED, make_node("n2")), 100 * SECOND_NS)
    assert [("bind", "x", "n2")] == [w for w in said(writes) if w[0] == "bind"]


def test_bind_of_a_victim_is_not_sent_again() -> None:
    """Nobody knows whether it was bound, and it has to leave all the same."""
    engine = engine_with(make_node("n1", cpu="1"))
    (bind,) = add(engine, make_pod("low", cpu="1"))
    engine.step(WriteFailed(bind.id, 0, "no answer"), 0)
    evicted = add(engine, make_pod("high", cpu="1", priority=10))
    assert ("patch", "low", "DisruptionTarget") in said(evicted)
    assert [] == said(engine.step(Tick(), 2 * SECOND_NS))
    assert ("delete", "low") in said(ok(engine, evicted))


def test_two_preemptors_wait_for_the_same_victim() -> None:
    lows = [make_pod(f"low{i}", cpu="1", node="n1") for i in range(2)]
    engine = engine_with(make_node("n1", cpu="2"), *lows)
    waiting = []
    for i in range(2):
        pod = make_pod(f"high{i}", cpu="1", priority=9, preemptionPolicy="Never")
        add(engine, pod)
        waiting.append(engine.queue.get(pod.metadata.uid))
    first, second = waiting
    assert first is not None
    assert second is not None
    engine.queue.await_victims(first, [low.metadata.uid for low in lows])
    engine.queue.await_victims(second, [lows[1].metadata.uid])
    bound = [
        said(engine.step(Observed(DELETED, low), at_ns))
        for at_ns, low in ((20 * SECOND_NS, lows[1]), (40 * SECOND_NS, lows[0]))
    ]
    assert [[("bind", "high1", "n1")], [("bind", "high0", "n1")]] == bound
