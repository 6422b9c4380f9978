"""Reports of runs: quantiles, merging, and the figures of steps on a clock that tests advance."""

import gc
from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stower.cli.fault_report import report_json
from stower.framework.events import Tick
from stower.model.errors import InvariantError
from stower.sim import report_collector
from stower.sim.report import Histogram, LongestStep, Memory, Part, Report, bucket_of, middle_of
from stower.sim.report_collector import ReportCollector
from stower.sim.server import Server

MS_NS = 1_000_000
DURATIONS = st.lists(st.integers(0, 10**12), min_size=1, max_size=60)


def histogram(durations: list[int]) -> Histogram:
    made = Histogram()
    for duration in durations:
        made.add(duration)
    return made


@given(DURATIONS, st.sampled_from((0.0, 0.5, 0.9, 0.99, 1.0)))
def test_a_quantile_is_that_of_the_sorted_durations_to_two_percent(
    durations: list[int], share: float
) -> None:
    exact = sorted(durations)[max(ceil(share * len(durations)), 1) - 1]
    assert abs(histogram(durations).quantile_ns(share) - exact) <= exact / 50


@given(st.integers(0, 10**15))
def test_buckets_are_in_the_order_of_durations(duration: int) -> None:
    bucket = bucket_of(duration)
    assert bucket <= bucket_of(duration + 1) <= bucket + 1
    assert bucket == bucket_of(middle_of(bucket))


@given(DURATIONS, DURATIONS)
def test_merged_histograms_are_the_histogram_of_all_durations(a: list[int], b: list[int]) -> None:
    merged = histogram(a)
    merged.merge(histogram(b))
    assert histogram(a + b) == msgspec.structs.replace(
        merged, counts={key: merged.counts[key] for key in histogram(a + b).counts}
    )
    assert len(merged.counts) == len(histogram(a + b).counts)


def test_an_empty_histogram_has_quantiles_of_zero() -> None:
    assert (0, 0) == (Histogram().quantile_ns(0.5), Histogram().longest_ns)


class Clock:
    """The thread's CPU clock, as the engine of the test advances it."""

    def __init__(self) -> None:
        self.now_ns = 5 * MS_NS

    def thread_time_ns(self) -> int:
        return self.now_ns


class Busy:
    """An engine whose steps take CPU time, and whose garbage takes more."""

    def __init__(self, clock: Clock, step_ns: int, gc_ns: int = 0, fails: bool = False) -> None:
        self._clock, self._step_ns, self._gc_ns, self._fails = clock, step_ns, gc_ns, fails

    def step(self, event: Any, now_ns: int) -> list[Any]:
        self._clock.now_ns += self._step_ns
        if self._gc_ns:
            gc.callbacks.insert(0, self._on_gc)
            gc.collect()
            gc.callbacks.remove(self._on_gc)
        if self._fails:
            raise InvariantError("as the test wants")
        return ["write"]

    def _on_gc(self, phase: str, about: dict[str, int]) -> None:
        if phase == "stop":
            self._clock.now_ns += self._gc_ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(report_collector.time, "thread_time_ns", made.thread_time_ns)
    return made


def collector(seed: int = 7) -> ReportCollector:
    return ReportCollector(Server(lambda: 0), seed)


def test_the_longest_step_is_told_with_its_event_and_time(clock: Clock) -> None:
    with collector() as collected:
        for step_ns, at_s in ((2 * MS_NS, 1), (30 * MS_NS, 2), (4 * MS_NS, 3)):
            collected.step(Busy(clock, step_ns), Tick(), at_s * 10**9, "scheduler-0")  # type: ignore[arg-type]
    found = collected.report
    assert LongestStep(30 * MS_NS, 7, 2.0, "scheduler-0", "Tick", 1) == found.longest_step
    steps = found.steps["Tick"].steps
    assert (3, 36 * MS_NS, 30 * MS_NS) == (steps.count, steps.total_ns, steps.longest_ns)


def test_a_step_that_raises_is_counted(clock: Clock) -> None:
    with pytest.raises(InvariantError), collector() as collected:
        collected.step(Busy(clock, 9 * MS_NS, fails=True), Tick(), 0, "s")  # type: ignore[arg-type]
    assert 9 * MS_NS == collected.report.steps["Tick"].steps.longest_ns


def test_garbage_collection_is_told_apart_from_the_step(clock: Clock) -> None:
    with collector() as collected:
        collected.step(Busy(clock, 3 * MS_NS, gc_ns=50 * MS_NS), Tick(), 0, "s")  # type: ignore[arg-type]
    assert (3 * MS_NS, 50 * MS_NS) == (
        collected.report.steps["Tick"].steps.longest_ns,
        collected.report.gc_ns,
    )
    assert collected._on_gc not in gc.callbacks


def test_memory_is_taken_after_a_third_and_at_the_end() -> None:
    kept = []
    with collector() as collected:
        for now_ns in range(0, 300, 10):
            kept.append([object() for _ in range(1_000)])
            collected.observe(now_ns, 300)
    a_third, end = collected.report.a_third, collected.report.end
    assert 11_000 <= a_third.block_count < 15_000
    assert 30_000 <= end.block_count < 40_000
    assert end.rss_bytes > 10 * 2**20


def test_merged_reports_have_the_sums_and_the_largest_of_all() -> None:
    total = Report()
    for seed, cpu_ms in ((1, 5), (2, 8), (3, 2)):
        one = Report(a_third=Memory(10 * seed, 40 - seed), end=Memory(20 * seed, 50), gc_ns=seed)
        one.part(Part.VMS).count("approvals", seed)
        one.part(Part.VMS).decisions.add(cpu_ms * MS_NS)
        step = LongestStep(cpu_ms * MS_NS, seed, 0.0, "s", "Tick", 0)
        one.steps["Tick"] = report_collector.StepReport(histogram([cpu_ms * MS_NS]), step)
        total.merge(one)
    assert {"approvals": 6} == total.part(Part.VMS).work
    assert 3 == total.part(Part.VMS).decisions.count
    assert (Memory(30, 39), Memory(60, 50), 6) == (total.a_third, total.end, total.gc_ns)
    longest = total.longest_step
    assert longest is not None
    assert (2, 8 * MS_NS) == (longest.seed, longest.cpu_ns)
    assert 8.0 == report_json(total)["longestStep"]["cpuMs"]
