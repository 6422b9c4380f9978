"""stower bench: measure the scheduler, each run in a fresh process."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from stower.bench.run import Result
from stower.bench.workloads import workloads
from stower.cli.output import Output, bad_input, console, emit, note, table

NAME = "bench"
EPILOG = """
Examples:

  stower bench --list

  stower bench basic-5000 --output json > before.json

  stower bench basic-5000 mixed-5000 --runs 3 --compare before.json

  stower bench
"""

# One run of the slowest workload takes some 20 s on a slow machine.
RUN_SECONDS_MAX = 600


class Measured(Result, frozen=True, kw_only=True):
    """The best run by pods a second, the rates of all runs, and ratios to an earlier one."""

    runs_pods_per_s: tuple[float, ...]
    ratio_pods_per_s: float | None = None
    ratio_p50: float | None = None
    ratio_peak_bytes: float | None = None


def run(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Benchmarks; default: all.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=100, help="Fresh processes each.")] = 5,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How to print the results.")
    ] = Output.TABLE,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Print ratios to an earlier run's JSON (new / old)."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the benchmarks and stop.")] = False,
) -> None:
    """Run benchmarks and print the best of their runs.

    One name with --output json gives one JSON object, several give a list. Progress goes to stderr.
    """
    known = workloads()
    if list_:
        listing = table("Benchmarks", "name", "about")
        for workload in known.values():
            listing.add_row(workload.name, workload.about)
        console().print(listing)
        return
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise bad_input(f"no benchmark {unknown[0]!r}: want one of {', '.join(known)}")
    earlier = _earlier(compare) if compare is not None else {}
    results = []
    for name in names or known:
        tried = []
        for i in range(runs):
            tried.append(_run_once(name))
            note(f"bench {name}: run {i + 1} of {runs}: {tried[-1].pods_per_s:,.0f} pods/s")
        best = max(tried, key=lambda r: r.pods_per_s)
        results.append(_measured(best, tried, earlier.get(name)))
    if output is Output.TABLE:
        _print(results)
    else:
        emit(results[0] if len(results) == 1 else results, output)


def _run_once(name: str) -> Result:
    command = [sys.executable, "-m", "stower.bench.run", name]
    try:
        done = subprocess.run(command, capture_output=True, timeout=RUN_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        note(f"error: bench {name} is not done after {RUN_SECONDS_MAX} s")
        raise typer.Exit(1) from None
    if done.returncode != 0:
        sys.stderr.write(done.stderr.decode(errors="replace"))
        note(f"error: bench {name} failed with exit code {done.returncode}")
        raise typer.Exit(1)
    return msgspec.json.decode(done.stdout, type=Result)


def _earlier(path: Path) -> dict[str, Measured]:
    """Results of an earlier run by name. One object or a list."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Measured | list[Measured])
    except OSError as error:
        raise bad_input(f"--compare {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise bad_input(f"--compare {path}: not the JSON of stower bench: {error}") from None
    return {m.name: m for m in (found if isinstance(found, list) else [found])}


def _measured(best: Result, tried: list[Result], old: Measured | None) -> Measured:
    fields = msgspec.structs.asdict(best)
    rates = tuple(r.pods_per_s for r in tried)
    if old is None:
        return Measured(**fields, runs_pods_per_s=rates)
    return Measured(
        **fields,
        runs_pods_per_s=rates,
        ratio_pods_per_s=_divided(best.pods_per_s, old.pods_per_s),
        ratio_p50=_divided(best.p50_us, old.p50_us),
        ratio_peak_bytes=_divided(best.peak_bytes, old.peak_bytes),
    )


def _divided(new: float, old: float) -> float | None:
    return new / old if old else None


def _print(results: list[Measured]) -> None:
    compared = any(m.ratio_pods_per_s is not None for m in results)
    columns = ["name", "pods/s", "p50 µs", "p99 µs", "seconds", "peak MiB", "flatness"]
    if compared:
        columns += ["pods/s ratio", "p50 ratio", "peak ratio"]
    out = table("Best run of each", *columns, right=tuple(columns[1:]))
    for m in results:
        cells = [
            m.name,
            f"{m.pods_per_s:,.0f}",
            f"{m.p50_us:,.1f}",
            f"{m.p99_us:,.1f}",
            f"{m.seconds:.2f}",
            f"{m.peak_bytes / 2**20:,.0f}",
            _ratio(m.flatness),
        ]
        if compared:
            cells += [_ratio(m.ratio_pods_per_s), _ratio(m.ratio_p50), _ratio(m.ratio_peak_bytes)]
        out.add_row(*cells)
    console().print(out)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
