"""Runs with faults, many seeds at once, and what is said of them."""

import multiprocessing
import os
from collections.abc import Iterator
from typing import Any

import msgspec

from stower.cli.output import Output, bad_input, console, emit, note, progress, table
from stower.model.times import SECOND_NS, duration_ns
from stower.sim.faults import FAULT_BY_NAME
from stower.sim.shrink import shrunk
from stower.sim.trial import Finding, Trial

ALL = "all"
FAILURES_MAX = 5


class Order(msgspec.Struct, frozen=True):
    """What to run. `faults` None: each seed draws its own mix."""

    first_seed: int
    seeds: int
    jobs: int
    faults: tuple[str, ...] | None
    active_ns: int


def check_seeds(first: int, count: int = 1) -> None:
    """Refuse what no engine can be seeded with."""
    if not -(2**63) <= first <= 2**63 - count:
        raise bad_input(f"--seed: got {first}, want a 64-bit number")


def read_order(faults: str, seed: int, seeds: int, jobs: int, until: str) -> Order:
    """The options as they were given. Ends the program where they make no sense."""
    names = None
    if faults != ALL:
        names = tuple(filter(None, (name.strip() for name in faults.split(","))))
        for name in names:
            if name not in FAULT_BY_NAME:
                known = ", ".join(FAULT_BY_NAME)
                raise bad_input(f"--faults: got {name!r}, want {ALL} or some of {known}")
    check_seeds(seed, seeds)
    active_ns = duration_ns(until)
    if active_ns is None or active_ns < 60 * SECOND_NS:
        raise bad_input(f"--until: got {until!r}, want a duration of 60s or more, such as 24h")
    return Order(seed, seeds, jobs or os.cpu_count() or 1, names, active_ns)


def run_order(order: Order, output: Output) -> bool:
    """Run all seeds, say what came of them; whether no law was broken."""
    found: list[Finding] = []
    with progress("simulate") as update:
        for finding in _findings(order):
            found.append(finding)
            if update is not None:
                update(len(found), order.seeds)
    found.sort(key=lambda finding: finding.seed)
    broken = [finding for finding in found if finding.law]
    small = [shrunk(finding, order.active_ns) for finding in broken[:FAILURES_MAX]]
    for finding in small:
        _tell(finding, order)
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
        emit(_summary(found, small), output)
    return not broken


def _findings(order: Order) -> Iterator[Finding]:
    seeds = range(order.first_seed, order.first_seed + order.seeds)
    tasks = [(seed, order.faults, order.active_ns) for seed in seeds]
    if order.jobs == 1 or order.seeds == 1:
        yield from map(_one, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(min(order.jobs, order.seeds)) as pool:
        yield from pool.imap_unordered(_one, tasks, chunksize=4)


def _one(task: tuple[int, tuple[str, ...] | None, int]) -> Finding:
    seed, faults, active_ns = task
    return Trial(seed, faults, active_ns=active_ns).run()


def _tell(finding: Finding, order: Order) -> None:
    note(f"seed {finding.seed}: the law of {finding.law} is broken {finding.what}")
    for line in finding.last_steps:
        note(f"  {line}")
    until = order.active_ns // SECOND_NS
    faults = ",".join(finding.faults)
    note(f"  again: stower simulate --faults '{faults}' --seed {finding.seed} --until {until}s")


def _summary(found: list[Finding], small: list[Finding]) -> dict[str, Any]:
    return {
        "seeds": len(found),
        "broken": [msgspec.to_builtins(finding) for finding in small],
        "steps": sum(finding.steps for finding in found),
        "virtualSeconds": sum(finding.virtual_s for finding in found),
        "digests": {str(finding.seed): finding.digest for finding in found},
    }
