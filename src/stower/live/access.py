"""Where an API server is and how to be let in: a kubeconfig, or the pod that this runs in.

Contexts, files, tokens that end and exec plugins are the business of kubernetes_asyncio. Its import
takes 1.4 s, so a file that holds all there is to know (as those of `stower up` do) is read here.
"""

import base64
import logging
import ssl
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# How long a token is shown before its file or plugin is asked again, which costs little.
TOKEN_SECONDS: Final = 10.0


class AccessError(Exception):
    """There is no way to the server; the text says what is wrong and with what."""


class Access:
    """A server, and what to show it."""

    def __init__(self, server: str, tls: ssl.SSLContext | None, configuration: Any) -> None:
        """`configuration` is kubernetes_asyncio's."""
        self.server = server
        self.tls = tls
        self._configuration = configuration
        self._headers: dict[str, str] = {}
        self._good_until_s = 0.0

    async def headers(self) -> dict[str, str]:
        """The headers that say who we are; an exec plugin is asked again when its token ends.

        Raises AccessError.
        """
        now_s = time.monotonic()
        if now_s >= self._good_until_s:
            self._headers = await self._ask_headers()
            self._good_until_s = now_s + TOKEN_SECONDS
        return self._headers

    def forget_token(self) -> None:
        """The server did not take it: ask for a new one."""
        self._good_until_s = 0.0

    async def _ask_headers(self) -> dict[str, str]:
        try:
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # whatever a plugin or its answer makes of it
            raise AccessError(f"no token: {_line(error)}") from None
        if token:
            return {"Authorization": token}
        if self._configuration.username and self._configuration.password:
            pair = aiohttp.BasicAuth(self._configuration.username, self._configuration.password)
            return {"Authorization": pair.encode()}
        return {}


async def read_access(kubeconfig: Path | None = None, context: str = "") -> Access:
    """The way to a server. Without a kubeconfig: KUBECONFIG, ~/.kube/config, or the pod's own.

    Raises AccessError.
    """
    if kubeconfig is not None:
        if not kubeconfig.is_file():
            raise AccessError(f"--kubeconfig {kubeconfig}: no such file")
        known = None if context else _self_contained(kubeconfig)
        if known is not None:
            return known
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import Configuration

    # What it warns of is in the errors that it raises: one line says it.
    logging.getLogger("kubernetes_asyncio").setLevel(logging.ERROR)
    configuration: Any = Configuration()
    try:
        await config.load_kube_config(
            config_file=None if kubeconfig is None else str(kubeconfig),
            context=context or None,
            client_configuration=configuration,
            persist_config=False,
        )
    except Exception as error:
        if kubeconfig is not None or context:
            where = f"kubeconfig {kubeconfig}" if kubeconfig is not None else "kubeconfig"
            raise AccessError(f"{where}: {_line(error)}") from None
        try:
            load: Any = config.load_incluster_config
            load(client_configuration=configuration)
        except config.ConfigException:
            raise AccessError(
                "no kubeconfig and not in a cluster: give --kubeconfig or set KUBECONFIG"
            ) from None
    server = str(configuration.host)
    try:
        tls = _tls(configuration) if server.startswith("https") else None
    except OSError as error:
        raise AccessError(f"certificates of {server}: {_line(error)}") from None
    return Access(server.rstrip("/"), tls, configuration)


class _Static:
    """What Access asks for, of a token that never changes."""

    username = password = None

    def __init__(self, token: str) -> None:
        self._token = token

    async def get_api_key_with_prefix(self, _: str) -> str:
        return f"Bearer {self._token}"


def _self_contained(path: Path) -> Access | None:
    """The way of a kubeconfig with one cluster, its authority and a token in it; or None."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
        (cluster,), (user,) = document["clusters"], document["users"]
        cluster, user = dict(cluster["cluster"]), dict(user["user"])
        server, authority = cluster.pop("server"), cluster.pop("certificate-authority-data")
        token = user.pop("token")
        # The token is enough: the same user's certificate says nothing more.
        user.pop("client-certificate-data", None)
        user.pop("client-key-data", None)
        if cluster or user or len(document["contexts"]) != 1 or not server.startswith("https://"):
            return None
        tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode("ascii"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return None  # whatever is wrong with it, the library says so
    return Access(server.rstrip("/"), tls, _Static(str(token)))


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
