"""Metrics: the counts of decisions, bindings, writes and requests, and the text of /metrics."""

import math
from collections.abc import Iterable
from typing import Any

import pytest

from stower.assembly import build_engine
from stower.framework.companion import Metric, Sample
from stower.framework.decisions import Decision, Outcome
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteFailed, WriteOk
from stower.framework.writes import Bind, PatchPodStatus
from stower.metrics.catalogue import COUNTERS, GAUGES, HISTOGRAMS, Metrics
from tests.builders import make_node, make_pod
from tests.unit.metrics.exposition import Exposition

ATTEMPTS = "scheduler_schedule_attempts_total"
DURATION = "scheduler_scheduling_attempt_duration_seconds"
ALGORITHM = "scheduler_scheduling_algorithm_duration_seconds"
SLI = "scheduler_pod_scheduling_sli_duration_seconds"
INCOMING = "scheduler_queue_incoming_pods"
PROFILE = "default-scheduler"


def shown(metrics: Metrics, samples: Iterable[Any] = (), companions: Any = ()) -> Exposition:
    return Exposition(metrics.text([*samples], companions))


def decision(outcome: Outcome = Outcome.PLACED, **fields: Any) -> Decision:
    """Returns the record of an attempt of 0.5 s for a pod that has waited for 2 s."""
    return Decision("default", "p", "u", outcome, **{
        "at_ns": 1, "attempts": 1, "profile": PROFILE, "waited_ns": 2_000_000_000,
        "took_ns": 500_000_000, **fields,
    })  # fmt: skip


def test_every_metric_has_a_type_and_a_help_text_from_the_start() -> None:
    found = shown(Metrics())
    for kind, rows in (("counter", COUNTERS), ("gauge", GAUGES), ("histogram", HISTOGRAMS)):
        for name, row in rows.items():
            assert (kind, row.help) == (found.types[name], found.helps[name])
    assert found["process_cpu_seconds_total"][()] > 0
    assert "python_info" in found.types


def test_uncounted_metrics_are_zero_without_labels_and_absent_with_labels() -> None:
    found = shown(Metrics())
    for name, row in COUNTERS.items():
        assert ({} if row.labels else {(): 0.0}) == found[f"{name}_total"]
    for name, row in HISTOGRAMS.items():
        assert ({} if row.labels else {(): 0.0}) == found[f"{name}_count"]


def test_histograms_have_the_bounds_of_kube_scheduler() -> None:
    found = shown(Metrics())
    bounds = found.bounds(ALGORITHM)
    assert (0.001, 0.002, 16.384, math.inf, 16) == (*bounds[:2], *bounds[-2:], len(bounds))
    assert [1, 2, 4, 8, 16, math.inf] == found.bounds("scheduler_pod_scheduling_attempts")
    assert [1, 2, 4, 8, 16, 32, 64, math.inf] == found.bounds("scheduler_preemption_victims")


def test_decisions_of_an_engine_are_counted_by_their_result() -> None:
    metrics, engine = Metrics(), build_engine(None)
    engine.step(Listed((make_node(cpu="1"),)), 0)
    for name, cpu in (("fits", "500m"), ("huge", "9")):
        engine.step(Observed(WatchType.ADDED, make_pod(name, cpu=cpu)), 1)
    for each in engine.drain():
        metrics.on_decision(each)
    found = shown(metrics)
    assert {(PROFILE, "unschedulable"): 1} == found[ATTEMPTS], "the placed pod is not bound yet"
    assert {(): 1} == found[f"{ALGORITHM}_count"]


def test_an_attempt_that_placed_a_pod_counts_when_the_pod_is_bound() -> None:
    metrics = Metrics()
    placed = decision(attempts=3)
    metrics.on_decision(placed)
    metrics.on_bind(placed, 0.25)
    found = shown(metrics)
    assert {(PROFILE, "scheduled"): 1} == found[ATTEMPTS]
    assert {(PROFILE, "scheduled"): 0.75} == found[f"{DURATION}_sum"], "includes the binding"
    assert {(): 0.5} == found[f"{ALGORITHM}_sum"], "excludes the binding"
    assert {("3",): 2.25} == found[f"{SLI}_sum"], "from the pod's arrival in the queue"
    assert {(): 3} == found["scheduler_pod_scheduling_attempts_sum"]


def test_a_failed_binding_counts_as_an_error() -> None:
    metrics = Metrics()
    placed = decision()
    metrics.on_decision(placed)
    metrics.on_bind_failure(placed, 0.25)
    found = shown(metrics)
    assert {(PROFILE, "error"): 1} == found[ATTEMPTS]
    assert {(PROFILE, "error"): 0.75} == found[f"{DURATION}_sum"]
    assert {} == found[f"{SLI}_count"]


@pytest.mark.parametrize("outcome", [Outcome.UNSCHEDULABLE, Outcome.ERROR])
def test_a_failed_attempt_counts_at_once(outcome: Outcome) -> None:
    metrics = Metrics()
    metrics.on_decision(decision(outcome, profile="other"))
    found = shown(metrics)
    assert {("other", outcome.value): 1} == found[ATTEMPTS]
    assert {("other", outcome.value): 0.5} == found[f"{DURATION}_sum"]
    assert {(): 0} == found[f"{ALGORITHM}_count"]


@pytest.mark.parametrize(("attempts", "label"), [(15, "15"), (16, "15+"), (900, "15+")])
def test_attempts_above_the_maximum_share_a_label(attempts: int, label: str) -> None:
    metrics = Metrics()
    metrics.on_bind(decision(attempts=attempts), 0.0)
    found = shown(metrics)
    assert {(label,): 1} == found[f"{SLI}_count"]
    assert {(): attempts} == found["scheduler_pod_scheduling_attempts_sum"]


def test_preemptions_are_counted_with_their_victims() -> None:
    metrics = Metrics()
    metrics.on_decision(decision(Outcome.UNSCHEDULABLE, victims=("a", "b", "c"), nominated="n"))
    metrics.on_decision(decision(Outcome.UNSCHEDULABLE))
    found = shown(metrics)
    assert {(): 1} == found["scheduler_preemption_attempts_total"]
    assert ({(): 1}, {(): 3}) == (
        found["scheduler_preemption_victims_count"], found["scheduler_preemption_victims_sum"]
    )  # fmt: skip


def test_writes_are_counted_by_call_and_result() -> None:
    metrics = Metrics()
    bind = Bind(1, "default", "p", "u", "n")
    metrics.on_write(bind, WriteOk(1), 0.5)
    metrics.on_write(bind, WriteFailed(1, 409, "conflict"), 0.25)
    metrics.on_write(PatchPodStatus(2, "default", "p", "u"), WriteOk(2), 0.125)
    found = shown(metrics)
    name = "scheduler_async_api_call_execution"
    assert {
        ("pod_binding", "success"): 1, ("pod_binding", "error"): 1,
        ("pod_status_patch", "success"): 1,
    } == found[f"{name}_total"]  # fmt: skip
    assert {
        ("pod_binding", "success"): 0.5, ("pod_binding", "error"): 0.25,
        ("pod_status_patch", "success"): 0.125,
    } == found[f"{name}_duration_seconds_sum"]  # fmt: skip


def test_requests_are_counted_by_method_and_status() -> None:
    metrics = Metrics()
    for status in (200, 200, 429, 0):
        metrics.on_request("POST", status, 0.5)
    found = shown(metrics)
    assert {("200", "POST"): 2, ("429", "POST"): 1, ("<error>", "POST"): 1} == found[
        "rest_client_requests_total"
    ]
    assert {("POST",): 2.0} == found["rest_client_request_duration_seconds_sum"]


def test_steps_are_timed_by_event_and_plugins_by_extension_point() -> None:
    metrics = Metrics()
    metrics.on_step(Tick(), 0.5)
    metrics.on_step(Observed(WatchType.ADDED, make_pod()), 0.25)
    metrics.on_plugin_timings([("Fit", "Filter", 1_000_000_000), ("Fit", "Score", 500_000_000)])
    found = shown(metrics)
    assert {("Tick",): 0.5, ("Observed",): 0.25} == found["stower_step_duration_seconds_sum"]
    assert {("Filter", "Fit", "Success"): 1.0, ("Score", "Fit", "Success"): 0.5} == found[
        "scheduler_plugin_execution_duration_seconds_sum"
    ]


def test_a_counter_sample_sets_the_current_total() -> None:
    metrics = Metrics()
    for value in (3.0, 3.0, 5.0):
        handed_in = [(INCOMING, ("active", "PodAdd"), value), ("stower_relists", (), 7.0)]
        found = shown(metrics, handed_in)
        assert {("PodAdd", "active"): value} == found[f"{INCOMING}_total"]
        assert {(): 7} == found["stower_relists_total"]


def test_a_counter_does_not_decrease_when_its_source_restarts_at_zero() -> None:
    """The counts of an engine restart at zero when a new engine takes over."""
    metrics = Metrics()
    totals = [
        shown(metrics, [(INCOMING, ("active", "PodAdd"), value)])[f"{INCOMING}_total"]
        for value in (5.0, 1.0, 2.0)
    ]
    before, restarted, later = (total["PodAdd", "active"] for total in totals)
    assert 5 == before <= restarted
    assert restarted + 1 == later


def test_a_gauge_has_the_samples_of_the_last_call_alone() -> None:
    metrics = Metrics()
    name = "scheduler_unschedulable_pods"
    found = shown(metrics, [(name, ("A", PROFILE), 2.0), ("stower_inbox_events", (), 9.0)])
    assert {("A", PROFILE): 2} == found[name]
    assert {(): 9} == found["stower_inbox_events"]
    found = shown(metrics, [(name, ("B", PROFILE), 1.0), ("stower_inbox_events", (), 4.0)])
    assert {("B", PROFILE): 1} == found[name], "the sample of A is gone"
    assert {(): 4} == found["stower_inbox_events"]


def test_the_metrics_of_companions_are_part_of_the_text() -> None:
    metrics = Metrics()
    moves = Metric("warm_moves", "counter", "Moves", [Sample("warm_moves_total", {}, 4.0)])
    wanted = Metric("warm_wanted", "gauge", "Wanted", [
        Sample("warm_wanted", {"pool": "a"}, 1.0), Sample("warm_wanted", {"pool": "b"}, 2.0),
    ])  # fmt: skip
    found = shown(metrics, companions=[moves, wanted])
    assert ("counter", "Wanted") == (found.types["warm_moves"], found.helps["warm_wanted"])
    assert ({(): 4}, {("a",): 1, ("b",): 2}) == (found["warm_moves_total"], found["warm_wanted"])
    assert {} == shown(metrics)["warm_wanted"]


def test_two_metrics_objects_count_independently() -> None:
    one, other = Metrics(), Metrics()
    one.on_decision(decision(Outcome.ERROR))
    assert {(PROFILE, "error"): 1} == shown(one)[ATTEMPTS]
    assert {} == shown(other)[ATTEMPTS]
