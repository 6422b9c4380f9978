"""Plugins of others: what goes wrong in them stays with the pod that was being placed."""

from typing import Any, ClassVar

import numpy as np
import pytest

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.framework.cluster_events import Change
from stower.framework.decisions import Outcome
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteOk
from stower.framework.plugin import Plugin, Scope
from stower.framework.reasons import Rejection
from stower.framework.scalar_plugin import OTHER_REASONS, TEXTS_MAX, ScalarPlugin
from stower.framework.writes import Bind, PatchObject, PatchPodStatus, Write
from stower.model.errors import InvalidObject
from stower.model.kinds import Node
from tests.builders import make_node, make_pod


def configuration(*names: str) -> dict[str, Any]:
    enabled = [{"name": name} for name in names]
    return {"profiles": [{"plugins": {"multiPoint": {"enabled": enabled}}}]}


def engine_of(*plugins: type[Plugin]) -> Engine:
    engine = build_engine(configuration(*(p.name for p in plugins)), plugins=plugins)
    engine.step(Listed((make_node("n1"), make_node("n2"))), 0)
    return engine


def add(engine: Engine, name: str) -> list[Write]:
    return engine.step(Observed(WatchType.ADDED, make_pod(name)), engine.now_ns)


def bound(writes: list[Write]) -> list[str]:
    return [w.name for w in writes if isinstance(w, Bind)]


def test_a_pod_fails_by_a_plugin_that_raises_and_all_others_go_on() -> None:
    class Picky(ScalarPlugin):
        name = "Picky"

        def filter_node(self, pod: Any, node: Any, pods: Any) -> str:
            if pod.metadata.name == "bad":
                raise ValueError("I do not like it")
            return ""

    engine = engine_of(Picky)
    writes = add(engine, "bad")
    (patch,) = [w for w in writes if isinstance(w, PatchPodStatus)]
    assert patch.condition is not None
    assert "SchedulerError" == patch.condition.reason
    assert 'running Filter plugin "Picky": ValueError: I do not like it' == patch.condition.message
    assert ["good"] == bound(add(engine, "good"))
    assert [Outcome.ERROR, Outcome.PLACED] == [d.outcome for d in engine.drain()]
    engine.step(Tick(), SECOND_NS)
    assert [Outcome.ERROR] == [d.outcome for d in engine.drain()]  # tried again, later


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (np.zeros(7, np.int64), "got int64[7], want"),
        (np.zeros(64, np.float64), "got float64[64], want"),
        ("no", "got <U2[], want"),
    ],
)
def test_an_answer_of_the_wrong_form_is_an_error_of_the_plugin(answer: Any, why: str) -> None:
    class Odd(Plugin):
        name = "Odd"

        def filter(self, shape: Any, state: Any, rows: Any) -> Any:
            return answer

    engine = engine_of(Odd)
    assert [] == bound(add(engine, "a"))
    (decision,) = engine.drain()
    assert decision.message.startswith(f'running Filter plugin "Odd": {why}')


def test_scores_beyond_a_hundred_are_an_error() -> None:
    class Loud(ScalarPlugin):
        name = "Loud"

        def score_node(self, pod: Any, node: Any, pods: Any) -> int:
            return 1_000

    engine = engine_of(Loud)
    assert [] == bound(add(engine, "a"))
    assert "got scores of 1000 to 1000, want 0 to 100" in engine.drain()[0].message


def test_where_no_pod_is_at_stake_the_harmless_answer_counts() -> None:
    """A hint that fails wakes; a gate that fails stays shut."""

    class Shaky(ScalarPlugin):
        name = "Shaky"
        events_to_register = Change.NODE_ADDED
        open = False

        def filter_node(self, pod: Any, node: Any, pods: Any) -> str:
            return "" if node.metadata.name == "n3" else "node(s) are not the third"

        def hint(self, shape: Any, event: Any) -> bool:
            raise KeyError("hint")

        def pre_enqueue(self, pod: Any) -> Rejection | None:
            if pod.metadata.name == "gated":
                raise KeyError("gate")
            return None

        def post_bind(self, pod: Any, state: Any) -> Any:
            raise KeyError("post_bind")

    engine = engine_of(Shaky)
    assert [] == bound(add(engine, "gated"))
    assert [] == bound(add(engine, "a"))
    assert ["a"] == bound(engine.step(Observed(WatchType.ADDED, make_node("n3")), 1))
    assert [] == engine.step(Observed(WatchType.MODIFIED, make_pod("a", node="n3")), 2)
    assert [] == engine.step(Observed(WatchType.ADDED, make_pod("b", node="n3")), 2)


def test_refusals_in_words_of_their_own_are_counted_like_all_others() -> None:
    class Named(ScalarPlugin):
        name = "Named"

        def filter_node(self, pod: Any, node: Any, pods: Any) -> str:
            return f"node(s) are called {node.metadata.name}"

    engine = engine_of(Named)
    add(engine, "a")
    text = "0/2 nodes are available: 1 node(s) are called n1, 1 node(s) are called n2."
    assert engine.drain()[0].message.startswith(text)


def test_texts_without_end_are_cut_short() -> None:
    class Wordy(ScalarPlugin):
        name = "Wordy"
        said = 0

        def filter_node(self, pod: Any, node: Any, pods: Any) -> str:
            Wordy.said += 1
            return f"no {Wordy.said}"

    engine = engine_of(Wordy)
    for i in range(TEXTS_MAX // 2):
        add(engine, f"p{i}")
    assert OTHER_REASONS in engine.drain()[-1].message


def test_a_vector_plugin_for_all_nodes_at_once() -> None:
    class OnlySecond(Plugin):
        name = "OnlySecond"
        scope = Scope.NODE
        reasons = ("node(s) were not the second",)

        def filter(self, shape: Any, state: Any, rows: Any) -> Any:
            names = np.array(state.node_names)[rows]
            return (names != "n2").astype(np.int64)

    engine = engine_of(OnlySecond)
    writes = add(engine, "a")
    assert ["n2"] == [w.node_name for w in writes if isinstance(w, Bind)]


def always(answer: Any) -> Any:
    return lambda self, *args: answer


def refusing(self: Any, shape: Any, state: Any, rows: Any) -> Any:
    return np.ones(len(state.present[rows]), np.int64)


@pytest.mark.parametrize(
    ("methods", "why"),
    [
        ({"pre_filter": always(5)}, 'PreFilter plugin "Odd": pre_filter returned int, want'),
        ({"pre_filter": always(["n1"])}, "pre_filter returned list, want a Rejection, a frozenset"),
        (
            {"filter": always(None), "generation": always("x")},
            "generation returned str, want a whole",
        ),
        ({"filter": refusing}, "IndexError"),
        ({"filter": refusing, "rejection": always("no")}, "rejection returned str"),
        ({"score": always(np.full(64, 500))}, "got scores of 500 to 500, want 0 to 100"),
        ({"score": always(np.full(64, -5))}, "got scores of -5 to -5, want 0 to 100"),
        ({"reserve": always("held")}, 'Reserve plugin "Odd": AttributeError'),
        ({"bind": always(1)}, "bind returned int, want True or False"),
        ({"bind": always(False)}, "no Bind plugin binds the pod"),
    ],
)
def test_no_answer_of_any_method_ends_the_engine(methods: dict[str, Any], why: str) -> None:
    plugin = type("Odd", (Plugin,), {"name": "Odd", **methods})
    config = configuration("Odd")
    if "bind" in methods:
        config["profiles"][0]["plugins"]["bind"] = {"disabled": [{"name": "DefaultBinder"}]}
    engine = build_engine(config, plugins=(plugin,))
    engine.step(Listed((make_node("n1"), make_node("n2"))), 0)
    for name in ("a", "b"):
        assert [] == bound(add(engine, name))
        assert why in engine.drain()[-1].message


def test_the_queue_goes_on_where_its_order_fails() -> None:
    class Sorted(Plugin):
        name = "Sorted"

        def sort_key(self, pod: Any, added_ns: int) -> tuple[int, ...]:
            raise ValueError("no order")

    config = configuration("Sorted")
    config["profiles"][0]["plugins"]["queueSort"] = {"disabled": [{"name": "PrioritySort"}]}
    engine = build_engine(config, plugins=(Sorted,))
    engine.step(Listed((make_node("n1"),)), 0)
    assert ["a"] == bound(add(engine, "a"))


def test_a_gate_is_asked_again_when_what_it_waits_for_happens() -> None:
    class Doorman(Plugin):
        name = "Doorman"
        events_to_register = Change.NODE_ADDED
        doors: ClassVar[list[str]] = []

        def pre_enqueue(self, pod: Any) -> Rejection | None:
            return None if self.doors else Rejection(("closed",))

    engine = engine_of(Doorman)
    assert [] == add(engine, "a")
    Doorman.doors.append("open")
    assert [] == engine.step(Observed(WatchType.DELETED, make_node("n2")), 1)
    assert ["a"] == bound(engine.step(Observed(WatchType.ADDED, make_node("n3")), 2))


def test_a_gate_that_has_failed_says_so_and_is_asked_again_after_a_while() -> None:
    class Moody(Plugin):
        name = "Moody"
        broken: ClassVar[list[str]] = ["the door is stuck"]

        def pre_enqueue(self, pod: Any) -> Rejection | None:
            if self.broken:
                self.broken.append("again")
                raise RuntimeError(f"{self.broken[0]} {len(self.broken)}")
            return None

    engine = engine_of(Moody)
    writes = add(engine, "a")
    (told,) = [w for w in writes if isinstance(w, PatchPodStatus)]
    assert told.condition is not None
    assert "SchedulerError" == told.condition.reason
    assert "Moody" in told.condition.message
    assert "the door is stuck" in told.condition.message
    # The condition comes back as a change of the pod: no reason to ask again at once.
    seen = make_pod("a", conditions=[{"type": "PodScheduled", "status": "False"}])
    assert [] == engine.step(Observed(WatchType.MODIFIED, seen), 0)
    assert SECOND_NS == engine.next_wake_ns
    Moody.broken.clear()
    assert [] == engine.step(Tick(), SECOND_NS - 1)
    assert ["a"] == bound(engine.step(Tick(), SECOND_NS))


def test_a_reservation_that_fails_gives_the_node_back_at_once() -> None:
    class Broken:
        timeout_message = "the landlord did not answer"
        timeout_ns = 600 * SECOND_NS
        awaited_objects = ()

        def assume(self, state: Any) -> None: ...

        def forget(self, state: Any) -> None: ...

        def writes(self, state: Any, next_id: Any) -> list[Write]:
            raise RuntimeError("no pen")

        def on_answer(self, state: Any, id: int, code: int, version: str) -> bool:
            return True

        def waiting_event(self) -> tuple[str, str]:
            return "", ""

        def unreserve(self, state: Any, next_id: Any) -> list[Write]:
            return []

        def failure_reason(self, state: Any) -> str:
            return ""

        def is_done(self, state: Any) -> bool:
            return False

    class Landlord(Plugin):
        name = "Landlord"

        def reserve(self, pod: Any, shape: Any, state: Any, row: int) -> Any:
            return Broken()

    engine = engine_of(Landlord)
    writes = add(engine, "a")
    told = [w.condition for w in writes if isinstance(w, PatchPodStatus) and w.condition]
    assert ["SchedulerError"] == [condition.reason for condition in told]
    assert 'running PreBind plugin "Landlord": ' in told[0].message
    assert "no pen" in told[0].message
    assert [-1] == [entry.row for entry in engine.state.pods.values()]


def test_a_reservation_is_told_of_the_answers_to_its_writes() -> None:
    """Also one that never wants to be asked again though nothing has changed."""
    answers: list[int] = []
    asked: list[str] = []

    class Written:
        timeout_message = "the landlord did not answer"
        timeout_ns = 600 * SECOND_NS
        awaited_objects = ()

        def assume(self, state: Any) -> None: ...

        def forget(self, state: Any) -> None: ...

        def writes(self, state: Any, next_id: Any) -> list[Write]:
            if asked:
                return []
            asked.append("n1")
            return [PatchObject(next_id(), Node, "", "n1", "uid-of-n1", "1", {"metadata": {}})]

        def on_answer(self, state: Any, id: int, code: int, version: str) -> bool:
            answers.append(code)
            return True

        def waiting_event(self) -> tuple[str, str]:
            return "", ""

        def unreserve(self, state: Any, next_id: Any) -> list[Write]:
            return []

        def failure_reason(self, state: Any) -> str:
            return ""

        def is_done(self, state: Any) -> bool:
            return bool(answers)

    class Landlord(Plugin):
        name = "Landlord"

        def reserve(self, pod: Any, shape: Any, state: Any, row: int) -> Any:
            return Written()

    engine = engine_of(Landlord)
    (write,) = [w for w in add(engine, "a") if isinstance(w, PatchObject)]
    assert ["a"] == bound(engine.step(WriteOk(write.id, "2"), 1))
    assert [0] == answers


def test_what_goes_wrong_when_a_plugin_is_made_is_told_of_it() -> None:
    class Broken(Plugin):
        name = "Broken"

        @classmethod
        def from_args(cls, args: Any, path: str, features: Any) -> "Broken":
            raise ZeroDivisionError("division by zero")

        def bind(self, pod: Any) -> bool:
            return True

    with pytest.raises(InvalidObject, match=r"Broken.*ZeroDivisionError: division by zero"):
        build_engine(configuration("Broken"), plugins=(Broken,))


def test_a_pod_that_a_pre_filter_refuses_for_now_is_told_so() -> None:
    class NotNow(Plugin):
        name = "NotNow"

        def pre_filter(self, shape: Any, state: Any) -> Rejection | None:
            return Rejection(("not now",), resolvable=True)

    engine = engine_of(NotNow)
    assert [] == bound(add(engine, "a"))
    assert engine.drain()[0].message.startswith("0/2 nodes are available: not now.")


def test_evictions_are_looked_for_where_no_filter_counts_amounts() -> None:
    class Closed(Plugin):
        name = "Closed"
        reasons = ("closed",)
        resolvable = True

        def filter(self, shape: Any, state: Any, rows: Any) -> Any:
            return np.ones(len(state.present[rows]), np.int64)

    config = configuration("Closed")
    disabled = [{"name": "NodeResourcesFit"}]
    config["profiles"][0]["plugins"]["multiPoint"]["disabled"] = disabled
    engine = build_engine(config, plugins=(Closed,))
    low = [make_pod(f"low-{i}", node="n1") for i in range(3)]
    engine.step(Listed((make_node("n1"), *low)), 0)
    for i, pod in enumerate(low):
        high = make_pod(f"high-{i}", priority=10)
        assert [] == bound(engine.step(Observed(WatchType.ADDED, high), i * 20 * SECOND_NS))
        engine.step(Observed(WatchType.DELETED, pod), i * 20 * SECOND_NS + 1)


@pytest.mark.parametrize("method", ["capacity_constraints", "is_relevant", "code"])
def test_odd_answers_of_a_filter_fail_the_pod_alone(method: str) -> None:
    class Run:
        def add(self, entry: Any) -> None: ...

        def remove(self, entry: Any) -> None: ...

        def code(self) -> Any:
            return "full" if method == "code" else 0

    class Odd(Plugin):
        name = "Odd"
        scope = Scope.PODS
        resolvable = True
        reasons = ("odd",)

        def is_relevant(self, shape: Any) -> Any:
            return np.array([True, False]) if method == "is_relevant" else True

        def filter_pod(self, pod: Any, shape: Any, state: Any) -> Any:
            return np.ones(state.row_limit, np.int64)

        def dry_runs(self, pod: Any, shape: Any, state: Any) -> Any:
            return lambda row: Run()

        def capacity_constraints(self, shape: Any, state: Any) -> Any:
            return ("large",) if method == "capacity_constraints" else None

    engine = engine_of(Odd)
    engine.step(Observed(WatchType.ADDED, make_pod("low", node="n1")), 0)
    writes = engine.step(Observed(WatchType.ADDED, make_pod("high", priority=10)), 0)
    told = [w.condition for w in writes if isinstance(w, PatchPodStatus) and w.condition]
    assert ["SchedulerError"] == [condition.reason for condition in told]
    assert "Odd" in told[0].message
