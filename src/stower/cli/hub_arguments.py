"""Defines the command-line options and arguments of `stower hub`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from stower.cli.hub_runs import OWN_SEEDS, SEEDS
from stower.cli.output import Output
from stower.cli.own_hub_runs import COUNT_MAX, GOAL
from stower.cli.plot import Plot
from stower.cli.recordings import RECORD_MAX, Record, RecordMax
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.sim.hub_policies import RULES


@dataclass(frozen=True)
class HubArguments:
    """The arguments of one `stower hub`."""

    days: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DAYS",
            help="A folder of days, or with --pool a file. Default: days drawn by seed.",
        ),
    ] = None
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"{', '.join(RULES)}; repeat to compare. Default: all."),
    ] = None
    seed: Annotated[int, typer.Option(help="The first seed.")] = 1
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"Number of seeds, one day of each kind. Default: {SEEDS}, or {OWN_SEEDS} of a "
            "hub's own day, which differ in how long nodes take.",
        ),
    ] = None
    slots: Annotated[int, typer.Option(min=1, max=100, help="Users that fit on a node.")] = 10
    node_groups: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Node groups that the autoscaler may use, with room, bounds, prices, boot and "
            "pull times (examples/warm/nodes.yaml).",
        ),
    ] = None
    pool: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A hub's own WarmPool; DAYS is a file of its users."),
    ] = None
    user: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --pool: a pod that users are like."),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --pool: Stower's KubeSchedulerConfiguration. Default: as z2jh's.",
        ),
    ] = None
    ignore_unknown_plugins: IgnoreUnknownPlugins = False
    placeholders: Annotated[
        list[int] | None,
        typer.Option(
            metavar="NUMBER",
            min=0,
            max=COUNT_MAX,
            help="With --pool: so many placeholders; repeat to compare.",
        ),
    ] = None
    find: Annotated[
        str,
        typer.Option(
            metavar="WHAT", help="With --pool: placeholders: the least number that meets --goal."
        ),
    ] = ""
    goal: Annotated[
        str, typer.Option(help="With --find: how many users wait for how long at most.")
    ] = GOAL
    late: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="Only days on which so many nodes pull half an hour late."
        ),
    ] = ""
    dead: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="Only days on which so many nodes never have their images."
        ),
    ] = ""
    hubs: Annotated[
        int,
        typer.Option(
            min=1, max=20, help="Only days on which so many hubs share nodes, users, placeholders."
        ),
    ] = 1
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0: one per core.")] = 0
    record: Record = None
    record_max: RecordMax = RECORD_MAX
    plot_file: Plot = None
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE
