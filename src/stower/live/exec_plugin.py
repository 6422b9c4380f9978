"""Runs the exec plugin of a kubeconfig's user: a program that prints an ExecCredential, which has a
token, a client certificate or both.

The program is started by its argument list, without a shell, and ends or is killed within
PLUGIN_SECONDS. Its output is limited, and is in no error text; what it writes to standard error is.
Source: client-go plugin/pkg/client/auth/exec/exec.go and
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import base64
import contextlib
import datetime
import os
import signal
import sys
from typing import Annotated, Any, Final

import msgspec

from stower.live.kubeconfig import AccessError, KubeContext, Object

API_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
KIND: Final = "ExecCredential"
# The extension of a cluster that goes to the plugin (provideClusterInfo).
CLUSTER_EXTENSION: Final = "client.authentication.k8s.io/exec"
NEVER, IF_AVAILABLE, ALWAYS = INTERACTIVE_MODES = ("Never", "IfAvailable", "Always")
PLUGIN_SECONDS: Final = 60.0
KILL_SECONDS: Final = 1.0  # how long a killed plugin is waited for
OUTPUT_BYTES_MAX: Final = 1 << 20
ERROR_TEXT_MAX: Final = 500  # characters of standard error in a message: the last ones
READ_BYTES: Final = 1 << 16


class _Variable(msgspec.Struct):
    name: str
    value: str


class _Config(msgspec.Struct, rename="camel"):
    """The field `exec` of a user."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime.datetime, msgspec.Meta(tz=True)] | None = None


class _Credential(msgspec.Struct, rename="camel"):
    """An ExecCredential as a plugin prints it."""

    api_version: str
    kind: str
    status: _Status | None = None


class PluginCredentials(msgspec.Struct, frozen=True):
    """The credentials that a plugin returned: a token, a certificate or both."""

    token: str
    certificate: bytes
    """The certificate and its key as PEM text; b"": none."""
    expires_at_s: float | None
    """Unix time; None: until the server refuses them."""


class ExecPlugin:
    """A plugin as the kubeconfig configures it, and the information about the cluster that the
    plugin gets."""

    def __init__(self, config: _Config, where: str, cluster: Object | None) -> None:
        """`where`: the start of messages. `cluster`: spec.cluster of KUBERNETES_EXEC_INFO."""
        self._config = config
        self._where = f"{where}: exec plugin {config.command}"
        self._cluster = cluster

    async def run(self) -> PluginCredentials:
        """Runs the plugin and returns its credentials. Raises AccessError."""
        is_interactive = self._is_interactive()
        environment = {
            **os.environ,
            **{one.name: one.value for one in self._config.env or ()},
            "KUBERNETES_EXEC_INFO": self._exec_info(is_interactive),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                self._config.command,
                *(self._config.args or ()),
                env=environment,
                stdin=None if is_interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                # The user reads on the terminal what an interactive plugin writes there.
                stderr=None if is_interactive else asyncio.subprocess.PIPE,
                # In a session of its own, the plugin has no terminal, and is killed with all that
                # it has started.
                start_new_session=not is_interactive,
            )
        except FileNotFoundError:
            hint = " ".join((self._config.install_hint or "").split())
            hint = hint or "install it, or give its path as exec.command"
            raise AccessError(f"{self._where}: no such program: {hint}") from None
        except OSError as error:
            raise AccessError(f"{self._where}: {error.strerror or error}") from None
        except ValueError as error:  # a NUL in an argument, an = in the name of a variable
            raise AccessError(f"{self._where}: args or env: {error}") from None
        return self._decode(await self._output(process, is_interactive))

    def _is_interactive(self) -> bool:
        """Returns whether the plugin may read from the terminal.

        Raises AccessError where the plugin must read and there is no terminal.
        """
        has_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
        if self._config.interactive_mode == ALWAYS and not has_terminal:
            text = f"interactiveMode is {ALWAYS}, but standard input is not a terminal"
            raise AccessError(f"{self._where}: {text}: run it on a terminal, or use another plugin")
        return has_terminal and self._config.interactive_mode != NEVER

    def _exec_info(self, is_interactive: bool) -> str:
        spec: Object = {} if self._cluster is None else {"cluster": self._cluster}
        spec["interactive"] = is_interactive
        info = {"kind": KIND, "apiVersion": self._config.api_version, "spec": spec}
        try:
            return msgspec.json.encode(info).decode()
        except (TypeError, ValueError) as error:
            where = f"{self._where}: extension {CLUSTER_EXTENSION} of the cluster"
            raise AccessError(f"{where}: {_one_line(error)}") from None

    async def _output(self, process: asyncio.subprocess.Process, is_interactive: bool) -> bytes:
        """Returns the whole standard output. Kills the process at the time-out and on cancellation.

        Raises AccessError.
        """
        assert process.stdout is not None
        try:
            async with asyncio.timeout(PLUGIN_SECONDS):
                output, text = await asyncio.gather(
                    self._read_output(process.stdout), _read_error_text(process.stderr)
                )
                code = await process.wait()
        except TimeoutError:
            await _kill(process, is_interactive)
            raise AccessError(
                f"{self._where}: no answer within {PLUGIN_SECONDS:.0f} s; run it by hand to see why"
            ) from None
        except BaseException:
            await _kill(process, is_interactive)
            raise
        if code:
            ended = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
            raise AccessError(f"{self._where}: {ended}" + (f": {text}" if text else ""))
        return output

    async def _read_output(self, stream: asyncio.StreamReader) -> bytes:
        output = b""
        while data := await stream.read(READ_BYTES):
            output += data
            if len(output) > OUTPUT_BYTES_MAX:
                raise AccessError(f"{self._where}: its output has more than 1 MiB")
        return output

    def _decode(self, output: bytes) -> PluginCredentials:
        """Returns the credentials in an ExecCredential. Raises AccessError."""
        try:
            answer = msgspec.json.decode(output, type=_Credential)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            text = f"its output is not an {KIND} of {self._config.api_version}"
            raise AccessError(f"{self._where}: {text}: {_one_line(error)}") from None
        version = self._config.api_version
        for name, got, want in (
            ("kind", answer.kind, KIND), ("apiVersion", answer.api_version, version)
        ):  # fmt: skip
            if got != want:
                text = f"its output has {name} {got[:100]!r}, want {want!r}"
                raise AccessError(f"{self._where}: {text} (set both to the same version)")
        status = answer.status or _Status()
        certificate, key = status.client_certificate_data or "", status.client_key_data or ""
        if bool(certificate) != bool(key):
            text = "its output has only one of clientCertificateData and clientKeyData, want both"
            raise AccessError(f"{self._where}: {text}")
        if not status.token and not certificate:
            raise AccessError(f"{self._where}: its output has neither a token nor a certificate")
        expires = status.expiration_timestamp
        pair = f"{certificate}\n{key}" if certificate else ""
        expires_at_s = expires.timestamp() if expires is not None else None
        return PluginCredentials(status.token or "", pair.encode(), expires_at_s)


def read_plugin(context: KubeContext, authority: bytes) -> ExecPlugin:
    """Returns the plugin of the context's user.

    `authority`: the PEM text of the cluster's certificate authority. Raises AccessError.
    """
    where = context.about_user
    try:
        config = msgspec.convert(context.user["exec"], _Config)
    except msgspec.ValidationError as error:
        raise AccessError(f"{where}: exec: {_one_line(error)}") from None
    if not config.command:
        raise AccessError(f"{where}: exec.command: got '', want a program")
    if config.api_version not in API_VERSIONS:
        text = f"got {config.api_version!r}, want {' or '.join(API_VERSIONS)}"
        way_out = "generate the kubeconfig again with a current version of the plugin"
        raise AccessError(f"{where}: exec.apiVersion: {text}: {way_out}")
    if config.interactive_mode and config.interactive_mode not in INTERACTIVE_MODES:
        text = f"got {config.interactive_mode!r}, want {', '.join(INTERACTIVE_MODES)}"
        raise AccessError(f"{where}: exec.interactiveMode: {text}")
    cluster = _cluster_info(context.cluster, authority) if config.provide_cluster_info else None
    return ExecPlugin(config, where, cluster)


def _cluster_info(cluster: Object, authority: bytes) -> Object:
    """Returns the Cluster of client.authentication.k8s.io, without fields that are empty."""
    info = {
        "server": cluster["server"],
        "tls-server-name": cluster.get("tls-server-name"),
        "insecure-skip-tls-verify": cluster.get("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "config": _extension(cluster.get("extensions")),
    }
    return {name: value for name, value in info.items() if value}


def _extension(extensions: Any) -> Any:
    for one in extensions if isinstance(extensions, list) else ():
        if isinstance(one, dict) and one.get("name") == CLUSTER_EXTENSION:
            return one.get("extension")
    return None


async def _read_error_text(stream: asyncio.StreamReader | None) -> str:
    """Returns the end of what a plugin writes to standard error, as one line."""
    if stream is None:
        return ""
    rest = b""
    while data := await stream.read(READ_BYTES):
        rest = (rest + data)[-READ_BYTES:]
    text = " ".join(rest.decode("utf-8", "replace").split())
    return text if len(text) <= ERROR_TEXT_MAX else f"...{text[-ERROR_TEXT_MAX:]}"


async def _kill(process: asyncio.subprocess.Process, is_interactive: bool) -> None:
    """Ends the plugin, and what it has started unless it shares our terminal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if is_interactive:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(KILL_SECONDS):
            await process.wait()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
