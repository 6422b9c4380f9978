"""stower fit: counts how many copies of a pod or of a mix fit, or how many nodes a load needs."""

from collections.abc import Callable
from typing import Annotated

import typer

from stower.cli.cluster_inputs import Inputs, cluster_of
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.configuration_files import InputError
from stower.cli.engine_inputs import Config, engine_factory
from stower.cli.fit_inputs import read_mix, read_node_template, with_copies
from stower.cli.fit_printer import print_demand, print_fit
from stower.cli.output import Output, bad_input, emit, failure, progress
from stower.cli.scheduler_configuration import IgnoreUnknownPlugins
from stower.engine.engine import Engine
from stower.model.errors import InvalidObject
from stower.sim.capacity import fit
from stower.sim.node_demand import NodeTemplate, nodes_needed
from stower.sim.workload import Workload

NAME = "fit"
WATCHED = True
EPILOG = """
Examples:

  stower fit pod.yaml

  kubectl get nodes,pods -A -o json | stower fit pod.yaml -

  stower fit pod.yaml cluster.yaml --most 500 --output json

  stower fit --pod web.yaml=10 --pod database.yaml cluster.yaml

  stower fit --until-full --node-template large.yaml --pod web.yaml=200 cluster.yaml

A manifest is that of a pod, or of a workload object such as a Deployment, which stands for one of
its pods. With --pod, whole mixes are counted. With --until-full, nodes like the template are added
until the pods that wait and those of --pod have a place; the template is a manifest of a node or
the name of one of the cluster. Pending pods of the cluster are placed first. No pod is preempted.
Drivers are not simulated: a pod whose devices are negotiated does not fit. The exit code is 1 if no
copy fits, or if pods wait however many nodes are added.
"""


def run(
    pod: Annotated[
        str, typer.Argument(metavar="[POD]", help="Manifest of one pod; none with --pod.")
    ] = "",
    inputs: Inputs = None,
    pods: Annotated[
        list[str] | None,
        typer.Option("--pod", metavar="FILE[=N]", help="N copies of this pod in a mix."),
    ] = None,
    until_full: Annotated[
        bool, typer.Option("--until-full", help="Count the nodes that the pods need.")
    ] = False,
    node_template: Annotated[
        str, typer.Option(metavar="FILE|NODE", help="The node to add, for --until-full.")
    ] = "",
    config: Config = None,
    ignore_unknown_plugins: IgnoreUnknownPlugins = False,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    most: Annotated[int, typer.Option(min=1, help="Maximum number of copies to try.")] = 10_000,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show how many copies of a pod fit, or how many nodes a load needs."""
    if until_full != bool(node_template):
        raise bad_input("--until-full and --node-template: want both or none")
    if pods or until_full:
        inputs = [*([pod] if pod else []), *(inputs or [])] or None
    elif not pod:
        raise bad_input("no pod is given: want a manifest, or --pod FILE=N")
    cluster = cluster_of(inputs, kubeconfig, context, state, nodeless=until_full)
    build = engine_factory(config, cluster.built, ignore_unknown_plugins)
    try:
        mix, related = read_mix(pods or ([] if until_full else [pod]), cluster)
        if until_full:
            template = read_node_template(node_template, cluster)
            workload = with_copies(cluster.workload, mix, related)
            _run_demand(build, workload, template, output)
            return
    except InputError as error:
        raise bad_input(str(error)) from None
    engine = build()
    with progress("fit"):
        found = fit(cluster.workload, engine, mix, most, related)
    if output is Output.TABLE:
        print_fit(found, most)
    else:
        emit(found, output)
    if not found.fits:
        raise typer.Exit(1)


def _run_demand(
    build: Callable[[], Engine],
    workload: Workload,
    template: NodeTemplate,
    output: Output,
) -> None:
    if not workload.arrivals:
        raise bad_input("--until-full: no pod waits: want pending pods, or --pod FILE=N")
    try:
        with progress("fit") as update:
            found = nodes_needed(workload, template, build, update)
    except InvalidObject as error:
        raise failure(str(error)) from None
    if output is Output.TABLE:
        print_demand(found)
    else:
        emit(found, output)
    if found.unplaced:
        raise typer.Exit(1)
