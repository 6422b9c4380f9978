"""Runs packing policies on a GPU trace (`stower pack`), many seeds in parallel, and prints the
GPUs allocated.
"""

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

import msgspec

from stower.cli.configuration_files import InputError
from stower.cli.inputs import trace_list
from stower.cli.names import check_names
from stower.cli.output import OnProgress, Output, bad_input, console, emit, progress, table
from stower.cli.packing_csv import write_csv
from stower.cli.plot import plot_curves
from stower.cli.workers import quiet
from stower.model.errors import InvalidObject
from stower.sim.openb_devices import GPU_MILLI, Trace
from stower.sim.packing import LOAD_MAX, Run, check_trace, run_policy
from stower.sim.packing_policies import POLICIES

SEEDS: Final = 10
LOADS: Final = (90, 100, LOAD_MAX)  # % that has arrived, in the table
FRAGMENT_LOADS: Final = (80, 90)  # of the fragments: beyond, next to all is fragments
LOOK_SECONDS: Final = 0.5  # between two looks at how far other processes are
# The lists of a folder that are taken: nodes without GPUs are left out, so that either will do.
NODE_LISTS: Final = ("openb_node_list_all_node.csv", "openb_node_list_gpu_node.csv")
POD_LISTS: Final = ("openb_pod_list_default.csv",)


class Order(msgspec.Struct, frozen=True):
    """What to run."""

    policies: tuple[str, ...]
    first_seed: int
    seeds: int
    jobs: int
    workload: str = ""  # the name of the pod list, in CSV files
    csv_folder: Path | None = None


class Result(msgspec.Struct, frozen=True):
    """One policy under all seeds: % allocated at each whole percent of arrived load."""

    policy: str
    runs: tuple[Run, ...]

    def at(self, load: int) -> tuple[float, float]:
        """Mean over the seeds, and their standard deviation (0 of one)."""
        found = [run.curve[load] for run in self.runs]
        return fmean(found), stdev(found) if len(found) > 1 else 0.0

    def curve(self) -> list[float]:
        """The mean at each load."""
        return [self.at(load)[0] for load in range(LOAD_MAX + 1)]

    def fragment_ratio(self) -> list[float]:
        """The mean share of free GPUs that is fragments, in %, at each load."""
        return [fmean(run.fragment_ratio[load] for run in self.runs)
                for load in range(LOAD_MAX + 1)]  # fmt: skip


def read_policies(names: Sequence[str]) -> tuple[str, ...]:
    """The policies to run; all there are, where none is named. Ends the program for an unknown."""
    check_names("--policy", names, POLICIES, "one of")
    return tuple(dict.fromkeys(names)) or POLICIES


def read_trace(inputs: Sequence[str]) -> Trace:
    """The nodes and pods of the trace. Ends the program where they cannot be used."""
    if not inputs:
        raise bad_input("INPUT: want the folder of an OpenB trace, or its node list and pod list")
    machines, tasks = [], []
    try:
        for path in _lists(inputs):
            more_machines, more_tasks = trace_list(path)
            machines += more_machines
            tasks += more_tasks
        trace = Trace(tuple(machines), tuple(tasks))
        check_trace(trace)
    except InputError as error:
        raise bad_input(str(error)) from None
    except InvalidObject as error:
        raise bad_input(f"{', '.join(inputs)}: {error}") from None
    return trace


def _lists(inputs: Sequence[str]) -> Iterator[Path]:
    for name in inputs:
        if not os.path.isdir(name):
            yield Path(name)
            continue
        for stems in (NODE_LISTS, POD_LISTS):
            found = [Path(name, f"{stem}{end}") for stem in stems for end in ("", ".gz")]
            path = next(filter(os.path.isfile, found), None)
            if path is None:
                raise InputError(f"{name}: want {' or '.join(stems)} (or .gz) in this folder")
            yield path


def workload_name(inputs: Sequence[str]) -> str:
    """The name of the pod list, without its ending."""
    return [*_lists(inputs)][-1].name.removesuffix(".gz").removesuffix(".csv")


def run_order(order: Order, trace: Trace, output: Output, plot_file: Path | None) -> None:
    """Run all policies under all seeds, and say what came of them."""
    runs: list[Run] = []
    with progress("pack") as update:
        runs += _runs(order, trace, update)
    runs.sort(key=lambda run: run.seed)
    results = [Result(p, tuple(r for r in runs if r.policy == p)) for p in order.policies]
    if plot_file is not None:
        plot_curves(
            {result.policy: result.curve() for result in results},
            {result.policy: result.fragment_ratio() for result in results},
            plot_file,
        )
    if order.csv_folder is not None:
        write_csv(order.csv_folder, order.workload, trace, runs)
    if output is Output.TABLE:
        _print(results, trace, order.seeds)
    else:
        emit(_summary(results, trace, order), output)


def _runs(order: Order, trace: Trace, update: OnProgress | None) -> Iterator[Run]:
    """All of them, as they end. Progress counts the percents of load that have arrived."""
    seeds = range(order.first_seed, order.first_seed + order.seeds)
    keeps = order.csv_folder is not None
    tasks = [(trace, policy, seed, keeps) for policy in order.policies for seed in seeds]
    total = LOAD_MAX * len(tasks)
    jobs = min(order.jobs, len(tasks))
    if jobs == 1:
        for number, (_, policy, seed, _) in enumerate(tasks):
            done = LOAD_MAX * number

            def on_load(load: int, done: int = done) -> None:
                if update is not None:
                    update(done + load, total)

            yield run_policy(trace, policy, seed, on_load, keeps)
        return
    context = multiprocessing.get_context("spawn")
    arrived = context.Value("q", 0)
    with context.Pool(jobs, _share, (arrived,)) as pool:
        found = pool.imap_unordered(_run_one, tasks)
        for _ in tasks:
            while True:
                try:
                    yield found.next(LOOK_SECONDS)
                    break
                except multiprocessing.TimeoutError:
                    if update is not None:
                        update(arrived.value, total)


# Percents of load that have arrived in all processes together.
_arrived: Any = None


def _share(arrived: Any) -> None:
    quiet()
    global _arrived
    _arrived = arrived


def _run_one(task: tuple[Trace, str, int, bool]) -> Run:
    def on_load(load: int) -> None:
        with _arrived.get_lock():
            _arrived.value += load > 0

    trace, policy, seed, keeps = task
    return run_policy(trace, policy, seed, on_load, keeps)


def _print(results: list[Result], trace: Trace, seeds: int) -> None:
    columns = [column for load in LOADS for column in (f"{load} %", "sd")]
    columns += [f"frag ratio {load} %" for load in FRAGMENT_LOADS]
    title = "GPUs allocated, and the share of free GPUs that is fragments, in %, by arrived load"
    out = table(title, "policy", *columns, right=tuple(columns))
    for result in results:
        figures = [f"{figure:.2f}" for load in LOADS for figure in result.at(load)]
        ratios = result.fragment_ratio()
        out.add_row(result.policy, *figures, *(f"{ratios[load]:.1f}" for load in FRAGMENT_LOADS))
    console().print(out)
    gpus, plural = trace.capacity_milli // GPU_MILLI, "s" if seeds > 1 else ""
    console().print(
        f"{len(trace.machines):,} nodes, {gpus:,} GPUs, {len(trace.tasks):,} pods, "
        f"{seeds:,} seed{plural}"
    )


def _summary(results: list[Result], trace: Trace, order: Order) -> dict[str, Any]:
    return {
        "nodes": len(trace.machines),
        "gpus": trace.capacity_milli // GPU_MILLI,
        "pods": len(trace.tasks),
        "seeds": [order.first_seed, order.first_seed + order.seeds - 1],
        "policies": [_figures(result) for result in results],
    }


def _figures(result: Result) -> dict[str, Any]:
    """`curve` has one figure for each whole percent of load from 0 on."""
    at = {}
    for load in LOADS:
        mean, deviation = result.at(load)
        at[str(load)] = {"mean": round(mean, 4), "sd": round(deviation, 4)}
    runs = [
        {
            "seed": run.seed, "arrived": run.arrived, "placed": run.placed,
            "curve": _rounded(run.curve), "fragments": _rounded(run.fragments),
            "fragmentRatio": _rounded(run.fragment_ratio),
        }
        for run in result.runs
    ]  # fmt: skip
    curve = _rounded(result.curve())
    ratio = _rounded(result.fragment_ratio())
    found = {"policy": result.policy, "at": at, "curve": curve}
    return {**found, "fragmentRatio": ratio, "runs": runs}


def _rounded(curve: Sequence[float]) -> list[float]:
    return [round(value, 4) for value in curve]
