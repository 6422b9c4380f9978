"""The options that say which cluster is asked."""

from pathlib import Path
from typing import Annotated, Final

import typer

from stower.cli.supervisor import STATE

__all__ = ["STATE", "Context", "Kubeconfig", "SchedulerPort", "SchedulerToken", "State"]

ORDER: Final = "default: of --state, of KUBECONFIG, of .stower here, ~/.kube/config"

State = Annotated[
    Path, typer.Option(metavar="FOLDER", help="The folder of a cluster of `stower up`.")
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help=f"The kubeconfig of the cluster to ask; {ORDER}."),
]
Context = Annotated[str, typer.Option(metavar="NAME", help="A context of the kubeconfig.")]
# A scheduler that runs, and tells of itself.
SchedulerPort = Annotated[
    int | None,
    typer.Option("--port", min=1, max=65535, help="Of a running scheduler, on loopback."),
]
SchedulerToken = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="With --port: its bearer token."),
]
