"""Defines the options that select the cluster, or the running scheduler, that a verb reads."""

from pathlib import Path
from typing import Annotated, Final

import typer

from stower.cli.state_folder import STATE

__all__ = ["STATE", "Context", "Kubeconfig", "SchedulerPort", "SchedulerToken", "State"]

ORDER: Final = "default: of --state, KUBECONFIG, ./.stower, ~/.kube/config"

State = Annotated[
    Path, typer.Option(metavar="FOLDER", help="State folder of a `stower up` cluster.")
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"Kubeconfig of the cluster; {ORDER}."),
]
Context = Annotated[str, typer.Option(metavar="NAME", help="Context of the kubeconfig.")]
# A running scheduler that serves its own endpoints.
SchedulerPort = Annotated[
    int | None,
    typer.Option("--port", min=1, max=65535, help="Port of a running scheduler, on loopback."),
]
SchedulerToken = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="With --port: file of its bearer token."),
]
