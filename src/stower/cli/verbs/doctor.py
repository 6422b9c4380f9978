"""stower doctor: checks whether this machine and a cluster have what a scheduler needs."""

import asyncio
import importlib.util
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from stower.cli.cluster_checks import MISSING, NOTE, OK, Finding, Wanted, check_cluster
from stower.cli.cluster_options import Context, Kubeconfig, State
from stower.cli.kube import AGENT, KubeError, kubeconfig_of
from stower.cli.output import Output, console, emit, table
from stower.cli.state_folder import STATE
from stower.live.access import AccessError, read_access
from stower.live.client import Client
from stower.model.kinds import VirtualMachine, VirtualMachineMigration

NAME = "doctor"
WATCHED = True
EPILOG = """
Examples:

  stower doctor                              # this machine and the default cluster

  stower doctor --kubeconfig ~/.kube/config --context prod

  stower doctor --config scheduler.yaml \\
    --account system:serviceaccount:stower-system:stower

  stower doctor -o json | jq '.[] | select(.state == "missing")'

The exit code is 1 if anything that a scheduler needs is missing, else 0.
"""
PYTHON: Final = (3, 11)
# Extras: module, what it is for.
EXTRAS: Final = {
    "fast": ("aiofastnet", "TLS at half the CPU"),
    "plot": ("matplotlib", "--plot"),
    "parquet": ("pyarrow", "traces and results as Parquet"),
    "otel": ("opentelemetry.sdk", "--otlp-endpoint"),
    "ray": ("ray", "sweeps over several machines"),
}


def run(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    state: State = STATE,
    config: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="KubeSchedulerConfiguration of the scheduler: its Lease, and the kinds that it "
            "relies on. Default: kube-scheduler's.",
        ),
    ] = "",
    account: Annotated[
        str,
        typer.Option(
            metavar="USER",
            help="Whose rights to check, such as "
            "system:serviceaccount:stower-system:stower. Default: the kubeconfig's.",
        ),
    ] = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = Output.TABLE,
) -> None:
    """Check whether this machine and a cluster have what a scheduler needs."""
    wanted = _wanted(config, account)
    found = [*_machine(), *asyncio.run(_cluster(kubeconfig, context, state, wanted))]
    if output is not Output.TABLE:
        emit([msgspec.to_builtins(one) for one in found], output)
    else:
        shown = table("", "check", "", "result")
        shown.title = None
        for one in found:
            shown.add_row(one.about, one.state, one.text)
        console().print(shown)
    if any(one.state == MISSING for one in found):
        raise typer.Exit(1)


def _wanted(config: str, account: str) -> Wanted:
    """What the configuration needs; ends the program where it is wrong."""
    if not config:
        return Wanted(account=account)
    # Imported only here: both take time, and most calls have no configuration.
    from stower.cli.run_arguments import RunArguments
    from stower.cli.scheduler_setup import read_setup

    setup = read_setup(RunArguments(config=config))
    required = (VirtualMachine, VirtualMachineMigration) if setup.has_vms else ()
    return Wanted(setup.leader_election, required, account)


def _machine() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info >= PYTHON
    text = version if fine else f"{version}, want at least 3.11"
    yield Finding("Python", OK if fine else MISSING, text)
    for extra, (module, purpose) in EXTRAS.items():
        try:
            there = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            there = False
        text = purpose if there else f"{purpose}: pip install 'stower[{extra}]'"
        yield Finding(f"extra {extra}", OK if there else NOTE, text)
    path = shutil.which("kubectl")
    yield Finding("kubectl", OK if path else NOTE, path or "not on PATH; Stower does not need it")


async def _cluster(given: Path | None, context: str, state: Path, wanted: Wanted) -> list[Finding]:
    try:
        access = await read_access(kubeconfig_of(given, state), context)
    except (AccessError, KubeError) as error:
        is_asked_for = given is not None or bool(context) or state != STATE
        text = f"{error}; or start a cluster with `stower up`"
        return [Finding("cluster", MISSING if is_asked_for else NOTE, text)]
    async with Client(access, AGENT) as client:
        return [finding async for finding in check_cluster(client, wanted, time.time_ns())]
