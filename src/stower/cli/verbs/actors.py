"""stower actors: runs simulated kubelets and controllers against any API server."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from stower.cli import simulated_clusters
from stower.cli.configuration_files import InputError
from stower.cli.group_making import kinds_of
from stower.cli.logs import Format, LoggingFormat, Verbosity, set_up
from stower.cli.output import bad_input, console, failure
from stower.cli.shutdown import WithParent, stop_event, wait_for_go
from stower.controllers.assembly import build_controllers
from stower.controllers.runtime import ControllerManager
from stower.live.controllers import ServerFacts, run_controllers
from stower.live.shell import ShellError

NAME = "actors"
EPILOG = """
Examples:

  stower actors --kubeconfig .stower/kubeconfig --nodes 100 --zones a,b,c

  stower actors --kubeconfig .stower/kubeconfig --cluster cluster.yaml

The kubelets run no containers: they simulate image pulls, and pods that start, end (as annotations
such as play.stower.dev/CONTAINER and commands say: docs/up.md), stop and are resized. The
controllers cover Deployments, StatefulSets, DaemonSets, Jobs, CronJobs, volumes, disruption
budgets, node failures, garbage collection and namespaces. `stower up` starts actors with an API
server and a scheduler. Do not run actors on a real cluster: the cluster has its own kubelets and
controllers.
"""


def run(
    kubeconfig: Annotated[Path, typer.Option(help="Kubeconfig of the API server.")],
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    nodes: simulated_clusters.Nodes = None,
    node_cpu: simulated_clusters.NodeCpu = "4",
    node_memory: simulated_clusters.NodeMemory = "16Gi",
    node_pods: simulated_clusters.NodePods = 110,
    zones: simulated_clusters.Zones = "",
    cluster: simulated_clusters.ClusterFile = None,
    make_groups: Annotated[
        str,
        typer.Option(
            metavar="KINDS", help="Make pod groups for held pods, as `stower run --make-groups`."
        ),
    ] = "",
    v: Verbosity = 0,
    logging_format: LoggingFormat = Format.TEXT,
    with_parent: WithParent = False,
) -> None:
    """Simulate kubelets and controllers until stopped."""
    _, described = simulated_clusters.describe(
        nodes, node_cpu, node_memory, node_pods, zones, cluster
    )
    set_up(v, logging_format)
    try:
        gang_kinds = kinds_of(make_groups)
    except InputError as error:
        raise bad_input(str(error)) from None

    def on_ready(server: str) -> None:
        count = sum(pool.count for pool in described.pools)
        text = f"Simulating {count} nodes and the controllers of {server}. Stop it with Ctrl-C."
        console().print(text, soft_wrap=True)

    def stop() -> asyncio.Event:
        return stop_event(with_parent)

    def build(facts: ServerFacts) -> ControllerManager:
        return build_controllers(
            described, facts.resources, gang_kinds, facts.authorities, facts.version
        )

    wait_for_go(with_parent)
    try:
        asyncio.run(run_controllers(kubeconfig, context, build, on_ready, stop, described.seed))
    except ShellError as error:
        raise failure(str(error)) from None
