"""The metrics of a driver that negotiates its devices.

The driver's shell reports each call when it ends, and passes all other values at each scrape.
"""

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

# What a shell hands in and only grows, by the operation's name.
OPERATIONS: Final = ("answers", "allocations", "refusals", "deallocations", "conflicts", "errors")
# What a shell hands in: help, by metric without its first word.
GAUGES: Final = {
    "driver_pending_claims": "Claims of this driver that are not allocated yet",
    "driver_ledger_entries": "Claims with devices in the ledger",
    "driver_calls_waiting": "Calls of the driver that are not answered yet",
    "writes_waiting": "Writes that are not answered yet",
    "writes_sent": "Writes that were answered",
    "writes_retried": "Writes that were retried",
    "watch_cuts": "Watches that were interrupted and resumed",
    "relists": "Lists that were repeated because a watch could not be resumed",
}
# Some drivers count, others wait for machines.
SECONDS: Final = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class DriverMetrics:
    """What one driver counts."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._operations = Counter(
            "stower_driver_operations",
            "Operations of the driver: answers about nodes, allocations, refused allocations, "
            "deallocations, writes that conflicted with a newer object, errors",
            ("operation",),
            registry=registry,
        )
        self._known = dict.fromkeys(OPERATIONS, 0.0)
        for name in OPERATIONS:
            self._operations.labels(name)
        self._calls = Histogram(
            "stower_driver_call_duration_seconds",
            "Duration of a call of a driver's method",
            ("method",),
            buckets=SECONDS,
            registry=registry,
        )
        self._gauges = {
            name: Gauge(f"stower_{name}", text, registry=registry) for name, text in GAUGES.items()
        }

    def observe_call(self, method: str, took_s: float) -> None:
        """A call has ended."""
        self._calls.labels(method).observe(took_s)

    def text(self, stats: Mapping[str, float]) -> bytes:
        """Everything, in Prometheus' text format. `stats` has the keys of OPERATIONS and GAUGES."""
        for name, value in stats.items():
            if name in self._known:
                self._operations.labels(name).inc(value - self._known[name])
                self._known[name] = value
            else:
                self._gauges[name].set(value)
        return bytes(generate_latest(self._registry))
