"""stower hub: compares placement policies on days of a JupyterHub."""

import os
from pathlib import Path
from typing import Annotated

import typer

from stower.cli.hub_runs import (
    SEEDS,
    Order,
    cases_of,
    read_folder,
    read_groups,
    read_rules,
    run_order,
)
from stower.cli.output import Output, bad_input
from stower.cli.plot import Plot, PlotError, check_plot
from stower.cli.seeds import check_seeds
from stower.sim.hub_policies import RULES

NAME = "hub"
WATCHED = True
EPILOG = """
Examples:

  stower hub --seeds 3

  stower hub days/ --policy z2jh --policy stower --plot waits.svg

  stower hub --policy stower --dead 10%

  stower hub --policy stower --hubs 2

  stower hub --node-groups examples/warm/nodes.yaml --slots 20 -o json

Users start servers and leave, placeholders keep room warm, and an autoscaler adds and removes
nodes. Ordinary days and days with lectures are run under each policy, each with the same users.
A folder of days has ordinary_users.csv, lectures_users.csv, nodes.csv and lectures_timetable.csv
(or .gz).

The exit code is 1 if a law is broken.
"""


def run(
    days: Annotated[
        list[str] | None,
        typer.Argument(metavar="DAYS", help="A folder of days. Default: days drawn by seed."),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"{', '.join(RULES)}; repeat to compare. Default: all."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, one day of each kind.")] = (
        SEEDS
    ),
    slots: Annotated[int, typer.Option(min=1, max=100, help="Users that fit on a node.")] = 10,
    node_groups: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Node groups that the autoscaler may use, with room, bounds, prices, boot and "
            "pull times (examples/warm/nodes.yaml).",
        ),
    ] = None,
    late: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="Only days on which so many nodes pull half an hour late."
        ),
    ] = "",
    dead: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="Only days on which so many nodes never have their images."
        ),
    ] = "",
    hubs: Annotated[
        int,
        typer.Option(
            min=1, max=20, help="Only days on which so many hubs share nodes, users, placeholders."
        ),
    ] = 1,
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0: one per core.")] = 0,
    plot_file: Plot = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Compare waits and node hours of placement policies on simulated days of a JupyterHub."""
    check_seeds(seed, seeds)
    check_plot(plot_file)
    rules, groups = read_rules(policy or []), read_groups(node_groups)
    cases = cases_of(_share("--late", late), _share("--dead", dead), hubs)
    order = Order(rules, seed, seeds, jobs or os.cpu_count() or 1, slots, groups, cases)
    found = read_folder(days or [], order)
    try:
        run_order(order, found, output, plot_file)
    except PlotError as error:
        raise bad_input(str(error)) from None


def _share(option: str, text: str) -> float:
    """A share of `10%` or `10`, 0 where it is not given. Ends the program for what is none."""
    if not text:
        return 0.0
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise bad_input(f"{option}: got {text!r}, want a percentage such as 10%")
    return percent / 100
