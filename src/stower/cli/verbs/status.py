"""stower status: prints the state of the cluster that `stower up` runs."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from stower.cli.cluster_options import State
from stower.cli.kube import Kube, KubeError, NodeHealth
from stower.cli.output import Output, console, emit, failure, table
from stower.cli.state_folder import STATE, UpError
from stower.cli.supervisor import (
    Record,
    dashboard_link,
    read_record,
)

NAME = "status"
WATCHED = True
EPILOG = """
Examples:

  stower status

  stower status --output json

The exit code is 0 if the cluster runs and all its nodes are ready, otherwise 1.
"""


def run(
    state: State = STATE,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Show cluster processes, ready nodes and pod phases."""
    try:
        record = read_record(state)
    except UpError as error:
        raise failure(str(error)) from None
    if record is None:
        if output is Output.TABLE:
            console().print(f"No cluster runs from {state}. Start one with `stower up`.")
        else:
            emit({"running": False}, output)
        raise typer.Exit(1)
    try:
        found = asyncio.run(_read_cluster(record, state))
    except KubeError as error:
        raise failure(str(error)) from None
    if output is not Output.TABLE:
        emit(found, output)
    else:
        _print(found)
    if found["nodes"]["ready"] < found["nodes"]["all"]:
        raise typer.Exit(1)


async def _read_cluster(record: Record, state: Path) -> dict[str, Any]:
    async with Kube.open(Path(record.kubeconfig)) as kube:
        nodes = await kube.items("/api/v1/nodes")
        pods = await kube.items("/api/v1/pods")
    ready = sum(node.is_ready for node in msgspec.convert(nodes, list[NodeHealth]))
    phases: dict[str, int] = {}
    for pod in pods:
        phase = pod["status"].get("phase") or "Unknown"
        if phase == "Pending" and pod["spec"].get("nodeName"):
            phase = "Starting"
        phases[phase] = phases.get(phase, 0) + 1
    return {
        "running": True,
        "server": record.server,
        "kubeconfig": record.kubeconfig,
        "dashboard": dashboard_link(state, record.dashboard) if record.dashboard else "",
        "processes": {"up": record.pid, **record.processes},
        "nodes": {"all": len(nodes), "ready": ready},
        "pods": {"all": len(pods), **dict(sorted(phases.items()))},
    }


def _print(found: dict[str, Any]) -> None:
    shown = table("", "what", "how")
    shown.show_header = False
    shown.title = None
    shown.add_row("server", found["server"])
    shown.add_row("kubeconfig", found["kubeconfig"])
    shown.add_row("dashboard", found["dashboard"] or "none: --no-scheduler")
    running = ", ".join(f"{name} {pid}" for name, pid in found["processes"].items())
    shown.add_row("processes", running)
    nodes = found["nodes"]
    shown.add_row("nodes", f"{nodes['ready']:,} of {nodes['all']:,} ready")
    pods = dict(found["pods"])
    count = pods.pop("all")
    phases = ", ".join(f"{number:,} {phase}" for phase, number in pods.items())
    shown.add_row("pods", f"{count:,}" + (f": {phases}" if phases else ""))
    console().print(shown)
