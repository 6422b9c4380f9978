"""Runs with faults, many seeds at once, and what is said of them."""

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stower.cli.inputs import InputError, check_pod_amounts, read_yaml_document
from stower.cli.output import Output, bad_input, console, emit, note, progress, table
from stower.engine.limits import Limits
from stower.framework.plugin import Features
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod
from stower.model.raw import invalid, without_nulls
from stower.model.times import SECOND_NS, duration_ns
from stower.record.recorder import Built, Recorder
from stower.sim.faults import FAULT_BY_NAME
from stower.sim.load import Size
from stower.sim.script import HAPPENINGS_MAX, AddPod, Script
from stower.sim.shrink import shrunk
from stower.sim.trial import Finding, Trial, script_of

ALL = "all"
FAILURES_MAX = 5
CYCLES = Limits().cycles_per_step_max
ACTIVE_MS_MAX = 366 * 86_400_000


class Order(msgspec.Struct, frozen=True):
    """What to run. `faults` None: each seed draws its own mix."""

    first_seed: int
    seeds: int
    jobs: int
    faults: tuple[str, ...] | None
    active_ns: int
    size: Size | None = None


def check_seeds(first: int, count: int = 1) -> None:
    """Refuse what no engine can be seeded with."""
    if not -(2**63) <= first <= 2**63 - count:
        raise bad_input(f"--seed: got {first}, want a 64-bit number")


def read_order(
    faults: str, seed: int, seeds: int, jobs: int, until: str, nodes: int, pods: int
) -> Order:
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
    if bool(nodes) != bool(pods):
        raise bad_input("--nodes and --pods: want both or none")
    size = Size(nodes, pods) if nodes else None
    return Order(seed, seeds, jobs or os.cpu_count() or 1, names, active_ns, size)


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
        _tell(finding)
        script = script_of(finding.seed, order.faults, order.active_ns, order.size)
        with progress("making it smaller") as update:
            _keep(shrunk(script, finding.law), finding.law, folder)
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


def run_script(path: Path, output: Output) -> bool:
    """Run a script; whether no law was broken."""
    found = Trial(read_script(path)).run()
    if found.law:
        _tell(found)
    if output is not Output.TABLE:
        emit(found, output)
    elif not found.law:
        console().print(f"No law was broken in {found.steps:,} steps, {found.virtual_s:,.0f} s.")
    return not found.law


def read_script(path: Path) -> Script:
    """A script of a file. Ends the program where it is none."""
    try:
        document = without_nulls(read_yaml_document(str(path)))
    except InputError as error:
        raise bad_input(str(error)) from None
    try:
        try:
            script = msgspec.convert(document, Script)
        except msgspec.ValidationError as error:
            raise invalid(error, document) from None
        _check(script)
    except InvalidObject as error:
        raise bad_input(f"{path}: {error}") from None
    return script


def _check(script: Script) -> None:
    """What the types do not say. Raises InvalidObject."""
    check_seeds(script.seed)
    if not 0 < script.active_ms <= ACTIVE_MS_MAX:
        raise InvalidObject("activeMs", script.active_ms, f"1 to {ACTIVE_MS_MAX}")
    if len(script.happenings) > HAPPENINGS_MAX:
        raise InvalidObject("happenings", len(script.happenings), f"at most {HAPPENINGS_MAX}")
    for i, name in enumerate(script.faults):
        if name not in FAULT_BY_NAME:
            raise InvalidObject(f"faults[{i}]", name, f"one of {', '.join(FAULT_BY_NAME)}")
    names = [template.name for template in script.templates]
    for i, template in enumerate(script.templates):
        if names.index(template.name) != i:
            raise InvalidObject(f"templates[{i}].name", template.name, "a name of its own")
        pod = {"metadata": {}, "spec": template.spec}
        try:
            try:
                check_pod_amounts(msgspec.convert(pod, Pod))
            except msgspec.ValidationError as error:
                raise invalid(error, pod) from None
        except InvalidObject as error:
            raise InvalidObject(f"templates[{i}].{error.path}", error.got, error.want) from None
    for i, happening in enumerate(script.happenings):
        path = f"happenings[{i}]"
        if not 0 <= happening.at_ms <= ACTIVE_MS_MAX:
            raise InvalidObject(f"{path}.atMs", happening.at_ms, f"0 to {ACTIVE_MS_MAX}")
        if isinstance(happening, AddPod) and happening.template not in names:
            want = "the name of one of the templates"
            raise InvalidObject(f"{path}.template", happening.template, want)


def _keep(script: Script, law: str, folder: Path) -> None:
    """The small script, and a recording of it, as files."""
    stem = folder / f"stower-{script.seed}-{law}"
    recording = stem.with_name(f"{stem.name}.ndjson.zst")
    path = stem.with_name(f"{stem.name}.script.json")
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(script), indent=1) + b"\n")
        recorder = Recorder(recording, Built(None, script.seed, CYCLES, Features()))
    except OSError as error:
        note(f"  what happened could not be kept: {error.strerror or error}")
        return
    Trial(script, recording=recorder).run()
    recorder.close()
    faults = f"{len(script.faults)} faults and " if script.faults else ""
    note(f"  {faults}{len(script.happenings)} happenings do it: stower simulate --script {path}")
    note(f"  what the engines were told and wrote: {recording}")


def _findings(order: Order) -> Iterator[Finding]:
    seeds = range(order.first_seed, order.first_seed + order.seeds)
    tasks = [(seed, order.faults, order.active_ns, order.size) for seed in seeds]
    if order.jobs == 1 or order.seeds == 1:
        yield from map(_one, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(min(order.jobs, order.seeds)) as pool:
        yield from pool.imap_unordered(_one, tasks, chunksize=4)


def _one(task: tuple[int, tuple[str, ...] | None, int, Size | None]) -> Finding:
    return Trial(script_of(*task)).run()


def _tell(finding: Finding) -> None:
    note(f"seed {finding.seed}: the law of {finding.law} is broken {finding.what}")
    note(f"  with {', '.join(finding.faults) or 'no faults'}; the last steps:")
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
