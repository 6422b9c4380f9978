"""stower groups: prints pod groups as trees: minimum, placed and waiting pods, domain, state."""

from typing import Annotated

import typer

from stower.cli.cluster_inputs import ALL, Inputs, cluster_of, requested_name
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

Name a group with or without its namespace; `all` selects every group. The whole tree of a group is
shown. The exit code is 2 if there is no such group.
"""


def run(
    which: Annotated[str, typer.Argument(metavar="[GROUP]", help="Group to show as a tree.")] = ALL,
    inputs: Inputs = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show pod groups as trees, with their placement and what they wait for."""
    name = requested_name(which, inputs, NAME)
    work = cluster_of(inputs, kubeconfig, context, state, nodeless=True).workload
    pods = (*work.placed, *(arrival.pod for arrival in work.arrivals))
    groups = [obj for obj in work.related if isinstance(obj, PodGroup | CompositePodGroup)]
    found = overview(work.nodes, pods, groups, name)
    if found is None:
        raise bad_input(f"got {which!r}, want the name of a PodGroup or CompositePodGroup")
    if output is Output.TABLE:
        _print(found)
    else:
        emit(found, output)


def _print(found: list[GroupState]) -> None:
    out = console()
    if not found:
        out.print("There are no pod groups.")
        return
    shown = table("Pod groups", "group", "minimum", "placed", "waiting", "domain", "state",
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
