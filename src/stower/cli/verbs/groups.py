"""stower groups: trees of pod groups, what of them is placed where, and what waits."""

from typing import Annotated

import typer

from stower.cli.cluster_inputs import ALL, Inputs, cluster_of, name_asked
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.output import Output, bad_input, console, emit, lines, table
from stower.groups.overview import GroupState, overview
from stower.model.kinds import CompositePodGroup, PodGroup

NAME = "groups"
WATCHED = True
EPILOG = """
Examples:

  stower groups

  stower groups default/job

  stower groups all examples/groups/two-blocks.yaml --output json

  kubectl get nodes,pods,podgroups -A -o json | stower groups all -

A group is named with its namespace or without; all stands for everything. Of a group, its whole
tree is shown. The exit code is 2 where there is no such group.
"""


def run(
    which: Annotated[str, typer.Argument(metavar="[GROUP]", help="One group, and its tree.")] = ALL,
    inputs: Inputs = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[
        Output, typer.Option("--output", "-o", help="How to print it.")
    ] = Output.TABLE,
) -> None:
    """Show groups of pods that are placed together, as trees, and what they wait for."""
    name = name_asked(which, inputs, NAME)
    work = cluster_of(inputs, kubeconfig, context, state, nodeless=True).workload
    pods = (*work.placed, *(arrival.pod for arrival in work.arrivals))
    groups = [obj for obj in work.related if isinstance(obj, PodGroup | CompositePodGroup)]
    found = overview(work.nodes, pods, groups, name)
    if found is None:
        raise bad_input(f"got {which!r}, want a PodGroup or a CompositePodGroup")
    if output is Output.TABLE:
        _print(found)
    else:
        emit(found, output)


def _print(found: list[GroupState]) -> None:
    out = console()
    if not found:
        out.print("There are no groups of pods.")
        return
    shown = table("Groups of pods", "group", "minimum", "placed", "waiting", "domain", "state",
                  right=("placed", "waiting"))  # fmt: skip
    for one in found:
        of = "groups" if one.kind == "CompositePodGroup" else "pods"
        minimum = f"{one.minimum:,} {of}" if one.policy == "gang" else one.policy
        name = one.name if not one.level else f"{'  ' * one.level}└ {one.name.partition('/')[2]}"
        state = [one.state, *([one.message] if one.message else [])]
        domain = one.domain or (f"one {one.topology}" if one.topology else "")
        shown.add_row(
            lines([name]), minimum, f"{one.have:,}/{one.count:,}", f"{one.waiting:,}",
            lines([domain]), lines(state),
        )  # fmt: skip
    out.print(shown)
