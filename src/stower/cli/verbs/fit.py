"""stower fit: counts how many copies of a pod fit on a cluster, and names what runs out first."""

from typing import Annotated

import typer

from stower.cli.cluster_inputs import Inputs, cluster_of
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.configuration_files import InputError
from stower.cli.engine_inputs import Config, engine_of
from stower.cli.inputs import load
from stower.cli.output import Output, bad_input, console, emit, progress, table
from stower.sim.capacity import Fit, fit

NAME = "fit"
WATCHED = True
EPILOG = """
Examples:

  stower fit pod.yaml

  kubectl get nodes,pods -A -o json | stower fit pod.yaml -

  stower fit pod.yaml cluster.yaml --most 500 --output json

Pending pods of the cluster are placed first. No pod is preempted. Drivers are not simulated: a pod
whose devices are negotiated does not fit. The exit code is 1 if no copy fits.
"""
NODES_SHOWN = 10


def run(
    pod: Annotated[str, typer.Argument(metavar="POD", help="Manifest of one pod.")],
    inputs: Inputs = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    most: Annotated[int, typer.Option(min=1, help="Maximum number of copies to try.")] = 10_000,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show how many copies of a pod fit, and what runs out first."""
    cluster = cluster_of(inputs, kubeconfig, context, state)
    try:
        pods = load([pod], beside=cluster).workload
        given = [*(arrival.pod for arrival in pods.arrivals), *pods.placed]
        if len(given) != 1:
            raise bad_input(f"{pod}: got {len(given)} pods, want one")
    except InputError as error:
        raise bad_input(str(error)) from None
    engine = engine_of(config, cluster.built, drivers=False)
    with progress("fit"):
        found = fit(cluster.workload, engine, given[0], most, pods.related)
    if output is Output.TABLE:
        _print(found, most)
    else:
        emit(found, output)
    if not found.fits:
        raise typer.Exit(1)


def _print(found: Fit, most: int) -> None:
    out = console()
    more = f" (at most {most:,} were tried)" if found.fits == most else ""
    out.print(f"{found.fits:,} more fit{more}.")
    if found.message:
        out.print(f"The next copy: {found.message}")
    if found.by_node:
        nodes = table("Copies by node", "node", "pods", right=("pods",))
        ordered = sorted(found.by_node.items(), key=lambda item: (-item[1], item[0]))
        for name, count in ordered[:NODES_SHOWN]:
            nodes.add_row(name, f"{count:,}")
        out.print(nodes)
        if len(ordered) > NODES_SHOWN:
            out.print(f"and {len(ordered) - NODES_SHOWN:,} more nodes")
