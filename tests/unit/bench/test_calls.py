"""stower.bench.calls: counts of calls and instructions of a decision."""

import json
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from stower.bench import calls
from stower.bench.workloads import BenchWorkload


@pytest.fixture
def restored() -> Iterator[None]:
    """Puts back the trace function and the profile function of the test's own process."""
    before = sys.gettrace(), sys.getprofile()
    yield
    sys.settrace(before[0])
    sys.setprofile(before[1])


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few decisions are counted."""
    monkeypatch.setattr(calls, "WARM_UP", 2)
    monkeypatch.setattr(calls, "COUNTED", 2)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("driver", ["arrive", "devices"])
def test_counting_puts_back_what_traced_before(driver: str) -> None:
    """A debugger, or a measurement of coverage, goes on after the count."""

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        return None

    sys.settrace(trace)
    sys.setprofile(trace)
    found = calls.count(BenchWorkload("tiny", "", driver, nodes=4, arriving=9))
    assert (trace, trace) == (sys.gettrace(), sys.getprofile())
    sys.settrace(None)
    sys.setprofile(None)
    assert 0 < found.calls < found.instructions
    assert 0 == found.budget


@pytest.mark.usefixtures("restored")
def test_the_benchmark_sums_up_all_its_workloads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = BenchWorkload("tiny", "", nodes=4, arriving=9)
    monkeypatch.setattr(calls, "workloads", lambda: {"tiny": tiny})
    monkeypatch.setattr(calls, "WORKLOADS", ("tiny",))
    found = json.loads(calls.msgspec.json.encode(calls.measure()))
    assert "calls" == found["name"]
    assert capsys.readouterr().err.startswith("stower: bench calls: tiny: ")
