"""Metrics of VM scheduling, under neon's names; a shell exposes them. Times are the engine's.

Source: neondatabase/autoscaling pkg/plugin/metrics.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

from stower.framework.companion import Metric, MetricKind, Sample
from stower.framework.reconcile_queue import ReconcileQueue
from stower.model.times import SECOND_NS
from stower.vms.nodes import Use, VmNode

OPS: Final = "autoscaling_plugin_k8s_ops_total"
CALLS: Final = "autoscaling_plugin_extension_calls_total"
FAILURES: Final = "autoscaling_plugin_extension_call_fails_total"
SHOULD_DENY: Final = "autoscaling_plugin_reserve_should_deny_total"
REQUESTS: Final = "autoscaling_plugin_resource_requests_total"
REQUEST_RESULTS: Final = "autoscaling_plugin_resource_requests_results_total"
PANICS: Final = "autoscaling_plugin_reconcile_panics_count"
NODE_CPU: Final = "autoscaling_plugin_node_cpu_resources_current"
NODE_MEMORY: Final = "autoscaling_plugin_node_mem_resources_current"
WAITS: Final = "autoscaling_plugin_reconcile_queue_wait_durations"
DURATIONS: Final = "autoscaling_plugin_reconcile_duration_seconds"
FAILING: Final = "autoscaling_plugin_reconcile_failing_objects"
QUEUE: Final = "stower_vms_reconcile_queue"
NOWHERE: Final = "stower_vms_nowhere_to_go"
CPU_MILLI: Final = 1000

Labels = tuple[tuple[str, str], ...]


TOTAL: Final = "_total"
COUNTERS_MAX: Final = 10_000  # what an API says may be another text each time
HELP: Final = {
    CALLS: "Number of calls to scheduler plugin extension points",
    FAILURES: "Number of unsuccessful calls to scheduler plugin extension points",
    SHOULD_DENY: "Number of times the plugin should deny a reservation",
    REQUESTS: "Number of resource requests received by the scheduler plugin",
    REQUEST_RESULTS: "Number of resource requests to the scheduler plugin with various results",
    OPS: "Number of k8s API requests and their outcome",
    PANICS: "Number of times reconcile operations have panicked",
    NODE_CPU: "Current amount of CPU for 'state.NodeResources' fields",
    NODE_MEMORY: "Current amount of memory (in bytes) for 'state.NodeResources' fields",
    WAITS: "Duration that items in the reconcile queue are waiting to be picked up",
    DURATIONS: "Duration that items take to be reconciled",
    FAILING: "Number of objects currently failing to be reconciled",
}
# All others are counters; one that is not called so cannot be told as such.
KINDS: Final[Mapping[str, MetricKind]] = {
    PANICS: "unknown",
    NODE_CPU: "gauge",
    NODE_MEMORY: "gauge",
    FAILING: "gauge",
    WAITS: "histogram",
    DURATIONS: "histogram",
}
# Seconds.
BUCKETS: Final = (
    0.00001, 0.0001, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 20.0, 45.0
)  # fmt: skip


# Labels of our own, which no configuration can have for others.
TAKEN: Final = ("node", "field", "ignored_namespace")


def _label_name(label: str) -> str:
    """A label of a metric as Prometheus can read it, and like none of ours."""
    made = re.sub(r"\W", "_", label, flags=re.ASCII)
    is_good = made and not made[0].isdigit() and made not in TAKEN
    return made if is_good else f"label_{made}"


class Histogram:
    """How often something took so long."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum_ns = 0

    def observe(self, ns: int) -> None:
        """Once more."""
        self.counts[bisect_left(BUCKETS, ns / SECOND_NS)] += 1
        self.sum_ns += ns

    def samples(self, name: str, labels: Mapping[str, str]) -> list[Sample]:
        """As Prometheus has them: each bucket counts those below it too."""
        found, count = [], 0
        for limit, own in zip((*BUCKETS, None), self.counts, strict=True):
            count += own
            text = "+Inf" if limit is None else f"{limit:g}"
            found.append(Sample(f"{name}_bucket", {**labels, "le": text}, count))
        found.append(Sample(f"{name}_count", labels, count))
        return [*found, Sample(f"{name}_sum", labels, self.sum_ns / SECOND_NS)]


class Figures:
    """Counters by name and labels, and what nodes were last seen to hold."""

    def __init__(self, node_labels: Mapping[str, str]) -> None:
        """node_labels: metric label by node label."""
        self._node_labels = {
            _label_name(metric): key for metric, key in sorted(node_labels.items())
        }
        self.counters: dict[tuple[str, Labels], int] = {}
        self.nodes: dict[str, tuple[Labels, tuple[int, ...], tuple[int, ...]]] = {}
        self.waits = Histogram()  # of objects for their turn
        self.durations: dict[Labels, Histogram] = {}  # until an object was dealt with, with writes

    def record_duration(self, kind: str, failed: bool, ns: int) -> None:
        """An object was looked at."""
        key = (("kind", kind), ("outcome", "failure" if failed else "success"))
        self.durations.setdefault(key, Histogram()).observe(ns)

    def count(self, metric: str, labels: Mapping[str, str] | None = None, **more: str) -> None:
        """One more of it."""
        key = (metric, tuple(sorted({**(labels or {}), **more}.items())))
        if key in self.counters or len(self.counters) < COUNTERS_MAX:
            self.counters[key] = self.counters.get(key, 0) + 1

    def count_write(self, op: str, kind: str, name: str, error: str) -> None:
        """A write was answered: `error` is "" where it was carried out."""
        outcome = f"error: {error.replace(name, '<name>')}" if error else "success"
        self.count(OPS, op=op, kind=kind, outcome=outcome)

    def should_deny(self, node: VmNode, ignored: bool) -> None:
        """A pod was given room that was not there."""
        labels = dict(self._labels(node))
        self.count(SHOULD_DENY, labels, ignored_namespace=str(ignored).lower())

    def record_node(self, node: VmNode) -> None:
        """A node as it is now."""
        found = (self._labels(node), _amounts(node.cpu), _amounts(node.memory))
        self.nodes[node.name] = found

    def forget(self, name: str) -> None:
        """A node is gone, and its labels with it."""
        self.nodes.pop(name, None)

    def _labels(self, node: VmNode) -> Labels:
        own = ((metric, node.labels.get(key, "")) for metric, key in self._node_labels.items())
        return (("node", node.name), *own)

    def gauges(self) -> list[tuple[str, dict[str, str], float]]:
        """What nodes hold, in CPUs and bytes."""
        found = []
        for labels, cpu, memory in self.nodes.values():
            for i, field in enumerate(FIELDS):
                named = {**dict(labels), "field": field}
                found.append((NODE_CPU, named, cpu[i] / CPU_MILLI))
                found.append((NODE_MEMORY, named, float(memory[i])))
        return found

    def metrics(self, queue: ReconcileQueue, nowhere: Iterable[str] = ()) -> list[Metric]:
        """All of it, and how the queue is. `nowhere`: the nodes above their watermark whose VMs
        have nowhere to go."""
        samples: dict[str, list[Sample]] = {name: [] for name in HELP}
        for (name, labels), count in self.counters.items():
            samples[name].append(Sample(name, dict(labels), count))
        for name, labelled, value in self.gauges():
            samples[name].append(Sample(name, labelled, value))
        samples[WAITS] = self.waits.samples(WAITS, {})
        for key, histogram in self.durations.items():
            samples[DURATIONS] += histogram.samples(DURATIONS, dict(key))
        for kind, failing in queue.backoff_entries.items():
            samples[FAILING].append(Sample(FAILING, {"kind": kind}, len(failing)))
        found = [
            Metric(name.removesuffix(TOTAL), KINDS.get(name, "counter"), text, samples[name])
            for name, text in HELP.items()
        ]
        own = {
            "queued": queue.queued_count,
            "held": queue.deferred_count,
            "ongoing": queue.processing_count,
        }
        of_queue = [Sample(QUEUE, {"state": state}, count) for state, count in own.items()]
        return [
            *found,
            Metric(QUEUE, "gauge", "Objects in the reconcile queue of VM scheduling", of_queue),
            Metric(
                NOWHERE,
                "gauge",
                "Nodes above their watermark of which no VM can migrate anywhere",
                [Sample(NOWHERE, {"node": name}, 1) for name in nowhere],
            ),
        ]


FIELDS: Final = ("Total", "Reserved", "Committed", "Migrating", "Watermark")


def _amounts(use: Use) -> tuple[int, ...]:
    return use.total, use.reserved, use.committed, use.migrating, use.watermark
