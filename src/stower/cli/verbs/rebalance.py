"""stower rebalance: proposes few moves that let pods that wait run, or that empty nodes."""

from typing import Annotated

import typer

from stower.cli.cluster_inputs import Inputs, cluster_of
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.engine_inputs import Config, engine_factory
from stower.cli.output import Output, bad_input, console, emit, format_count, progress, table
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.cli.unplaced_printer import print_unplaced
from stower.model.kinds import Pod
from stower.sim.rebalance_steps import MOVES_MAX, Plan, plan_empty_nodes, plan_placements

NAME = "rebalance"
WATCHED = True
EPILOG = """
Examples:

  stower rebalance --plan

  stower rebalance --plan dumps/ --pod team/train-0 --config scheduler.yaml

  stower rebalance --plan --empty 2 --output json

Nothing is evicted: steps are proposed, in an order in which each was tried on a copy of the
cluster. Pods move if a controller creates them again, unless a PodDisruptionBudget, an annotation,
a pod group or a system priority keeps them. The node that pods leave is cordoned meanwhile. A bound
says how many moves any plan has at least. The exit code is 1 if no pod that waits is helped, or if
fewer nodes are emptied.
"""


def run(
    inputs: Inputs = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Propose the moves; nothing is evicted.")
    ] = False,
    pods: Annotated[
        list[str] | None,
        typer.Option("--pod", metavar="[NAMESPACE/]NAME", help="Only for this pod that waits."),
    ] = None,
    empty: Annotated[int, typer.Option(min=0, metavar="K", help="Empty this number of nodes.")] = 0,
    moves_max: Annotated[int, typer.Option(min=1, help="Maximum number of moves.")] = MOVES_MAX,
    config: Config = None,
    ignore_unknown_plugins: IgnoreUnknownPlugins = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Propose few moves that let pods that wait run, or that empty nodes."""
    if not plan:
        raise bad_input("want --plan: moves are proposed, and evictions are left to you")
    if empty and pods:
        raise bad_input("--empty and --pod: want one of them")
    cluster = cluster_of(inputs, kubeconfig, context, state)
    work = cluster.workload
    wanted = {name if "/" in name else f"default/{name}" for name in pods or ()}
    if missing := wanted - {arrival.pod.key for arrival in work.arrivals}:
        raise bad_input(f"--pod: no pod {min(missing)} waits for a node")

    def is_wanted(pod: Pod) -> bool:
        return not wanted or pod.key in wanted

    build = engine_factory(config, cluster.built, ignore_unknown_plugins)
    with progress("rebalance"):
        found = (
            plan_empty_nodes(work, build, empty, moves_max)
            if empty
            else plan_placements(work, build, is_wanted, moves_max)
        )
    if output is Output.TABLE:
        _print(found, empty)
    else:
        emit(found, output)
    is_helped = bool(found.places.keys() - {one.pod for one in found.unplaced})
    is_helped &= not wanted or bool(wanted & found.places.keys())
    if len(found.emptied) < empty or (found.unplaced and not is_helped):
        raise typer.Exit(1)


def _print(found: Plan, empty: int) -> None:
    out = console()
    if not found.steps:
        if empty:
            out.print("No node can be emptied.")
        elif found.unplaced:
            out.print("No moves were found that let a pod that waits run.")
        else:
            out.print("No pod waits that moves would help.")
    else:
        names = ", ".join(found.emptied)
        s = "s" if found.moves == 1 else ""
        pods = format_count(len(found.places), "pod")
        what = f"empt{'ies' if s else 'y'} {names}" if empty else f"let{s} {pods} run"
        least = (
            "no plan has fewer"
            if found.bound >= found.moves
            else (f"any plan has {found.bound:,} at least")
        )
        out.print(f"{format_count(found.moves, 'move')} {what} ({least}):", soft_wrap=True)
        shown = table("", "step", "node", "pod", "goes to")
        for step in found.steps:
            shown.add_row(step.action, step.node, step.pod, step.to)
        out.print(shown)
        for pod, node in found.places.items():
            out.print(f"{pod} -> {node}", soft_wrap=True)
    print_unplaced("Pods that still wait", found.unplaced)
