"""Prints pods that wait for a node as a table."""

from collections.abc import Sequence
from typing import Final

from stower.cli.output import console, table
from stower.sim.trial_world import UnplacedPod

SHOWN: Final = 20


def print_unplaced(title: str, pods: Sequence[UnplacedPod]) -> None:
    """Prints the first of these pods with their reasons, and the number of the others. Prints
    nothing where there are none."""
    if not pods:
        return
    shown = table(title, "pod", "reason")
    for one in pods[:SHOWN]:
        shown.add_row(one.pod, one.why)
    console().print(shown)
    if len(pods) > SHOWN:
        console().print(f"and {len(pods) - SHOWN:,} more (all with --output json)")
