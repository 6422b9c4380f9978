"""What pages are told, through everything that can come in between."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from stower.dashboard import board as board_module
from stower.dashboard.board import DECISIONS, ROWS_AT_ONCE, SAMPLE_SECONDS, Board, kind_of
from stower.framework.decisions import Decision, Outcome
from stower.framework.events import Tick
from stower.model.times import SECOND_NS
from tests.builders import make_node, make_pod
from tests.device_builders import claiming
from tests.group_builders import make_group, members
from tests.unit.dashboard.sources import Still
from tests.vms.rig import vm_pod
from tests.warm.rig import Hub


def still(nodes: int) -> Still:
    """Returns a source with so many nodes."""
    return Still(*(make_node(f"n{n}") for n in range(nodes)))


def told(lines: Iterable[bytes], before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Nodes by row, as a page has them then."""
    rows = dict(before or {})
    for line in lines:
        message = json.loads(line or b"{}")
        if message.get("begin"):
            rows.clear()
        for row, node in message.get("rows", {}).items():
            if node is None:
                rows.pop(row, None)
            else:
                rows[row] = node
    return rows


def look(board: Board, source: Any) -> Iterable[bytes]:
    return board.look(source)


def test_who_begins_anew_in_the_middle_of_a_look_tells_everything_again() -> None:
    board, source = Board(), still(3 * ROWS_AT_ONCE)
    looking = iter(look(board, source))
    rows = told([next(looking), next(looking)])
    assert ROWS_AT_ONCE == len(rows)
    board.begin()
    rows = told(looking, rows)
    rows = told(look(board, source), rows)
    assert 3 * ROWS_AT_ONCE == len(rows)
    assert rows == told(board.whole()), "a page that opens now is told the same"


def test_another_engine_may_be_smaller() -> None:
    board = Board()
    rows = told(look(board, still(300)))
    assert 300 == len(rows)
    small = still(20)
    rows = told(look(board, small), rows)
    assert {f"n{n}" for n in range(20)} == {node["name"] for node in rows.values()}
    assert rows == told(look(board, small), rows)


def test_nothing_is_told_twice() -> None:
    board, source = Board(), still(1)
    assert source.engine is not None
    for at in range(0, 60, 3):
        board.sample(float(at), source.engine)
    history = [
        sample["at"]
        for line in (*look(board, source), *board.whole(), *look(board, source))
        for sample in json.loads(line or b"{}").get("history", ())
    ]
    first = [float(at) for at in range(3, 60, 3)]
    assert history == [*first, *first], "once to pages that are open, once to one that opens"
    board.sample(100.0, source.engine)
    page = [
        sample["at"]
        for line in (*board.whole(), *look(board, source))
        for sample in json.loads(line or b"{}").get("history", ())
    ]
    assert page == [*first, 100.0]


def news(board: Board, source: Any) -> dict[str, Any]:
    """Returns the last line of a look, which has everything but the nodes."""
    *_, last = look(board, source)
    found: dict[str, Any] = json.loads(last)
    return found


def rows_of(source: Any) -> dict[str, dict[str, Any]]:
    """Returns the nodes of a page by name."""
    return {node["name"]: node for node in told(look(Board(), source)).values()}


def decision(number: int, outcome: Outcome = Outcome.PLACED, **fields: Any) -> Decision:
    return Decision("default", f"p{number}", f"u{number}", outcome, at_ns=number, attempts=1,
                    **fields)  # fmt: skip


def test_a_row_has_the_requested_and_allocatable_amounts_and_the_pods_of_a_node() -> None:
    labels = {"topology.kubernetes.io/zone": "z1", "rack": "r1"}
    node = make_node("n1", cpu="4", memory="8Gi", pods="9", labels=labels, example_com__gpu="2")
    placed = make_pod("here", cpu="1500m", memory="1Gi", node="n1",
                      requests={"example.com/gpu": "1"})  # fmt: skip
    source = Still(node, placed)
    source.add(make_pod("decided", cpu="500m", memory="1Gi"))
    (row,) = rows_of(source).values()
    assert ("n1", "z1", "r1", False) == (row["name"], row["zone"], row["rack"], row["off"])
    assert {
        "cpu": [2000, 4000], "memory": [2048, 8192], "pods": [2, 9], "example.com/gpu": [1, 2],
    } == row["amounts"]  # fmt: skip
    assert [
        ["default/decided", "pod", 500, 1024, True], ["default/here", "pod", 1500, 1024, False],
    ] == row["pods"]  # fmt: skip


def test_unschedulable_and_evicting_nodes_are_off() -> None:
    def taint(effect: str) -> list[dict[str, str]]:
        return [{"key": "a", "effect": effect}]

    source = Still(
        make_node("cordoned", unschedulable=True),
        make_node("evicts", taints=taint("NoExecute")),
        make_node("prefers", taints=taint("PreferNoSchedule")),
        make_node("takes"),
    )
    off = {name for name, row in rows_of(source).items() if row["off"]}
    assert {"cordoned", "evicts"} == off


def test_a_look_has_the_rows_of_changed_nodes_alone() -> None:
    board, source = Board(), still(3)
    rows = told(look(board, source))
    source.add(make_pod("p1", node="n1"))
    lines = [*look(board, source)]
    (changed,) = told(lines).values()
    assert "n1" == changed["name"]
    source.remove(make_node("n2"))
    rows = told(look(board, source), told(lines, rows))
    assert {"n0", "n1"} == {row["name"] for row in rows.values()}
    assert rows == told(board.whole())
    assert {} == told(look(board, source)), "no row has changed since"


def test_each_pod_has_a_kind() -> None:
    gang = members("g1", 1)[0]
    for kind, pod in (
        ("vm", vm_pod()), ("gang", gang), ("devices", claiming()), ("pod", make_pod()),
        ("placeholder", make_pod(priority=-1)),
    ):  # fmt: skip
        assert kind == kind_of(pod, [])
        assert "user" == kind_of(pod, [{"other"}, {pod.metadata.uid}])


def test_a_vm_has_the_amounts_that_it_uses_instead_of_the_requests_of_its_pod() -> None:
    (row,) = rows_of(Still(make_node("n1"), vm_pod(node="n1", use=(2, 4)))).values()
    assert [["default/vm1-pod", "vm", 2000, 4096, False]] == row["pods"]
    broken = vm_pod(node="n1", annotations={"vm.neon.tech/resources": "no JSON"})
    (row,) = rows_of(Still(make_node("n1"), broken)).values()
    assert [["default/vm1-pod", "vm", 100, 128, False]] == row["pods"]


def test_users_of_a_warm_pool_have_a_kind_of_their_own() -> None:
    hub = Hub()
    hub.drawn("UP+")
    (row,) = rows_of(Still(engine=hub.engine)).values()
    assert ["placeholder", "user"] == sorted(pod[1] for pod in row["pods"])


def test_waiting_pods_have_the_plugins_that_refuse_them() -> None:
    source = Still(make_node("n1", cpu="1"))
    source.now_ns = 5 * SECOND_NS
    source.add(make_pod("huge", cpu="9", priority=7))
    source.add(make_pod("gated", schedulingGates=[{"name": "later"}]))
    source.now_ns = 8 * SECOND_NS
    found = news(Board(), source)
    assert {"unschedulable": 1, "gated": 1} == found["queue"]
    huge = next(pod for pod in found["waiting"] if pod["pod"] == "default/huge")
    assert {
        "pod": "default/huge", "priority": 7, "attempts": 1, "place": "unschedulable",
        "refusedBy": ["NodeResourcesFit"], "seconds": 3.0,
    } == huge  # fmt: skip
    assert 0 == found["more"]


def test_waiting_pods_above_a_maximum_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "WAITING_MAX", 2)
    source = Still(*(make_pod(f"p{n}") for n in range(5)))
    found = news(Board(), source)
    assert (2, 3) == (len(found["waiting"]), found["more"])


def test_a_pod_may_be_refused_because_of_its_group() -> None:
    source = Still(make_node("n1", cpu="1"), make_group("g1", 3))
    for pod in members("g1", 3, cpu="900m"):
        source.add(pod)
    waiting = news(Board(), source)["waiting"]
    assert 3 == len(waiting)
    assert all(pod["refusedBy"] for pod in waiting)
    assert ["pod group"] in [pod["refusedBy"] for pod in waiting]


def test_standing_has_the_profiles_and_the_weights_of_their_plugins() -> None:
    source = still(1)
    source.now_ns, source.in_flight = 7, 3
    found = news(Board(), source)
    assert (True, True, ["default-scheduler"], 7) == (
        found["standing"]["leads"], found["standing"]["ready"],
        found["standing"]["profiles"], found["standing"]["nowNs"],
    )  # fmt: skip
    assert {"NodeResourcesFit": 1, "TaintToleration": 3}.items() <= (
        found["standing"]["plugins"].items()
    )
    assert 3 == found["counts"]["inFlight"]


def test_a_scheduler_without_an_engine_has_standing_alone() -> None:
    board, source = Board(), still(2)
    look_at = told(look(board, source))
    assert 2 == len(look_at)
    source.engine = None
    source.is_ready = False
    (line,) = look(board, source)
    assert {"standing": {"leads": False, "ready": False}} == json.loads(line)
    again = still(1)
    assert ["n0"] == [row["name"] for row in told(look(board, again), look_at).values()]


def test_an_open_page_gets_each_decision_once_and_a_new_page_gets_all() -> None:
    board, source = Board(), still(1)
    board.on_decision(decision(1, node_name="n0"))
    board.on_decision(decision(2, Outcome.UNSCHEDULABLE, message="no", victims=("a", "b")))
    found = news(board, source)["decisions"]
    assert {
        "pod": "default/p2", "outcome": "unschedulable", "node": "", "message": "no",
        "attempts": 1, "atNs": 2, "victims": 2,
    } == found[1]  # fmt: skip
    assert [] == news(board, source)["decisions"]
    board.on_decision(decision(3))
    *_, last = board.whole()
    assert found == json.loads(last)["decisions"], "the third decision is part of the next look"
    assert ["default/p3"] == [one["pod"] for one in news(board, source)["decisions"]]


def test_only_the_last_decisions_are_kept() -> None:
    board = Board()
    for number in range(DECISIONS + 50):
        board.on_decision(decision(number))
    found = news(board, still(1))["decisions"]
    assert (DECISIONS, f"default/p{DECISIONS + 49}") == (len(found), found[-1]["pod"])


def test_events_and_decisions_are_counted_and_sampled_as_rates() -> None:
    board, source = Board(), Still(make_node("n1", cpu="1"))
    source.add(make_pod("huge", cpu="9"))
    board.sample(100.0, source.engine)
    for number in range(10):
        board.on_step(Tick(), 0.0)
        one = decision(number, waited_ns=number * SECOND_NS)
        board.on_decision(one)
        board.on_bind(one, 0.5)
    board.sample(100.0 + SAMPLE_SECONDS / 2, source.engine)  # too soon after the last sample
    board.sample(100.0 + 2 * SAMPLE_SECONDS, source.engine)
    found = news(board, source)
    seconds = 2 * SAMPLE_SECONDS
    assert [{
        "at": 100.0 + seconds, "waiting": 1, "events": 10 / seconds, "placed": 10 / seconds,
        "bound": 10 / seconds, "p50": 5.5, "p99": 9.5,
    }] == found["history"]  # fmt: skip
    assert {"events": 10, "placed": 10, "bound": 10, "inFlight": 0} == found["counts"]


def test_begin_resets_all_counts() -> None:
    board, source = Board(), still(1)
    board.on_decision(decision(1))
    news(board, source)
    board.begin()
    lines = [*look(board, source)]
    assert {"begin": True} == json.loads(lines[0])
    found = json.loads(lines[-1])
    assert ([], {"inFlight": 0}) == (found["decisions"], found["counts"])
