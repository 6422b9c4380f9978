"""Defines the options of the HTTP server for a scheduler's own endpoints (address, bearer token,
TLS), and builds the ServingOptions from them.
"""

import secrets
from pathlib import Path
from typing import Annotated, Final

import typer

from stower.cli.output import bad_input
from stower.cli.recordings import rebuild_engine
from stower.cli.scheduler_client import read_token
from stower.live.shell_runner import LOOPBACK, ServingOptions
from stower.pki.files import write_private
from stower.record.lines import Engine as Built

__all__ = ["LOOPBACK", "BindAddress", "Port", "TlsCertFile", "TlsKeyFile", "TokenFile",
           "build_serving_options", "token_of"]  # fmt: skip

ONLY_WITH_PORT: Final = "want --port too: without it nothing is served"

Port = Annotated[
    int | None,
    typer.Option(
        "--port", "--secure-port", min=0, max=65535,
        help="Serve the dashboard, /healthz, /metrics and /debug/ on this port; 0: a free one.",
    ),
]  # fmt: skip
BindAddress = Annotated[
    str,
    typer.Option(help="Address to serve on. Any other than loopback is served over TLS, without "
                      "--tls-cert-file with a self-signed certificate."),
]  # fmt: skip
TokenFile = Annotated[
    Path | None,
    typer.Option(help="File of the bearer token that authorizes requests, created if missing. "
                      "Default: TokenReview and SubjectAccessReview of the API server."),
]  # fmt: skip
TlsCertFile = Annotated[
    Path | None, typer.Option(help="Serve over TLS with this certificate; reloaded on change.")
]
TlsKeyFile = Annotated[Path | None, typer.Option(help="Private key of the certificate.")]


def build_serving_options(
    port: int | None,
    bind_address: str,
    token_file: Path | None,
    certificate: Path | None,
    key: Path | None,
    built: Built,
) -> ServingOptions | None:
    """Returns the serving options; None: nothing is served. `built`: how the engine was built.

    Ends the program where the options contradict each other.
    """
    if port is None:
        given = {"--token-file": token_file, "--tls-cert-file": certificate,
                 "--tls-private-key-file": key}  # fmt: skip
        for name, value in given.items():
            if value is not None:
                raise bad_input(f"{name} {value}: {ONLY_WITH_PORT}")
        if bind_address != LOOPBACK:
            raise bad_input(f"--bind-address {bind_address}: {ONLY_WITH_PORT}")
        return None
    from stower.dashboard.app import Dashboard
    from stower.metrics.catalogue import Metrics

    token = token_of(token_file) if token_file is not None else ""
    dashboard = Dashboard(rebuild_engine, built)
    return ServingOptions(
        Metrics(), port, token, bind_address, certificate, key, dashboard, [dashboard.watching]
    )


def token_of(path: Path) -> str:
    """The token of the file, which is made where it is missing."""
    try:
        if not path.exists():
            write_private(path, f"{secrets.token_urlsafe(32)}\n".encode())
    except OSError as error:
        raise bad_input(f"--token-file {path}: {error.strerror}") from None
    return read_token(path)
