"""stower demo: the main job, end to end, on a cluster that it makes itself."""

from typing import Annotated

import typer

from stower.cli.inputs import load_generated
from stower.cli.output import console, progress
from stower.cli.verbs.simulate import print_reports
from stower.framework.configuration import API_VERSION, KIND
from stower.sim.generate import cluster
from stower.sim.simulate import Options, simulate

NAME = "demo"
EPILOG = """
Examples:

  stower demo

  stower demo --nodes 5000 --pods 40000
"""

PACK = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "profiles": [
        {
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {"scoringStrategy": {"type": "MostAllocated"}},
                }
            ]
        }
    ],
}


def run(
    nodes: Annotated[int, typer.Option(min=1, max=100_000, help="Number of nodes.")] = 500,
    pods: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of pods.")] = 8_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0,
) -> None:
    """Make a cluster, place its pods under two policies, and show the difference.

    `spread` is kube-scheduler's default; `pack` fills nodes up, so that others stay empty.
    """
    out = console()
    out.print(f"A generated cluster: {nodes:,} nodes in four pools, {pods:,} pods of six kinds.\n")
    loaded = load_generated(cluster(nodes, pods, seed))
    reports = []
    for name, document in (("spread", None), ("pack", PACK)):
        with progress(f"simulate {name}") as update:
            options = Options(seed=seed, by="topology.kubernetes.io/zone")
            reports.append(simulate(loaded.workload, name, document, options, update))
    print_reports(reports)
    out.print("\nNext: stower simulate --help, stower bench --help")
