"""The metrics there are, by kube-scheduler's names where it has them.

A shell tells of decisions as they come, and hands in what it knows when somebody asks. What a
plugin's companion counts has names of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, generate_latest
from prometheus_client.registry import Collector

from stower.engine.decisions import Decision, Outcome
from stower.framework.companion import Metric as Counted

RESULTS: Final = {
    Outcome.PLACED: "scheduled",
    Outcome.UNSCHEDULABLE: "unschedulable",
    Outcome.ERROR: "error",
}
# What a shell hands in: metric, labels, help.
GAUGES: Final = {
    "active": ("scheduler_pending_pods", {"queue": "active"}),
    "backoff": ("scheduler_pending_pods", {"queue": "backoff"}),
    "unschedulable": ("scheduler_pending_pods", {"queue": "unschedulable"}),
    "gated": ("scheduler_pending_pods", {"queue": "gated"}),
    "in_flight": ("scheduler_pending_pods", {"queue": "inflight"}),
    "nodes": ("scheduler_cache_size", {"type": "nodes"}),
    "pods": ("scheduler_cache_size", {"type": "pods"}),
    "writes_waiting": ("stower_writes_waiting", {}),
    "writes_sent": ("stower_writes_sent", {}),
    "writes_retried": ("stower_writes_retried", {}),
    "writes_in_flight_max": ("stower_writes_in_flight_max", {}),
    "events_dropped": ("stower_events_dropped", {}),
    "watch_cuts": ("stower_watch_cuts", {}),
    "relists": ("stower_relists", {}),
    "leading": ("leader_election_master_status", {"name": "kube-scheduler"}),
}  # fmt: skip
HELP: Final = {
    "scheduler_pending_pods": "Pods that wait, by the part of the queue that they are in",
    "scheduler_cache_size": "Objects that the scheduler knows",
    "stower_writes_waiting": "Writes that are not yet answered",
    "stower_writes_sent": "Writes that were answered",
    "stower_writes_retried": "Writes that were tried again",
    "stower_writes_in_flight_max": "Writes that may be in flight at once",
    "stower_events_dropped": "Events about pods that were dropped, as too many waited",
    "stower_watch_cuts": "Watches that were cut and resumed",
    "stower_relists": "Lists that were needed again",
    "leader_election_master_status": "1 while this scheduler leads",
}


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


class Metrics:
    """What one scheduler counts."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._companions = _Companions()
        self._registry.register(self._companions)
        attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by what they came to",
            ("result",),
            registry=self._registry,
        )
        self._attempts = {outcome: attempts.labels(name) for outcome, name in RESULTS.items()}
        labels = {name: tuple(labels) for name, labels in GAUGES.values()}
        self._gauges = {
            name: Gauge(name, text, labels[name], registry=self._registry)
            for name, text in HELP.items()
        }

    def decided(self, decision: Decision) -> None:
        """An attempt for a pod has ended."""
        self._attempts[decision.outcome].inc()

    def text(self, stats: Mapping[str, float], companions: Sequence[Counted] = ()) -> bytes:
        """Everything, in Prometheus' text format. `stats` has the keys of GAUGES; `companions`:
        what these count."""
        self._companions.counted = companions
        for key, value in stats.items():
            name, labels = GAUGES[key]
            gauge = self._gauges[name]
            (gauge.labels(**labels) if labels else gauge).set(value)
        return bytes(generate_latest(self._registry))
