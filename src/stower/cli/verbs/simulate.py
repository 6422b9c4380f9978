"""stower simulate: run the scheduler over files and report what comes of it."""

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from stower.cli.fault_runs import check_seeds, read_order, run_order, run_script
from stower.cli.gates import FeatureGates, features_of
from stower.cli.hub_runs import SCENARIOS, read_folder, read_groups, read_rules
from stower.cli.hub_runs import SEEDS as HUB_SEEDS
from stower.cli.hub_runs import Order as HubOrder
from stower.cli.hub_runs import run_order as run_hub
from stower.cli.inputs import InputError, Loaded, left_out, load, read_yaml_document
from stower.cli.output import (
    Output,
    amount,
    bad_input,
    console,
    emit,
    failed,
    note,
    progress,
    table,
)
from stower.cli.output_files import check_folder, check_target
from stower.cli.packing_runs import SEEDS, Order, read_trace
from stower.cli.packing_runs import read_policies as read_trace_policies
from stower.cli.packing_runs import run_order as run_trace
from stower.cli.plot import Plot, PlotError, check_plot, plot
from stower.cli.plugins import plugins_of
from stower.cli.recordings import RECORD_MAX, Record, RecordMax, recorder_of
from stower.framework.configuration import read_configuration
from stower.model.errors import InvalidObject
from stower.model.selectors import parse_selector
from stower.sim.hub_policies import RULES
from stower.sim.packing_policies import POLICIES
from stower.sim.simulation import Options, Report, simulate

NAME = "simulate"
WATCHED = True
UNTIL = "10m"
EPILOG = """
Examples:

  stower simulate cluster.yaml

  kubectl get nodes,pods -A -o json | stower simulate -

  stower simulate openb/ --config spread.yaml --config pack.yaml

  stower simulate openb/ --timed --plot use.svg

  stower simulate cluster/ --by topology.kubernetes.io/zone --match app=web

  stower simulate --faults all --seeds 1000

  stower simulate --faults driver-crashes,timeouts --negotiate --seeds 100
  stower simulate --faults all --groups --seeds 100

  stower simulate --faults all --vms --seeds 100

  stower simulate --faults crashes,cuts --seed 7 --until 24h

  stower simulate --faults all --nodes 1000 --pods 50000 --until 24h

  stower simulate --trace openb openb/ --policy random --policy best-fit

  stower simulate --scenario hub --seeds 3

  stower simulate --scenario hub days/ --policy z2jh --policy stower --plot waits.svg

  stower simulate --trace openb node_list.csv pod_list.csv --seeds 3 --plot gpus.svg -o json

Drivers are not simulated: pods that need devices which are negotiated wait for them.

With --faults the exit code is 1 where a law is broken; the seed and the last steps are told on
standard error, and a small script that still breaks it is written, with a recording of its run.

With --trace, GPUs are devices that pods share; what is told is how much of them each policy has
allocated by the time that pods have asked for 90, 100 and 130 % of them: means over the seeds.
"""


def run(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Manifests (YAML, JSON, lists, .gz, .zst), folders of them, - for stdin, a "
            "recording, a kubeconfig, or an OpenB trace folder or its CSV files.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A KubeSchedulerConfiguration; repeat to compare. Default: kube-scheduler's.",
        ),
    ] = None,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How to print the report.")
    ] = Output.TABLE,
    timed: Annotated[
        bool, typer.Option("--timed", help="Let a trace's pods come and go at its own times.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides ties between equally good nodes.")] = 0,
    by: Annotated[
        str, typer.Option(metavar="KEY", help="Also report per value of this node label.")
    ] = "",
    match: Annotated[
        str, typer.Option(metavar="SELECTOR", help="With --by: count pods with these labels.")
    ] = "",
    plot_file: Plot = None,
    objects: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all objects as JSON lines, pods with their node."),
    ] = None,
    feature_gates: FeatureGates = "",
    record: Record = None,
    record_max: RecordMax = RECORD_MAX,
    require_all: Annotated[
        bool, typer.Option("--require-all", help="Exit with 1 if a pod stays pending.")
    ] = False,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="all|NAME,...",
            help="No INPUT: a small cluster of its own, on which these go wrong (all: what each "
            "seed draws; '': nothing), while laws are checked.",
        ),
    ] = None,
    trace: Annotated[
        str,
        typer.Option(
            metavar="openb",
            help="INPUT is this GPU trace: pods of it arrive until the GPUs are full, and the "
            "allocation rate of policies is compared.",
        ),
    ] = "",
    scenario: Annotated[
        str,
        typer.Option(
            metavar="hub",
            help="Days of a hub with users and placeholders: waits and node hours of policies are "
            "compared. INPUT is a folder of days; without one, they are drawn.",
        ),
    ] = "",
    slots: Annotated[
        int, typer.Option(min=1, max=100, help="With --scenario: users that fit on a node.")
    ] = 10,
    node_groups: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --scenario: what nodes the autoscaler may add (examples/warm/nodes.yaml): "
            "room, bounds, prices, how long they boot and pull.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help=f"With --trace: {', '.join(POLICIES)}; with --scenario: {', '.join(RULES)}; "
            "repeat to compare. Default: all.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --faults (1), --trace (10), --scenario (20): how many seeds, from --seed "
            "on, or from 1.",
        ),
    ] = None,
    jobs: Annotated[
        int,
        typer.Option(min=0, help="With many seeds: processes; 0: one for each core."),
    ] = 0,
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="No INPUT: run this script (docs/simulator.md), written by hand or left by a "
            "failure, while laws are checked.",
        ),
    ] = None,
    nodes: Annotated[
        int,
        typer.Option(
            min=0, max=20_000, help="With --faults: a cluster of so many nodes, not 2-12."
        ),
    ] = 0,
    pods: Annotated[
        int,
        typer.Option(
            min=0, max=1_000_000, help="With --nodes: so many pods come and go, by day and night."
        ),
    ] = 0,
    negotiate: Annotated[
        bool,
        typer.Option(
            "--negotiate", help="With --faults: drivers to agree with before pods are placed."
        ),
    ] = False,
    groups: Annotated[
        bool,
        typer.Option("--groups", help="With --faults: trees of pod groups, placed as a whole."),
    ] = False,
    vms: Annotated[
        bool,
        typer.Option("--vms", help="With --faults: VMs that grow, shrink and move."),
    ] = False,
    warm: Annotated[
        bool,
        typer.Option("--warm", help="With --faults: users of a warm pool, and its placeholders."),
    ] = False,
    failures: Annotated[
        Path, typer.Option(metavar="FOLDER", help="With --faults: where failures are kept.")
    ] = Path(),
    until: Annotated[
        str, typer.Option(help="With --faults: for how long things happen, by virtual time.")
    ] = UNTIL,
) -> None:
    """Place the pods of manifests or of a trace on their nodes, in process, and report.

    Pods that already have a node keep it. Pods of manifests are all pending at the start and go by
    priority; pods of a trace come one after another, and with --timed at their own times.
    """
    own: dict[str, object] = {
        "--timed": timed, "--by": by, "--match": match, "--record": record, "--objects": objects,
        "--feature-gates": feature_gates, "--require-all": require_all,
    }  # fmt: skip
    elsewhere = {**own, "--plot": plot_file}
    of_faults: dict[str, object] = {
        "--nodes": nodes, "--pods": pods, "--until": until != UNTIL,
        "--failures": failures != Path(), "--negotiate": negotiate, "--groups": groups,
        "--vms": vms, "--warm": warm,
    }  # fmt: skip
    many = {"--seeds": (seeds or 1) > 1, "--jobs": jobs, **of_faults}
    if trace:
        without = {"--faults": faults is not None, "--script": script, "--config": config}
        _refuse({**own, **of_faults, **without}, "does not go with --trace")
        _run_trace(trace, inputs or [], policy or [], seed, seeds, jobs, output, plot_file)
        return
    if scenario:
        without = {"--faults": faults is not None, "--script": script, "--config": config}
        _refuse({**own, **of_faults, **without}, "does not go with --scenario")
        if scenario not in SCENARIOS:
            raise bad_input(f"--scenario: got {scenario!r}, want one of {', '.join(SCENARIOS)}")
        _run_hub(
            inputs or [], policy or [], seed, seeds, jobs, slots, node_groups, output, plot_file
        )
        return
    _refuse({"--policy": policy}, "goes with --trace or --scenario")
    _refuse({"--node-groups": node_groups}, "goes with --scenario")
    if faults is not None or script is not None:
        if inputs or (faults is not None and script is not None):
            raise bad_input("--faults and --script have clusters of their own: want no INPUT")
        _refuse(elsewhere, "goes with INPUT, not with --faults or --script")
        document = _for_faults(config or [])
        if script is not None:
            _refuse({**many, "--seed": seed}, "goes with --faults")
            holds = run_script(script, document, output)
        else:
            check_folder("--failures", failures)
            order = read_order(
                faults or "",
                seed,
                seeds or 1,
                jobs,
                until,
                (nodes, pods),
                negotiate,
                groups,
                vms,
                warm,
                document,
            )
            holds = run_order(order, output, failures)
        if not holds:
            raise typer.Exit(1)
        return
    _refuse(many, "goes with --faults")
    if not inputs:
        raise typer.BadParameter("want INPUT, --faults or --script", param_hint="INPUT")
    options = _options(by, match, timed, seed, feature_gates)
    policies = read_policies(config or [])
    if record is not None and len(policies) > 1:
        raise bad_input("--record: a recording is of one configuration, got several --config")
    check_plot(plot_file)
    check_target("--record", record)
    check_target("--objects", objects)
    try:
        loaded = load(inputs)
        if loaded.built is not None and not config:
            policies = [("recorded", loaded.built.configuration)]
        if loaded.built is not None and objects is not None:
            raise bad_input("--objects: a recording does not hold whole objects")
        reports = []
        for name, document in policies:
            recorder = recorder_of(record, record_max, document, seed, options.features)
            with progress(f"simulate {name}") as update:
                with_plugins = msgspec.structs.replace(options, plugins=plugins_of(document))
                reports.append(
                    simulate(loaded.workload, name, document, with_plugins, update, recorder)
                )
            if recorder is not None:
                recorder.close()
                if recorder.cut:
                    raise failed(f"--record {record}: it is cut short: {recorder.cut}")
        if plot_file is not None:
            plot(reports, plot_file)
    except (InputError, PlotError) as error:
        raise bad_input(str(error)) from None
    if objects is not None:
        _write_objects(loaded, reports[-1], objects)
    for text in left_out(loaded.skipped):
        note(text)
    if output is Output.TABLE:
        print_reports(reports)
    else:
        emit({"reports": [summary(r) for r in reports], "skipped": loaded.skipped}, output)
    if require_all and any(report.pending for report in reports):
        raise typer.Exit(1)


def _run_trace(
    name: str,
    inputs: list[str],
    policies: list[str],
    seed: int,
    seeds: int | None,
    jobs: int,
    output: Output,
    plot_file: Path | None,
) -> None:
    """--trace: everything is checked before anything runs."""
    seeds = seeds or SEEDS
    check_seeds(seed, seeds)
    check_plot(plot_file)
    order = Order(read_trace_policies(policies), seed, seeds, jobs or os.cpu_count() or 1)
    try:
        run_trace(order, read_trace(name, inputs), output, plot_file)
    except PlotError as error:
        raise bad_input(str(error)) from None


def _run_hub(
    inputs: list[str],
    rules: list[str],
    seed: int,
    seeds: int | None,
    jobs: int,
    slots: int,
    node_groups: Path | None,
    output: Output,
    plot_file: Path | None,
) -> None:
    """--scenario hub: everything is checked before anything runs."""
    seed, seeds = seed or 1, seeds or HUB_SEEDS
    check_seeds(seed, seeds)
    check_plot(plot_file)
    jobs = jobs or os.cpu_count() or 1
    order = HubOrder(read_rules(rules), seed, seeds, jobs, slots, read_groups(node_groups))
    try:
        run_hub(order, read_folder(inputs, order), output, plot_file)
    except PlotError as error:
        raise bad_input(str(error)) from None


def _refuse(given: dict[str, object], why: str) -> None:
    """Options that would have no effect."""
    for option, value in given.items():
        if value:
            raise bad_input(f"{option}: it {why}")


def _for_faults(paths: list[str]) -> dict[str, Any] | None:
    """The one configuration, of what can take part in runs with faults."""
    if len(paths) > 1:
        raise bad_input("--config: runs with faults are of one configuration")
    ((_, document),) = read_policies(paths)
    if read_configuration(document).extenders or plugins_of(document):
        raise bad_input(
            "--config: extenders and plugins of others have no part in runs with faults"
        )
    return document


def _options(by: str, match: str, timed: bool, seed: int, feature_gates: str) -> Options:
    if match and not by:
        raise bad_input("--match SELECTOR needs --by KEY: it says which pods to count per value")
    try:
        selector = parse_selector(match) if match else None
    except ValueError as error:
        raise bad_input(f"--match: {error}") from None
    check_seeds(seed)
    features = msgspec.structs.replace(features_of(feature_gates), drivers=False)
    return Options(seed=seed, timed=timed, by=by, match=selector, features=features)


def read_policies(paths: list[str]) -> list[tuple[str, dict[str, Any] | None]]:
    """Name and decoded document of each policy, checked before anything runs."""
    if not paths:
        return [("default", None)]
    policies: list[tuple[str, dict[str, Any] | None]] = []
    for path in paths:
        try:
            document = read_yaml_document(path)
            check_configuration(document)
        except InputError as error:
            raise bad_input(str(error)) from None
        except InvalidObject as error:
            raise bad_input(f"{path}: {error}") from None
        if paths.count(path) > 1:
            raise bad_input(f"--config {path}: given twice")
        name = Path(path).stem
        taken = [other for other, _ in policies]
        policies.append((name if name not in taken else path, document))
    return policies


def check_configuration(document: dict[str, Any]) -> None:
    """Raise InvalidObject for a configuration that cannot be run."""
    from stower.assembly import build_engine

    build_engine(document, plugins=plugins_of(document))


def _write_objects(loaded: Loaded, report: Report, path: Path) -> None:
    try:
        with path.open("wb") as file:
            file.writelines(d + b"\n" for d in loaded.with_assignments(report.assignments))
    except OSError as error:
        raise bad_input(f"--objects {path}: {error.strerror}") from None


def summary(report: Report) -> dict[str, Any]:
    """A report for programs: figures in base units, without what only plots need."""
    fields: dict[str, Any] = msgspec.to_builtins(report)
    for name in ("curve", "node_use"):
        del fields[name]
    for use, entry in zip(report.use, fields["use"], strict=True):
        entry["percent"] = round(use.percent, 3)
    return {_camel(name): value for name, value in fields.items()}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def print_reports(reports: list[Report]) -> None:
    """Reports as tables: one column a policy where several are compared."""
    out = console()
    names = [report.policy for report in reports]
    figures = table("Result", "", *names, right=tuple(names))
    for label, values in _figures(reports):
        figures.add_row(label, *values)
    out.print(figures)
    out.print()
    use = table(
        "Use of allocatable", "resource", "allocatable", *names, right=("allocatable", *names)
    )
    for entry in reports[0].use:
        shares = [_share(report, entry.resource) for report in reports]
        use.add_row(entry.resource, amount(entry.resource, entry.allocatable), *shares)
    out.print(use)
    for report in reports:
        if report.domains:
            out.print()
            domains = table(
                f"By domain: {report.policy}", "value", "nodes", "pods", "cpu %",
                right=("nodes", "pods", "cpu %"),
            )  # fmt: skip
            for domain in report.domains:
                domains.add_row(
                    domain.value, str(domain.nodes), str(domain.pods), f"{domain.cpu_percent:.1f}"
                )
            out.print(domains)
        if report.waiting:
            out.print()
            _print_waiting(report)


def _figures(reports: list[Report]) -> list[tuple[str, list[str]]]:
    rows = [
        ("pods", [f"{r.pods:,}" for r in reports]),
        ("placed", [f"{r.placed:,}" for r in reports]),
        ("pending", [f"{r.pending:,}" for r in reports]),
        ("nodes", [f"{r.nodes:,}" for r in reports]),
        ("empty nodes", [f"{r.empty_nodes:,}" for r in reports]),
        ("attempts", [f"{r.attempts:,}" for r in reports]),
        ("pods a second", [f"{r.pods_per_second:,.0f}" for r in reports]),
    ]
    if any(r.ended for r in reports):
        rows.insert(3, ("ended", [f"{r.ended:,}" for r in reports]))
    return rows


def _share(report: Report, resource: str) -> str:
    found = next((use for use in report.use if use.resource == resource), None)
    return f"{found.percent:.1f} %" if found is not None and found.allocatable else "-"


# Messages printed in full; a cluster can have one for each of its pods.
MESSAGES_MAX = 10


def _print_waiting(report: Report) -> None:
    out = console()
    reasons = table(f"Pending pods by reason: {report.policy}", "pods", "reason", right=("pods",))
    for reason, count in report.refusals.items():
        reasons.add_row(f"{count:,}", reason)
    for entry in report.waiting:
        if not entry.message.startswith("0/"):
            reasons.add_row(f"{entry.pods:,}", entry.message)
    out.print(reasons)
    out.print()
    waiting = table("Messages", "pods", "message", "for example", right=("pods",))
    for entry in report.waiting[:MESSAGES_MAX]:
        waiting.add_row(f"{entry.pods:,}", entry.message, entry.example)
    out.print(waiting)
    if len(report.waiting) > MESSAGES_MAX:
        out.print(f"and {len(report.waiting) - MESSAGES_MAX} more (all with --output json)")
