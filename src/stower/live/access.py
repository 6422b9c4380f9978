"""Finds the API server and keeps the credentials for it: of a kubeconfig, or of the pod that the
process runs in.

Credentials are read again when a file of theirs has changed, when they expire, and when the server
refuses them. How they are read is the business of credentials.py.
Source: client-go rest/config.go, transport/token_source.go and plugin/pkg/client/auth/exec,
Kubernetes 1.36.
"""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from stower.live.credentials import (
    Credentials,
    load_credentials,
    service_account_credentials,
)
from stower.live.kubeconfig import (
    FILE_FIELDS,
    AccessError,
    NoKubeconfig,
    load_kubeconfig,
    resolve_context,
)

__all__ = ["Access", "AccessError", "NoKubeconfig", "read_access"]

log = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FILE_CHECK_SECONDS: Final = 60.0  # between two checks of the files; as client-go, for a tokenFile
# Between two runs of a plugin, whatever the server answers and however many requests wait.
RENEW_INTERVAL_SECONDS: Final = 1.0


class Access:
    """The address of an API server and the credentials for it, which change while it lives."""

    def __init__(
        self,
        server: str,
        credentials: Credentials,
        reload: Callable[[], Awaitable[Credentials]] | None = None,
        *,
        server_name: str = "",
        files: Iterable[str | Path] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`reload` reads everything again: `files` and plugins. None: the credentials are fixed.

        `server_name`: the name that the server's certificate must hold; "": the host of the server.
        """
        self.server = server
        self.server_name = server_name
        self._credentials = credentials
        self._reload = reload
        self._clock = clock
        self._tried_at_s = clock()
        self._reload_fault: AccessError | None = None
        self._files = tuple(map(Path, files))
        self._files_checked_at_s = self._tried_at_s
        self._file_stats = self._stat_files()
        self._expires_at_s = self._expiry(credentials)
        self._renew_lock = asyncio.Lock()

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context for connections, another one after each renewal; None: plain HTTP."""
        return self._credentials.tls

    async def headers(self) -> dict[str, str]:
        """Returns the header fields that authenticate a request, the same dict until they change.

        Checks files each minute, and renews credentials that have expired. Raises AccessError.
        """
        now_s = self._clock()
        if self._files and now_s >= self._files_checked_at_s + FILE_CHECK_SECONDS:
            self._files_checked_at_s = now_s
            await self._reload_if_changed()
        if now_s >= self._expires_at_s:
            await self.renew()
        return self._credentials.headers

    async def renew(self) -> bool:
        """Reads files and plugins again, as the server refused the credentials (401).

        Returns False where that cannot help. Of several callers at once the first one reads; within
        RENEW_INTERVAL_SECONDS the others get its result. Raises AccessError.
        """
        if self._reload is None:
            return False
        async with self._renew_lock:
            if self._clock() < self._tried_at_s + RENEW_INTERVAL_SECONDS:
                if self._reload_fault is not None:
                    raise AccessError(str(self._reload_fault))
                return True
            stats = self._stat_files()
            try:
                credentials = await self._reload()
            except AccessError as error:
                self._reload_fault = error
                raise
            finally:
                self._tried_at_s = self._clock()
            self._reload_fault = None
            self._credentials = credentials
            self._file_stats = stats
            self._expires_at_s = self._expiry(credentials)
        return True

    def _expiry(self, credentials: Credentials) -> float:
        """Returns when the credentials expire, on our clock."""
        if credentials.expires_at_s is None:
            return float("inf")
        return self._clock() + credentials.expires_at_s - time.time()

    async def _reload_if_changed(self) -> None:
        """Reads files that have changed. Where they are half written, the old credentials stay in
        force until the next check."""
        if self._stat_files() == self._file_stats:
            return
        try:
            await self.renew()
        except AccessError as error:
            log.warning("cannot read the changed credentials, the old ones stay in use: %s", error)
        else:
            log.info("credentials have changed and were read again")

    def _stat_files(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for path in self._files:
            try:
                stat = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return found


async def read_access(
    kubeconfig: Path | None = None,
    context: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Access:
    """Returns the access to an API server.

    Without a kubeconfig: of KUBECONFIG, of ~/.kube/config, or of the pod's own account. `clock`
    returns seconds and never goes back. Raises AccessError.
    """
    document = load_kubeconfig(kubeconfig)
    if document is None:
        if context:
            raise NoKubeconfig(
                f"--context {context}: no kubeconfig found: give --kubeconfig or set KUBECONFIG"
            )
        return _in_cluster_access(clock)
    kube_context = resolve_context(document, context)
    check_server(kube_context.server, kube_context.source)

    async def reload() -> Credentials:
        return await load_credentials(kube_context)

    entries = {**kube_context.cluster, **kube_context.user}
    files = [str(entries[name]) for name in FILE_FIELDS if entries.get(name)]
    changes = bool(files or kube_context.user.get("exec"))
    return Access(
        kube_context.server,
        await reload(),
        reload if changes else None,
        server_name=kube_context.server_name,
        files=files,
        clock=clock,
    )


def _in_cluster_access(clock: Callable[[], float]) -> Access:
    """Returns the access of the pod's service account. Raises AccessError."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "")
    way_out = "give --kubeconfig or set KUBECONFIG"
    if not host or not port:
        raise NoKubeconfig(f"no kubeconfig and not in a cluster: {way_out}")
    folder = SERVICE_ACCOUNT
    if not (folder / "token").is_file():
        text = f"no kubeconfig, and no service account token at {folder / 'token'}"
        raise NoKubeconfig(f"{text}: {way_out}, or set automountServiceAccountToken of the pod")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    check_server(server, "KUBERNETES_SERVICE_HOST")

    async def reload() -> Credentials:
        return service_account_credentials(folder)

    files = (folder / "token", folder / "ca.crt")
    return Access(server, service_account_credentials(folder), reload, files=files, clock=clock)


def check_server(server: str, source: str) -> None:
    """Raises AccessError where the server is no address."""
    try:
        parts = urlsplit(server)
        _ = parts.port
        host = parts.hostname or ""
        host.encode("idna")
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError("want http:// or https:// and a host")
    except ValueError as error:
        text = " ".join(str(error).split())
        raise AccessError(f"{source}: server {server!r}: {text}") from None
