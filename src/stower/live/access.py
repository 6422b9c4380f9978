"""Where an API server is and how to be let in: a kubeconfig, or the pod that this runs in.

Contexts, files, tokens that end and exec plugins are the business of kubernetes_asyncio. Its import
takes 1.4 s, so a file that holds all there is to know (as those of `stower up` do) is read here.
Certificates, keys and tokens that are files of their own are read again once they have changed.
"""

import asyncio
import base64
import contextlib
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from stower.live.kubeconfig import (
    FILE_FIELDS,
    AccessError,
    KubeContext,
    NoKubeconfig,
    load_kubeconfig,
    resolve_context,
)

__all__ = ["Access", "AccessError", "NoKubeconfig", "read_access"]

log = logging.getLogger(__name__)

# How long a token is shown before its file is read again, which costs little.
TOKEN_REFRESH_SECONDS: Final = 10.0
FILE_CHECK_SECONDS: Final = 60.0  # between two looks at files; as client-go, for a tokenFile
RENEW_INTERVAL_SECONDS: Final = 1.0  # between two questions to a plugin, whatever the server says
EXEC_PLUGIN_TIMEOUT_SECONDS: Final = 60.0

Credentials = tuple[ssl.SSLContext | None, Any]  # TLS, and kubernetes_asyncio's configuration


class Access:
    """A server, and what to show it."""

    def __init__(
        self,
        server: str,
        credentials: Credentials,
        reload: Callable[[], Awaitable[Credentials]] | None = None,
        *,
        server_name: str = "",
        files: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`again` asks for everything anew: `files`, plugins. `server_name`: of its certificate."""
        self.server = server
        self.server_name = server_name
        self.tls, self._configuration = credentials
        self._reload = reload
        self._clock = clock
        self._read_at_s = clock()
        self._files = tuple(map(Path, files))
        self._files_checked_at_s = self._read_at_s
        self._file_stats = self._stat_files()
        self._headers: dict[str, str] = {}
        self._headers_expire_at_s = 0.0
        self._renew_lock = asyncio.Lock()

    async def headers(self) -> dict[str, str]:
        """The headers that say who we are. Raises AccessError."""
        now_s = self._clock()
        if self._files and now_s >= self._files_checked_at_s + FILE_CHECK_SECONDS:
            self._files_checked_at_s = now_s
            await self._reload_if_changed()
        if now_s >= self._headers_expire_at_s:
            headers = await self._build_auth_headers()
            if headers != self._headers:
                self._headers = headers
            self._headers_expire_at_s = now_s + TOKEN_REFRESH_SECONDS
        return self._headers

    async def renew(self) -> bool:
        """The server did not take what we showed: ask files and plugins again. Raises AccessError.

        False where that cannot help.
        """
        self._headers_expire_at_s = 0.0
        if self._reload is None:
            return False
        async with self._renew_lock:  # who waited for another finds it done
            if self._clock() >= self._read_at_s + RENEW_INTERVAL_SECONDS:
                seen = self._stat_files()
                self.tls, self._configuration = await self._reload()
                self._file_stats = seen
                self._read_at_s = self._clock()
        return True

    async def _reload_if_changed(self) -> None:
        """Files that are half written are read next time; what was shown until now still holds."""
        if self._stat_files() == self._file_stats:
            return
        try:
            await self.renew()
        except AccessError as error:
            log.warning("credentials have changed and cannot be read: %s", error)
        else:
            log.info("credentials have changed and were read again")

    def _stat_files(self) -> list[tuple[int, int, int]]:
        found = []
        for path in self._files:
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
        return found

    async def _build_auth_headers(self) -> dict[str, str]:
        try:
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # whatever a file or its content makes of it
            raise AccessError(f"no token: {_one_line(error)}") from None
        if token:
            return {"Authorization": token}
        if self._configuration.username and self._configuration.password:
            pair = aiohttp.BasicAuth(self._configuration.username, self._configuration.password)
            return {"Authorization": pair.encode()}
        return {}


async def read_access(
    kubeconfig: Path | None = None,
    context: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> Access:
    """The way to a server. Without a kubeconfig: KUBECONFIG, ~/.kube/config, or the pod's own.

    Raises AccessError.
    """
    document = load_kubeconfig(kubeconfig)
    if document is None:
        if context:
            raise NoKubeconfig(f"--context {context}: there is no kubeconfig")
        return _in_cluster_access(clock)
    kube_context = resolve_context(document, context)
    check_server(kube_context.server, kube_context.source)

    async def reload() -> Credentials:
        return await _load_credentials(kube_context)

    entries = {**kube_context.cluster, **kube_context.user}
    files = [str(entries[name]) for name in FILE_FIELDS if entries.get(name)]
    shown = _inline_credentials(kube_context) or await reload()
    return Access(
        kube_context.server,
        shown,
        reload,
        server_name=kube_context.server_name,
        files=files,
        clock=clock,
    )


def _in_cluster_access(clock: Callable[[], float]) -> Access:
    from kubernetes_asyncio.config import incluster_config

    async def reload() -> Credentials:
        return _load_in_cluster()[1]

    server, shown = _load_in_cluster()
    # The library reads the token anew by itself.
    return Access(
        server, shown, reload, files=[incluster_config.SERVICE_CERT_FILENAME], clock=clock
    )


def _load_in_cluster() -> tuple[str, Credentials]:
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import Configuration

    configuration: Any = Configuration()
    try:
        load: Any = config.load_incluster_config
        load(client_configuration=configuration)
    except config.ConfigException:
        raise NoKubeconfig(
            "no kubeconfig and not in a cluster: give --kubeconfig or set KUBECONFIG"
        ) from None
    server = str(configuration.host).rstrip("/")
    check_server(server, "KUBERNETES_SERVICE_HOST")
    return server, (_tls(configuration, server), configuration)


async def _load_credentials(kube_context: KubeContext) -> Credentials:
    """What kubernetes_asyncio makes of it. Raises AccessError."""
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import Configuration

    # What it warns of is in the errors that it raises: one line says it.
    logging.getLogger("kubernetes_asyncio").setLevel(logging.CRITICAL)
    configuration: Any = Configuration()
    load: Any = config.load_kube_config_from_dict
    try:
        await asyncio.wait_for(
            load(config_dict=kube_context.to_kubeconfig(), client_configuration=configuration),
            EXEC_PLUGIN_TIMEOUT_SECONDS,
        )
    except TimeoutError:
        limit_s = f"{EXEC_PLUGIN_TIMEOUT_SECONDS:.0f} s"
        text = f"{kube_context.source}: its plugin did not answer within {limit_s}"
        raise AccessError(text) from None
    except Exception as error:
        raise AccessError(f"{kube_context.source}: {_one_line(error)}") from None
    return _tls(configuration, kube_context.server), configuration


def check_server(server: str, source: str) -> None:
    """Raises AccessError where that is no address."""
    try:
        parts = urlsplit(server)
        _ = parts.port
        host = parts.hostname or ""
        host.encode("idna")
        if parts.scheme not in ("http", "https") or not host:
            raise ValueError("want http:// or https:// and a host")
    except ValueError as error:
        raise AccessError(f"{source}: server {server!r}: {_one_line(error)}") from None


class _StaticToken:
    """What Access asks for, of a token that never changes."""

    username = password = None

    def __init__(self, token: str) -> None:
        self._token = token

    async def get_api_key_with_prefix(self, _: str) -> str:
        return f"Bearer {self._token}"


def _inline_credentials(kube_context: KubeContext) -> Credentials | None:
    """TLS and token, where they stand in the file; None where more must be asked."""
    cluster, user = dict(kube_context.cluster), dict(kube_context.user)
    authority, token = cluster.pop("certificate-authority-data", ""), user.pop("token", "")
    for name in ("server", "tls-server-name"):
        cluster.pop(name, None)
    # The token is enough, or else the library is asked for the certificate too.
    user.pop("client-certificate-data", None)
    user.pop("client-key-data", None)
    if (
        cluster
        or user
        or not authority
        or not token
        or not kube_context.server.startswith("https://")
    ):
        return None
    try:
        tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode("ascii"))
    except (OSError, ValueError, TypeError):
        return None  # whatever is wrong with it, the library says so
    return tls, _StaticToken(str(token))


def _tls(configuration: Any, server: str) -> ssl.SSLContext | None:
    """How to talk to the server. Raises AccessError."""
    if not server.startswith("https"):
        return None
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ValueError) as error:
        raise AccessError(f"certificates of {server}: {_one_line(error)}") from None
    return context


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
