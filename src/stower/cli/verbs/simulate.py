"""stower simulate: runs the scheduler over files and reports the result."""

import typer

from stower.cli.old_spellings import run_old_spelling
from stower.cli.placement_runs import run_placement
from stower.cli.simulate_arguments import SimulateArguments
from stower.cli.verb_arguments import with_arguments

NAME = "simulate"
WATCHED = True
EPILOG = """
Examples:

  stower simulate cluster.yaml

  kubectl get nodes,pods -A -o json | stower simulate -

  stower simulate openb/ --config spread.yaml --config pack.yaml

  stower simulate openb/ --timed --plot use.svg

  stower simulate cluster/ --by topology.kubernetes.io/zone --match app=web

Drivers are not simulated: pods whose devices are negotiated with a driver stay pending.

Clusters with faults are run by `stower faults`, packing policies on GPU traces by `stower pack`,
days of a hub by `stower hub`.
"""


@with_arguments(SimulateArguments)
def run(given: SimulateArguments) -> None:
    """Schedule pods of manifests or of a trace in process, and report the placement.

    Pods that already have a node keep it. Pods of manifests are all pending at the start and are
    scheduled by priority; pods of a trace arrive one by one, with --timed at their own times.
    """
    if run_old_spelling(given):
        return
    if not given.inputs:
        raise typer.BadParameter(
            "want files or folders; clusters with faults: stower faults; GPU traces: stower pack; "
            "days of a hub: stower hub",
            param_hint="INPUT",
        )
    all_placed = run_placement(given)
    if given.require_all and not all_placed:
        raise typer.Exit(1)
