"""stower vms: prints each VM with used, requested and approved size, node and migration."""

from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from stower.cli.cluster_inputs import ALL, Inputs, cluster_of, requested_name
from stower.cli.cluster_options import STATE, Context, Kubeconfig, State
from stower.cli.output import Output, bad_input, console, emit, lines, table
from stower.model.kinds import VirtualMachine, VirtualMachineMigration
from stower.state.journal import Journal
from stower.vms.amounts import cpu_value, memory_value
from stower.vms.config import SHIPPED
from stower.vms.migration_plan import MigrationPlan, plan_migrations
from stower.vms.node_table import node_table
from stower.vms.nowhere import find_stuck
from stower.vms.overview import Size, VmState, overview

NAME = "vms"
WATCHED = True
EPILOG = """
Examples:

  stower vms

  stower vms node-1

  stower vms default/pg-1 --output json

  kubectl get nodes,pods,neonvm,neonvmm -A -o json | stower vms all -

  stower vms --plan

  stower vms --plan --rule LeastMemory --at-once 3

Name a VM with or without its namespace; `all` selects every VM. The exit code is 2 if there is
neither such a VM nor such a node with VMs. The notes say what VMs lack that should leave a node
above its watermark and have nowhere to go.

With --plan, nothing happens: the migrations are shown that would bring the nodes to their
watermarks. A round begins when all VMs of the one before have moved. Only amounts of CPU and memory
are looked at, not what else keeps pods off nodes.
"""


class RuleName(StrEnum):
    """Which VM leaves first: see migrationRule in docs/vms.md."""

    OLDEST_FIRST = "OldestFirst"
    LEAST_MEMORY = "LeastMemory"


def run(
    which: Annotated[
        str, typer.Argument(metavar="[VM|NODE]", help="VM to show, or node whose VMs are shown.")
    ] = ALL,
    inputs: Inputs = None,
    watermark: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=1.0,
            help="Share of a node above which VMs leave it, as in the scheduler's configuration.",
        ),
    ] = SHIPPED.watermark,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show which migrations would bring nodes below it.")
    ] = False,
    rule: Annotated[
        RuleName | None,
        typer.Option(help="With --plan: which VM leaves a node first. Default: OldestFirst."),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            min=0, help="With --plan: most migrations at once in all; 0: no bound. Default: 100."
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show VMs with their used, requested and approved sizes, and their migrations."""
    name = requested_name(which, inputs, NAME)
    work = cluster_of(inputs, kubeconfig, context, state, nodeless=True).workload
    pods = (*work.placed, *(arrival.pod for arrival in work.arrivals))
    vms = [obj for obj in work.related if isinstance(obj, VirtualMachine)]
    moves = [obj for obj in work.related if isinstance(obj, VirtualMachineMigration)]
    if not plan and (rule is not None or at_once is not None):
        raise bad_input("--rule and --at-once want --plan")
    journal = Journal()
    nodes = node_table(work.nodes, pods, vms, watermark, journal)
    if plan:
        if name:
            raise bad_input(f"got {which!r} with --plan, which is for all nodes: leave it out")
        config = msgspec.structs.replace(
            SHIPPED,
            migration_rule=rule or RuleName.OLDEST_FIRST,
            migrations_max=SHIPPED.migrations_max if at_once is None else at_once,
        )
        planned = plan_migrations(nodes, journal, config)
        _print_plan(planned) if output is Output.TABLE else emit(planned, output)
        return
    found = overview(pods, vms, moves, name, find_stuck(nodes))
    if found is None:
        raise bad_input(f"got {which!r}, want the name of a VM or of a node with VMs")
    if output is Output.TABLE:
        _print(found)
    else:
        emit(found, output)


def _print(found: list[VmState]) -> None:
    out = console()
    if not found:
        out.print("There are no VMs.")
        return
    shown = table("VMs", "vm", "phase", "uses", "requested", "approved", "node", "migration",
                  "note")  # fmt: skip
    for one in found:
        target = f"to {one.target}" if one.target else ""
        target = target.replace("to waits for", "its target waits for")
        moves = [text for text in (one.migration, target) if text]
        shown.add_row(
            lines([one.vm]), one.phase, _size(one.uses), _size(one.requested), _size(one.approved),
            one.node, lines(moves), lines([one.message]),
        )  # fmt: skip
    out.print(shown)


def _print_plan(plan: MigrationPlan) -> None:
    out = console()
    if not plan.above_before:
        out.print("No node is above its watermark.")
        return
    if plan.moves:
        shown = table("Planned migrations", "round", "vm", "from", "to", "size")
        for move in plan.moves:
            size = f"{cpu_value(move.milli_cpu)} CPU, {memory_value(move.bytes)}"
            shown.add_row(
                str(move.round), lines([move.vm]), lines([move.source]), lines([move.target]), size
            )
        out.print(shown)
    out.print(
        f"{len(plan.moves)} migrations with {memory_value(plan.bytes)} of memory. Nodes above "
        f"their watermark: {len(plan.above_before)} now, {len(plan.above_after)} after them."
    )
    if plan.above_after:
        out.print(f"No VM of these has somewhere to go: {', '.join(plan.above_after)}")


def _size(size: Size | None) -> str:
    if size is None:
        return ""
    cpu = size.cpu if isinstance(size.cpu, int) else int(size.cpu.removesuffix("m")) / 1000
    return f"{cpu:g} CPU, {size.memory}"
