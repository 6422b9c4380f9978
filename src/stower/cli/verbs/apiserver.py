"""stower apiserver: runs an API server for one machine."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stower.api.admission import OPTIONAL
from stower.api.optional_kinds import SERVE
from stower.apiserver.database import StateError
from stower.apiserver.server_process import LOOPBACK, Options, RunningServer, serve
from stower.apiserver.tables import VERSIONS
from stower.cli.event_ttl import EVENT_TTL, EventTtl, event_ttl_seconds
from stower.cli.large_objects import LARGE_OBJECTS_MAX, LargeObjectsMax, large_objects_bytes
from stower.cli.output import bad_input, console, failure
from stower.cli.shutdown import WithParent, stop_event
from stower.cli.verb_arguments import with_arguments

NAME = "apiserver"
EPILOG = """
Examples:

  stower apiserver

  stower apiserver --state ./cluster --port 6443

  stower apiserver --memory --kubeconfig ./kubeconfig

  stower apiserver --authorization-mode RBAC --audit-log-path audit.ndjson

  stower apiserver --runtime-config resource.k8s.io/v1beta2/devicetaintrules=true

The server stores objects for kubectl and other Kubernetes clients, and runs no pods: it includes
neither kubelets nor controllers (`stower actors` simulates both). It is for use on one machine; a
real cluster has its own API server.
"""


class Mode(StrEnum):
    """How requests are authorized."""

    ALWAYS_ALLOW = "AlwaysAllow"
    RBAC = "RBAC"


@dataclass(frozen=True)
class ApiserverArguments:
    """The arguments of one `stower apiserver`."""

    state: Annotated[
        Path, typer.Option(help="Directory for objects, certificates and the kubeconfig.")
    ] = Path(".stower")
    host: Annotated[str, typer.Option(help="Address to listen on.")] = LOOPBACK
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")
    ] = 6443
    memory: Annotated[
        bool, typer.Option("--memory", help="Keep objects in memory; they are lost at the end.")
    ] = False
    kubeconfig: Annotated[
        Path | None, typer.Option(help="File for the kubeconfig (STATE/kubeconfig).")
    ] = None
    admission: Annotated[
        list[str] | None,
        typer.Option(help=f"Plugins to enable besides the default: {', '.join(OPTIONAL)}."),
    ] = None
    runtime_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=true", help=f"Optional kinds to serve: {', '.join(SERVE)}."),
    ] = None
    kubernetes: Annotated[
        str,
        typer.Option(help="Version of the API to serve. 1.37 adds trees of pod groups to 1.36."),
    ] = "1.36"
    authorization_mode: Annotated[
        Mode,
        typer.Option(help="RBAC: requests need a role; service accounts can authenticate."),
    ] = Mode.ALWAYS_ALLOW
    audit_log_path: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one line for each request to FILE.")
    ] = None
    event_ttl: EventTtl = EVENT_TTL
    large_objects_max: LargeObjectsMax = LARGE_OBJECTS_MAX
    with_parent: WithParent = False


@with_arguments(ApiserverArguments)
def run(given: ApiserverArguments) -> None:
    """Serve the Kubernetes API from a directory, for one machine."""
    plugins = _admission_plugins(given.admission or ())
    more = _optional_kinds(given.runtime_config or ())
    if given.kubernetes not in VERSIONS:
        raise bad_input(f"--kubernetes: got {given.kubernetes!r}, want {' or '.join(VERSIONS)}")
    ttl_s = event_ttl_seconds(given.event_ttl)
    large_bytes = large_objects_bytes(given.large_objects_max)

    def start(folder: Path) -> None:
        options = Options(
            folder, given.host, given.port, given.memory, plugins, given.kubeconfig,
            given.kubernetes, more, given.authorization_mode is Mode.RBAC, given.audit_log_path,
            ttl_s, large_bytes,
        )  # fmt: skip
        _serve(given, options)

    if given.memory and given.kubeconfig is not None:
        with tempfile.TemporaryDirectory(prefix="stower-") as folder:
            start(Path(folder))
    else:
        start(given.state)


def _admission_plugins(given: Sequence[str]) -> frozenset[str]:
    """Returns the plugins of --admission, which may be comma-separated and repeated."""
    names = [name for names in given for name in names.split(",") if name]
    for name in names:
        if name not in OPTIONAL:
            raise bad_input(f"--admission: got {name!r}, want {' or '.join(OPTIONAL)}")
    return frozenset(names)


def _optional_kinds(given: Sequence[str]) -> tuple[str, ...]:
    """Returns the kinds that --runtime-config switches on, which may be repeated."""
    found = []
    for entries in given:
        for entry in entries.split(","):
            key, _, switch = entry.partition("=")
            if key not in SERVE or switch not in ("", "true", "false"):
                want = " or ".join(f"{key}=true" for key in SERVE)
                raise bad_input(f"--runtime-config: got {entry!r}, want {want}")
            if switch != "false":
                found.append(key)
    return tuple(found)


def _serve(given: ApiserverArguments, options: Options) -> None:
    """Serves until stopped. Ends the program where the state or the address cannot be used."""

    def on_ready(server: RunningServer) -> None:
        _print_start(given, server)

    try:
        asyncio.run(serve(options, on_ready, lambda: stop_event(given.with_parent)))
    except StateError as error:
        raise failure(str(error)) from None
    except OSError as error:
        from stower.live.shell import os_error_text

        text = f"cannot serve on {given.host}:{given.port}: {os_error_text(error)}"
        raise failure(f"{text}; give another --port or --state") from None


def _print_start(given: ApiserverArguments, server: RunningServer) -> None:
    """Prints where the server is and how to reach it with kubectl."""
    out = console()
    where = "in memory" if given.memory else f"in {given.state}, {server.objects:,} loaded"
    out.print(f"Serving Kubernetes {given.kubernetes} on {server.url}; objects are {where}.\n")
    out.print("Next, in another terminal:\n")
    out.print(f"  export KUBECONFIG={server.kubeconfig.resolve()}", soft_wrap=True)
    out.print("  kubectl get namespaces\n")
    out.print("Stop it with Ctrl-C.")
