"""stower generate: write a made-up cluster, to try things on."""

import sys
from typing import Annotated

import typer

from stower.sim.generate import cluster

NAME = "generate"
EPILOG = """
Examples:

  stower generate --nodes 100 --pods 2000 > cluster.ndjson

  stower generate --nodes 50 --pods 500 --seed 7 | stower simulate -
"""


def run(
    nodes: Annotated[int, typer.Option(min=0, max=100_000, help="Number of nodes.")] = 100,
    pods: Annotated[int, typer.Option(min=0, max=1_000_000, help="Number of pods.")] = 2_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same cluster.")] = 0,
) -> None:
    """Write nodes and pods as JSON lines: four node pools in three zones, six kinds of app."""
    for document in cluster(nodes, pods, seed):
        sys.stdout.buffer.write(document + b"\n")
