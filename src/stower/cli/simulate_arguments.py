"""Defines the command-line options and arguments of `stower simulate`.

OldOptions are those of the runs that are verbs of their own now; old_spellings.py runs them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from stower.cli.fault_arguments import UNTIL
from stower.cli.gates import FeatureGates
from stower.cli.output import Output
from stower.cli.own_hub_runs import GOAL
from stower.cli.plot import Plot
from stower.cli.recordings import RECORD_MAX, Record, RecordMax
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins


def _hidden(**limits: Any) -> Any:
    """Returns an option that help and completion do not list."""
    return typer.Option(hidden=True, **limits)


@dataclass(frozen=True)
class OldOptions:
    """Options that `stower simulate` had for runs with faults, GPU traces and days of a hub."""

    faults: Annotated[str | None, _hidden()] = None
    script: Annotated[Path | None, _hidden()] = None
    seeds: Annotated[int | None, _hidden(min=1)] = None
    jobs: Annotated[int, _hidden(min=0)] = 0
    until: Annotated[str, _hidden()] = UNTIL
    nodes: Annotated[int, _hidden(min=0, max=20_000)] = 0
    pods: Annotated[int, _hidden(min=0, max=1_000_000)] = 0
    negotiate: Annotated[bool, typer.Option("--negotiate", hidden=True)] = False
    groups: Annotated[bool, typer.Option("--groups", hidden=True)] = False
    vms: Annotated[bool, typer.Option("--vms", hidden=True)] = False
    warm: Annotated[bool, typer.Option("--warm", hidden=True)] = False
    failures: Annotated[Path, _hidden()] = Path()
    trace: Annotated[str, _hidden()] = ""
    scenario: Annotated[str, _hidden()] = ""
    policy: Annotated[list[str] | None, _hidden()] = None
    csv: Annotated[Path | None, _hidden()] = None
    slots: Annotated[int, _hidden(min=1, max=100)] = 10
    node_groups: Annotated[Path | None, _hidden()] = None
    pool: Annotated[Path | None, _hidden()] = None
    user: Annotated[Path | None, _hidden()] = None
    placeholders: Annotated[list[int] | None, _hidden(min=0)] = None
    find: Annotated[str, _hidden()] = ""
    goal: Annotated[str, _hidden()] = GOAL
    late: Annotated[str, _hidden()] = ""
    dead: Annotated[str, _hidden()] = ""
    hubs: Annotated[int, _hidden(min=1, max=20)] = 1

    def hub_options(self) -> dict[str, object]:
        """Returns the options that only --scenario hub has, with values that are true if given."""
        return {
            "--pool": self.pool, "--user": self.user, "--placeholders": self.placeholders,
            "--find": self.find, "--goal": self.goal != GOAL, "--late": self.late,
            "--dead": self.dead, "--hubs": self.hubs > 1,
        }  # fmt: skip

    def part_options(self) -> dict[str, object]:
        """Returns the options that only --faults has, with values that are true if given."""
        return {
            "--nodes": self.nodes, "--pods": self.pods, "--until": self.until != UNTIL,
            "--failures": self.failures != Path(), "--negotiate": self.negotiate,
            "--groups": self.groups, "--vms": self.vms, "--warm": self.warm,
        }  # fmt: skip

    def many_runs_options(self) -> dict[str, object]:
        """Returns the options of several runs with faults, with values that are true if given."""
        return {"--seeds": (self.seeds or 1) > 1, "--jobs": self.jobs, **self.part_options()}


@dataclass(frozen=True)
class SimulateArguments(OldOptions):
    """The arguments of one `stower simulate`."""

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
    ignore_unknown_plugins: IgnoreUnknownPlugins = False
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
        typer.Option(
            metavar="FILE",
            help="Write all objects as JSON lines: pods with nodes, claims with devices.",
        ),
    ] = None
    feature_gates: FeatureGates = ""
    record: Record = None
    record_max: RecordMax = RECORD_MAX
    require_all: Annotated[
        bool, typer.Option("--require-all", help="Exit with 1 if a pod stays pending.")
    ] = False

    def placement_options(self) -> dict[str, object]:
        """Returns the options that only a placement has, with values that are true if given."""
        return {
            "--timed": self.timed, "--by": self.by, "--match": self.match,
            "--record": self.record, "--objects": self.objects,
            "--feature-gates": self.feature_gates, "--require-all": self.require_all,
        }  # fmt: skip
