"""The options and arguments of `stower simulate`."""

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
        bool, typer.Option("--timed", help="Let a trace's pods come and go at its own times.")
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
            help="No INPUT: a small cluster of its own, on which these go wrong (all: what each "
            "seed draws; '': nothing), while laws are checked.",
        ),
    ] = None
    trace: Annotated[
        str,
        typer.Option(
            metavar="openb",
            help="INPUT is this GPU trace: pods of it arrive until the GPUs are full, and the "
            "allocation rate of policies is compared.",
        ),
    ] = ""
    scenario: Annotated[
        str,
        typer.Option(
            metavar="hub",
            help="Days of a hub with users and placeholders: waits and node hours of policies are "
            "compared. INPUT is a folder of days; without one, they are drawn.",
        ),
    ] = ""
    slots: Annotated[
        int, typer.Option(min=1, max=100, help="With --scenario: users that fit on a node.")
    ] = 10
    node_groups: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --scenario: what nodes the autoscaler may add (examples/warm/nodes.yaml): "
            "room, bounds, prices, how long they boot and pull.",
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
            help="With --faults (1), --trace (10), --scenario (20): how many seeds, from --seed "
            "on, or from 1.",
        ),
    ] = None
    jobs: Annotated[
        int,
        typer.Option(min=0, help="With many seeds: processes; 0: one for each core."),
    ] = 0
    script: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="No INPUT: run this script (docs/simulator.md), written by hand or left by a "
            "failure, while laws are checked.",
        ),
    ] = None
    nodes: Annotated[
        int,
        typer.Option(
            min=0, max=20_000, help="With --faults: a cluster of so many nodes, not 2-12."
        ),
    ] = 0
    pods: Annotated[
        int,
        typer.Option(
            min=0, max=1_000_000, help="With --nodes: so many pods come and go, by day and night."
        ),
    ] = 0
    negotiate: Annotated[
        bool,
        typer.Option(
            "--negotiate", help="With --faults: drivers to agree with before pods are placed."
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
        Path, typer.Option(metavar="FOLDER", help="With --faults: where failures are kept.")
    ] = Path()
    until: Annotated[
        str, typer.Option(help="With --faults: for how long things happen, by virtual time.")
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
