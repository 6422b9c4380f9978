"""Runs simulations with injected faults (`stower simulate --faults`) for many seeds in parallel,
prints each broken law, and shrinks and saves a failing run as a script and a recording.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stower.cli.output import Output, bad_input, console, emit, note, progress, table
from stower.cli.scripts import ACTIVE_MS_MAX, read_script
from stower.cli.workers import quiet
from stower.engine.limits import Limits
from stower.framework.plugin import Features
from stower.model.times import SECOND_NS, duration_ns
from stower.record.recorder import EngineInputs, Recorder
from stower.sim.configurations import configuration_for
from stower.sim.faults import FAULT_BY_NAME
from stower.sim.large_load import Size
from stower.sim.load import PARTS
from stower.sim.script import MILLI_NS, Script
from stower.sim.shrinker import shrink
from stower.sim.trial import Finding, Trial, script_of

ALL = "all"
FAILURES_MAX = 5
CYCLES = Limits().cycles_per_step_max
# A failure is made smaller for so long; that takes some runs, and a script of 150 happenings 100.
SHRINK_SECONDS = 60.0
RUNS_MIN, RUNS_MAX = 8, 400


class Order(msgspec.Struct, frozen=True):
    """What to run. `faults` None: each seed draws its own mix."""

    first_seed: int
    seeds: int
    jobs: int
    faults: tuple[str, ...] | None
    active_ns: int
    size: Size | None = None
    negotiates: bool = False
    groups: bool = False
    vms: bool = False
    warm: bool = False
    configuration: dict[str, Any] | None = None


def check_seeds(first: int, count: int = 1) -> None:
    """Refuse what no engine can be seeded with."""
    if not -(2**63) <= first <= 2**63 - count:
        raise bad_input(f"--seed: got {first}, want a 64-bit number")


def read_order(
    faults: str,
    seed: int,
    seeds: int,
    jobs: int,
    until: str,
    size: tuple[int, int],
    negotiates: bool,
    groups: bool,
    vms: bool,
    warm: bool,
    configuration: dict[str, Any] | None,
) -> Order:
    """The options as they were given; `size`: nodes and pods. Ends the program where they make no
    sense."""
    names = None
    if faults != ALL:
        names = tuple(dict.fromkeys(filter(None, map(str.strip, faults.split(",")))))
        for name in names:
            if name not in FAULT_BY_NAME:
                known = ", ".join(FAULT_BY_NAME)
                raise bad_input(f"--faults: got {name!r}, want {ALL} or some of {known}")
    check_seeds(seed, seeds)
    active_ns = duration_ns(until)
    if active_ns is None or not 60 * SECOND_NS <= active_ns <= ACTIVE_MS_MAX * MILLI_NS:
        raise bad_input(f"--until: got {until!r}, want 60s to {ACTIVE_MS_MAX // 3_600_000}h")
    if bool(size[0]) != bool(size[1]):
        raise bad_input("--nodes and --pods: want both or none")
    jobs = jobs or os.cpu_count() or 1
    large = Size(*size) if size[0] else None
    return Order(
        seed, seeds, jobs, names, active_ns, large, negotiates, groups, vms, warm, configuration
    )


def run_order(order: Order, output: Output, folder: Path) -> bool:
    """Run all seeds, say what came of them; whether no law was broken."""
    found: list[Finding] = []
    with progress("simulate") as update:
        for finding in _findings(order):
            found.append(finding)
            if update is not None:
                update(len(found), order.seeds)
    found.sort(key=lambda finding: finding.seed)
    broken = [finding for finding in found if finding.law]
    for finding in broken[:FAILURES_MAX]:
        _print_finding(finding)
        _save_and_shrink(finding, order, folder)
    if output is Output.TABLE:
        columns = ("seeds", "broken", "steps", "virtual hours", "faults")
        out = table("Runs with faults", *columns, right=columns[:4])
        faults = "drawn by seed" if order.faults is None else ", ".join(order.faults) or "none"
        out.add_row(
            f"{len(found):,}", f"{len(broken):,}", f"{sum(f.steps for f in found):,}",
            f"{sum(f.virtual_s for f in found) / 3600:,.1f}", faults,
        )  # fmt: skip
        console().print(out)
    else:
        emit(_summary(found, broken), output)
    return not broken


def run_script(path: Path, configuration: dict[str, Any] | None, output: Output) -> bool:
    """Run a script; whether no law was broken."""
    found = Trial(read_script(path, configuration), configuration).run()
    if found.law:
        _print_finding(found)
    if output is not Output.TABLE:
        emit(found, output)
    elif not found.law:
        console().print(f"No law was broken in {found.steps:,} steps, {found.virtual_s:,.0f} s.")
    return not found.law


def _save_and_shrink(finding: Finding, order: Order, folder: Path) -> None:
    """Keep the failure as it is, then as small as it can be made in a minute or so."""
    script = _script(finding.seed, order)
    stem = folder / f"stower-{script.seed}-{finding.law.replace(' ', '-')}"
    path = stem.with_name(f"{stem.name}.script.json")
    recording = stem.with_name(f"{stem.name}.ndjson.zst")
    try:
        _write(script, path)
        began = time.monotonic()
        Trial(script, order.configuration).run()
        one_s = time.monotonic() - began
        runs_max = max(RUNS_MIN, min(RUNS_MAX, int(SHRINK_SECONDS / max(one_s, 0.001))))
        done = 0
        with progress("making it smaller") as update:

            def run(smaller: Script) -> Finding:
                nonlocal done
                done += 1
                if update is not None:
                    update(done, runs_max)
                return Trial(smaller, order.configuration).run()

            script = shrink(script, finding.law, run, runs_max)
        _write(script, path)
        ruled = configuration_for(script, order.configuration)
        recorder = Recorder(recording, EngineInputs(ruled, script.seed, CYCLES, Features()))
    except OSError as error:
        note(f"  the failing run cannot be saved: {error.strerror or error}")
        return
    Trial(script, order.configuration, recording=recorder).run()
    recorder.close()
    faults = f"{len(script.faults)} faults and " if script.faults else ""
    count = f"{faults}{len(script.happenings)} happenings"
    note(f"  {count} reproduce the failure: stower simulate --script {path}")
    note(f"  recording of the engines' events and writes: {recording}")


def _write(script: Script, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(script), indent=1) + b"\n")


def _findings(order: Order) -> Iterator[Finding]:
    seeds = range(order.first_seed, order.first_seed + order.seeds)
    tasks = [(seed, order) for seed in seeds]
    if order.jobs == 1 or order.seeds == 1:
        yield from map(_run_one, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(min(order.jobs, order.seeds), quiet) as pool:
        yield from pool.imap_unordered(_run_one, tasks, chunksize=4)


def _run_one(task: tuple[int, Order]) -> Finding:
    seed, order = task
    script = _script(seed, order)
    return Trial(script, order.configuration).run()


def _script(seed: int, order: Order) -> Script:
    wanted = {
        "devices": True, "negotiation": order.negotiates, "groups": order.groups, "vms": order.vms,
        "warm": order.warm,
    }  # fmt: skip
    parts = [part for part in PARTS if wanted[part]]
    return script_of(seed, order.faults, order.active_ns, order.size, parts)


def _print_finding(finding: Finding) -> None:
    note(f"seed {finding.seed}: the law of {finding.law} is broken: {finding.what}")
    note(f"  faults: {', '.join(finding.faults) or 'none'}; the last steps:")
    for line in finding.last_steps:
        note(f"  {line}")


def _summary(found: list[Finding], broken: list[Finding]) -> dict[str, Any]:
    return {
        "seeds": len(found),
        "broken": [msgspec.to_builtins(finding) for finding in broken],
        "steps": sum(finding.steps for finding in found),
        "virtualSeconds": sum(finding.virtual_s for finding in found),
        "digests": {str(finding.seed): finding.digest for finding in found},
    }
