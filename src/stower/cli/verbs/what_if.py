"""stower what-if: simulates a cluster with and without a change, and prints the differences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from stower.cli.cluster_inputs import Inputs, cluster_of
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.configuration_files import InputError, read_yaml_document
from stower.cli.engine_inputs import Config, engine_of
from stower.cli.inputs import LoadedWorkload, load
from stower.cli.output import Output, bad_input, emit, progress
from stower.cli.plot import Plot, check_plot, draw
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.cli.view_plots import plot_compared
from stower.cli.what_if_printer import print_comparison
from stower.engine.engine import Engine
from stower.model.errors import InvalidObject
from stower.model.kinds import ApiObject
from stower.record.lines import Engine as Built
from stower.sim.costs import Prices, read_prices
from stower.sim.recorded_drivers import recorded_drivers, without_negotiations
from stower.sim.what_if import Comparison, Edit, compare, edited, settled

NAME = "what-if"
WATCHED = True
EPILOG = """
Examples:

  stower what-if --add-nodes 3

  stower what-if --remove-node node-7 --add-nodes 1=node-3

  stower what-if dumps/ --config new.yaml --anew

  stower what-if --weight ImageLocality=5 --anew

  stower what-if stower.ndjson.zst --add pods.yaml --delete pod/default/web-1

  stower what-if --remove-node node-7 --minimal --cost prices.yaml

Without a change, the run is compared with what was. The cluster itself is not changed. It is
simulated twice, as it is and with the change; a recording is simulated with all its external
events. Pods that have a node keep it, unless the node is removed or --anew is given. Drivers
allocate devices where their recorded answers and allocations show that they can; without such
answers, a pod whose devices must be negotiated stays pending. Pods that the run without the change
has elsewhere than they were are listed. With --minimal, all pods keep their nodes but those that
the change moves, which are counted; of a recording, its end is looked at. Prices are per node and
hour (examples/prices.yaml).
"""


class _Configurations(NamedTuple):
    """Configurations before and after the change, and other weights of plugins after it."""

    now: Path | None
    after: Path | None
    weights: Sequence[str]
    ignores_unknown: bool


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
    ignore_unknown_plugins: IgnoreUnknownPlugins = False,
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
    minimal: Annotated[
        bool, typer.Option("--minimal", help="Move only pods that the change moves; count these.")
    ] = False,
    cost: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prices of nodes per hour, by label or resource."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    plot_file: Plot = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show what would change with other nodes, objects or another configuration."""
    check_plot(plot_file)
    if minimal and anew:
        raise bad_input("--minimal and --anew: want one of them")
    copies = tuple(_copies(text) for text in add_nodes or ())
    prices = None if cost is None else _prices(cost)
    cluster = cluster_of(inputs, kubeconfig, context, state, at_end=minimal)
    edit = Edit(
        copies, tuple(remove_node or ()), _objects(add or [], cluster), tuple(delete or ()), anew
    )
    given = _Configurations(config_now, config, weight or (), ignore_unknown_plugins)
    found = _compare(cluster, edit, given, minimal, prices)
    if plot_file is not None:
        draw(lambda path: plot_compared(found, path), plot_file)
    if output is Output.TABLE:
        print_comparison(found)
    else:
        emit(found, output)


def _compare(
    cluster: LoadedWorkload,
    edit: Edit,
    given: _Configurations,
    minimal: bool,
    prices: Prices | None,
) -> Comparison:
    """Runs the cluster with and without the change."""
    built, workload = cluster.built, cluster.workload
    drivers = recorded_drivers(workload)
    if drivers:
        workload = without_negotiations(workload)
    nodes_were = {} if edit.anew or given.now else _nodes_were(cluster)
    price_of = None if prices is None else prices.of
    try:
        if minimal:
            first, _ = _engines(given, built, bool(drivers))
            workload = settled(workload, first)
        now, other = _engines(given, built, bool(drivers))
        before = edited(workload, Edit(anew=edit.anew)), now
        after = edited(workload, edit), other
        with progress("what if") as update:
            found = compare(before, after, update, drivers, nodes_were, price_of)
    except InvalidObject as error:
        raise bad_input(str(error)) from None
    if not minimal:
        return found
    forced = len(found.moved) + len(found.newly_pending) + len(found.newly_lost)
    return msgspec.structs.replace(found, forced_moves=forced)


def _prices(path: Path) -> Prices:
    try:
        return read_prices(read_yaml_document(str(path)))
    except InputError as error:
        raise bad_input(str(error)) from None
    except InvalidObject as error:
        raise bad_input(f"--cost {path}: {error}") from None


def _nodes_were(cluster: LoadedWorkload) -> Mapping[str, str]:
    """By uid, where pods were: as recorded, or as the cluster has them."""
    if cluster.recorded_nodes:
        return cluster.recorded_nodes
    work = cluster.workload
    pods = (*work.placed, *(arrival.pod for arrival in work.arrivals))
    return {pod.metadata.uid: pod.spec.node_name for pod in pods}


def _engines(
    given: _Configurations, built: Built | None, has_drivers: bool
) -> tuple[Engine, Engine]:
    """Returns the engines before and after the change. Ends the program for wrong input."""
    ignores = given.ignores_unknown
    before = engine_of(given.now, built, has_drivers, ignores_unknown=ignores)
    after = engine_of(
        given.after or given.now,
        built,
        has_drivers,
        given.weights,
        ignores_unknown=ignores,
        tells_unknown=given.after is not None,  # else the notes would be those before the change
    )
    return before, after


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
