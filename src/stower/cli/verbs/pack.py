"""stower pack: compares packing policies on a GPU trace."""

import os
from pathlib import Path
from typing import Annotated

import typer

from stower.cli.output import Output, bad_input
from stower.cli.output_files import check_folder
from stower.cli.packing_runs import (
    SEEDS,
    Order,
    read_policies,
    read_trace,
    run_order,
    workload_name,
)
from stower.cli.plot import Plot, PlotError, check_plot
from stower.cli.seeds import check_seeds
from stower.sim.packing_policies import POLICIES

NAME = "pack"
WATCHED = True
EPILOG = """
Examples:

  stower pack openb/

  stower pack openb/ --policy random --policy best-fit --seeds 3

  stower pack node_list.csv pod_list.csv --plot gpus.svg -o json

  stower pack openb/ --csv results/

The pods of the trace arrive in an order that the seed draws, until they have requested 130 % of
the GPUs; they share GPUs as devices. The report shows which share of the GPUs each policy has
allocated when the pods so far have requested 90, 100 and 130 % of them, and which share of the free
GPUs is fragments, which typical pods of the trace cannot use, at 80 and 90 %: means over the seeds.
"""


def run(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT",
            help="The folder of an OpenB trace, or its node list and pod list (CSV, .gz).",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help=f"{', '.join(POLICIES)}; repeat to compare. Default: all."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds.")] = SEEDS,
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0: one per core.")] = 0,
    csv: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the curves of each seed, in the columns of the published results of FGD, "
            "and where each pod went, to CSV files in this folder.",
        ),
    ] = None,
    plot_file: Plot = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Compare which share of the GPUs of a trace packing policies allocate."""
    check_seeds(seed, seeds)
    check_plot(plot_file)
    policies = read_policies(policy or [])
    if csv is not None:
        check_folder("--csv", csv)
    trace = read_trace(inputs or [])
    workload = workload_name(inputs or [])
    order = Order(policies, seed, seeds, jobs or os.cpu_count() or 1, workload, csv)
    try:
        run_order(order, trace, output, plot_file)
    except PlotError as error:
        raise bad_input(str(error)) from None
