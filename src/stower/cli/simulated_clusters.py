"""Defines the options of a simulated cluster, and builds its Cluster document.

The options describe a number of equal nodes, or name a file with node pools.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from stower.cli.configuration_files import InputError, read_yaml_document
from stower.cli.output import bad_input
from stower.controllers.cluster import Cluster, read_cluster
from stower.model.errors import InvalidObject

NODES = 3
DEFAULTS = ("4", "16Gi", 110, "")  # CPU, memory, pods and zones of nodes
Nodes = Annotated[int | None, typer.Option(min=0, max=100_000, help=f"Number of nodes ({NODES}).")]
NodeCpu = Annotated[str, typer.Option(metavar="QUANTITY", help="CPU of each node.")]
NodeMemory = Annotated[str, typer.Option(metavar="QUANTITY", help="Memory of each node.")]
NodePods = Annotated[int, typer.Option(min=1, help="Maximum pods of each node.")]
Zones = Annotated[str, typer.Option(metavar="A,B,..", help="Zones of the nodes, in turn.")]
ClusterFile = Annotated[
    Path | None,
    typer.Option("--cluster", metavar="FILE", help="File with node pools, images and times."),
]


def describe(
    nodes: int | None, cpu: str, memory: str, pods: int, zones: str, file: Path | None
) -> tuple[dict[str, Any], Cluster]:
    """The document and the cluster that it describes; wrong input ends the command."""
    if file is not None:
        if nodes is not None or (cpu, memory, pods, zones) != DEFAULTS:
            raise bad_input(
                f"--cluster {file}: the file describes the nodes; want no --nodes, --node-cpu, "
                "--node-memory, --node-pods and --zones"
            )
        try:
            document = read_yaml_document(str(file))
        except InputError as error:
            raise bad_input(str(error)) from None
        return document, check_cluster(document, str(file))
    capacity = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    pool = {
        "name": "node",
        "count": NODES if nodes is None else nodes,
        "capacity": capacity,
        "zones": _split_zones(zones),
    }
    document = {"apiVersion": "stower.dev/v1", "kind": "Cluster", "pools": [pool]}
    return document, check_cluster(document, "--nodes")


def is_same_cluster(document: dict[str, Any], cpu: str, memory: str, pods: int, zones: str) -> bool:
    """Whether the document describes nodes that are like that already."""
    pools = document.get("pools") or [{}]
    wanted = {"cpu": cpu, "memory": memory, "pods": str(pods)}
    found = pools[0].get("capacity"), pools[0].get("zones")
    return len(pools) == 1 and found == (wanted, _split_zones(zones))


def _split_zones(zones: str) -> list[str]:
    found = zones.split(",") if zones else []
    if not all(found):
        raise bad_input(f"--zones: got {zones!r}, want names separated by commas")
    return found


def check_cluster(document: dict[str, Any], where: str) -> Cluster:
    """The cluster of a document; wrong input ends the command."""
    try:
        return read_cluster(document)
    except InvalidObject as error:
        raise bad_input(f"{where}: {error}") from None
