"""Prints the answers of `stower fit` as text and tables."""

from typing import Final

from stower.cli.output import console, format_count, table
from stower.cli.unplaced_printer import print_unplaced
from stower.sim.capacity import Fit
from stower.sim.node_demand import Demand

SHOWN: Final = 10


def print_fit(found: Fit, most: int) -> None:
    """Prints how many copies or mixes fit, why no more do, and where they are."""
    out = console()
    more = f" (at most {most:,} were tried)" if found.fits == most else ""
    what = " mixes" if len(found.by_pod) > 1 else ""
    out.print(f"{found.fits:,} more{what} fit{more}.")
    if found.message:
        which = f"The next copy of {found.next}" if what else "The next copy"
        out.print(f"{which}: {found.message}", soft_wrap=True)
    if found.by_node:
        nodes = table("Copies by node", "node", "pods", right=("pods",))
        ordered = sorted(found.by_node.items(), key=lambda item: (-item[1], item[0]))
        for name, count in ordered[:SHOWN]:
            nodes.add_row(name, f"{count:,}")
        out.print(nodes)
        if len(ordered) > SHOWN:
            out.print(f"and {len(ordered) - SHOWN:,} more nodes")


def print_demand(found: Demand) -> None:
    """Prints how many nodes are needed, how full they are, and which pods no node helps."""
    out = console()
    verb = "places" if found.nodes == 1 else "place"
    nodes = f"{format_count(found.nodes, 'more node')} like {found.template}"
    out.print(f"{nodes} {verb} {found.placed:,} of {format_count(found.pods, 'pod')}.")
    if found.nodes:
        less = format_count(found.nodes - 1, "more node")
        out.print(f"With {less}, {format_count(found.fewer, 'pod')} would wait.")
    used = table("Use", "resource", "percent", right=("percent",))
    for use in found.use:
        used.add_row(use.resource, f"{use.percent:.1f} %")
    out.print(used)
    print_unplaced("Pods that no more nodes help", found.unplaced)
