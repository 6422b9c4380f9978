"""Counts what one scheduling decision executes: `python -m stower.bench.calls calls` prints JSON.

Counts Python function calls and bytecode instructions, from the event to the writes. Both depend
only on the code, the inputs and the version of Python, not on the load of the machine.
`call_budgets.yaml` has the limit of calls of each workload, by Python's minor version.
"""

import gc
import sys
from collections.abc import Callable
from importlib.resources import files
from types import FrameType
from typing import Any, Final

import msgspec
import yaml

from stower.bench.devices import HALF, half_gpus, place
from stower.bench.drivers import build_ready_engine
from stower.bench.family import Family, run_once, tell
from stower.bench.objects import pod_bytes
from stower.bench.workloads import BenchWorkload, workloads
from stower.engine.engine import Engine
from stower.framework.events import Event, Observed, WatchType
from stower.framework.writes import Write
from stower.model.kinds import Pod
from stower.model.raw import decode

WORKLOADS: Final = (
    "basic-5000", "hard-spread", "affinity-pods", "anti-affinity-50", "devices-1000",
)  # fmt: skip
WARM_UP: Final = 300  # decisions before any is counted: caches are filled, arrays grown
COUNTED: Final = 100


class Count(msgspec.Struct, frozen=True):
    """Means over the counted decisions of one workload. `budget`: the most calls allowed on this
    version of Python, 0 where there is no budget for it."""

    calls: float
    instructions: float
    budget: float = 0.0


class CallsResult(msgspec.Struct, frozen=True):
    """Counts by workload; `total_calls`: the sum over all of them."""

    name: str
    workloads: dict[str, Count]
    total_calls: float


FAMILY: Final = Family(
    result=CallsResult,
    best="total_calls",
    unit="calls",
    ratios={"ratio_total_calls": "total_calls"},
    about="function calls and instructions per decision, which the machine's load does not change",
    is_least_best=True,
)


class _Counter:
    """Counts calls or instructions inside the steps of an engine."""

    def __init__(self, engine: Engine) -> None:
        self._step = engine.step
        self.count = 0

    def step_counting_calls(self, event: Event, now_ns: int) -> list[Write]:
        """Runs a step and counts every call of a Python function, its own included."""
        before = sys.getprofile()
        sys.setprofile(self._profile)
        try:
            return self._step(event, now_ns)
        finally:
            sys.setprofile(before)

    def step_counting_instructions(self, event: Event, now_ns: int) -> list[Write]:
        """Runs a step and counts every bytecode instruction of the functions that it calls."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return self._step(event, now_ns)
        finally:
            sys.settrace(before)

    def _profile(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self.count += 1

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.count += 1
        return self._trace


def count(workload: BenchWorkload) -> Count:
    """Returns the mean counts of a decision, after a warm-up, without garbage collection: what else
    runs in the process may have callbacks for it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return _count(workload)
    finally:
        if was_enabled:
            gc.enable()


def _count(workload: BenchWorkload) -> Count:
    engine, decide = _make_decider(workload)
    calls, instructions = _Counter(engine), _Counter(engine)
    numbers = iter(range(WARM_UP + 2 * COUNTED))
    for _ in range(WARM_UP):
        decide(next(numbers))
    engine.step = calls.step_counting_calls  # type: ignore[method-assign]
    for _ in range(COUNTED):
        decide(next(numbers))
    engine.step = instructions.step_counting_instructions  # type: ignore[method-assign]
    for _ in range(COUNTED):
        decide(next(numbers))
    budget = budgets().get(workload.name, 0.0)
    return Count(calls.count / COUNTED, instructions.count / COUNTED, budget)


def _make_decider(workload: BenchWorkload) -> tuple[Engine, Callable[[int], Any]]:
    """Returns an engine, and what makes it decide about the pod of a number."""
    if workload.driver == "devices":
        engine = half_gpus(workload)
        return engine, lambda number: place(engine, number, {"capacity": {"requests": HALF}})
    engine = build_ready_engine(workload)

    def arrive(number: int) -> None:
        pod = decode(pod_bytes(number, workload), Pod)
        engine.step(Observed(WatchType.ADDED, pod), 1)

    return engine, arrive


def budgets() -> dict[str, float]:
    """Returns the budgets of this version of Python by workload; empty where there are none."""
    text = (files("stower.bench") / "call_budgets.yaml").read_text()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found: dict[str, float] = yaml.safe_load(text).get(version, {})
    return found


def measure() -> CallsResult:
    """Counts all workloads."""
    known = workloads()
    found = {}
    for name in WORKLOADS:
        found[name] = count(known[name])
        tell("calls", f"{name}: {found[name].calls:.1f} calls")
    return CallsResult("calls", found, sum(each.calls for each in found.values()))


if __name__ == "__main__":
    run_once("calls", measure, sys.argv[1:])
