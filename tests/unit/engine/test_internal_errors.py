"""An error of ours while one pod or tree is tried is its own matter: others are tried as ever.

The table of all points is in test_guards.py."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS as S
from stower.framework.decisions import Outcome
from stower.framework.events import Event, Listed, Observed, Tick, WatchType, WriteFailed
from stower.framework.writes import PatchPodStatus
from stower.model.errors import InvariantError
from stower.model.kinds import PodGroup
from tests.builders import make_node, make_pod

pytestmark = pytest.mark.internal_errors
BAD, NODE = make_pod("bad"), make_node("n1")
MEMBER = make_pod("member", schedulingGroup={"podGroupName": "g"})
GROUP = msgspec.convert(
    {"metadata": {"name": "g", "namespace": "default", "uid": "g"},
     "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}, PodGroup,
)  # fmt: skip
Plant = Callable[[Engine], object]


def raising(holder: Any, name: str, when: Callable[..., bool] = lambda *_: True) -> None:
    """From now on that method raises for such arguments."""
    inner = getattr(holder, name)

    def method(*args: Any, **kwargs: Any) -> Any:
        if when(*args):
            raise IndexError("planted")
        return inner(*args, **kwargs)

    setattr(holder, name, method)


def about(name: str) -> Callable[..., bool]:
    """Whether an argument is that pod, or an entry or a queued pod of it."""

    def is_about(*args: Any) -> bool:
        found = [getattr(a, "pod", a) for a in args]
        return any(name == f.metadata.name for f in found if hasattr(f, "metadata"))

    return is_about


def added(obj: Any) -> Event:
    """It is created."""
    return Observed(WatchType.ADDED, obj)


def tree_cycle(engine: Engine) -> Any:
    """What finds places for trees."""
    assert engine.tree_attempts is not None
    return engine.tree_attempts._tree_cycle


def full(engine: Engine) -> None:
    """Nothing fits, and finding out why raises."""
    raising(engine.cycle, "fail", about("bad"))
    engine.step(Observed(WatchType.MODIFIED, make_node("n1", unschedulable=True)), 0)
    engine.step(added(make_node("n2", cpu="1", memory="1Gi", pods="1")), 0)
    engine.step(added(make_pod("first")), 0)


# By what is entered: the error that is planted, and the pod whose attempt raises.
CONTAINED: dict[str, tuple[Plant, Event]] = {
    "choice of a node": (lambda e: raising(e.cycle, "choose", about("bad")), added(BAD)),
    "diagnosis and preemption": (full, added(BAD)),
    "placement of a tree": (lambda e: raising(tree_cycle(e), "attempt"), added(MEMBER)),
}


def engine_with(plant: Plant) -> Engine:
    engine = build_engine()
    engine.step(Listed((NODE, GROUP)), 0)
    plant(engine)
    engine.drain()
    return engine


@pytest.mark.parametrize("point", CONTAINED)
def test_an_attempt_that_raises_stops_nobody_else(point: str) -> None:
    plant, event = CONTAINED[point]
    engine = engine_with(plant)
    writes = engine.step(event, S)
    assert 1 == engine.errors.counts.total()
    ((level, text, key),) = engine.notes()
    assert level == "error"
    assert "IndexError: planted" in text
    assert key.startswith("default/")
    (patch,) = [w for w in writes if isinstance(w, PatchPodStatus)]
    assert patch.condition is not None
    assert "SchedulerError" == patch.condition.reason
    assert "internal error: IndexError; the scheduler's log has more" == patch.condition.message
    engine.step(added(make_node("n3")), 2 * S)
    engine.step(added(make_pod("bystander")), 2 * S)
    placed = {d.name for d in engine.drain() if d.outcome is Outcome.PLACED}
    assert "bystander" in placed
    assert "member" not in placed


def test_a_pod_whose_attempt_raised_is_tried_again() -> None:
    engine = engine_with(lambda _: None)
    inner = engine.cycle.choose
    raising(engine.cycle, "choose")
    engine.step(added(BAD), S)
    engine.cycle.choose = inner  # type: ignore[method-assign]
    engine.step(Tick(), 20 * S)
    assert ["bad"] == [d.name for d in engine.drain() if d.outcome is Outcome.PLACED]


def test_an_error_outside_every_guard_ends_the_step() -> None:
    """Where the state cannot be built again, the engine is of no use any more."""
    engine = engine_with(lambda _: None)
    raising(engine.state, "assume", about("bad"))
    raising(engine.state, "reset")
    with pytest.raises(IndexError, match="planted"):
        engine.step(added(BAD), S)
    with pytest.raises(InvariantError, match="clock went back"):
        engine.step(Tick(), 0)


def test_a_preemptor_that_a_rebuild_leaves_out_is_not_tried() -> None:
    """The answer about its eviction woke it though the queue did not know it any more: that raised
    a KeyError, or it was tried for ever, even after it was deleted."""
    bad = make_pod("bad", cpu="1", priority=10)
    engine = build_engine()
    engine.step(Listed((make_node("n1", cpu="1"), make_pod("victim", cpu="1", node="n1"))), 0)
    writes = engine.step(added(bad), S)
    assert engine.preemptors()
    raising(engine._pods, "handle_pod", about("bad"))
    engine.step(Observed(WatchType.MODIFIED, bad), 2 * S)
    assert 1 == engine.left_out_count
    engine.drain()
    engine.notes()
    for write in writes:
        engine.step(WriteFailed(write.id, 403), 3 * S)
    for second in range(4, 900, 10):
        engine.step(Tick(), second * S)
    assert not [d for d in engine.drain() if d.name == "bad"]
    assert not [text for _, text, _ in engine.notes() if "KeyError" in text]
