"""Reports of runs with faults: they change nothing, and their counts are those of the objects."""

import json
import sys
from collections.abc import Callable
from functools import cache

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from stower.model.kinds import Pod, ResourceClaim
from stower.model.times import SECOND_NS
from stower.sim.checkers.checker import Binds, Checker, Court
from stower.sim.report import Part, Report
from stower.sim.server import Change
from stower.sim.trial import Finding, Trial, script_of

SEED = 1
COST_MAX = 1.05  # calls of a run with a report, per call of one without


class Tally(Checker):
    """Counts what the report counts, by its own means."""

    law = "tally"

    def __init__(self, court: Court) -> None:
        super().__init__(court)
        self._binds = Binds()
        self.bound = 0
        self.allocated: set[str] = set()

    def on_change(self, change: Change) -> None:
        _, _, obj = change
        self.bound += self._binds.find_bound_pod(change) is not None
        if isinstance(obj, ResourceClaim) and obj.status.allocation is not None:
            self.allocated.add(obj.metadata.uid)


def run_again(seed: int = SEED) -> tuple[Trial, Finding]:
    trial = Trial(script_of(seed), is_reporting=True)
    return trial, trial.run()


run = cache(run_again)


def report_of(finding: Finding) -> Report:
    assert finding.report is not None
    return finding.report


def work(report: Report) -> dict[Part, dict[str, int]]:
    return {part: found.work for part, found in report.parts.items()}


def summed(report: Report, *names: str) -> int:
    return sum(found.work.get(name, 0) for found in report.parts.values() for name in names)


@pytest.mark.parametrize("seed", [1, 6])
def test_a_report_does_not_change_the_run(seed: int) -> None:
    plain, (_, told) = Trial(script_of(seed)).run(), run(seed)
    assert None is plain.report
    assert (plain.digest, plain.steps, plain.law) == (told.digest, told.steps, told.law)


def test_the_work_of_a_seed_is_the_same_each_time() -> None:
    (_, first), (_, again) = run_again(), run_again()
    assert work(report_of(first)) == work(report_of(again))


def test_each_part_of_the_one_load_has_decisions_and_work() -> None:
    total = report_of(run(16)[1])
    decided = {part for part, found in total.parts.items() if found.decisions.count}
    assert {*Part} - {Part.CLUSTER, Part.DEVICES, Part.PODS} <= decided
    wanted = {
        Part.GROUPS: "groups placed",
        Part.NEGOTIATION: "negotiations begun",
        Part.VMS: "approvals",
        Part.WARM: "placeholders made",
        Part.CLUSTER: "engines started",
    }
    assert {} == {p: what for p, what in wanted.items() if not total.parts[p].work.get(what)}


def test_the_counts_are_those_of_the_objects() -> None:
    trial = Trial(script_of(6), checkers=(Tally,), is_reporting=True)
    report = report_of(trial.run())
    (tally,) = trial.checkers
    assert isinstance(tally, Tally)
    assert tally.bound == summed(report, "pods bound") > 0
    allocated = summed(report, "claims allocated")
    assert len(tally.allocated) <= allocated
    assert summed(report, "claims deallocated") <= allocated


def test_an_attempt_for_a_group_is_one_decision_and_an_attempt_for_a_pod_another() -> None:
    report = report_of(run(6)[1])
    for part, found in report.parts.items():
        pods = sum(found.work.get(f"pods {how}", 0) for how in ("placed", "refused", "in error"))
        if part is Part.GROUPS:
            assert 0 < 2 * found.decisions.count < pods
        elif part in (Part.PODS, Part.DEVICES, Part.NEGOTIATION):
            assert found.decisions.count <= pods  # errors of a binding are no attempts
            assert found.decisions.count >= pods - found.work.get("pods in error", 0)


def test_the_decisions_take_less_time_than_the_steps() -> None:
    report = report_of(run(SEED)[1])
    decisions = sum(found.decisions.total_ns for found in report.parts.values())
    steps = sum(step.steps.total_ns for step in report.steps.values())
    assert 0 < decisions < steps
    assert report.longest_step is not None
    assert report.longest_step.cpu_ns == max(s.steps.longest_ns for s in report.steps.values())


def count_calls(run: Callable[[], Finding]) -> int:
    """Returns the calls of functions, Python's and C's, of a run."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def test_a_report_costs_few_calls() -> None:
    """Calls, not seconds: the figure is the same on each machine."""
    script = script_of(SEED, active_ns=100 * SECOND_NS)
    plain = count_calls(lambda: Trial(script).run())
    told = count_calls(lambda: Trial(script, is_reporting=True).run())
    assert plain < told < COST_MAX * plain


def test_the_command_prints_the_report() -> None:
    short = ("--only", "devices", "--until", "60s")
    arguments = ["faults", "all", "--seed", "1", "--seeds", "2", "--jobs", "1", *short]
    run = CliRunner().invoke(app, [*arguments, "--output", "json"])
    report = json.loads(run.stdout)["report"]
    assert {"parts", "steps", "longestStep", "memory", "garbageCollectionCpuMs"} == report.keys()
    decisions = [p["decisions"] for p in report["parts"].values() if p["decisions"]["count"]]
    times = decisions[0]["cpuMs"]
    assert 0 < times["p50"] <= times["p99"] <= times["longest"] <= times["total"]
    assert report["longestStep"]["seed"] in (1, 2)
    memory = report["memory"]
    assert memory["third"]["residentBytes"] > 0
    assert memory["end"]["pythonBlocks"] > 0
    text = CliRunner().invoke(app, arguments).stdout
    for said in ("Runs with faults", "by part", "by event", "pods bound", "after a third"):
        assert said in text


def test_pods_are_told_apart_by_what_they_are() -> None:
    trial, _ = run(6)
    counter = trial.collector.counter  # type: ignore[union-attr]
    pods: dict[str, Pod] = trial.server.all(Pod)
    told = {key: counter.part_of(pod) for key, pod in pods.items()}
    assert {Part.GROUPS} == {told[k] for k, pod in pods.items() if pod.group_name}
    runners = {k for k, pod in pods.items() if any(
        o.kind == "VirtualMachine" for o in pod.metadata.owner_references or ())}  # fmt: skip
    assert {Part.VMS} == {told[k] for k in runners}
