"""stower negotiations: prints the device negotiations between pods and their drivers.

Shows what each pod, claim or driver waits for, from the pods, claims, classes and PodSchedulings of
a cluster.
"""

import time
from typing import Annotated

import typer

from stower.cli.cluster_inputs import ALL, Inputs, cluster_of, requested_name
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.negotiation_printer import describe_claim, print_hints, print_negotiations, states
from stower.cli.output import Output, bad_input, console, emit, lines, table
from stower.devices.negotiation.overview import Objects, Overview, overview
from stower.model.kinds import PodScheduling, ResourceClaim, ResourceClass
from stower.sim.workload import Workload

NAME = "negotiations"
WATCHED = True
EPILOG = """
Examples:

  stower negotiations

  stower negotiations default/web-1

  stower negotiations fabric.example.com dumps/ --output json

  kubectl get nodes,pods,resourceclaims,resourceclasses,podschedulings -A -o json > dump.json

  stower negotiations all dump.json

Name a pod or a claim with or without its namespace, a driver as in its ResourceClass; `all` selects
everything. The result is derived from the current objects; what a driver does next is not in them.
The exit code is 2 if there is no such pod, claim or driver.
"""


def run(
    which: Annotated[
        str,
        typer.Argument(
            metavar="[POD|CLAIM|DRIVER]", help="Pod, claim or driver whose negotiations are shown."
        ),
    ] = ALL,
    inputs: Inputs = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show pods whose devices are negotiated with drivers, and what each side waits for."""
    name = requested_name(which, inputs, NAME)
    workload = cluster_of(inputs, kubeconfig, context, state, nodeless=True).workload
    now_ns = time.time_ns()
    found = overview(objects_of(workload, now_ns), name)
    if found is None:
        raise bad_input(f"got {which!r}, want the name of a pod, a claim or a driver")
    if output is Output.TABLE:
        _print(found, now_ns, name)
    else:
        emit(found, output)


def objects_of(workload: Workload, now_ns: int | None) -> Objects:
    """What a negotiation is about, of a cluster."""
    related = workload.related
    return Objects(
        (*workload.placed, *(arrival.pod for arrival in workload.arrivals)),
        (obj for obj in related if isinstance(obj, ResourceClaim)),
        (obj for obj in related if isinstance(obj, ResourceClass)),
        (obj for obj in related if isinstance(obj, PodScheduling)),
        workload.nodes,
        now_ns,
    )


def _print(found: Overview, now_ns: int, which: str) -> None:
    out = console()
    if not found.negotiations and not found.claims:
        of = f" for {which}" if which else ""
        out.print(f"There are no negotiations{of}.")
        return
    if found.negotiations:
        print_negotiations(found.negotiations, now_ns)
    if found.claims:
        shown = table("Other claims", "claim", "state", "used by", "waits for")
        for claim in found.claims:
            shown.add_row(
                lines(describe_claim(claim)),
                lines(states(claim)),
                lines(claim.used_by or ["no pod"]),
                claim.awaits,
            )
        out.print(shown)
    if which and len(found.negotiations) == 1:
        print_hints(found.negotiations[0])
