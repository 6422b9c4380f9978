"""Makes the credentials of a client: the TLS context and the header fields with which it connects.

Reads them from a kubeconfig's cluster and user, the files that these name and the user's exec
plugin, or from the service account of a pod. The module does not decide when credentials are read
again: access.py does. Secrets are in no error text.
Source: client-go rest/config.go, rest/transport.go and transport/, Kubernetes 1.36.
"""

import base64
import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stower.live.exec_plugin import read_plugin
from stower.live.kubeconfig import AccessError, KubeContext, Object, read_file

# Of a file with certificates, a key or a token. The certificates of all public authorities take
# 0.2 MiB.
CREDENTIAL_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True)
class Credentials:
    """The credentials that a client presents to a server. Replaced as a whole, never changed."""

    tls: ssl.SSLContext | None = None
    """Verifies the server and holds the client's certificate; None: the server is http://."""
    headers: dict[str, str] = field(default_factory=dict)
    """The header fields of every request."""
    expires_at_s: float | None = None
    """The Unix time at which the credentials expire; None: unknown."""


async def load_credentials(context: KubeContext) -> Credentials:
    """Returns the credentials of the user for the cluster. Reads all files and runs the plugin.

    What the kubeconfig holds comes before what the plugin returns, as in client-go: the plugin is
    not run where the user has a token or a username, and the plugin's certificate is used where the
    user has none. Raises AccessError.
    """
    headers = _user_headers(context)
    is_https = context.server.lower().startswith("https://")
    authority = certificate = b""
    if is_https:
        authority = read_pem(context.cluster, "certificate-authority", context.about_cluster)
        certificate = _client_certificate(context)
    expires_at_s = None
    if context.user.get("exec") and not headers:
        answer = await read_plugin(context, authority).run()
        headers = _bearer(answer.token) if answer.token else {}
        certificate = certificate or answer.certificate
        expires_at_s = answer.expires_at_s
    if not is_https:
        return Credentials(None, headers, expires_at_s)
    insecure = bool(context.cluster.get("insecure-skip-tls-verify"))
    tls = make_tls(authority, context.about_cluster, insecure=insecure)
    if certificate:
        _load_chain(tls, certificate, context.about_user)
    return Credentials(tls, headers, expires_at_s)


def service_account_credentials(folder: Path) -> Credentials:
    """Returns the credentials of a pod's service account, which the kubelet keeps in the folder.

    Raises AccessError.
    """
    headers = _bearer(read_token(folder / "token", "service account: token"))
    where = "service account"
    authority = read_pem({"ca.crt": str(folder / "ca.crt")}, "ca.crt", where)
    return Credentials(make_tls(authority, where), headers)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def read_token(path: Path, what: str) -> str:
    """Returns the token in a file, without blanks around it. Raises AccessError."""
    data = read_file(path, CREDENTIAL_BYTES_MAX, what)
    try:
        token = data.decode().strip()
    except UnicodeDecodeError:
        raise AccessError(f"{what} {path}: the file is not UTF-8 text") from None
    if not token:
        raise AccessError(f"{what} {path}: the file is empty")
    return token


def _user_headers(context: KubeContext) -> dict[str, str]:
    """Returns the header fields that the user's entry states, without a plugin.

    A token in a file comes before a token in the kubeconfig, which is used where the file cannot be
    read.
    """
    user = context.user
    token = user.get("token") or ""
    if path := user.get("tokenFile"):
        try:
            token = read_token(Path(path), f"{context.about_user}: tokenFile")
        except AccessError:
            if not token:
                raise
    if token:
        return _bearer(token)
    if user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
    return {}


def read_pem(entry: Object, field: str, where: str) -> bytes:
    """Returns the PEM text of FIELD-data, else of the file that FIELD names; b"": neither is set.

    Raises AccessError.
    """
    if text := entry.get(f"{field}-data"):
        what = f"{where}: {field}-data"
        try:
            data = base64.b64decode("".join(text.split()), validate=True)
        except ValueError:
            raise AccessError(f"{what}: want PEM text in base64") from None
    elif path := entry.get(field):
        what = f"{where}: {field} {path}"
        data = read_file(Path(path), CREDENTIAL_BYTES_MAX, f"{where}: {field}")
    else:
        return b""
    if b"-----BEGIN " not in data:
        raise AccessError(f"{what}: want PEM text, which has a line -----BEGIN")
    return data


def _client_certificate(context: KubeContext) -> bytes:
    """Returns the user's certificate and key as one PEM text; b"": the user has none."""
    certificate = read_pem(context.user, "client-certificate", context.about_user)
    if not certificate:
        return b""
    pair = certificate + b"\n" + read_pem(context.user, "client-key", context.about_user)
    if b"PRIVATE KEY-----" not in pair:
        text = "client-certificate without a key: set client-key or client-key-data"
        raise AccessError(f"{context.about_user}: {text}")
    return pair


def make_tls(authority: bytes, where: str, *, insecure: bool = False) -> ssl.SSLContext:
    """Returns a client's TLS context that trusts these authorities; b"": those of the system.

    `insecure`: the server is not verified at all. Raises AccessError.
    """
    try:
        # The ssl module takes ASCII alone; comments between the certificates may hold anything.
        context = ssl.create_default_context(cadata=authority.decode("ascii", "ignore") or None)
    except (OSError, ValueError) as error:
        raise AccessError(f"{where}: certificate-authority: {_one_line(error)}") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_chain(context: ssl.SSLContext, pair: bytes, where: str) -> None:
    """Adds a certificate with its key (PEM) to the context. Raises AccessError."""
    try:
        with _private_file(pair) as path:
            context.load_cert_chain(path, password=_refuse_passphrase)
    except (OSError, ValueError) as error:
        raise AccessError(f"{where}: client certificate or key: {_one_line(error)}") from None


def _refuse_passphrase() -> str:
    """Raises ValueError. Without this, OpenSSL would wait for input on the terminal."""
    raise ValueError("the key has a passphrase, want a key without a passphrase")


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """Yields a path to the data that other users cannot open, valid within the block.

    The ssl module reads keys from paths alone. On Linux the file is in memory: a pod may have no
    folder to write to.
    """
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("credentials"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as named:
            named.write(data)
            named.flush()
            yield named.name


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
