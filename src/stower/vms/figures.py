"""What VM scheduling counts, by neon's names; a shell shows it.

Source: neondatabase/autoscaling pkg/plugin/metrics.
"""

from collections.abc import Mapping
from typing import Final

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
CPU_MILLI: Final = 1000

Labels = tuple[tuple[str, str], ...]


class Figures:
    """Counters by name and labels, and what nodes were last seen to hold."""

    def __init__(self, node_labels: Mapping[str, str]) -> None:
        """node_labels: metric label by node label."""
        self._node_labels = dict(sorted(node_labels.items()))
        self.counters: dict[tuple[str, Labels], int] = {}
        self.nodes: dict[str, tuple[Labels, tuple[int, ...], tuple[int, ...]]] = {}

    def count(self, name: str, **labels: str) -> None:
        """One more of it."""
        key = (name, tuple(sorted(labels.items())))
        self.counters[key] = self.counters.get(key, 0) + 1

    def answered(self, op: str, kind: str, name: str, error: str) -> None:
        """A write was answered: `error` is "" where it was carried out."""
        outcome = f"error: {error.replace(name, '<name>')}" if error else "success"
        self.count(OPS, op=op, kind=kind, outcome=outcome)

    def should_deny(self, node: VmNode, ignored: bool) -> None:
        """A pod was given room that was not there."""
        labels = dict(self._labels(node))
        self.count(SHOULD_DENY, **labels, ignored_namespace=str(ignored).lower())

    def saw(self, node: VmNode) -> None:
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


FIELDS: Final = ("Total", "Reserved", "Committed", "Migrating", "Watermark")


def _amounts(use: Use) -> tuple[int, ...]:
    return use.total, use.reserved, use.committed, use.migrating, use.watermark
