"""DriverMetrics: operations, calls and current values of a driver."""

from stower.metrics.drivers import GAUGES, OPERATIONS, SECONDS, DriverMetrics
from tests.unit.metrics.exposition import Exposition

STATS = dict.fromkeys((*OPERATIONS, *GAUGES), 0.0)


def test_every_operation_is_zero_from_the_start() -> None:
    found = Exposition(DriverMetrics().text({}))
    assert {(name,): 0 for name in OPERATIONS} == found["stower_driver_operations_total"]
    for name, text in GAUGES.items():
        assert ({(): 0}, text) == (found[f"stower_{name}"], found.helps[f"stower_{name}"])


def test_operations_have_the_current_total_and_gauges_the_last_value() -> None:
    metrics = DriverMetrics()
    for allocations, waiting in ((2.0, 5.0), (2.0, 3.0), (7.0, 0.0)):
        stats = STATS | {"allocations": allocations, "driver_calls_waiting": waiting}
        found = Exposition(metrics.text(stats))
        assert allocations == found["stower_driver_operations_total"]["allocations",]
        assert {(): waiting} == found["stower_driver_calls_waiting"]


def test_calls_are_timed_by_method() -> None:
    metrics = DriverMetrics()
    metrics.observe_call("allocate", 0.25)
    metrics.observe_call("allocate", 400.0)
    metrics.observe_call("nodes", 0.0005)
    found = Exposition(metrics.text({}))
    name = "stower_driver_call_duration_seconds"
    assert {("allocate",): 2, ("nodes",): 1} == found[f"{name}_count"]
    assert 400.25 == found[f"{name}_sum"]["allocate",]
    buckets = found[f"{name}_bucket"]
    bounds = [float(bound) for bound, method in buckets if method == "nodes"]
    assert [*SECONDS, float("inf")] == bounds
    assert (0, 1, 2) == (
        buckets["0.1", "allocate"], buckets["300.0", "allocate"], buckets["+Inf", "allocate"]
    )  # fmt: skip
