"""stower drain-check: whether a node's pods find places elsewhere."""

from typing import Annotated

import typer

from stower.cli.cluster_inputs import Inputs, cluster_of
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.engine_inputs import Config, engine_of
from stower.cli.output import Output, bad_input, console, counted, emit, table
from stower.model.errors import InvalidObject
from stower.sim.capacity import Drain, drain

NAME = "drain-check"
WATCHED = True
EPILOG = """
Examples:

  stower drain-check node-7

  kubectl get nodes,pods,pdb -A -o json | stower drain-check node-7 -

  stower drain-check node-7 cluster.yaml --output json

Nothing is changed. Pods of DaemonSets and static pods stay; nobody is evicted to make room. Drivers
are not simulated: a pod that would need negotiated devices anew is stuck. The exit code is 1 where
a pod finds no place, or a disruption budget keeps it.
"""


def run(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node to be emptied.")],
    inputs: Inputs = None,
    config: Config = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How to print it.")
    ] = Output.TABLE,
) -> None:
    """Tell where the pods of a node would go, and which have nowhere to go."""
    cluster = cluster_of(inputs, kubeconfig, context, state)
    engine = engine_of(config, cluster.built, drivers=False)
    try:
        found = drain(cluster.workload, engine, node)
    except InvalidObject as error:
        raise bad_input(str(error)) from None
    if output is Output.TABLE:
        _print(node, found)
    else:
        emit(found, output)
    if found.stuck or found.kept:
        raise typer.Exit(1)


def _print(node: str, found: Drain) -> None:
    out = console()
    rows = [(key, "moves", to) for key, to in sorted(found.moves.items())]
    rows += [(key, "stuck", why) for key, why in sorted(found.stuck.items())]
    rows += [(key, "kept", "a disruption budget allows no more") for key in found.kept]
    rows += [(key, "stays", "it belongs to the node") for key in found.stays]
    if rows:
        shown = table(f"Pods of {node}", "pod", "what", "where, or why not")
        for row in rows:
            shown.add_row(*row)
        out.print(shown)
    bad = len(found.stuck) + len(found.kept)
    out.print(
        f"{bad:,} of {counted(len(rows), 'pod')} cannot leave."
        if bad
        else f"{node} can be drained."
    )
