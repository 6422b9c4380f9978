"""Drivers of benchmarks on tiny workloads: as many pods are timed as arrive, and all are placed."""

import gc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from stower.bench import (
    devices,
    drivers,
    groups,
    hostile,
    large,
    negotiation,
    perf,
    scale,
    shards,
    vms,
)
from stower.bench.run import Result, measure
from stower.bench.workloads import BenchWorkload, Step
from stower.model.errors import InvariantError


@pytest.fixture(autouse=True)
def unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No garbage collection before the clock runs."""
    for module in (devices, drivers, groups, negotiation, perf, vms):
        monkeypatch.setattr(module, "settle_memory", lambda: None)
    monkeypatch.setattr(scale.gc, "freeze", lambda: None)
    yield
    gc.enable()


def tiny(driver: str, **more: Any) -> BenchWorkload:
    return BenchWorkload("tiny", "", driver, **{"nodes": 4, "arriving": 4, **more})


@pytest.mark.parametrize(
    ("workload", "pods"),
    [
        (tiny("preempt", existing=8, existing_milli=15_000, arriving_milli=9_000, priority=9), 4),
        (tiny("preempt-one", existing=8, existing_milli=15_000, arriving_milli=9_000,
              priority=9), 4),
        (tiny("relabel", shapes=2, arriving=12), 2),
        (tiny("waiting", existing_waiting=3), 4),
        (tiny("claims"), 4),
        (tiny("negotiation"), 4),
        (tiny("small_gangs", arriving=8), 8),
        (tiny("trees", shape="gang", nodes=60, arriving=6), 6),
        (tiny("trees", shape="tree", nodes=768, arriving=96), 96),
        (tiny("arrive", groups=2, hard_spread=("kubernetes.io/hostname",), service=True,
              near_preferred=("topology.kubernetes.io/zone",), profiles=2, drift=0.5), 4),
    ],
    ids=lambda value: value.shape or value.driver if isinstance(value, BenchWorkload) else "",
)  # fmt: skip
def test_each_driver_places_all_pods(workload: BenchWorkload, pods: int) -> None:
    found = measure(workload)
    assert ("tiny", pods) == (found.name, found.pods)
    assert 0 <= found.p50_us <= found.p99_us
    assert found == msgspec.json.decode(msgspec.json.encode(found), type=Result)


@pytest.mark.parametrize("sort", [sort for sort in perf.PODS if sort not in ("claim", "large-cpu")])
def test_each_sort_of_pods_of_scheduler_perf_is_placed(sort: str) -> None:
    steps = (Step("plain", 2, "sched-0"), Step(sort, 2, "sched-0", True, "plain", 2))
    found = measure(tiny("perf", steps=steps, zones=("a", "b")))
    assert 2 == found.pods


@pytest.mark.parametrize(
    "workload",
    [
        tiny("perf", nodes=1, steps=(Step("large-cpu", 1, timed=True),)),
        tiny("claims", nodes=0),
        tiny("negotiation", nodes=0),
        tiny("trees", shape="gang", nodes=0),
        tiny("devices", nodes=0),
    ],
    ids=lambda workload: workload.driver,
)
def test_a_pod_that_is_not_placed_is_an_error(workload: BenchWorkload) -> None:
    with pytest.raises(InvariantError):
        measure(workload)


def test_a_long_run_has_a_flatness(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the last pods over that of earlier pods."""
    pieces = [10] * 10_000 + [20] * 1_000
    monkeypatch.setitem(
        drivers.DRIVE, "arrive", lambda workload: drivers.Times(pieces, len(pieces))
    )
    assert 2.0 == measure(tiny("arrive")).flatness


# Benchmarks with modules of their own


def test_schedulers_that_see_each_other_late_come_into_conflict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shards, "NODES", 4)
    monkeypatch.setattr(shards, "BEHIND", (1, 20))
    monkeypatch.setattr(shards, "SHARDS", (2,))
    found = shards.measure()
    assert {"2 shards, 1 behind", "2 shards, 20 behind"} == set(found.conflicts)
    assert found.most == found.conflicts["2 shards, 20 behind"] > 0
    assert 2 == len(capsys.readouterr().err.splitlines())


class Ended:
    """A process that has measured one size."""

    def __init__(self, command: list[str], **more: Any) -> None:
        size = scale.measure_size(int(command[-2]), int(command[-1]))
        self.stdout = msgspec.json.encode(size)


def test_sizes_are_measured_each_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "SIZES", ((3, 6), (4, 10)))
    monkeypatch.setattr(scale, "COMING", 12)
    monkeypatch.setattr(scale, "WARM", 2)
    monkeypatch.setattr(large, "SHAPES", 3)
    monkeypatch.setattr(large, "BEATS", 6)
    monkeypatch.setattr(scale.subprocess, "run", Ended)
    found = scale.measure()
    assert {"3/6", "4/10"} == set(found.sizes)
    rates = [size["decisions_per_s"] for size in found.sizes.values()]
    assert min(rates) == found.slowest_per_s > 0
    assert found.growth > 0
    for name in ("shapes_per_s", "heartbeats_percent", "preemption_ms"):
        assert all(size[name] > 0 for size in found.sizes.values()), name


def test_a_size_without_room_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "COMING", 300)
    with pytest.raises(RuntimeError, match=r"\d+ of 300 pods were bound"):
        scale.measure_size(1, 1)


def test_the_longest_step_of_each_scenario_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenarios of a few nodes in place of the whole list."""
    monkeypatch.setattr(hostile, "NODES", 3)
    names = ("10,000 tolerations", "a claim of 4 devices that cannot be alike")
    chosen = {name: hostile.SCENARIOS[name] for name in names}
    monkeypatch.setattr(hostile, "SCENARIOS", chosen)
    found = hostile.measure()
    assert set(names) == set(found.steps_s)
    assert max(found.steps_s.values()) == found.longest_s


# The scenarios with the fewest objects.
SMALL = [name for name in hostile.SCENARIOS if "20,000" not in name and "anti-aff" not in name]


@pytest.mark.parametrize("name", SMALL)
def test_every_scenario_has_a_cluster_and_pods_that_come(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile, "NODES", 3)
    there, pods = hostile.SCENARIOS[name]()
    assert 3 == sum(type(obj).__name__ == "Node" for obj in there)
    assert all(pod.metadata.name.startswith("h") and not pod.spec.node_name for pod in pods)
