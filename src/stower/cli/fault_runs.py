"""Runs simulations with injected faults (`stower faults`) for many seeds in parallel,
prints each broken law, and shrinks and saves a failing run as a script and a recording.
"""

import multiprocessing
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stower.assembly import build_engine
from stower.cli.fault_arguments import ALL, NONE, PLAIN, FaultArguments
from stower.cli.fault_report import finding_json, merge_reports, report_json, report_tables
from stower.cli.names import check_names, split_names
from stower.cli.output import (
    OnProgress,
    Output,
    bad_input,
    console,
    emit,
    note,
    progress,
    table,
)
from stower.cli.plugins import plugins_of
from stower.cli.policies import read_policies
from stower.cli.scripts import ACTIVE_MS_MAX, read_script
from stower.cli.seeds import check_seeds
from stower.cli.workers import quiet
from stower.engine.limits import Limits
from stower.framework.configuration import read_configuration
from stower.framework.plugin import Features
from stower.garbage import collect_rarely
from stower.model.times import SECOND_NS, duration_ns
from stower.record.recorder import EngineInputs, Recorder
from stower.sim.configurations import DEFAULT, configuration_for, lacking_plugins
from stower.sim.faults import FAULT_BY_NAME
from stower.sim.large_load import Size
from stower.sim.load import PARTS
from stower.sim.script import MILLI_NS, Script
from stower.sim.shrinker import shrink
from stower.sim.trial import Finding, Trial, script_of

FAILURES_MAX = 5
VIRTUAL_SECONDS = "faults, seconds of virtual time"
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
    size: Size | None
    parts: tuple[str, ...]
    configuration: dict[str, Any] | None
    config: str = ""  # the file of the configuration
    ignores_unknown: bool = False  # whether unknown plugins of the file are left out


def read_order(given: FaultArguments, configuration: dict[str, Any] | None) -> Order:
    """Returns the runs that the arguments ask for. Ends the program where they make no sense."""
    check_seeds(given.seed, given.seeds)
    active_ns = duration_ns(given.until)
    if active_ns is None or not 60 * SECOND_NS <= active_ns <= ACTIVE_MS_MAX * MILLI_NS:
        raise bad_input(f"--until: got {given.until!r}, want 60s to {ACTIVE_MS_MAX // 3_600_000}h")
    if bool(given.nodes) != bool(given.pods):
        have, lack = ("--nodes", "--pods") if given.nodes else ("--pods", "--nodes")
        got = given.nodes or given.pods
        raise bad_input(f"{have}: got {got} without {lack}, want --nodes and --pods, or neither")
    return Order(
        given.seed,
        given.seeds,
        given.jobs or os.cpu_count() or 1,
        _read_faults(given.faults),
        active_ns,
        Size(given.nodes, given.pods) if given.nodes else None,
        _scheduled_parts(_read_parts(given.only), given.only != ALL, configuration),
        configuration,
        (given.config or [""])[0],
        given.ignore_unknown_plugins,
    )


def _read_faults(text: str | None) -> tuple[str, ...] | None:
    if text is None or text == ALL:
        return None
    names = () if text == NONE else split_names(text)
    _check_alone("FAULTS", names)
    check_names("FAULTS", names, [*FAULT_BY_NAME], f"{ALL}, {NONE} or some of")
    return names


def _read_parts(text: str) -> tuple[str, ...]:
    if text == ALL:
        return PARTS
    names = split_names(text)
    if not names:
        raise bad_input(f"--only: got {text!r}, want {ALL} or some of {', '.join((PLAIN, *PARTS))}")
    _check_alone("--only", names)
    check_names("--only", names, (PLAIN, *PARTS), f"{ALL} or some of")
    return tuple(part for part in PARTS if part in names)


def _scheduled_parts(
    parts: tuple[str, ...], is_chosen: bool, configuration: dict[str, Any] | None
) -> tuple[str, ...]:
    """Returns the parts of the load that the configuration schedules, and says which it does not.
    Ends the program where these were asked for (`is_chosen`)."""
    if configuration is None:
        return parts
    profiles = build_engine(configuration).profiles
    if DEFAULT not in profiles:
        want = f"one {DEFAULT}, which schedules the pods of the load"
        raise bad_input(f"--config: got the profiles {', '.join(sorted(profiles))}, want {want}")
    lacking = {part: what for part, what in lacking_plugins(profiles).items() if part in parts}
    told = ", ".join(f"{part} ({what})" for part, what in lacking.items())
    if lacking and is_chosen:
        raise bad_input(f"--config: lacks what --only asks for: {told}; add it, or leave it out")
    if lacking:
        note(f"without the parts for which the configuration lacks something: {told}")
    return tuple(part for part in parts if part not in lacking)


def _check_alone(argument: str, names: Sequence[str]) -> None:
    for name in (ALL, NONE):
        if name in names and len(names) > 1:
            raise bad_input(f"{argument}: got {','.join(names)!r}, want {name} without other names")


def read_configuration_for_runs(
    paths: Sequence[str], ignores_unknown: bool
) -> dict[str, Any] | None:
    """Returns the one configuration of runs with faults, which simulate no extenders."""
    if len(paths) > 1:
        raise bad_input(f"--config: got {len(paths)} files, want one for runs with faults")
    ((_, document),) = read_policies([*paths], ignores_unknown)
    if read_configuration(document).extenders or plugins_of(document):
        raise bad_input(
            "--config: runs with faults support no extenders and no third-party plugins"
        )
    return document


def run_order(order: Order, output: Output, folder: Path) -> bool:
    """Run all seeds, say what came of them; whether no law was broken."""
    found: list[Finding] = []
    if order.seeds == 1:
        collect_rarely()
        with progress(VIRTUAL_SECONDS) as update:
            script = _script(order.first_seed, order)
            found.append(_run_with_progress(script, order.configuration, update))
    else:
        with progress("faults") as update:
            for finding in _findings(order):
                found.append(finding)
                if update is not None:
                    update(len(found), order.seeds)
    found.sort(key=lambda finding: finding.seed)
    broken = [finding for finding in found if finding.law]
    for known, count in sorted(_count_known(found).items()):
        note(f"known: {known} in {count:,} of {len(found):,} runs (docs/simulator.md)")
    for finding in broken[:FAILURES_MAX]:
        _print_finding(finding)
        _save_and_shrink(finding, order, folder)
    if output is Output.TABLE:
        columns = ("seeds", "broken", "known", "steps", "virtual hours", "faults")
        out = table("Runs with faults", *columns, right=columns[:5])
        faults = "drawn by seed" if order.faults is None else ", ".join(order.faults) or "none"
        out.add_row(
            f"{len(found):,}", f"{len(broken):,}", f"{sum(bool(f.known) for f in found):,}",
            f"{sum(f.steps for f in found):,}",
            f"{sum(f.virtual_s for f in found) / 3600:,.1f}", faults,
        )  # fmt: skip
        console().print(out, *report_tables(merge_reports(found)), sep="\n")
    else:
        emit(_summary(found, broken), output)
    return not broken


def run_script(path: Path, configuration: dict[str, Any] | None, output: Output) -> bool:
    """Run a script; whether no law was broken."""
    script = read_script(path, configuration)
    with progress(VIRTUAL_SECONDS) as update:
        found = _run_with_progress(script, configuration, update)
    if found.law:
        _print_finding(found)
    if output is not Output.TABLE:
        emit(finding_json(found), output)
    elif not found.law:
        console().print(f"No law was broken in {found.steps:,} steps, {found.virtual_s:,.0f} s.")
        for known in found.known:
            note(f"known: {known} (docs/simulator.md)")
        console().print(*report_tables(merge_reports([found])), sep="\n")
    return not found.law


def _run_with_progress(
    script: Script, configuration: dict[str, Any] | None, update: OnProgress | None
) -> Finding:
    def on_time(now_ns: int, end_ns: int) -> None:
        if update is not None:
            update(now_ns // SECOND_NS, end_ns // SECOND_NS)

    return Trial(script, configuration, is_reporting=True, on_time=on_time).run()


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
    config = ["--config", order.config] if order.config else []
    config += ["--ignore-unknown-plugins"] if order.ignores_unknown else []
    again = shlex.join(["stower", "faults", *config, "--script", str(path)])
    note(f"  {count} reproduce the failure: {again}")
    note(f"  recording of the engines' events and writes: {recording}")


def _write(script: Script, path: Path) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(script), indent=1) + b"\n")


def _findings(order: Order) -> Iterator[Finding]:
    seeds = range(order.first_seed, order.first_seed + order.seeds)
    tasks = [(seed, order) for seed in seeds]
    if order.jobs == 1:
        collect_rarely()
        yield from map(_run_one, tasks)
        return
    jobs = min(order.jobs, order.seeds)
    with multiprocessing.get_context("spawn").Pool(jobs, _begin_job) as pool:
        yield from pool.imap_unordered(_run_one, tasks, chunksize=2)


def _begin_job() -> None:
    quiet()
    collect_rarely()


def _run_one(task: tuple[int, Order]) -> Finding:
    seed, order = task
    script = _script(seed, order)
    return Trial(script, order.configuration, is_reporting=True).run()


def _script(seed: int, order: Order) -> Script:
    return script_of(seed, order.faults, order.active_ns, order.size, order.parts)


def _count_known(found: list[Finding]) -> Counter[str]:
    """Returns the number of runs by known finding."""
    return Counter(known for finding in found for known in finding.known)


def _print_finding(finding: Finding) -> None:
    note(f"seed {finding.seed}: the law of {finding.law} is broken: {finding.what}")
    note(f"  faults: {', '.join(finding.faults) or 'none'}; the last steps:")
    for line in finding.last_steps:
        note(f"  {line}")


def _summary(found: list[Finding], broken: list[Finding]) -> dict[str, Any]:
    return {
        "seeds": len(found),
        "broken": [finding_json(finding) for finding in broken],
        "known": dict(sorted(_count_known(found).items())),
        "steps": sum(finding.steps for finding in found),
        "virtualSeconds": sum(finding.virtual_s for finding in found),
        "report": report_json(merge_reports(found)),
        "digests": {str(finding.seed): finding.digest for finding in found},
    }
