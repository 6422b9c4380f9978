"""stower what-if: simulates a cluster with and without a change, and prints the differences."""

from pathlib import Path
from typing import Annotated

import typer

from stower.cli.cluster_inputs import Inputs, cluster_of
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.configuration_files import InputError
from stower.cli.engine_inputs import Config, engine_of
from stower.cli.inputs import LoadedWorkload, load
from stower.cli.output import Output, amount, bad_input, console, emit, progress, table
from stower.cli.plot import Plot, check_plot, draw
from stower.cli.view_plots import plot_compared
from stower.model.errors import InvalidObject
from stower.model.kinds import ApiObject
from stower.sim.recorded_drivers import recorded_drivers, without_negotiations
from stower.sim.what_if import Comparison, Difference, Edit, compare, edited

NAME = "what-if"
WATCHED = True
EPILOG = """
Examples:

  stower what-if --add-nodes 3

  stower what-if --remove-node node-7 --add-nodes 1=node-3

  stower what-if dumps/ --config new.yaml --anew

  stower what-if --weight ImageLocality=5 --anew

  stower what-if stower.ndjson.zst --add pods.yaml --delete pod/default/web-1

The cluster itself is not changed. It is simulated twice, as it is and with the change; a recording
is simulated with all its external events. Pods that have a node keep it, unless the node is removed
or --anew is given. Drivers allocate devices where their recorded answers and allocations show that
they can; without such answers, a pod whose devices must be negotiated stays pending.
"""
SHOWN = 20


def run(
    inputs: Inputs = None,
    add_nodes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N[=NODE]", help="Add N copies of this node, or of the most common kind."
        ),
    ] = None,
    remove_node: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="Remove this node; its pods move."),
    ] = None,
    add: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Add the objects of this file.")
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND/[NAMESPACE/]NAME", help="Delete this object."),
    ] = None,
    config: Config = None,
    config_now: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Configuration before the change (--config: after)."),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="PLUGIN=N", help="Set the score weight of this plugin."),
    ] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Reschedule all pods, in both runs.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    plot_file: Plot = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show what would change with other nodes, objects or another configuration."""
    check_plot(plot_file)
    if not (add_nodes or remove_node or add or delete or config or weight):
        raise bad_input(
            "no change is given: want --add-nodes, --remove-node, --add, --delete, --weight or "
            "--config"
        )
    copies = tuple(_copies(text) for text in add_nodes or ())
    cluster = cluster_of(inputs, kubeconfig, context, state, at_end=False)
    added = _objects(add or [], cluster)
    edit = Edit(copies, tuple(remove_node or ()), added, tuple(delete or ()), anew)
    built, workload = cluster.built, cluster.workload
    drivers = recorded_drivers(workload)
    if drivers:
        workload = without_negotiations(workload)
    try:
        before = edited(workload, Edit(anew=anew)), engine_of(config_now, built, bool(drivers))
        other = engine_of(config or config_now, built, bool(drivers), weight or ())
        after = edited(workload, edit), other
    except InvalidObject as error:
        raise bad_input(str(error)) from None
    with progress("what if") as update:
        found = compare(before, after, update, drivers)
    if plot_file is not None:
        draw(lambda path: plot_compared(found, path), plot_file)
    if output is Output.TABLE:
        _print(found)
    else:
        emit(found, output)


def _copies(text: str) -> tuple[int, str]:
    count, _, like = text.partition("=")
    if (
        not count.isascii()
        or not count.isdigit()
        or len(count) > 6
        or not 0 < int(count) <= 100_000
    ):
        raise bad_input(f"--add-nodes: got {text!r}, want N or N=NODE, N to 100000, as 3=node-7")
    return int(count), like


def _objects(files: list[str], cluster: LoadedWorkload) -> tuple[ApiObject, ...]:
    if not files:
        return ()
    try:
        found = load(files, beside=cluster).workload
    except InputError as error:
        raise bad_input(str(error)) from None
    pods = (arrival.pod for arrival in found.arrivals)
    return (*found.nodes, *found.related, *found.placed, *pods)


def _print(found: Comparison) -> None:
    out = console()
    figures = table("What if", "", "before", "after", right=("before", "after"))
    was, will = found.before, found.after
    for name, one, other in (
        ("nodes", was.nodes, will.nodes),
        ("empty nodes", was.empty_nodes, will.empty_nodes),
        ("pods", was.pods, will.pods),
        ("running", was.running, will.running),
        ("ended", was.ended, will.ended),
        ("pending", was.pending, will.pending),
        ("lost", was.lost, will.lost),
        ("evictions", was.evictions, will.evictions),
    ):
        figures.add_row(name, f"{one:,}", f"{other:,}")
    if was.waited_seconds or will.waited_seconds:
        figures.add_row(
            "waiting time, total", f"{was.waited_seconds:,.1f} s", f"{will.waited_seconds:,.1f} s"
        )
    after = {use.resource: use for use in will.use}
    for use in was.use:
        other_use = after.get(use.resource)
        text = f"{other_use.percent:.1f} %" if other_use is not None else "-"
        figures.add_row(f"use of {use.resource}", f"{use.percent:.1f} %", text)
        if other_use is not None and other_use.allocatable != use.allocatable:
            figures.add_row(
                f"allocatable {use.resource}", amount(use.resource, use.allocatable),
                amount(use.resource, other_use.allocatable),
            )  # fmt: skip
    out.print(figures)
    for title, differences in (
        ("Newly placed", found.newly_placed),
        ("Newly pending", found.newly_pending),
        ("Newly lost", found.newly_lost),
        ("Moved", found.moved),
        ("Only after", found.added),
        ("Only before", found.removed),
    ):
        _list(title, differences)
    if found.evicted:
        out.print()
        out.print(f"Newly evicted: {_join_first(found.evicted)}", soft_wrap=True)
    lists = (
        found.moved, found.newly_placed, found.newly_pending, found.newly_lost, found.added,
        found.removed, found.evicted,
    )  # fmt: skip
    if was == will and not any(lists):
        out.print("\nNothing changes.")


def _list(title: str, differences: tuple[Difference, ...]) -> None:
    if not differences:
        return
    out = console()
    out.print()
    shown = table(f"{title}: {len(differences):,}", "pod", "before", "after", "reason")
    for each in differences[:SHOWN]:
        shown.add_row(each.pod, each.before or "-", each.after or "-", each.why)
    out.print(shown)
    if len(differences) > SHOWN:
        out.print(f"and {len(differences) - SHOWN:,} more (all with --output json)")


def _join_first(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
