"""stower generate: writes a synthetic cluster, nodes and pods, as JSON lines."""

import sys
from typing import Annotated

import typer

from stower.cli.output import bad_input
from stower.model.errors import InvalidObject
from stower.model.times import SECOND_NS, duration_ns
from stower.sim.arrivals import PROCESSES, read_lifetime
from stower.sim.cluster_generator import Course, cluster

NAME = "generate"
EPILOG = """
Examples:

  stower generate --nodes 100 --pods 2000 > cluster.ndjson

  stower generate --nodes 50 --pods 500 --seed 7 | stower simulate -

  stower generate --until 24h --arrivals daily --lifetime lognormal:20m | stower simulate --timed -
"""


def run(
    nodes: Annotated[int, typer.Option(min=0, max=100_000, help="Number of nodes.")] = 100,
    pods: Annotated[int, typer.Option(min=0, max=1_000_000, help="Number of pods.")] = 2_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same cluster.")] = 0,
    until: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="Spread pod arrivals over this duration, such as 24h."
        ),
    ] = "",
    arrivals: Annotated[
        str,
        typer.Option(
            help=f"With --until: arrival process: {', '.join(PROCESSES)}; default: poisson."
        ),
    ] = "",
    lifetime: Annotated[
        str,
        typer.Option(
            metavar="KIND:DURATION",
            help="With --until: run time of pods: forever, fixed, exponential (mean) or "
            "lognormal (median).",
        ),
    ] = "forever",
) -> None:
    """Write nodes and pods as JSON lines: four node pools in three zones, six kinds of app."""
    for document in cluster(nodes, pods, seed, _course(until, arrivals, lifetime)):
        sys.stdout.buffer.write(document + b"\n")


def _course(until: str, arrivals: str, lifetime: str) -> Course | None:
    """The options as they were given. Ends the program where they make no sense."""
    if not until:
        for option, given in (("--lifetime", lifetime != "forever"), ("--arrivals", arrivals)):
            if given:
                raise bad_input(f"{option}: want --until as well")
        return None
    arrivals = arrivals or "poisson"
    ns = duration_ns(until)
    if ns is None or ns <= 0:
        raise bad_input(f"--until: got {until!r}, want a duration, such as 24h")
    if arrivals not in PROCESSES:
        raise bad_input(f"--arrivals: got {arrivals!r}, want one of {', '.join(PROCESSES)}")
    try:
        return Course(PROCESSES[arrivals], ns / SECOND_NS, read_lifetime(lifetime))
    except InvalidObject as error:
        raise bad_input(f"--{error}") from None
