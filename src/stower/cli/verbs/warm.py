"""stower warm: prints the nodes of warm pools as slots, and the placements planned next."""

from pathlib import Path
from typing import Annotated

import typer

from stower.cli.cluster_inputs import ALL, Inputs, cluster_of, requested_name
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.engine_inputs import Config, engine_of, list_cluster
from stower.cli.output import Output, bad_input, console, emit, lines, table
from stower.cli.plot import Plot, check_plot, draw
from stower.cli.replayed_engine import recording_of, replayed_engine
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.cli.view_plots import plot_warm
from stower.engine.engine import Engine
from stower.engine.explain.probe import choose_node_for
from stower.plugins.warm_capacity import find_warm_controller
from stower.warm.overview import PoolState, overview

NAME = "warm"
WATCHED = True
EPILOG = """
Examples:

  stower warm

  stower warm jhub/users --output json

  kubectl get nodes,pods,warmpools -A -o json | stower warm all -

  stower warm --config examples/warm/scheduler.yaml

U is a user, P a placeholder, + a free slot; u and p are of other pools on the same nodes. Name a
pool with or without its namespace; pools are the WarmPool objects and the pools of the
configuration. The exit code is 2 if there is no such pool.
"""


def run(
    which: Annotated[str, typer.Argument(metavar="[POOL]", help="Pool to show.")] = ALL,
    inputs: Inputs = None,
    config: Config = None,
    ignore_unknown_plugins: IgnoreUnknownPlugins = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    plot_file: Plot = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show warm pools: users, placeholders and free slots by node, and what is planned."""
    check_plot(plot_file)
    name = requested_name(which, inputs, NAME)
    engine = _engine(inputs, config, kubeconfig, context, state, ignore_unknown_plugins)
    warm = find_warm_controller(engine.state)
    for level, text, about in engine.notes():
        if level == "error":
            raise bad_input(f"{about}: {text}")
    if warm is None:
        raise bad_input("the recording's scheduler had no plugin WarmCapacity")
    found = overview(warm, lambda pod: choose_node_for(engine, pod), name)
    if found is None:
        raise bad_input(f"got {which!r}, want a pool: {', '.join(warm.pools) or 'none exists'}")
    if plot_file is not None:
        draw(lambda path: plot_warm(found, path), plot_file)
    if output is Output.TABLE:
        _print(found)
    else:
        emit(found, output)


def _engine(
    inputs: list[str] | None,
    config: Path | None,
    kubeconfig: Path | None,
    context: str,
    state: Path,
    ignores_unknown: bool,
) -> Engine:
    """The engine of a recording as it ends, or one that knows the cluster."""
    recording = recording_of(inputs)
    if recording is not None:
        if config is not None:
            raise bad_input("--config: a recording has its own configuration")
        return replayed_engine(recording, None, ignores_unknown)
    work = cluster_of(inputs, kubeconfig, context, state, nodeless=True).workload
    pods = (*work.placed, *(arrival.pod for arrival in work.arrivals))
    names = {pod.spec.scheduler_name for pod in pods}
    engine = engine_of(config, names=names, ignores_unknown=ignores_unknown)
    list_cluster(engine, work)
    return engine


def _print(found: list[PoolState]) -> None:
    out = console()
    if not found:
        out.print("There are no warm pools.")
        return
    for pool in found:
        unusable = f"{pool.unusable} unusable, " if pool.unusable else ""
        title = (
            f"{pool.pool}: {pool.users} users ({pool.waiting} waiting), {pool.placed} placeholders "
            f"({pool.pending} pending, {unusable}{pool.wanted} wanted)"
        )
        out.print(title, soft_wrap=True)
        shown = table("", "node", "slots", "state", "")
        for node in pool.nodes:
            shown.add_row(node.node, lines([node.drawn]), node.state, node.reason)
        out.print(shown)
        if pool.next_user:
            out.print(f"Placement of the next user: {pool.next_user}", soft_wrap=True)
        for move in pool.moves:
            out.print(f"Planned move: {move}", soft_wrap=True)
        if pool.then:
            out.print(f"Expected: {pool.then}", soft_wrap=True)
