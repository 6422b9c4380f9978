"""The scheduler's metrics, under kube-scheduler's names where the meaning is equal.

Counters and histograms are updated as an Observer of decisions, binds, writes and steps; the shell
passes the values of gauges at each scrape. Metrics of companions have their own names.
docs/metrics.md lists all metrics, the metrics of kube-scheduler that are left out, and why. Source:
pkg/scheduler/metrics, Kubernetes 1.37.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

from stower.framework.companion import Metric as Counted
from stower.framework.decisions import Decision, Outcome
from stower.framework.events import Event, WriteFailed, WriteOk
from stower.framework.observer import Observer
from stower.framework.writes import ApiWrite, call_name

RESULTS: Final = {
    Outcome.PLACED: "scheduled",
    Outcome.UNSCHEDULABLE: "unschedulable",
    Outcome.ERROR: "error",
}
ATTEMPTS_MAX: Final = 15  # a label for each number, as upstream


def _exponential_buckets(first: float, count: int, factor: float = 2) -> tuple[float, ...]:
    """Bounds of buckets as Prometheus' ExponentialBuckets has them."""
    return tuple(first * factor**i for i in range(count))


class Row(NamedTuple):
    """One metric. `buckets`: of a histogram."""

    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


HISTOGRAMS: Final = {
    "scheduler_scheduling_attempt_duration_seconds": Row(
        "Duration of a scheduling attempt, including the binding", ("result", "profile"),
        _exponential_buckets(0.001, 15),
    ),
    "scheduler_scheduling_algorithm_duration_seconds": Row(
        "Duration of a scheduling attempt that found a node, without the binding", (),
        _exponential_buckets(0.001, 15),
    ),
    "scheduler_pod_scheduling_sli_duration_seconds": Row(
        "Time from a pod's arrival in the scheduling queue until it is bound", ("attempts",),
        _exponential_buckets(0.01, 20),
    ),
    "scheduler_pod_scheduling_attempts": Row(
        "Number of attempts until a pod was bound", (), _exponential_buckets(1, 5)
    ),
    "scheduler_preemption_victims": Row(
        "Number of pods evicted by one preemption", (), _exponential_buckets(1, 7)
    ),
    "scheduler_plugin_execution_duration_seconds": Row(
        "Duration of a plugin at an extension point for all nodes, measured in one attempt of ten",
        ("plugin", "extension_point", "status"), _exponential_buckets(0.00001, 20, 1.5),
    ),
    "scheduler_async_api_call_execution_duration_seconds": Row(
        "Duration of a write until it was answered, including retries", ("call_type", "result"),
        _exponential_buckets(0.001, 15),
    ),
    "rest_client_request_duration_seconds": Row(
        "Requests to the API server", ("verb",),
        (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
    ),
    "stower_step_duration_seconds": Row(
        "Duration of an engine step: one event and the scheduling cycles after it", ("event",),
        _exponential_buckets(0.00001, 18),
    ),
}  # fmt: skip
COUNTERS: Final = {
    "scheduler_schedule_attempts": Row(
        "Number of attempts to schedule pods, by result", ("result", "profile")
    ),
    "scheduler_preemption_attempts": Row("Number of preemptions that evicted pods"),
    "scheduler_queue_incoming_pods": Row(
        "Number of pods added to a queue, by event", ("queue", "event")
    ),
    "scheduler_async_api_call_execution": Row(
        "Writes that were answered", ("call_type", "result")
    ),
    "rest_client_requests": Row("Requests to the API server", ("code", "method")),
    "stower_writes_sent": Row("Writes that were answered"),
    "stower_writes_retried": Row("Writes that were retried"),
    "stower_events_dropped": Row("Events about pods dropped because too many were waiting"),
    "stower_watch_cuts": Row("Watches that were interrupted and resumed"),
    "stower_relists": Row("Lists that were repeated because a watch could not be resumed"),
    "stower_claims_given_back": Row(
        "Claims that were given back, as another scheduler's allocation was written before"
    ),
    "stower_internal_errors": Row("Errors of the scheduler itself, by its part", ("part",)),
}  # fmt: skip
GAUGES: Final = {
    "scheduler_pending_pods": Row(
        "Pending pods, by queue", ("queue",)
    ),
    "scheduler_cache_size": Row("Objects in the scheduler's cache, by type", ("type",)),
    "scheduler_unschedulable_pods": Row(
        "Unschedulable pods, by the plugins that rejected them", ("plugin", "profile")
    ),
    "scheduler_pending_async_api_calls": Row("Writes that are not answered yet", ("call_type",)),
    "leader_election_master_status": Row("1 while this scheduler is the leader", ("name",)),
    "stower_writes_in_flight_max": Row("Limit of writes in flight"),
    "stower_inbox_events": Row("Watch events that the engine has not processed yet"),
    "stower_objects_ignored": Row(
        "Objects that are ignored for now: applying them fails with an internal error"
    ),
    "stower_overcommitted_devices": Row(
        "Devices of which claims have more than there is: another scheduler did not look"
    ),
    "stower_loop_stall_seconds_max": Row("Longest block of the event loop since the last scrape"),
}  # fmt: skip
# A sample that a shell hands in: metric, labels, value. Counters come as what they are by now.
Sample = tuple[str, tuple[str, ...], float]


class _Companions(Collector):
    """What companions have counted, as it was handed in last."""

    def __init__(self) -> None:
        self.counted: Sequence[Counted] = ()

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        for one in self.counted:
            metric = Metric(one.name, one.help, one.kind)
            for name, labels, value in one.samples:
                metric.add_sample(name, dict(labels), value)
            yield metric


class Metrics(Observer):
    """What one scheduler counts."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._companions = _Companions()
        registry.register(self._companions)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._histograms = {
            name: Histogram(name, row.help, row.labels, buckets=row.buckets, registry=registry)
            for name, row in HISTOGRAMS.items()
        }
        self._counters = {
            name: Counter(name, row.help, row.labels, registry=registry)
            for name, row in COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(name, row.help, row.labels, registry=registry)
            for name, row in GAUGES.items()
        }
        self._counted: dict[tuple[str, tuple[str, ...]], float] = {}
        # By name and labels: looking a child up in its metric takes more than counting.
        self._histogram_children: dict[tuple[str, tuple[str, ...]], Histogram] = {}
        self._counter_children: dict[tuple[str, tuple[str, ...]], Counter] = {}

    # What it is told

    def on_decision(self, decision: Decision) -> None:
        """See Observer. What was placed counts when it is bound."""
        if decision.outcome is Outcome.PLACED:
            self._observe("scheduler_scheduling_algorithm_duration_seconds", decision.took_ns / 1e9)
        else:
            self._count_attempt(RESULTS[decision.outcome], decision, 0.0)
        if decision.victims:
            self._count("scheduler_preemption_attempts")
            self._observe("scheduler_preemption_victims", len(decision.victims))

    def on_bind(self, decision: Decision, latency_s: float) -> None:
        """See Observer."""
        self._count_attempt(RESULTS[Outcome.PLACED], decision, latency_s)
        attempts = decision.attempts
        shown = str(attempts) if attempts <= ATTEMPTS_MAX else f"{ATTEMPTS_MAX}+"
        waited_s = decision.waited_ns / 1e9 + latency_s
        self._observe("scheduler_pod_scheduling_sli_duration_seconds", waited_s, shown)
        self._observe("scheduler_pod_scheduling_attempts", attempts)

    def on_bind_failure(self, decision: Decision, latency_s: float) -> None:
        """See Observer."""
        self._count_attempt(RESULTS[Outcome.ERROR], decision, latency_s)

    def _count_attempt(self, result: str, decision: Decision, latency_s: float) -> None:
        self._count("scheduler_schedule_attempts", result, decision.profile)
        duration_s = decision.took_ns / 1e9 + latency_s
        name = "scheduler_scheduling_attempt_duration_seconds"
        self._observe(name, duration_s, result, decision.profile)

    def on_write(self, write: ApiWrite, answer: WriteOk | WriteFailed, duration_s: float) -> None:
        """See Observer."""
        call = call_name(write)
        result = "success" if isinstance(answer, WriteOk) else "error"
        self._count("scheduler_async_api_call_execution", call, result)
        name = "scheduler_async_api_call_execution_duration_seconds"
        self._observe(name, duration_s, call, result)

    def on_request(self, method: str, status: int, duration_s: float) -> None:
        """See Observer."""
        self._count("rest_client_requests", str(status) if status else "<error>", method)
        self._observe("rest_client_request_duration_seconds", duration_s, method)

    def on_step(self, event: Event, duration_s: float) -> None:
        """See Observer."""
        self._observe("stower_step_duration_seconds", duration_s, type(event).__name__)

    def on_plugin_timings(self, timings: Sequence[tuple[str, str, int]]) -> None:
        """See Observer."""
        name = "scheduler_plugin_execution_duration_seconds"
        for plugin, point, ns in timings:
            self._observe(name, ns / 1e9, plugin, point, "Success")

    def _observe(self, name: str, value: float, *labels: str) -> None:
        child = self._histogram_children.get((name, labels))
        if child is None:
            found = self._histograms[name]
            child = found.labels(*labels) if labels else found
            self._histogram_children[name, labels] = child
        child.observe(value)

    def _count(self, name: str, *labels: str, by: float = 1) -> None:
        child = self._counter_children.get((name, labels))
        if child is None:
            found = self._counters[name]
            child = found.labels(*labels) if labels else found
            self._counter_children[name, labels] = child
        child.inc(by)

    # What it tells

    def text(self, samples: Sequence[Sample], companions: Sequence[Counted] = ()) -> bytes:
        """Everything, in Prometheus' text format. `samples`: of GAUGES and COUNTERS, as they are
        now; `companions`: what these count."""
        self._companions.counted = companions
        for gauge in self._gauges.values():
            gauge.clear()  # what is not handed in any more is gone
        for name, labels, value in samples:
            if name in self._counters:
                known = self._counted.get((name, labels), 0.0)
                self._count(name, *labels, by=max(0.0, value - known))
                self._counted[name, labels] = value
            else:
                gauge = self._gauges[name]
                (gauge.labels(*labels) if labels else gauge).set(value)
        return bytes(generate_latest(self._registry))
