"""stower negotiations: which pods agree with drivers on a node, and who waits for whom."""

import time
from collections.abc import Iterable
from typing import Annotated

import typer

from stower.cli.cluster_inputs import ALL, Inputs, cluster_of, name_asked
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.output import Output, bad_input, console, emit, lines, table
from stower.devices.negotiation.overview import (
    ClaimState,
    Negotiation,
    Objects,
    Overview,
    overview,
)
from stower.model.errors import printable
from stower.model.kinds import PodScheduling, ResourceClaim, ResourceClass
from stower.model.times import age
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

A pod or a claim is named with its namespace or without, a driver as in its ResourceClass; all
stands for everything. What is told follows from the objects as they are; what a driver is about to
do, only it can tell. The exit code is 1 where there is no such pod, claim or driver.
"""
NODES_SHOWN = 3


def run(
    which: Annotated[
        str,
        typer.Argument(
            metavar="[POD|CLAIM|DRIVER]", help="What a pod or claim waits for, or who for a driver."
        ),
    ] = ALL,
    inputs: Inputs = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How to print it.")
    ] = Output.TABLE,
) -> None:
    """Show pods whose devices are negotiated with drivers, and who waits for whom."""
    name = name_asked(which, inputs, NAME)
    workload = cluster_of(inputs, kubeconfig, context, state, nodeless=True).workload
    now_ns = time.time_ns()
    found = overview(objects_of(workload, now_ns), name)
    if found is None:
        raise bad_input(f"got {which!r}, want a pod, a claim or a driver")
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
        of = f" about {which}" if which else ""
        out.print(f"Nothing is negotiated{of}.")
        return
    if found.negotiations:
        print_negotiations(found.negotiations, now_ns)
    if found.claims:
        shown = table("Other claims", "claim", "state", "used by", "waits for")
        for claim in found.claims:
            shown.add_row(
                lines(named(claim)),
                lines(states(claim)),
                lines(claim.used_by or ["nobody"]),
                claim.awaits,
            )
        out.print(shown)
    if which and len(found.negotiations) == 1:
        print_hints(found.negotiations[0])


def print_negotiations(found: Iterable[Negotiation], now_ns: int) -> None:
    """A row for each claim."""
    shown = table("Negotiations", "pod", "claim", "state", "waits for")
    for one in found:
        first = lines(_about(one, now_ns))
        for claim in one.claims:
            shown.add_row(first, lines(named(claim)), lines(states(claim)), claim.awaits)
            first = lines(())
        if one.awaits or not one.claims:
            shown.add_row(first, "", "", one.awaits)
    console().print(shown)


def print_hints(one: Negotiation) -> None:
    """What may help a pod."""
    out = console()
    if one.hints:
        out.print("")
        out.print("What may help, though nobody can try it beforehand:")
        for hint in one.hints:
            out.print(printable(f"  {hint}"), soft_wrap=True)


def _about(one: Negotiation, now_ns: int) -> Iterable[str]:
    """The pod, and how far it has come."""
    yield one.pod
    if one.since:
        yield f"for {age(now_ns, one.since)}"
    if one.round:
        attempt = f", attempt {one.attempt}" if one.attempt else ""
        yield f"round {one.round}{attempt}"
        yield f"{one.left} of {one.candidates} nodes left"
    if one.selected_node:
        yield f"selected: {one.selected_node}"


def named(claim: ClaimState) -> list[str]:
    """A claim and its driver."""
    return [text for text in (claim.claim, claim.driver) if text]


def states(claim: ClaimState) -> list[str]:
    """How a claim stands, line by line."""
    found = [claim.state]
    if claim.state == "answered":
        found = [f"answered: {len(claim.unsuitable):,} unsuitable"]
    elif claim.state == "flagged":
        found = [f"flagged: {claim.flag}"]
    if claim.everywhere:
        found.append("allocated on all nodes")
    elif claim.nodes:
        more = len(claim.nodes) - NODES_SHOWN
        names = ", ".join(claim.nodes[:NODES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
        found.append(f"allocated on {names}")
    elif claim.allocated:
        found.append("allocated on no node that is there")
    if len(found) > 1 and claim.state == "allocated":
        del found[0]
    if claim.used_by:
        found.append(f"reserved for {len(claim.used_by):,}")
    return found
