"""Defines the command-line options and arguments of `stower simulate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from stower.cli.gates import FeatureGates
from stower.cli.output import Output
from stower.cli.plot import Plot
from stower.cli.recordings import RECORD_MAX, Record, RecordMax
from stower.sim.hub_policies import RULES
from stower.sim.packing_policies import POLICIES

UNTIL = "10m"


@dataclass(frozen=True)
class SimulateArguments:
    """The arguments of one `stower simulate`.

    Its four kinds of runs take different options: a trace (--trace), days of a hub (--scenario),
    runs with faults (--faults or --script), and otherwise a placement of the pods of INPUT.
    """

    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="Manifests (YAML, JSON, lists, .gz, .zst), folders of them, - for stdin, a "
            "recording, a kubeconfig, or an OpenB trace folder or its CSV files.",
        ),
    ] = None
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A KubeSchedulerConfiguration; repeat to compare. Default: kube-scheduler's.",
        ),
    ] = None
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the report.")] = (
        Output.TABLE
    )
    timed: Annotated[
        bool, typer.Option("--timed", help="Start and end a trace's pods at its own times.")
    ] = False
    seed: Annotated[int, typer.Option(help="Decides ties between equally good nodes.")] = 0
    by: Annotated[
        str, typer.Option(metavar="KEY", help="Also report per value of this node label.")
    ] = ""
    match: Annotated[
        str, typer.Option(metavar="SELECTOR", help="With --by: count pods with these labels.")
    ] = ""
    plot_file: Plot = None
    objects: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all objects as JSON lines, pods with their node."),
    ] = None
    feature_gates: FeatureGates = ""
    record: Record = None
    record_max: RecordMax = RECORD_MAX
    require_all: Annotated[
        bool, typer.Option("--require-all", help="Exit with 1 if a pod stays pending.")
    ] = False
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="all|NAME,...",
            help="Without INPUT: simulate a small cluster with these faults (all: those that each "
            "seed draws; '': none) and check the laws.",
        ),
    ] = None
    trace: Annotated[
        str,
        typer.Option(
            metavar="openb",
            help="INPUT is this GPU trace: its pods arrive until the GPUs are full, and the "
            "allocation rates of policies are compared.",
        ),
    ] = ""
    scenario: Annotated[
        str,
        typer.Option(
            metavar="hub",
            help="Simulate days of a hub with users and placeholders, and compare waits and node "
            "hours of policies. INPUT is a folder of days; without one, days are drawn.",
        ),
    ] = ""
    slots: Annotated[
        int, typer.Option(min=1, max=100, help="With --scenario: users that fit on a node.")
    ] = 10
    node_groups: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --scenario: node groups that the autoscaler may use, with room, bounds, "
            "prices, boot and pull times (examples/warm/nodes.yaml).",
        ),
    ] = None
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help=f"With --trace: {', '.join(POLICIES)}; with --scenario: {', '.join(RULES)}; "
            "repeat to compare. Default: all.",
        ),
    ] = None
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --faults (1), --trace (10), --scenario (20): number of seeds, from --seed "
            "on, or from 1.",
        ),
    ] = None
    jobs: Annotated[
        int,
        typer.Option(min=0, help="With many seeds: number of processes; 0: one per core."),
    ] = 0
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Without INPUT: run this script (docs/simulator.md), written by hand or by a "
            "failed run, and check the laws.",
        ),
    ] = None
    nodes: Annotated[
        int,
        typer.Option(
            min=0, max=20_000, help="With --faults: number of nodes; 0: 2 to 12, by the seed."
        ),
    ] = 0
    pods: Annotated[
        int,
        typer.Option(
            min=0,
            max=1_000_000,
            help="With --nodes: number of pods, which arrive by day and night.",
        ),
    ] = 0
    negotiate: Annotated[
        bool,
        typer.Option(
            "--negotiate",
            help="With --faults: drivers negotiate devices before placement.",
        ),
    ] = False
    groups: Annotated[
        bool,
        typer.Option("--groups", help="With --faults: trees of pod groups, placed as a whole."),
    ] = False
    vms: Annotated[
        bool,
        typer.Option("--vms", help="With --faults: VMs that grow, shrink and move."),
    ] = False
    warm: Annotated[
        bool,
        typer.Option("--warm", help="With --faults: users of a warm pool, and its placeholders."),
    ] = False
    failures: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="With --faults: folder for scripts and recordings of failures."
        ),
    ] = Path()
    until: Annotated[
        str, typer.Option(help="With --faults: virtual time during which events occur.")
    ] = UNTIL

    def placement_options(self) -> dict[str, object]:
        """Returns the options that only a placement has, with values that are true if given."""
        return {
            "--timed": self.timed, "--by": self.by, "--match": self.match,
            "--record": self.record, "--objects": self.objects,
            "--feature-gates": self.feature_gates, "--require-all": self.require_all,
        }  # fmt: skip

    def fault_options(self) -> dict[str, object]:
        """Returns the options that only --faults has, with values that are true if given."""
        return {
            "--nodes": self.nodes, "--pods": self.pods, "--until": self.until != UNTIL,
            "--failures": self.failures != Path(), "--negotiate": self.negotiate,
            "--groups": self.groups, "--vms": self.vms, "--warm": self.warm,
        }  # fmt: skip

    def many_runs_options(self) -> dict[str, object]:
        """Returns the options of several runs with faults, with values that are true if given."""
        return {"--seeds": (self.seeds or 1) > 1, "--jobs": self.jobs, **self.fault_options()}
