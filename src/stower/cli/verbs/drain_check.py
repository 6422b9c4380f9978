"""stower drain-check: checks whether all pods of a node fit on other nodes."""

from typing import Annotated

import typer

from stower.cli.cluster_inputs import Inputs, cluster_of
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.engine_inputs import Config, engine_of
from stower.cli.output import Output, bad_input, console, emit, format_count, table
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.model.errors import InvalidObject
from stower.sim.capacity import Drain, drain

NAME = "drain-check"
WATCHED = True
EPILOG = """
Examples:

  stower drain-check node-7

  kubectl get nodes,pods,pdb -A -o json | stower drain-check node-7 -

  stower drain-check node-7 cluster.yaml --output json

The cluster is not changed. Pods of DaemonSets and static pods stay; no pod is preempted. Drivers
are not simulated: a pod that would have to negotiate its devices again is stuck. The exit code is 1
if a pod fits on no other node, or a disruption budget forbids its eviction.
"""


def run(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node to drain.")],
    inputs: Inputs = None,
    config: Config = None,
    ignore_unknown_plugins: IgnoreUnknownPlugins = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show where the pods of a node would go after a drain, and which fit nowhere."""
    cluster = cluster_of(inputs, kubeconfig, context, state)
    engine = engine_of(config, cluster.built, drivers=False, ignores_unknown=ignore_unknown_plugins)
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
    rows += [(key, "kept", "its disruption budget allows no eviction") for key in found.kept]
    rows += [(key, "stays", "DaemonSet or static pod") for key in found.stays]
    if rows:
        shown = table(f"Pods of {node}", "pod", "result", "node or reason")
        for row in rows:
            shown.add_row(*row)
        out.print(shown)
    bad = len(found.stuck) + len(found.kept)
    out.print(
        f"{bad:,} of {format_count(len(rows), 'pod')} cannot be drained."
        if bad
        else f"{node} can be drained."
    )
