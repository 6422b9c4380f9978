"""stower bench: runs benchmarks of the scheduler and the API server, each in a fresh process."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from stower.bench.family import Family
from stower.bench.workloads import workloads
from stower.cli.output import Output, bad_input, console, emit, note, table

NAME = "bench"
EPILOG = """
Examples:

  stower bench --list

  stower bench basic-5000 --output json > before.json

  stower bench basic-5000 mixed-5000 --runs 3 --compare before.json

  stower bench server --runs 1

  stower bench up ceiling --runs 3

  stower bench
"""

# One run of the slowest takes some 60 s on a slow machine.
RUN_SECONDS_MAX = 600


# Benchmarks with a module of their own, run only when they are named.
NAMED: Final = ("calls", "server", "up", "ceiling", "hostile", "scale", "shards")

# What a benchmark prints: the fields of its best run, the rates of all, ratios.
Measured = dict[str, Any]


def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Benchmarks; default: all of the scheduler's."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=100, help="Runs of each benchmark.")] = 5,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Print ratios (new / old) to an earlier run's JSON."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the benchmarks and exit.")] = False,
) -> None:
    """Run benchmarks and print the best run of each.

    With --output json, one NAME gives one object, several give a list. Progress goes to stderr.
    """
    known = {name: workload.about for name, workload in workloads().items()}
    known |= {name: f"{_family(name).about}; runs only if named" for name in NAMED}
    if list_:
        listing = table("Benchmarks", "name", "about")
        for name, about in known.items():
            listing.add_row(name, about)
        console().print(listing)
        return
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise bad_input(f"NAME: got {unknown[0]!r}, want one of {', '.join(known)}")
    earlier = _earlier(compare) if compare is not None else {}
    results = []
    for name in names or [name for name in known if name not in NAMED]:
        family = _family(name)
        tried = []
        for i in range(runs):
            tried.append(_run_once(name))
            rate = getattr(tried[-1], family.best)
            shown = f"{rate:,.0f}" if rate >= 100 else f"{rate:,.3g}"
            note(f"bench {name}: run {i + 1} of {runs}: {shown} {family.unit}")
        results.append(_summarize(family, tried, earlier.get(name)))
    if output is Output.TABLE:
        _print([m for m in results if m["name"] not in NAMED])
        for m in results:
            if m["name"] in NAMED:
                _print_figures(m, _family(m["name"]))
    else:
        emit(results[0] if len(results) == 1 else results, output)


def _module(name: str) -> str:
    return f"stower.bench.{name if name in NAMED else 'run'}"


def _family(name: str) -> Family:
    found: Family = importlib.import_module(_module(name)).FAMILY
    return found


def _run_once(name: str) -> Any:
    command = [sys.executable, "-m", _module(name), name]
    # Benchmarks that take most of a minute print their phases on stderr.
    stderr = None if name in NAMED else subprocess.PIPE
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=stderr, timeout=RUN_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        note(f"error: bench {name} has not ended after {RUN_SECONDS_MAX} s")
        raise typer.Exit(1) from None
    if done.returncode != 0:
        sys.stderr.write((done.stderr or b"").decode(errors="replace"))
        note(f"error: bench {name} failed with exit code {done.returncode}")
        raise typer.Exit(1)
    return msgspec.json.decode(done.stdout, type=_family(name).result)


def _earlier(path: Path) -> dict[str, Measured]:
    """Results of an earlier run by name. One object or a list."""
    try:
        found = msgspec.json.decode(path.read_bytes())
        results = found if isinstance(found, list) else [found]
        named = [msgspec.convert(m, dict[str, Any])["name"] for m in results]
        checked = [
            msgspec.convert(m, _family(name).result) for m, name in zip(results, named, strict=True)
        ]
    except OSError as error:
        raise bad_input(f"--compare {path}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise bad_input(f"--compare {path}: want the JSON of stower bench: {error}") from None
    return {m["name"]: m for m in map(msgspec.structs.asdict, checked)}


def _summarize(family: Family, tried: list[Any], old: Measured | None) -> Measured:
    choose = min if family.is_least_best else max
    best = choose(tried, key=lambda result: float(getattr(result, family.best)))
    found: Measured = msgspec.to_builtins(best)
    found[f"runs_{family.best}"] = [getattr(result, family.best) for result in tried]
    for name, field in family.ratios.items():
        found[name] = found[field] / old[field] if old is not None and old[field] else None
    return found


def _print(results: list[Measured]) -> None:
    if not results:
        return
    compared = any(m["ratio_pods_per_s"] is not None for m in results)
    columns = ["name", "pods/s", "p50 µs", "p99 µs", "seconds", "peak MiB", "flatness"]
    if compared:
        columns += ["pods/s ratio", "p50 ratio", "peak ratio"]
    out = table("Best run of each", *columns, right=tuple(columns[1:]))
    for m in results:
        cells = [
            m["name"],
            f"{m['pods_per_s']:,.0f}",
            f"{m['p50_us']:,.1f}",
            f"{m['p99_us']:,.1f}",
            f"{m['seconds']:.2f}",
            f"{m['peak_bytes'] / 2**20:,.0f}",
            _ratio(m["flatness"]),
        ]
        if compared:
            cells += [_ratio(m[name]) for name in _family(m["name"]).ratios]
        out.add_row(*cells)
    console().print(out)


def _print_figures(m: Measured, family: Family) -> None:
    ratios = {field: m[name] for name, field in family.ratios.items()}
    out = table(f"{m['name']}, best run", "figure", "value", "ratio", right=("value", "ratio"))
    for field in family.result.__struct_fields__:
        for name, value in _flat(field, m[field]) if field != "name" else ():
            text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
            out.add_row(name, text, _ratio(ratios.get(name)))
    console().print(out)


def _flat(name: str, value: Any) -> Iterator[tuple[str, float]]:
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        for last, number in _flat(key, inner):
            yield (f"{key} {last}" if last != key else key), number


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
