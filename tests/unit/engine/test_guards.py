"""What is raised on purpose, at every point where a part is entered, concerns one entity alone."""

import ast
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from stower.engine.binding.binding_cycle import BindingCycle
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.explain import explanation
from stower.engine.explain.probe import explain_pod
from stower.engine.extenders.extender_cycle import ExtenderCycle
from stower.engine.groups import tree_cycle, tree_queue
from stower.engine.groups.tree_attempts import TreeAttempts
from stower.engine.guard_points import GuardPoint
from stower.engine.limits import Limits
from stower.engine.node_events import NodeEvents
from stower.engine.object_events import ObjectEvents
from stower.engine.pod_events import PodEvents
from stower.engine.queue.entities import QueuedPod
from stower.engine.queue.scheduling_queue import SchedulingQueue
from stower.engine.rebuild_costs import FREE, RebuildCosts
from stower.engine.recovery import HELD, Recovery
from stower.engine.status_reporter import StatusReporter
from stower.framework.events import AgentAsked, Event, Listed, Tick, WriteFailed, WriteOk
from stower.framework.observer import Observer, Observers
from stower.framework.retries import UNKNOWN
from stower.framework.writes import AgentAnswer, Bind, CreateEvent, PatchPodStatus
from stower.groups import searches
from stower.model.errors import InvariantError
from stower.model.kinds import WarmPool
from stower.model.raw import decode
from stower.state.cluster import ClusterState
from stower.state.tallies import Tallies
from stower.vms.controller import VmScheduling
from stower.warm.controller import WarmCapacity
from tests.builders import make_node, make_pod
from tests.group_builders import make_composite, make_group, members
from tests.guard_world import S, World, bystander

pytestmark = pytest.mark.internal_errors
ROOT = Path(__file__).parents[3] / "src" / "stower"
VMS = {"profiles": [{
    "plugins": {"multiPoint": {"enabled": [{"name": "AutoscaleEnforcer"}]}},
    "pluginConfig": [{"name": "AutoscaleEnforcer", "args": {"schedulerName": "default-scheduler"}}],
}]}  # fmt: skip
WARM = {
    "profiles": [
        {"pluginConfig": [{"name": "WarmCapacity", "args": {"pools": [
            {"name": "bad", "namespace": "default",
             "users": {"matchLabels": {"a": "b"}},
             "placeholders": {"selector": {"matchLabels": {"c": "d"}}}}]}}]}
    ]
}  # fmt: skip
NO_POOLS = {"profiles": [{"pluginConfig": [{"name": "WarmCapacity", "args": {"pools": []}}]}]}
EXTENDER = {"extenders": [{"urlPrefix": "http://e", "nodeCacheCapable": True,
                           "filterVerb": "filter"}]}  # fmt: skip
POOL = decode(
    b'''{"metadata": {"name": "poor", "namespace": "default", "uid": "w"}, "spec": {
    "users": {"matchLabels": {"a": "c"}}, "placeholders": {"selector": {"matchLabels": {"c": "e"}}}
    }}''', WarmPool,
)  # fmt: skip
Error = Callable[[], Exception]


class Plant:
    """A method of a class that raises: for all, or where an argument is about that name."""

    def __init__(
        self, owner: Any, name: str, about: str = "", error: Error = lambda: IndexError("planted")
    ) -> None:
        self.owner, self.name, self.about, self.error = owner, name, about, error
        self.left = -1  # how often it still raises, -1 for ever
        self.hits = 0
        self.is_after = False  # whether the method is carried out before it raises

    def after(self) -> "Plant":
        """It raises when all is done."""
        self.is_after = True
        return self

    @contextmanager
    def planted(self, times: int = -1) -> Iterator[None]:
        """While this lasts."""
        self.left, self.hits, inner = times, 0, getattr(self.owner, self.name)
        if isinstance(inner, property):
            raising: Any = property(lambda it: self._raise((), lambda: inner.fget(it)))
        else:

            def raising(*args: Any, **kwargs: Any) -> Any:
                return self._raise((*args, *kwargs.values()), lambda: inner(*args, **kwargs))

        with patch.object(self.owner, self.name, raising):
            yield

    def _raise(self, args: Any, inner: Callable[[], Any]) -> Any:
        if self.left and (not self.about or any(_is_about(a, self.about) for a in args)):
            if self.is_after:
                inner()
            self.left -= 1
            self.hits += 1
            raise self.error()
        return inner()


class First(Observer):
    """The observer that fails."""

    def on_step(self, event: Event, duration_s: float) -> None:
        """Would look at it."""


def _is_about(value: Any, name: str) -> bool:
    """Also whether the name is the object's namespace, for pods whose names begin with it."""
    for _ in range(3):
        if name == getattr(getattr(value, "metadata", None), "namespace", ""):
            return bool(value.metadata.name.startswith(name))
        if hasattr(value, "root"):
            return bool(value.root.key == f"default/{name}")
        if hasattr(value, "metadata"):
            return bool(value.metadata.name == name)
        value = getattr(value, "object", value)
        value = getattr(value, "pod", getattr(value, "queued", value))
        if getattr(value, "key", None) == f"default/{name}":
            return True
    return False


class Case:
    """What is planted, what happens then, and who is told."""

    def __init__(
        self,
        plant: Plant,
        trigger: Callable[[World], Event] = lambda world: Tick(),
        prepare: Callable[[World], None] = lambda world: None,
        objects: tuple[Any, ...] = (),
        document: dict[str, Any] | None = None,
        told: str = "bad",
        placed: tuple[str, ...] = ("bad",),
        waits: bool = False,
    ) -> None:
        self.plant, self.trigger, self.prepare = plant, trigger, prepare
        self.objects, self.document = objects, document
        self.told = told  # who gets a condition or an Event; "" where nobody can be named
        self.placed = placed  # who has a node in the end
        self.waits = waits  # whether no pod at all is tried for a while


def held(*names: str) -> Callable[[World], None]:
    return lambda world: world.hold(*(make_pod(name) for name in names))


def attempt(plant: Plant, **more: Any) -> Case:
    """The pod `bad` is tried."""
    return Case(plant, prepare=held("bad"), **more)


def group(name: str, count: int = 2, **fields: Any) -> Callable[[World], None]:
    def prepare(world: World) -> None:
        world.hold(*members(name, count, **fields))

    return prepare


def invariant() -> Exception:
    return InvariantError("planted")


def refuse_bind(code: int) -> Callable[[World], None]:
    """The pod's Bind is refused once."""

    def prepare(world: World) -> None:
        tries = [0]

        def answers(write: Any) -> Event | None:
            if isinstance(write, Bind) and write.name == "bad" and not tries[0]:
                tries[0] = 1
                return WriteFailed(write.id, code, "planted")
            return None

        world.answers = answers
        world.hold(make_pod("bad"))

    return prepare


def unplaceable(world: World) -> None:
    """A pod that has no room, and one that is tried with the next event."""
    world.add(make_pod("bad", cpu="100"))
    world.hold()


NO_NODE = attempt(Plant(SchedulingQueue, "park", "bad"), placed=())
TREE = "g1"
TREE_MEMBERS = ("g1-0", "g1-1")
TREE_CASE: dict[str, Any] = {
    "prepare": group(TREE), "objects": (make_group(TREE, 2),), "told": TREE_MEMBERS[0],
    "placed": TREE_MEMBERS,
}  # fmt: skip
VM_CASE: dict[str, Any] = {"document": VMS, "told": "", "placed": (), "prepare": held()}

CASES: dict[GuardPoint, dict[str, Case]] = {
    GuardPoint.STEP: {
        "begin_step": Case(
            Plant(ClusterState, "begin_step"), prepare=held(), told="", placed=(), waits=True
        ),
    },
    GuardPoint.OBJECT: {
        "new pod": Case(
            Plant(PodEvents, "_apply_new", "bad"),
            lambda world: world.put(make_pod("bad")), held(),
        ),
        "new pod, half stored": Case(
            Plant(ClusterState, "_insert_entry", "bad").after(),
            lambda world: world.put(make_pod("bad")), held(),
        ),
        "placed pod": Case(
            Plant(ClusterState, "_place", "bad").after(),
            lambda world: world.put(make_pod("bad", node="n1")), held(),
        ),
        "node": Case(
            Plant(NodeEvents, "handle_node", "bad"),
            lambda world: world.put(make_node("bad")), held(), placed=(),
        ),
        "group": Case(
            Plant(ObjectEvents, "_store_object", "bad").after(),
            lambda world: world.put(make_group("bad")), held(), placed=(),
        ),
        "sort key": Case(
            Plant(QueuedPod, "sort_key", "bad"),
            lambda world: world.put(make_pod("bad", priority=7)),
            held("bad"),
        ),
        "deletion of a pod": Case(
            Plant(SchedulingQueue, "on_room_release", "bad"),
            lambda world: world.delete(make_pod("bad")),
            lambda world: (world.add(make_pod("bad")), unplaceable_other(world), None)[-1],
            placed=(),
        ),
    },
    GuardPoint.LIST: {
        "one of a list": Case(
            Plant(PodEvents, "handle_pod", "bad"),
            lambda world: (world.put(make_pod("bad")), Listed((*world.objects.values(),)))[1],
            held(), told="",
        ),
        "a deletion by a list": Case(
            Plant(PodEvents, "handle_deletion"),
            lambda world: (
                world.delete(make_pod("gone")), world.delete(make_pod("lost")),
                Listed((*world.objects.values(),)),
            )[-1],
            lambda world: [world.add(make_pod(name)) for name in ("gone", "lost")] and world.hold(),
            told="", placed=(),
        ),
    },
    GuardPoint.ANSWER: {
        "bound": attempt(Plant(BindingCycle, "_on_bind", "bad")),
        "bound, all done": attempt(Plant(BindingCycle, "_on_bind", "bad").after()),
        "not bound": Case(
            Plant(BindingCycle, "_on_bind_failure", "bad"), prepare=refuse_bind(409)
        ),
        "half undone": Case(Plant(ClusterState, "forget", "bad").after(), prepare=refuse_bind(422)),
        "a condition": Case(
            Plant(StatusReporter, "handle_answer"), prepare=unplaceable, placed=(), told="",
            trigger=lambda world: world.put(make_pod("other", cpu="99")),
        ),
    },
    GuardPoint.EXTENDER_ANSWER: {
        "nodes": attempt(Plant(ExtenderCycle, "_apply_nodes", "bad"), document=EXTENDER),
        "binding, before the write": attempt(
            Plant(ExtenderCycle, "binder", "bad"), document=EXTENDER
        ),
    },
    GuardPoint.AGENT_REQUEST: {
        "resources": Case(
            Plant(VmScheduling, "on_request"), lambda world: AgentAsked(7, "POST", b"{}"),
            **VM_CASE,
        ),
    },
    GuardPoint.TIMERS: {
        "a Bind that is sent again": Case(
            Plant(BindingCycle, "_send_again"),
            lambda world: _later(world), lambda world: _unknown_bind(world),
        ),
        "a Bind that is sent again, all done": Case(
            Plant(BindingCycle, "_send_again").after(),
            lambda world: _later(world), lambda world: _unknown_bind(world),
        ),
        "what is due": Case(
            Plant(BindingCycle, "due_work"),
            lambda world: _later(world), lambda world: _unknown_bind(world), told="", waits=True,
        ),
    },
    GuardPoint.QUEUE: {
        "pop": attempt(Plant(SchedulingQueue, "pop"), told="", waits=True),
        "trees": Case(
            Plant(tree_queue.TreeQueue, "update"), waits=True, **{**TREE_CASE, "told": ""},
        ),
    },
    GuardPoint.HINT: {
        "node": Case(
            Plant(QueuedPod, "is_helped_by", "bad"),
            lambda world: world.put(make_node("n3")), unplaceable, placed=(),
        ),
        "its own change": Case(
            Plant(QueuedPod, "is_helped_by", "bad"),
            lambda world: world.put(make_pod("bad", cpu="3")), unplaceable,
        ),
    },
    GuardPoint.GROUPS: {
        "what a tree waits for": Case(Plant(tree_queue, "waiting_reason"), **TREE_CASE),
        "moves of trees": Case(Plant(tree_queue.TreeQueue, "_update_tree"), **TREE_CASE),
        "moves of trees, all done": Case(
            Plant(tree_queue.TreeQueue, "_update_tree").after(), **TREE_CASE
        ),
        "a report": Case(
            Plant(TreeAttempts, "report_waiting"), lambda world: _later(world), group(TREE, 1),
            (make_group(TREE, 2),), told=TREE_MEMBERS[0], placed=(),
        ),
    },
    GuardPoint.POD_ATTEMPT: {
        "choice": attempt(Plant(SchedulingCycle, "choose", "bad")),
        "an invariant": attempt(Plant(SchedulingCycle, "choose", "bad", invariant)),
        "the state": attempt(Plant(ClusterState, "assume", "bad")),
        "the state, half changed": attempt(Plant(ClusterState, "assume", "bad").after()),
        "an invariant of the state": attempt(Plant(ClusterState, "assume", "bad", invariant)),
        "binding": attempt(Plant(BindingCycle, "bind", "bad")),
        "binding, the write made": attempt(Plant(BindingCycle, "bind", "bad").after()),
        "decision": attempt(Plant(StatusReporter, "decide", "bad")),
        "refusal": Case(
            Plant(SchedulingQueue, "park", "bad").after(),
            prepare=lambda world: world.hold(make_pod("bad", cpu="100")), placed=(),
        ),
        "condition": Case(
            Plant(StatusReporter, "event", "bad").after(),
            prepare=lambda world: world.hold(make_pod("bad", cpu="100")), placed=(), told="",
        ),
    },
    GuardPoint.TREE_ATTEMPT: {
        "search": Case(Plant(tree_cycle.TreeCycle, "attempt"), **TREE_CASE),
        "before anything": Case(Plant(TreeAttempts, "run"), **TREE_CASE),
        "one member's place": Case(Plant(ClusterState, "assume", "g1-1"), **TREE_CASE),
        "one member's binding": Case(
            Plant(BindingCycle, "finish", "g1-1").after(), **TREE_CASE
        ),
        "conditions": Case(Plant(TreeAttempts, "_set_conditions").after(), **TREE_CASE),
    },
    GuardPoint.SOLVER: {
        "placement": Case(
            Plant(searches, "place_at_once"), prepare=group(TREE),
            objects=(make_group(TREE, 2, parent="c1"), make_composite("c1")), told="c1",
            placed=TREE_MEMBERS,
        ),
    },
    GuardPoint.COMPANION: {"turn": Case(Plant(VmScheduling, "run"), **VM_CASE)},
    GuardPoint.COMPANION_OBJECT: {
        "object": Case(
            Plant(VmScheduling, "on_object", "bad"),
            lambda world: world.put(make_node("bad")), **{**VM_CASE, "told": "bad"},
        ),
        "list": Case(
            Plant(VmScheduling, "on_list"),
            lambda world: Listed((*world.objects.values(),)), **VM_CASE,
        ),
    },
    GuardPoint.COMPANION_ENTITY: {
        "VM": Case(
            Plant(VmScheduling, "_handle_item", "n1"),
            lambda world: world.put(make_node("n1", labels={"x": "y"})),
            **{**VM_CASE, "told": "n1"},
        ),
        "pool": Case(
            Plant(WarmCapacity, "_keep", "bad"), document=WARM, told="", placed=(),
            trigger=lambda world: _later(world), prepare=held(),
        ),
        "pool, in the state": Case(
            Plant(Tallies, "register"), document=NO_POOLS, told="poor", placed=(),
            trigger=lambda world: _later(world), prepare=held(), objects=(POOL,),
        ),
        "pool of an object": Case(
            Plant(WarmCapacity, "_keep", "poor"), document=WARM, told="poor", placed=(),
            trigger=lambda world: _later(world), prepare=held(), objects=(POOL,),
        ),
    },
    GuardPoint.COMPANION_STATUS: {
        "next wake": Case(
            Plant(VmScheduling, "next_wake_ns"),
            lambda world: (world.engine.next_wake_ns, Tick())[1],
            **VM_CASE,
        ),
        "metrics": Case(
            Plant(VmScheduling, "metrics"),
            lambda world: (world.engine.companion_metrics(), Tick())[1],
            **VM_CASE,
        ),
    },
    GuardPoint.OBSERVER: {
        "step": Case(
            Plant(First, "on_step"), lambda world: (_observe(world), Tick())[1],
            told="", placed=(), prepare=held(),
        ),
    },
    GuardPoint.EXPLANATION: {
        "explanation": Case(
            Plant(explanation, "displaceable_pods"), prepare=lambda world: _explain(world), told="",
        ),
    },
    GuardPoint.RECOVERY: {
        "an assumed pod": Case(
            Plant(Recovery, "_assume", error=lambda: ValueError("planted")), told="",
            prepare=lambda world: _broken_beside_binding(world),
        ),
    },
}  # fmt: skip
NAMED = [(point, name) for point, cases in CASES.items() for name in cases]


def unplaceable_other(world: World) -> None:
    world.add(make_pod("waiting", cpu="100"))
    world.hold()


def _later(world: World) -> Event:
    world.now_ns += 20 * S
    return Tick()


def _unknown_bind(world: World) -> None:
    refuse_bind(UNKNOWN)(world)
    world.step(Tick())
    world.hold()


def _explain(world: World) -> None:
    world.hold()
    bad = make_pod("bad")
    world.engine._is_held = True
    world.add(bad)
    assert "failed" == explain_pod(world.engine, bad).verdict
    world.engine._is_held = False


def _observe(world: World) -> None:
    """As a scheduler does; the second observer is called though the first has failed."""
    seen: list[Event] = []

    class Second(Observer):
        def on_step(self, event: Event, duration_s: float) -> None:
            seen.append(event)

    errors = world.engine.errors
    both = Observers(
        (First(), Second()),
        lambda observer, error: errors.record(GuardPoint.OBSERVER, type(observer).__name__, error),
    )
    both.on_step(Tick(), 0.0)
    assert len(seen) == 1


def _broken_beside_binding(world: World) -> None:
    """An error that builds the state again, while a pod is being bound."""
    world.engine.step(world.put(make_pod("bad")), world.now_ns)  # the Bind is never answered
    with Plant(ClusterState, "assume", "broken").planted(1):
        world.add(make_pod("broken"))
    world.hold()


def test_every_point_is_in_the_table() -> None:
    assert [*GuardPoint] == [point for point in GuardPoint if CASES.get(point)]


def test_every_guard_names_its_point() -> None:
    """An `except Exception` in the engine that counts under no point is found here."""
    named = set()
    for path in sorted((ROOT / "engine").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and _catches_all(node):
                    named.add((path.name, function.name))
    reporting = {
        ("companions.py", "_list"), ("companions.py", "_pass_on"), ("companions.py", "ask"),
        ("companions.py", "is_settled"), ("companions.py", "next_wakes_ns"),
        ("companions.py", "_collect"), ("companions.py", "run"),
        ("engine.py", "_do_all"), ("engine.py", "_end_attempt"),
        ("engine.py", "_on_answer"), ("engine.py", "_on_list"), ("engine.py", "_on_object"),
        ("engine.py", "_run_cycles"), ("engine.py", "step"), ("probe.py", "choose_node_for"),
        ("probe.py", "explain_pod"), ("hint_groups.py", "find_helped"),
        ("hint_groups.py", "is_helped"), ("recovery.py", "_differs"), ("recovery.py", "_end_reset"),
        ("recovery.py", "_each"),
        ("recovery.py", "_load"), ("recovery.py", "run_due"), ("tree_cycle.py", "_solve"),
        ("tree_queue.py", "update"), ("tree_queue.py", "_report_waiting"),
        # These two only read, and what they read again later is guarded.
        ("tree_queue.py", "on_domain_change"), ("internal_errors.py", "format_error"),
    }  # fmt: skip
    assert reporting == named


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in ("Exception", "BaseException")
    )


def made(case: Case) -> World:
    return World(*case.objects, document=case.document)


@pytest.mark.parametrize(("point", "name"), NAMED)
def test_an_error_concerns_one_entity(point: GuardPoint, name: str) -> None:
    """It is counted, logged with its traceback and reported; a pod that has nothing to do with it
    is placed in the same step; when the cause is gone, all is as if nothing had been."""
    case = CASES[point][name]
    world = made(case)
    with case.plant.planted(1):
        case.prepare(world)
        world.engine._is_held = True
        world.add(bystander())
        world.engine._is_held = False
        world.step(case.trigger(world))
        world.engine.notes()  # as a shell does after each step
        if not case.waits:
            assert world.node_of("bystander")
    assert 1 == case.plant.hits
    assert world.engine.errors.counts[point.value] >= 1
    assert world.reported(case.told) or not case.told
    world.run_until(world.now_ns + 200 * S)
    assert world.node_of("bystander")
    for pod in case.placed:
        assert world.node_of(pod), pod
    if not case.document:
        world.check_state()


@pytest.mark.parametrize(("point", "name"), NAMED)
def test_an_error_that_stays_costs_little(point: GuardPoint, name: str) -> None:
    """For ten minutes it is raised wherever it can be: it comes ever more rarely, and others are
    placed all the same."""
    case = CASES[point][name]
    if point in (GuardPoint.STEP, GuardPoint.TIMERS, GuardPoint.QUEUE):
        pytest.skip("an error that no entity provokes keeps all waiting")
    world = made(case)
    with case.plant.planted():
        case.prepare(world)
        world.engine._is_held = True
        world.engine._is_held = False
        world.step(case.trigger(world))
        for i in range(20):
            world.run_until(world.now_ns + 30 * S)
            world.add(bystander(f"later-{i}"))
            world.engine.notes()
            world.run_until(world.now_ns + 2 * S)
            assert world.node_of(f"later-{i}"), i
        assert case.plant.hits <= 150
    world.run_until(world.now_ns + 2_000 * S)
    for pod in case.placed:
        assert world.node_of(pod), pod


def test_log_lines_have_the_traceback() -> None:
    world = World()
    with Plant(ClusterState, "assume", "bad").planted(1):
        world.add(make_pod("bad"))
    level, text, about = world.engine.notes()[0]
    assert ("error", "uid-of-default-bad") == (level, about)
    assert "IndexError: planted" in text
    assert "Traceback" in text


def test_an_open_agent_request_is_answered() -> None:
    """Where the companion that had it was created again."""
    world = World(document=VMS)
    with Plant(VmScheduling, "on_request").planted(1):
        world.step(AgentAsked(7, "POST", b"{}"))
    assert [7] == [write.id for write in world.writes if isinstance(write, AgentAnswer)]


def test_an_offender_waits_longer_each_time() -> None:
    world = World()
    times: list[int] = []
    plant = Plant(ClusterState, "assume", "bad")
    with plant.planted():
        world.add(make_pod("bad"))
        for _ in range(12):
            times.append(world.now_ns)
            due_ns = world.engine.next_wake_ns
            assert due_ns is not None
            world.run_until(due_ns)
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert [S << i for i in range(9)] == gaps[:9]
    assert max(gaps) == 600 * S


@pytest.mark.parametrize(("obj", "part", "text"), [
    (make_node("bad"), (NodeEvents, "handle_node"), "the object is ignored until"),
    (make_pod("bad", node="n1"), (ClusterState, "_place"),
     "the pod's requests are not counted on node n1 until"),
])  # fmt: skip
def test_an_object_that_cannot_be_applied_is_reported_as_ignored(
    obj: Any, part: tuple[Any, str], text: str
) -> None:
    """By an Event, a log line and a count; no more once it is applied."""
    world = World()
    with Plant(*part, "bad").planted():
        world.add(obj)
        assert 1 == world.engine.left_out_count
        events = [w for w in world.writes if isinstance(w, CreateEvent) and w.name == "bad"]
        assert any(text in event.note for event in events)
        assert any(text in line for _, line, about in world.engine.notes() if "bad" in about)
    world.run_until(world.now_ns + 700 * S)
    assert 0 == world.engine.left_out_count


def test_a_companions_entity_that_fails_again_gets_no_event_each_time() -> None:
    """A companion may try again at once; the next Event follows when the entity has waited."""
    world = World(document=VMS)
    plant = Plant(VmScheduling, "_handle_item", "n1")
    with plant.planted():
        for i in range(300):
            world.now_ns += S
            world.add(make_node("n1", labels={"x": str(i)}))
    events = [w for w in world.writes if isinstance(w, CreateEvent) and w.name == "n1"]
    assert plant.hits > 20
    assert 1 < len(events) <= 9


# Where errors in many pods or objects of one namespace are raised.
POISONS = {
    "attempt": Plant(SchedulingCycle, "choose", "evil", invariant),
    "state": Plant(ClusterState, "assume", "evil"),
    "new pod": Plant(PodEvents, "_apply_new", "evil"),
}


@pytest.mark.parametrize("name", [*POISONS])
def test_many_pods_of_a_namespace_that_provoke_errors_cost_others_little(name: str) -> None:
    """States are built or compared for them ever more rarely, while a pod of another namespace is
    placed at once; a pod of their own namespace waits and is told why. Later all are placed."""
    plant, world = POISONS[name], World()
    # As if building a state took a second per object.
    slow = Limits(rebuilt_objects_per_second=1, rebuild_cost_max_ns=10 * S)
    world.engine._recovery.costs = RebuildCosts(slow)
    pods = [make_pod(f"evil-{i}", namespace="evil", cpu="1m") for i in range(40)]
    with plant.planted():
        for i, pod in enumerate(pods):
            world.add(pod)
            world.add(make_pod(f"other-{i}", cpu="1m"))
            assert world.node_of(f"other-{i}")
        world.add(make_pod("healthy", namespace="evil"))
        assert plant.hits <= 2 * FREE
        world.run_until(world.now_ns + 100 * S)
        assert plant.hits <= 2 * (FREE + 10)
    if name != "new pod":
        assert any(
            isinstance(w, PatchPodStatus)
            and w.condition is not None
            and w.condition.message == HELD
            for w in world.writes
        )
    world.run_until(world.now_ns + 3_000 * S)
    for pod in (*pods, make_pod("healthy", namespace="evil")):
        assert world.objects["Pod", "evil", pod.metadata.name].spec.node_name
    world.check_state()


def test_a_pod_that_gets_a_node_while_its_namespace_waits_is_counted_at_once() -> None:
    world = World()
    world.engine._recovery.costs = RebuildCosts(Limits(rebuilt_objects_per_second=1))
    plant = Plant(PodEvents, "_apply_new", "evil")
    with plant.planted():
        for i in range(FREE):
            world.add(make_pod(f"evil-{i}", namespace="evil"))
        pod = make_pod("placed", namespace="evil")
        world.add(pod)
        assert pod.metadata.uid not in world.engine.state.pods
        world.add(make_pod("placed", namespace="evil", node="n1"))
        assert world.engine.state.pods[pod.metadata.uid].row >= 0


def test_an_error_in_an_answer_about_a_pod_that_is_being_bound_does_not_place_it_twice() -> None:
    """The pod has to wait as an offender, but its Bind is under way: it was tried again, and its
    requests were counted twice."""
    world = World()
    pod = make_pod("bad", cpu="1")
    world.engine.step(world.put(pod), world.now_ns)  # the Bind is not answered
    world.engine.outbox.writes = []
    world.engine.reporter.nominate(world.engine.state.pods[pod.metadata.uid], "n1")
    (patch,) = world.engine.outbox.writes
    with Plant(StatusReporter, "handle_answer").planted(1):
        world.step(WriteOk(patch.id))
    world.run_until(world.now_ns + 30 * S)
    assert 1 == sum(world.engine.state.column("pods").requested_cells)


def test_a_group_whose_binding_fails_each_time_is_not_kept_assumed() -> None:
    """Its pods had been made to wait for each other, and were taken for pods that are being bound:
    they kept their room, and were never tried again."""
    world = World(make_group(TREE, 1))
    with Plant(BindingCycle, "finish").planted(1):
        world.hold(*members(TREE, 1))
        world.step(Tick())
    assert not world.engine.binding.permit.groups
    world.run_until(world.now_ns + 60 * S)
    assert world.node_of("g1-0")


def _damaging(world: World) -> Callable[..., Any]:
    """Changes the state behind its back, and says that something cannot be."""

    def damage(*_: Any, **__: Any) -> Any:
        world.engine.state.column("cpu").requested_cells[0] += 1000
        raise InvariantError("planted")

    return damage


def _damaged_group(world: World) -> None:
    with patch.object(tree_queue, "waiting_reason", _damaging(world)):
        world.hold(*members(TREE, 2))
        world.step(Tick())


def _damaged_hint(world: World) -> None:
    world.add(make_pod("bad", cpu="100"))
    with patch.object(QueuedPod, "is_helped_by", _damaging(world)):
        world.add(make_node("n3"))


def _damaged_explanation(world: World) -> None:
    world.engine._is_held = True
    world.add(make_pod("bad"))
    with patch.object(explanation, "displaceable_pods", _damaging(world)):
        assert "failed" == explain_pod(world.engine, make_pod("bad")).verdict
    world.engine._is_held = False
    world.step(Tick())


@pytest.mark.parametrize("damage", [_damaged_group, _damaged_hint, _damaged_explanation])
def test_after_a_breach_of_an_invariant_the_state_is_what_the_objects_say(
    damage: Callable[[World], None],
) -> None:
    """At whatever guard it was raised."""
    world = World(make_group(TREE, 2))
    damage(world)
    world.check_state()


def test_a_reset_that_does_not_end_is_made_again() -> None:
    """Pods and groups may be in the queue twice, or not at all, after it."""
    world = World(make_group(TREE, 2))
    broken = Plant(tree_queue.TreeQueue, "update").after()
    with broken.planted(2):  # in a step, and again as the state is built
        world.hold(*members(TREE, 2))
        world.step(Tick())
    assert 2 == broken.hits
    assert world.engine._recovery.is_suspect
    world.run_until(world.now_ns + 60 * S)
    assert all(world.node_of(name) for name in TREE_MEMBERS)
    assert not world.engine._recovery.is_suspect


def test_updates_of_many_trees_that_fail_at_once_build_the_state_a_few_times_a_step() -> None:
    names = [f"g{i}" for i in range(40)]
    world = World(*(make_group(name, 2) for name in names))
    broken = Plant(tree_queue.TreeQueue, "_update_tree")
    with broken.planted():
        for name in names:
            world.hold(*members(name, 2))
        world.step(Tick())
        limit = world.engine.limits.rebuilds_per_step_max
        assert world.engine._recovery.rebuild_count <= limit + 1
        world.add(bystander())
        world.run_until(world.now_ns + S)  # what was built again is charged to the namespace
        assert world.node_of("bystander")
        world.run_until(world.now_ns + 60 * S)
        assert all(world.reported(f"{name}-0") for name in names)
    world.run_until(world.now_ns + 700 * S)
    world.check_state()
