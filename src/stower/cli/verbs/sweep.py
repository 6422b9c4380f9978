"""stower sweep: simulates workloads under many configurations and seeds, and compares them."""

import os
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from stower.cli.configuration_files import InputError
from stower.cli.documents import STDIN
from stower.cli.output import Output, bad_input, console, emit, failure, progress, table
from stower.cli.output_files import check_target
from stower.cli.parquet import ENDING
from stower.cli.plot import Plot, PlotError, check_plot, plot_sweep
from stower.cli.policies import read_policies
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.cli.seeds import check_seeds
from stower.cli.sweeps import (
    GENERATE,
    Row,
    SweepError,
    Task,
    columns_of,
    in_processes,
    on_ray,
    read_generated,
    write_rows,
)
from stower.model.errors import InvalidObject

NAME = "sweep"
WATCHED = True
EPILOG = """
Examples:

  stower sweep cluster.yaml --config default.yaml --config packed.yaml --seeds 20

  stower sweep generate:nodes=200,pods=5000,until=24h,arrivals=daily,lifetime=lognormal:30m
      --config a.yaml --config b.yaml --seeds 10 --results sweep.parquet --plot sweep.svg

  stower sweep openb/ --timed --seeds 50 --ray local

Every workload is simulated under every configuration with every seed. A seed decides ties, and
draws the cluster and pods of a generated workload. --ray takes the address of a Ray cluster, or
`local`.
"""
MEASURES = ("placed", "pending", "emptyNodes", "evictions", "waitedSeconds")


def run(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="WORKLOAD",
            help="A file, folder or recording, as for simulate; or generate:KEY=VALUE,... with "
            "the keys nodes, pods, until, arrivals, lifetime.",
        ),
    ],
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config", metavar="FILE", help="A KubeSchedulerConfiguration; repeat to compare."
        ),
    ] = None,
    ignore_unknown_plugins: IgnoreUnknownPlugins = False,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of seeds.")] = 1,
    timed: Annotated[
        bool, typer.Option("--timed", help="Start and end a trace's pods at its own times.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0: one per core.")] = 0,
    ray: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Run on this Ray cluster; `local`: on a local one."),
    ] = "",
    results: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one row per run (.csv, .parquet)."),
    ] = None,
    plot_file: Plot = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Simulate workloads under configurations with many seeds, and compare the results."""
    check_seeds(seed, seeds)
    _check_workloads(inputs)
    policies = read_policies(config or [], ignore_unknown_plugins)
    _check_results(results)
    check_plot(plot_file)
    tasks = [
        Task(workload, name, document, number, timed, ignore_unknown_plugins, number == seed)
        for workload in inputs
        for name, document in policies
        for number in range(seed, seed + seeds)
    ]
    processes = jobs or os.cpu_count() or 1
    rows: list[Row] = []
    try:
        with progress("sweep") as update:
            for row in on_ray(tasks, ray, processes) if ray else in_processes(tasks, processes):
                rows.append(row)
                if update is not None:
                    update(len(rows), len(tasks))
        order = {(t.workload, t.config, t.seed): i for i, t in enumerate(tasks)}
        rows.sort(key=lambda row: order[row["workload"], row["config"], row["seed"]])
        if results is not None:
            write_rows(results, rows)
        if plot_file is not None:
            plot_sweep(rows, plot_file)
    except (InputError, InvalidObject, PlotError) as error:
        raise bad_input(str(error)) from None
    except OSError as error:
        raise bad_input(f"--results {results}: {error.strerror}") from None
    except SweepError as error:
        raise failure(str(error)) from None
    if output is Output.TABLE:
        _print(rows)
    else:
        emit({"runs": [{name: row.get(name) for name in columns_of(rows)} for row in rows]}, output)


def _check_results(path: Path | None) -> None:
    check_target("--results", path)
    if path is not None and path.suffix not in (".csv", ENDING):
        raise bad_input(f"--results {path}: want a name that ends in .csv or {ENDING}")


def _check_workloads(inputs: list[str]) -> None:
    for text in inputs:
        try:
            if text.startswith(GENERATE):
                read_generated(text)
        except InvalidObject as error:
            raise bad_input(str(error)) from None
        if text == STDIN:
            raise bad_input("-: a sweep reads its workloads more than once; give a file")
        if inputs.count(text) > 1:
            raise bad_input(f"{text}: given twice")


def _print(rows: list[Row]) -> None:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["workload"], row["config"]), []).append(row)
    names = ("runs", *MEASURES, "use cpu %")
    shown = table("Sweep: mean (minimum to maximum)", "workload", "config", *names, right=names)
    for (workload, config), found in groups.items():
        cells = [_span([row.get(name) for row in found]) for name in names[1:]]
        shown.add_row(workload, config, str(len(found)), *cells)
    console().print(shown)


def _span(values: list[Any]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    least, most = min(known), max(known)
    middle = f"{mean(known):,.1f}"
    return middle if least == most else f"{middle} ({least:,.1f} to {most:,.1f})"
