"""Prints the comparison of `stower what-if` as tables."""

from typing import Final

from rich.table import Table

from stower.cli.output import amount, console, format_count, table
from stower.cli.reason_text import without_preemption
from stower.sim.what_if import Comparison, Difference, Outcome

SHOWN: Final = 20


def print_comparison(found: Comparison) -> None:
    """Prints the figures of both runs, and the pods that fare otherwise."""
    out = console()
    out.print(_figures(found.before, found.after))
    for title, differences in (
        ("Newly placed", found.newly_placed),
        ("Newly pending", found.newly_pending),
        ("Newly lost", found.newly_lost),
        ("Moved", found.moved),
        ("Only after", found.added),
        ("Only before", found.removed),
        ("Elsewhere without the change", found.unlike),
    ):
        _list(title, differences)
    if found.forced_moves is not None:
        moves = format_count(found.forced_moves, "pod")
        out.print()
        out.print(f"Moved by the change, or without a node after it: {moves} that had a node.")
    if found.evicted:
        out.print()
        out.print(f"Newly evicted: {_join_first(found.evicted)}", soft_wrap=True)
    lists = (
        found.moved, found.newly_placed, found.newly_pending, found.newly_lost, found.added,
        found.removed, found.evicted,
    )  # fmt: skip
    if found.before == found.after and not any(lists):
        out.print("\nNothing changes.")


def _figures(was: Outcome, will: Outcome) -> Table:
    figures = table("What if", "", "before", "after", right=("before", "after"))
    for name, one, other in (
        ("nodes", was.nodes, will.nodes),
        ("empty nodes", was.empty_nodes, will.empty_nodes),
        ("pods", was.pods, will.pods),
        ("running", was.running, will.running),
        ("ended", was.ended, will.ended),
        ("pending", was.pending, will.pending),
        ("lost", was.lost, will.lost),
        ("evictions", was.evictions, will.evictions),
        ("removed by the change", was.removed, will.removed),
    ):
        if name == "removed by the change" and not other:
            continue
        figures.add_row(name, f"{one:,}", f"{other:,}")
    if was.waited_seconds or will.waited_seconds:
        figures.add_row(
            "waiting time, total", f"{was.waited_seconds:,.1f} s", f"{will.waited_seconds:,.1f} s"
        )
    if was.still_waiting_seconds or will.still_waiting_seconds:
        texts = [f"{run.still_waiting_seconds:,.1f} s" for run in (was, will)]
        figures.add_row("of pods that never ran", *texts)
    figures.add_row("node hours", f"{was.node_hours:,.2f}", f"{will.node_hours:,.2f}")
    if was.cost is not None and will.cost is not None:
        figures.add_row("cost", f"{was.cost:,.2f}", f"{will.cost:,.2f}")
    after = {use.resource: use for use in will.use}
    for use in was.use:
        other_use = after.get(use.resource)
        text = f"{other_use.percent:.1f} %" if other_use is not None else "-"
        figures.add_row(f"use of {use.resource}", f"{use.percent:.1f} %", text)
        if other_use is not None and other_use.allocatable != use.allocatable:
            figures.add_row(
                f"allocatable {use.resource}", amount(use.resource, use.allocatable),
                amount(use.resource, other_use.allocatable),
            )  # fmt: skip
    return figures


def _list(title: str, differences: tuple[Difference, ...]) -> None:
    if not differences:
        return
    out = console()
    out.print()
    shown = table(f"{title}: {len(differences):,}", "pod", "before", "after", "reason")
    for each in differences[:SHOWN]:
        why = without_preemption(each.why)
        shown.add_row(each.pod, each.before or "-", each.after or "-", why)
    out.print(shown)
    if len(differences) > SHOWN:
        out.print(f"and {len(differences) - SHOWN:,} more (all with --output json)")


def _join_first(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
