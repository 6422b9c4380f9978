"""cli/verbs/bench.py: results on stdout, progress on stderr, ratios to an earlier run."""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from typer.testing import CliRunner

from stower.bench import drivers, server
from stower.bench.run import Result, measure
from stower.bench.server import ServerResult
from stower.bench.workloads import DRIVERS, BenchWorkload, workloads
from stower.cli.main import app
from stower.cli.verbs import bench

FIELDS = {
    "name", "pods", "seconds", "pods_per_s", "p50_us", "p99_us", "peak_bytes", "flatness",
    "runs_pods_per_s", "ratio_pods_per_s", "ratio_p50", "ratio_peak_bytes",
}  # fmt: skip


def invoke(*args: str | Path) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the verb."""
    result = CliRunner().invoke(app, ["bench", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def result(name: str = "basic-500", rate: float = 100.0, peak: int = 1_000) -> Result:
    """A made-up run."""
    return Result(name, 10, 10 / rate, rate, 1e6 / rate, 2e6 / rate, peak)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rates of the runs to come, in place of real ones."""
    coming: list[float] = []
    monkeypatch.setattr(bench, "_run_once", lambda name: result(name, coming.pop(0)))
    return coming


def test_one_real_run_prints_one_json_object() -> None:
    """The smallest benchmark in a fresh process: plausible figures, progress apart from them."""
    code, out, err = invoke("basic-500", "--runs", "1", "--output", "json")
    assert 0 == code
    found: dict[str, Any] = json.loads(out)
    assert set(found) == FIELDS
    assert ("basic-500", 10_000) == (found["name"], found["pods"])
    assert 0 < found["p50_us"] <= found["p99_us"]
    assert found["pods_per_s"] == pytest.approx(found["pods"] / found["seconds"])
    assert found["peak_bytes"] > 2**20
    assert err.startswith("stower: bench basic-500: run 1 of 1: ")


def test_best_of_the_runs_counts_and_all_rates_are_kept(rates: list[float]) -> None:
    """The machine's noise only ever slows down."""
    rates += [50, 200, 100]
    code, out, err = invoke("basic-500", "--runs", "3", "-o", "json")
    found = json.loads(out)
    assert (0, 200.0, [50.0, 200.0, 100.0]) == (
        code,
        found["pods_per_s"],
        found["runs_pods_per_s"],
    )
    assert 3 == len(err.splitlines())


def test_several_names_give_a_list(rates: list[float]) -> None:
    """In the order in which they were named."""
    rates += [1, 2]
    _, out, _ = invoke("mixed-5000", "basic-500", "--runs", "1", "-o", "json")
    assert [("mixed-5000", 1.0), ("basic-500", 2.0)] == [
        (found["name"], found["pods_per_s"]) for found in json.loads(out)
    ]


def test_no_name_runs_all(rates: list[float]) -> None:
    """Each benchmark once, in the order of the list."""
    rates += [1.0] * len(workloads())
    _, out, _ = invoke("--runs", "1", "-o", "json")
    assert list(workloads()) == [found["name"] for found in json.loads(out)]


def test_compare_gives_ratios_new_to_old(rates: list[float], tmp_path: Path) -> None:
    """Twice the rate is 2, half the time 0.5; what the earlier run did not have stays empty."""
    rates += [100, 200, 50]
    earlier = tmp_path / "before.json"
    earlier.write_text(invoke("basic-500", "--runs", "1", "-o", "json")[1])
    args = ("basic-500", "basic-1000", "--runs", "1", "--compare", earlier, "-o", "json")
    first, second = json.loads(invoke(*args)[1])
    ratios = ("ratio_pods_per_s", "ratio_p50", "ratio_peak_bytes")
    assert [2.0, 0.5, 1.0] == [first[name] for name in ratios]
    assert [None, None, None] == [second[name] for name in ratios]


def test_table_shows_ratios_only_when_compared(rates: list[float], tmp_path: Path) -> None:
    """A file of several results is read as well."""
    rates += [100, 100, 150]
    earlier = tmp_path / "before.json"
    names = ("basic-500", "basic-1000")
    earlier.write_text(invoke(*names, "--runs", "1", "-o", "json")[1])
    rates.append(150)
    plain = invoke("basic-500", "--runs", "1")[1]
    compared = invoke("basic-500", "--runs", "1", "--compare", earlier)[1]
    assert ("ratio" in plain, "ratio" in compared) == (False, True)
    assert ["1.50", "0.67", "1.00"] == compared.split()[-3:]


def test_earlier_run_of_zeros_has_no_ratios(rates: list[float], tmp_path: Path) -> None:
    """Nothing can be divided by it."""
    rates.append(100)
    zero = dict.fromkeys(("pods", "seconds", "pods_per_s", "p50_us", "p99_us", "peak_bytes"), 0)
    old = {**zero, "name": "basic-500", "flatness": None, "runs_pods_per_s": []}
    earlier = tmp_path / "before.json"
    earlier.write_text(json.dumps(old))
    code, out, _ = invoke("basic-500", "--runs", "1", "--compare", earlier, "-o", "json")
    assert (0, None) == (code, json.loads(out)["ratio_pods_per_s"])


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1]", b"\xff\xfe", b'{"name": 3}'])
def test_compare_file_that_cannot_be_read_is_refused_before_any_run(
    rates: list[float], tmp_path: Path, content: bytes | None
) -> None:
    """No rate is taken: the list would be empty."""
    earlier = tmp_path / "before.json"
    if content is not None:
        earlier.write_bytes(content)
    code, out, err = invoke("basic-500", "--compare", earlier)
    assert (2, "") == (code, out)
    assert err.startswith(f"stower: error: --compare {earlier}: ")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("nope",), "stower: error: NAME: got 'nope', want one of basic-500, "),
        (("basic-500", "--runs", "0"), "Usage: "),
        (("basic-500", "--output", "xml"), "Usage: "),
    ],
)
def test_wrong_usage_ends_with_2(args: tuple[str, ...], expected: str) -> None:
    """Nothing runs."""
    code, out, err = invoke(*args)
    assert (2, "") == (code, out)
    assert err.startswith(expected)


def test_list_names_every_benchmark() -> None:
    """With a word on each."""
    code, out, _ = invoke("--list")
    assert 0 == code
    assert all(w.name in out and w.about for w in workloads().values())


def test_run_that_fails_ends_with_1_and_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing benchmark is our fault, not that of what was given."""

    def fail(*args: object, **kwargs: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess([], 3, b"", b"the reason\n")

    monkeypatch.setattr(bench.subprocess, "run", fail)
    code, out, err = invoke("basic-500", "-o", "json")
    expected = "the reason\nstower: error: bench basic-500 failed with exit code 3\n"
    assert (1, "", expected) == (code, out, err)


def test_run_that_does_not_end_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and so is how long it had."""

    def hang(*args: object, **kwargs: object) -> None:
        raise subprocess.TimeoutExpired("bench", 600)

    monkeypatch.setattr(bench.subprocess, "run", hang)
    code, out, err = invoke("basic-500")
    assert (1, "", "stower: error: bench basic-500 has not ended after 600 s\n") == (code, out, err)


def test_every_driver_is_known_to_the_workloads() -> None:
    """A name in a workload file always finds its driver."""
    assert set(DRIVERS) == set(drivers.DRIVE)


@pytest.mark.parametrize(
    ("driver", "existing", "pods"),
    [
        ("arrive", 0, 5),
        ("bytes", 0, 5),
        ("restart", 6, 6),
        ("hold", 6, 6),
        ("wake", 0, 5),
        ("churn", 4, 5),
        ("devices", 2, 5),
        ("partitions", 2, 5),
    ],
)
def test_every_driver_runs_a_tiny_workload(
    monkeypatch: pytest.MonkeyPatch, driver: str, existing: int, pods: int
) -> None:
    """Times are positive, and as many pods are counted as were driven."""
    monkeypatch.setattr(drivers, "settle_memory", lambda: None)
    tiny = BenchWorkload("tiny", "", driver, nodes=8, existing=existing, arriving=5)
    found = measure(tiny)
    assert ("tiny", pods) == (found.name, found.pods)
    assert found.pods_per_s > 0
    assert found == msgspec.json.decode(msgspec.json.encode(found), type=Result)


def test_server_prints_its_figures_and_ratios(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has figures of its own, and runs only when it is named."""
    rates = iter([1000.0, 2000.0, 1000.0])

    def once(name: str) -> ServerResult:
        assert "server" == name
        figures: dict[str, Any] = dict.fromkeys(ServerResult.__struct_fields__, 8)
        return ServerResult(**{**figures, "name": name, "creates_per_s": next(rates)})

    monkeypatch.setattr(bench, "_run_once", once)
    earlier = tmp_path / "before.json"
    earlier.write_text(invoke("server", "--runs", "2", "-o", "json")[1])
    found = json.loads(earlier.read_text())
    assert (2000.0, [1000.0, 2000.0]) == (found["creates_per_s"], found["runs_creates_per_s"])
    out = invoke("server", "--runs", "1", "--compare", earlier)[1]
    rows = [line.split() for line in out.splitlines()]
    assert ["creates_per_s", "1,000", "0.50"] in rows
    assert ["bind_cpu_us", "8", "1.00"] in rows


def sample(kind: Any) -> Any:
    """A value of a result's field."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{name: sample(hint) for name, hint in get_type_hints(kind).items()})
    if get_origin(kind) is dict:
        return {"key": sample(get_args(kind)[1])}
    return kind(250)


@pytest.mark.parametrize("name", sorted(bench.NAMED))
def test_every_benchmark_that_is_named_prints_a_table(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made = msgspec.structs.replace(sample(bench._family(name).result), name=name)
    monkeypatch.setattr(bench, "_run_once", lambda _: made)
    code, out, _ = invoke(name, "--runs", "1")
    assert 0 == code
    assert f"{name}, best run" in out
    assert len(made.__struct_fields__) - 1 <= len(re.findall(r"\b250\b", out))


def test_small_run_of_the_server_measures_everything() -> None:
    """A real server and real clients, few pods."""
    found = asyncio.run(server.measure(60))
    figures = msgspec.structs.asdict(found)
    assert ("server", 60) == (figures.pop("name"), figures.pop("pods"))
    # CPU of so short a run may be less than a tick of the clock.
    assert all(value > 0 for name, value in figures.items() if "cpu" not in name)


@pytest.mark.behaviour("S4.31", "S4.35")
def test_vms_are_approved_while_others_ask() -> None:
    """The load whose figures docs/measurements.md has, in small: all that is asked for comes."""
    small = msgspec.structs.replace(workloads()["vms-1000"], nodes=5, existing=60, arriving=150)
    times = drivers.DRIVE["vms"](small)
    assert (150, 150) == (times.pods, len(times.pieces_ns))
    assert all(ns > 0 for ns in times.pieces_ns)
