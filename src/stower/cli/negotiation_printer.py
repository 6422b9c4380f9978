"""Prints negotiations of devices: the progress of pods and drivers, and what may help."""

from collections.abc import Iterable
from typing import Final

from stower.cli.output import console, lines, table
from stower.devices.negotiation.overview import ClaimState, Negotiation
from stower.model.errors import printable
from stower.model.times import age

NODES_SHOWN: Final = 3


def print_negotiations(found: Iterable[Negotiation], now_ns: int) -> None:
    """Prints a table with a row for each claim of each pod."""
    shown = table("Negotiations", "pod", "claim", "state", "waits for")
    for one in found:
        first = lines(_about(one, now_ns))
        for claim in one.claims:
            shown.add_row(first, lines(describe_claim(claim)), lines(states(claim)), claim.awaits)
            first = lines(())
        if one.awaits or not one.claims:
            shown.add_row(first, "", "", one.awaits)
    console().print(shown)


def print_hints(one: Negotiation) -> None:
    """Prints what may help a pod that waits for its drivers."""
    out = console()
    if one.hints:
        out.print("")
        out.print("What may help (not verified, as the answers of drivers are not predicted):")
        for hint in one.hints:
            out.print(printable(f"  {hint}"), soft_wrap=True)


def _about(one: Negotiation, now_ns: int) -> Iterable[str]:
    """Yields the pod and the progress of its negotiation, line by line."""
    yield one.pod
    if one.since:
        yield f"for {age(now_ns, one.since)}"
    if one.round:
        attempt = f", attempt {one.attempt}" if one.attempt else ""
        yield f"round {one.round}{attempt}"
        yield f"{one.left} of {one.candidates} nodes left"
    if one.selected_node:
        yield f"selected: {one.selected_node}"


def describe_claim(claim: ClaimState) -> list[str]:
    """Returns a claim and its driver, line by line."""
    return [text for text in (claim.claim, claim.driver) if text]


def states(claim: ClaimState) -> list[str]:
    """Returns the state of a claim, line by line."""
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
        found.append("allocated on no existing node")
    if len(found) > 1 and claim.state == "allocated":
        del found[0]
    if claim.used_by:
        found.append(f"reserved for {len(claim.used_by):,}")
    return found
