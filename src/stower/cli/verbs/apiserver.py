"""stower apiserver: an API server for one machine."""

import asyncio
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stower.api.admission import OPTIONAL
from stower.api.optional_kinds import SERVE
from stower.apiserver.database import StateError
from stower.apiserver.server_process import LOOPBACK, Options, Running, serve
from stower.apiserver.tables import VERSIONS
from stower.cli.event_ttl import EVENT_TTL, EventTtl, event_ttl_seconds
from stower.cli.output import bad_input, console, failed
from stower.cli.shutdown import WithParent, stop_event

NAME = "apiserver"
EPILOG = """
Examples:

  stower apiserver

  stower apiserver --state ./cluster --port 6443

  stower apiserver --memory --kubeconfig ./kubeconfig

  stower apiserver --authorization-mode RBAC --audit-log-path audit.ndjson

  stower apiserver --runtime-config resource.k8s.io/v1beta2/devicetaintrules=true

It keeps objects for kubectl and other clients of Kubernetes, and runs nothing: no kubelet, no
controllers. It is for one machine; on a cluster, the cluster's own server takes its place.
"""


class Mode(StrEnum):
    """Who may do what."""

    ALWAYS_ALLOW = "AlwaysAllow"
    RBAC = "RBAC"


def run(
    state: Annotated[
        Path, typer.Option(help="Directory for objects, certificates and the kubeconfig.")
    ] = Path(".stower"),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = LOOPBACK,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 6443,
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep nothing: objects are gone when it stops.")
    ] = False,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Where to write the kubeconfig (STATE/kubeconfig).")
    ] = None,
    admission: Annotated[
        list[str] | None,
        typer.Option(help=f"Admission to switch on besides the default: {', '.join(OPTIONAL)}."),
    ] = None,
    runtime_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=true", help=f"What to serve besides: {', '.join(SERVE)}."),
    ] = None,
    kubernetes: Annotated[
        str,
        typer.Option(help="Version of the API to serve. 1.37: 1.36 with trees of pod groups."),
    ] = "1.36",
    authorization_mode: Annotated[
        Mode,
        typer.Option(help="RBAC: what no role allows is forbidden; accounts are let in."),
    ] = Mode.ALWAYS_ALLOW,
    audit_log_path: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a line about each request there.")
    ] = None,
    event_ttl: EventTtl = EVENT_TTL,
    with_parent: WithParent = False,
) -> None:
    """Serve the Kubernetes API from a directory, for one machine."""
    names = [name for given in admission or () for name in given.split(",") if name]
    for name in names:
        if name not in OPTIONAL:
            raise bad_input(f'--admission: got "{name}", want {" or ".join(OPTIONAL)}')
    more = []
    for given in runtime_config or ():
        for entry in given.split(","):
            key, _, switch = entry.partition("=")
            if key not in SERVE or switch not in ("", "true", "false"):
                want = " or ".join(f"{key}=true" for key in SERVE)
                raise bad_input(f'--runtime-config: got "{entry}", want {want}')
            if switch != "false":
                more.append(key)
    if kubernetes not in VERSIONS:
        raise bad_input(f'--kubernetes: got "{kubernetes}", want {" or ".join(VERSIONS)}')

    ttl_s = event_ttl_seconds(event_ttl)

    def ready(server: Running) -> None:
        out = console()
        where = "in memory" if memory else f"in {state}, {server.objects:,} loaded"
        out.print(f"Serving Kubernetes {kubernetes} on {server.url}; objects are {where}.\n")
        out.print("Next, in another terminal:\n")
        out.print(f"  export KUBECONFIG={server.kubeconfig.resolve()}", soft_wrap=True)
        out.print("  kubectl get namespaces\n")
        out.print("Stop it with Ctrl-C.")

    def start(folder: Path) -> None:
        options = Options(
            folder, host, port, memory, frozenset(names), kubeconfig, kubernetes, tuple(more),
            authorization_mode is Mode.RBAC, audit_log_path, ttl_s,
        )  # fmt: skip
        try:
            asyncio.run(serve(options, ready, lambda: stop_event(with_parent)))
        except StateError as error:
            raise failed(str(error)) from None
        except OSError as error:
            from stower.live.shell import os_error_text

            text = f"cannot serve on {host}:{port}: {os_error_text(error)}"
            raise failed(f"{text}; give another --port or --state") from None

    if memory and kubeconfig is not None:
        with tempfile.TemporaryDirectory(prefix="stower-") as folder:
            start(Path(folder))
    else:
        start(state)
