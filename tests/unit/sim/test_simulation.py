"""sim/simulation.py: the engine over a workload, and what the report says of it."""

from typing import Any

import msgspec
import pytest

from stower.model.errors import InvalidObject
from stower.model.kinds import Node, Pod
from stower.model.selectors import parse_selector
from stower.sim.simulation import Options, Report, simulate
from stower.sim.workload import Arrival, Workload

SECOND_NS = 1_000_000_000
TIMED = Options(timed=True)


def node(name: str = "n", cpu: str = "4", **labels: str) -> Node:
    """A node with so much cpu and room for 10 pods."""
    room = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    metadata = {"name": name, "uid": f"node/{name}", "labels": labels}
    return msgspec.convert({"metadata": metadata, "status": {"allocatable": room}}, Node)


def pod(name: str, cpu: str = "1", labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    """A pod that asks for so much cpu."""
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    return msgspec.convert({"metadata": metadata, "spec": {"containers": containers, **spec}}, Pod)


def run(
    nodes: list[Node],
    pods: list[Pod],
    options: Options = Options(),  # noqa: B008
    placed: list[Pod] | None = None,
) -> Report:
    """The report over pods that are all pending at the start."""
    arrivals = tuple(Arrival(p) for p in pods)
    workload = Workload(tuple(nodes), tuple(placed or ()), arrivals)
    return simulate(workload, "default", None, options)


def run_trace(
    nodes: list[Node], arrivals: list[tuple[Pod, int, int | None]], options: Options = TIMED
) -> Report:
    """The report over pods that come, and perhaps go, at these seconds."""
    timed = tuple(
        Arrival(p, at * SECOND_NS, None if ends is None else ends * SECOND_NS)
        for p, at, ends in arrivals
    )
    return simulate(Workload(tuple(nodes), (), timed, at_once=False), "default", None, options)


def counts(report: Report) -> dict[str, int]:
    """The report's figures on pods."""
    return {n: getattr(report, n) for n in ("pods", "placed", "pending", "ended")}


def messages(report: Report) -> list[tuple[str, int, str]]:
    """Why pods wait."""
    return [(w.message, w.pods, w.example) for w in report.waiting]


def test_pods_without_room_are_pending_with_the_reason() -> None:
    """Two of three pods fit; the third is said to lack cpu."""
    report = run([node(cpu="2")], [pod("a"), pod("b"), pod("c")])
    assert {"pods": 3, "placed": 2, "pending": 1, "ended": 0} == counts(report)
    why = (
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: "
        "0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )
    assert [(why, 1, "default/c")] == messages(report)
    assert {"Insufficient cpu": 1} == report.refusals


def test_use_sums_nodes_and_pods_with_those_that_ran_before() -> None:
    """Cpu counts in milli-CPU, and a pod that had its node keeps it."""
    report = run([node(), node("m")], [pod("a")], placed=[pod("old", "2", nodeName="m")])
    use = {u.resource: (u.allocatable, u.requested) for u in report.use}
    assert {"cpu": (8000, 3000), "memory": (2 * 8 * 2**30, 0), "pods": (20, 2)} == use
    assert 37.5 == report.use[0].percent
    assert {"default/old": "m", "default/a": "n"} == report.assignments
    assert 0 == report.empty_nodes


def test_use_of_more_bytes_than_64_bits_hold_is_exact() -> None:
    """200 nodes of 60Pi are more than 2^63 bytes, not a negative number."""
    big = [
        msgspec.convert(
            {"metadata": {"name": n}, "status": {"allocatable": {"memory": "60Pi", "pods": "1"}}},
            Node,
        )
        for n in map(str, range(200))
    ]
    use = {u.resource: u.allocatable for u in run(big, []).use}
    assert 200 * 60 * 2**50 == use["memory"]


def test_cluster_without_nodes_leaves_all_pending() -> None:
    """No node is a reason like any other."""
    report = run([], [pod("a")])
    assert {"pods": 1, "placed": 0, "pending": 1, "ended": 0} == counts(report)
    assert (0, 0, ()) == (report.nodes, report.empty_nodes, report.use)


def test_cluster_without_pods_is_empty() -> None:
    """Nothing to do is no fault."""
    report = run([node(), node("m")], [])
    assert {"pods": 0, "placed": 0, "pending": 0, "ended": 0} == counts(report)
    assert (2, 2, 0.0) == (report.nodes, report.empty_nodes, report.pods_per_second)


def test_pods_at_once_go_by_priority() -> None:
    """The one place goes to the pod of the highest priority, though it came last."""
    report = run([node(cpu="1")], [pod("low"), pod("mid", priority=5), pod("high", priority=9)])
    assert {"default/high": "n"} == report.assignments


@pytest.mark.parametrize("timed", [False, True])
def test_pods_of_a_trace_go_in_its_order(timed: bool) -> None:
    """A pod that came earlier has its place before another one of its kind is there."""
    arrivals = [(pod("low"), 0, None), (pod("high"), 1, None)]
    report = run_trace([node(cpu="1")], arrivals, Options(timed=timed))
    assert {"default/low": "n"} == report.assignments


def test_timed_changes_nothing_where_no_pod_has_a_time() -> None:
    """Manifests have no clock: their pods still go by priority."""
    report = run([node(cpu="1")], [pod("low"), pod("high", priority=9)], Options(timed=True))
    assert {"default/high": "n"} == report.assignments


def test_gated_pods_wait_for_their_gates() -> None:
    """A gate keeps the pod out of the queue: it is never tried."""
    report = run([node()], [pod("a", schedulingGates=[{"name": "quota"}])])
    assert [("waiting for scheduling gates", 1, "default/a")] == messages(report)
    assert 0 == report.attempts


def test_pods_of_other_schedulers_are_left_alone_and_said_so() -> None:
    """They count as pending, with a reason of their own."""
    report = run([node()], [pod("a", schedulerName="other")])
    assert [("no profile for scheduler 'other'", 1, "default/a")] == messages(report)
    assert 0 == report.placed


def test_pods_that_are_being_deleted_are_not_placed() -> None:
    """The reason is the deletion, not the nodes."""
    metadata = {"name": "a", "namespace": "default", "uid": "a", "deletionTimestamp": "2026-01-01"}
    going = msgspec.convert({"metadata": metadata}, Pod)
    assert [("being deleted", 1, "default/a")] == messages(run([node()], [going]))


def test_departures_make_room_for_later_pods() -> None:
    """With time, three pods use the one place one after another; without, two wait."""
    arrivals = [(pod("a"), 0, 10), (pod("b"), 10, 20), (pod("c"), 20, None)]
    timed = run_trace([node(cpu="1")], list(arrivals))
    assert {"pods": 3, "placed": 3, "pending": 0, "ended": 2} == counts(timed)
    assert {"default/c": "n"} == timed.assignments
    untimed = run_trace([node(cpu="1")], list(arrivals), Options())
    assert {"pods": 3, "placed": 1, "pending": 2, "ended": 0} == counts(untimed)


def test_pod_that_waited_gets_the_room_of_one_that_ended() -> None:
    """Nothing arrives any more when the room comes."""
    report = run_trace([node(cpu="1")], [(pod("a"), 0, 60), (pod("b"), 30, None)])
    assert {"default/b": "n"} == report.assignments


def test_pod_in_backoff_at_the_end_of_the_trace_is_still_tried() -> None:
    """The last ends come while the pod, woken in vain before, waits out its delay."""
    small = [(pod(name), 0, ends) for name, ends in (("a", 10), ("b", 11), ("c", 11))]
    report = run_trace([node(cpu="3")], [*small, (pod("large", "3"), 5, None)])
    assert {"default/large": "n"} == report.assignments
    assert {"pods": 4, "placed": 4, "pending": 0, "ended": 3} == counts(report)


def test_pod_that_ends_before_it_comes_lives_for_a_moment() -> None:
    """Traces have such lines; the pod is gone at the end all the same."""
    report = run_trace([node(cpu="1")], [(pod("a"), 10, 1), (pod("b"), 20, None)])
    assert {"pods": 2, "placed": 2, "pending": 0, "ended": 1} == counts(report)


def test_pods_that_end_unplaced_are_neither_placed_nor_pending() -> None:
    """They came and went while there was no room."""
    report = run_trace([node(cpu="1")], [(pod("a"), 0, None), (pod("b"), 1, 2)])
    assert {"pods": 2, "placed": 1, "pending": 0, "ended": 1} == counts(report)


def test_domains_count_nodes_pods_and_cpu_per_label_value() -> None:
    """A node without the label is in no domain."""
    nodes = [node("a", zone="x"), node("b", zone="y"), node("c")]
    placed = [pod("p", nodeName="a"), pod("q", nodeName="a"), pod("r", nodeName="c")]
    found = run(nodes, [], Options(by="zone"), placed).domains
    assert [("x", 1, 2, 50.0), ("y", 1, 0, 0.0)] == [
        (d.value, d.nodes, d.pods, d.cpu_percent) for d in found
    ]


def test_match_counts_only_pods_with_the_labels() -> None:
    """Use of cpu stays that of all pods."""
    placed = [pod("p", labels={"app": "web"}, nodeName="a"), pod("q", nodeName="a")]
    options = Options(by="zone", match=parse_selector("app=web"))
    (domain,) = run([node("a", zone="x")], [], options, placed).domains
    assert (1, 50.0) == (domain.pods, domain.cpu_percent)


def test_label_that_no_node_has_gives_no_domains() -> None:
    """An unknown key is not an error."""
    assert () == run([node()], [], Options(by="nowhere")).domains


def test_curve_ends_with_all_arrivals_and_the_final_use() -> None:
    """The last point of the curve is the state that the report tells of."""
    report = run_trace([node()], [(pod(str(i)), i, None) for i in range(3)])
    numbers = [number for number, _ in report.curve]
    assert [1, 2, 3] == numbers
    assert 75.0 == report.curve[-1][1]["cpu"]
    assert 75.0 == report.node_use[0].percent["cpu"]


def test_progress_is_told_up_to_the_last_arrival() -> None:
    """Whoever draws a bar sees it full at the end."""
    told: list[tuple[int, int]] = []
    workload = Workload((node(),), (), (Arrival(pod("a")), Arrival(pod("b"))), at_once=False)
    simulate(workload, "default", None, Options(), lambda done, total: told.append((done, total)))
    assert [(1, 2), (2, 2)] == told


def test_same_seed_gives_the_same_report_but_for_the_time() -> None:
    """Ties between equal nodes fall by the seed, nothing else."""
    nodes = [node(f"n{i}") for i in range(8)]
    pods = [pod(f"p{i}") for i in range(20)]
    fixed = {"seconds": 0.0, "pods_per_second": 0.0}
    first, second, other = (
        msgspec.structs.replace(run(nodes, pods, Options(seed=seed)), **fixed) for seed in (1, 1, 2)
    )
    assert first == second
    assert first.assignments != other.assignments


def test_more_pods_than_one_step_tries_are_all_tried() -> None:
    """The engine stops after 1,000 cycles; the world goes on."""
    nodes = [node(f"n{i}", cpu="1000") for i in range(150)]
    report = run(nodes, [pod(f"p{i}", cpu="1m") for i in range(1_200)])
    assert {"pods": 1200, "placed": 1200, "pending": 0, "ended": 0} == counts(report)


def test_bad_configuration_is_refused() -> None:
    """The error names the field."""
    with pytest.raises(InvalidObject, match="parallelism"):
        simulate(Workload((), (), ()), "bad", {"parallelism": 0}, Options())
