"""Exec plugins: what they are told, what they may answer, and when they are run again."""

import asyncio
import base64
import json
import os
import pty
import shlex
import ssl
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.live import access as access_module
from stower.live import exec_plugin
from stower.live.access import Access, AccessError, read_access
from stower.pki.certificates import make_certificates
from tests.handshake import presented

Object = dict[str, Any]
V1 = "client.authentication.k8s.io/v1"
BETA = "client.authentication.k8s.io/v1beta1"


def credential(version: str = V1, **status: Any) -> Object:
    return {"apiVersion": version, "kind": "ExecCredential", "status": status}


class Plugins:
    """A folder with a kubeconfig, and a plugin that prints `answer` and notes how it was run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen = folder / "seen"
        (folder / "plug").write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys\n"
            f"folder = {str(folder)!r}\n"
            "with open(f'{folder}/seen', 'a') as file:\n"
            "    line = [sys.argv[1:], dict(os.environ), sys.stdin.read()]\n"
            "    file.write(json.dumps(line) + '\\n')\n"
            "print(open(f'{folder}/answer').read())\n"
        )
        (folder / "plug").chmod(0o755)
        self.answer(credential(token="token"))

    def answer(self, answer: Any) -> None:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        (self.folder / "answer").write_text(text)

    def kubeconfig(
        self, cluster: Object | None = None, user: Object | None = None, **plugin: Any
    ) -> Path:
        plugin = {"apiVersion": V1, "command": "./plug", "interactiveMode": "Never", **plugin}
        document = {
            "clusters": [{"name": "c", "cluster": {"server": "http://x:1", **(cluster or {})}}],
            "users": [{"name": "u", "user": {"exec": plugin, **(user or {})}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        path = self.folder / "config"
        path.write_text(yaml.safe_dump(document))
        return path

    def runs(self) -> list[Any]:
        """Arguments, environment and standard input of each run."""
        if not self.seen.exists():
            return []
        return [json.loads(line) for line in self.seen.read_text().splitlines()]


@pytest.fixture
def plugins(tmp_path: Path) -> Plugins:
    return Plugins(tmp_path)


def headers_of(path: Path) -> Object:
    async def read() -> Object:
        return await (await read_access(path)).headers()

    return asyncio.run(read())


@pytest.mark.parametrize("version", [V1, BETA])
def test_a_plugin_has_its_arguments_and_its_environment(
    version: str, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "1")
    monkeypatch.setenv("BOTH", "ours")
    plugins.answer(credential(version, token="token"))
    arguments = ["a b", "$HOME; exit 1", "--x=é"]
    environment = [{"name": "BOTH", "value": "theirs"}, {"name": "MORE", "value": "2"}]
    path = plugins.kubeconfig(apiVersion=version, args=arguments, env=environment)
    assert {"Authorization": "Bearer token"} == headers_of(path)
    [(seen_arguments, seen, stdin)] = plugins.runs()
    assert arguments == seen_arguments
    assert ("1", "theirs", "2") == (seen["OURS"], seen["BOTH"], seen["MORE"])
    wanted = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    assert wanted == json.loads(seen["KUBERNETES_EXEC_INFO"])
    assert stdin == ""


def test_a_plugin_is_told_about_the_cluster_where_it_wants_to_know(plugins: Plugins) -> None:
    make_certificates(plugins.folder / "pki", ("127.0.0.1",))
    extensions = [
        {"name": "other", "extension": {"no": 1}},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "me"}},
    ]
    cluster = {
        "server": "https://127.0.0.1:1/k8s", "certificate-authority": "pki/ca.crt",
        "tls-server-name": "name", "extensions": extensions,
    }  # fmt: skip
    headers_of(plugins.kubeconfig(cluster, provideClusterInfo=True))
    headers_of(plugins.kubeconfig(cluster))
    headers_of(plugins.kubeconfig({"insecure-skip-tls-verify": True}, provideClusterInfo=True))
    told = [json.loads(seen["KUBERNETES_EXEC_INFO"])["spec"] for _, seen, _ in plugins.runs()]
    data = base64.b64encode((plugins.folder / "pki/ca.crt").read_bytes()).decode()
    known = {
        "server": "https://127.0.0.1:1/k8s", "tls-server-name": "name",
        "certificate-authority-data": data, "config": {"audience": "me"},
    }  # fmt: skip
    insecure = {"server": "http://x:1", "insecure-skip-tls-verify": True}
    assert [known, None, insecure] == [spec.get("cluster") for spec in told]


def pair(folder: Path, name: str) -> Object:
    return {
        "clientCertificateData": (folder / f"{name}.crt").read_text(),
        "clientKeyData": (folder / f"{name}.key").read_text(),
    }


def test_a_certificate_of_a_plugin_is_used_where_the_user_has_none(plugins: Plugins) -> None:
    pki, other = plugins.folder / "pki", plugins.folder / "other"
    for folder in (pki, other):
        make_certificates(folder, ("127.0.0.1",))
    plugins.answer(credential(token="token", **pair(pki, "admin")))
    cluster = {"server": "https://127.0.0.1:1"}

    async def read(path: Path) -> tuple[bytes | None, Object]:
        access = await read_access(path)
        assert access.tls is not None
        found = presented(access.tls, pki, pki / "ca.crt", other / "ca.crt")
        return found, await access.headers()

    def der(folder: Path) -> bytes:
        return ssl.PEM_cert_to_DER_cert((folder / "admin.crt").read_text())

    shown = {"Authorization": "Bearer token"}
    assert (der(pki), shown) == asyncio.run(read(plugins.kubeconfig(cluster)))
    own = {"client-certificate": "other/admin.crt", "client-key": "other/admin.key"}
    assert (der(other), shown) == asyncio.run(read(plugins.kubeconfig(cluster, own)))


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ({"token": "own"}, "Bearer own"),
        ({"username": "me", "password": "it"}, "Basic bWU6aXQ="),
    ],
)
def test_a_plugin_is_not_run_beside_a_token_of_the_user(
    user: Object, shown: str, plugins: Plugins
) -> None:
    """As in client-go; kubernetes_asyncio takes that of the plugin."""
    assert {"Authorization": shown} == headers_of(plugins.kubeconfig(user=user))
    assert [] == plugins.runs()


NO_KEY = "only one of clientCertificateData and clientKeyData"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            "secret",
            "its output is not an ExecCredential of client.authentication.k8s.io/v1: JSON is",
        ),
        ("", "its output is not an ExecCredential"),
        ("[" * 100_000, "its output is not an ExecCredential"),
        (["secret"], "Expected `object`, got `array`"),
        (credential(token=["secret"]), "Expected `str | null`, got `array` - at `$.status.token`"),
        ({**credential(token="secret"), "kind": "Pod"}, "its output has kind 'Pod', want"),
        (credential(BETA, token="secret"), f"has apiVersion '{BETA}', want '{V1}' (set both"),
        ({"apiVersion": V1, "kind": "ExecCredential"}, "neither a token nor a certificate"),
        (credential(token=""), "neither a token nor a certificate"),
        (credential(clientCertificateData="secret"), NO_KEY),
        (credential(token="secret", clientKeyData="secret"), NO_KEY),
        (credential(token="secret", expirationTimestamp="soon"), "$.status.expirationTimestamp"),
        (credential(token="secret" * 200_000), "its output has more than 1 MiB"),
    ],
)
def test_a_wrong_answer_is_one_line_without_secrets(
    answer: Any, text: str, plugins: Plugins
) -> None:
    plugins.answer(answer)
    with pytest.raises(AccessError) as refused:
        headers_of(plugins.kubeconfig())
    said = str(refused.value)
    assert said.startswith(f"kubeconfig {plugins.folder / 'config'}: user 'u': exec plugin /")
    assert text in said
    assert "\n" not in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("plugin", "text"),
    [
        ({"command": "no-such-plug"}, "no such program: install it, or give its path"),
        ({"command": "no-such-plug", "installHint": "get it:\n x"}, "no such program: get it: x"),
        ({"command": "./answer"}, "answer: Permission denied"),
        ({"command": ""}, "exec.command: got '', want a program"),
        ({"command": ["plug"]}, "exec: Expected `str`, got `array` - at `$.command`"),
        ({"command": None}, "exec: Expected `str`, got `null` - at `$.command`"),
        ({"args": "x"}, "exec: Expected `array | null`, got `str` - at `$.args`"),
        ({"args": ["a\0b"]}, "args or env: embedded null byte"),
        ({"env": [{"name": "A=", "value": "secret"}]}, "args or env: illegal environment variable"),
        ({"env": [{"value": "secret"}]}, "missing required field `name` - at `$.env[0]`"),
        ({"env": [{"name": "A", "value": 5}]}, "Expected `str`, got `int`"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1', want client.auth"),
        ({"interactiveMode": "Yes"}, "got 'Yes', want Never, IfAvailable, Always"),
        ({"interactiveMode": "Always"}, "is Always, but standard input is not a terminal"),
        ({"command": "sh", "args": ["-c", "echo no: such user >&2; exit 3"]}, "code 3: no: such u"),
        ({"command": "sh", "args": ["-c", "exit 3"]}, "exit code 3"),
        ({"command": "sh", "args": ["-c", "kill -9 $$"]}, "ended by signal 9"),
        ({"command": "sh", "args": ["-c", "yes | head -c 300000 >&2; exit 1"]}, "exit code 1: ..."),
    ],
)
def test_a_plugin_that_cannot_be_run_is_one_line(
    plugin: Object, text: str, plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", open(os.devnull))  # noqa: SIM115
    with pytest.raises(AccessError) as refused:
        headers_of(plugins.kubeconfig(**plugin))
    said = str(refused.value)
    assert said.startswith(f"kubeconfig {plugins.folder / 'config'}: user 'u': exec")
    assert text in said
    assert "\n" not in said
    assert "secret" not in said
    assert len(said) < 1000


def sleeping(folder: Path) -> Object:
    """A plugin whose child writes its number, and keeps the output open for a minute."""
    child = f"sleep 60 & echo $! > {shlex.quote(str(folder / 'child'))}; wait"
    return {"command": "sh", "args": ["-c", child]}


def ends(folder: Path) -> bool:
    """Whether the child is gone soon."""
    number = int((folder / "child").read_text())
    for _ in range(100):
        try:
            with open(f"/proc/{number}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_a_plugin_that_does_not_answer_is_killed_with_its_children(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec_plugin, "PLUGIN_SECONDS", 2.0)
    with pytest.raises(AccessError, match="no answer within 2 s; run it by hand to see why"):
        headers_of(plugins.kubeconfig(**sleeping(plugins.folder)))
    assert ends(plugins.folder)


def test_a_plugin_ends_with_the_task_that_waits_for_it(plugins: Plugins) -> None:
    path = plugins.kubeconfig(**sleeping(plugins.folder))

    async def story() -> None:
        task = asyncio.create_task(read_access(path))
        child = plugins.folder / "child"
        while not child.exists() or not child.read_text().endswith("\n"):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    assert ends(plugins.folder)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard input, of Python and of what is started; its other side."""
    own, other = pty.openpty()
    before = os.dup(0)
    os.dup2(other, 0)
    with open(other, closefd=False) as file:
        monkeypatch.setattr("sys.stdin", file)
        yield own
    os.dup2(before, 0)
    for number in (own, other, before):
        os.close(number)


@pytest.mark.parametrize(
    ("mode", "is_interactive"),
    [("Never", False), ("IfAvailable", True), ("Always", True), (None, True)],
)
def test_an_interactive_plugin_reads_from_the_terminal(
    mode: str | None, is_interactive: bool, plugins: Plugins, terminal: int
) -> None:
    os.write(terminal, b"typed\n\x04")  # a line, and the end of the input
    headers_of(plugins.kubeconfig(interactiveMode=mode))
    [(_, seen, stdin)] = plugins.runs()
    assert {"interactive": is_interactive} == json.loads(seen["KUBERNETES_EXEC_INFO"])["spec"]
    assert ("typed\n" if is_interactive else "") == stdin


def test_credentials_are_renewed_when_they_expire(plugins: Plugins) -> None:
    now_s = [0.0]

    def expiring(token: str, in_s: float) -> None:
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + in_s))
        plugins.answer(credential(token=token, expirationTimestamp=end))

    async def story() -> None:
        expiring("one", 100)
        access = await read_access(plugins.kubeconfig(), clock=lambda: now_s[0])

        async def shown(at_s: float) -> str:
            now_s[0] = at_s
            return (await access.headers())["Authorization"].removeprefix("Bearer ")

        expiring("two", 100)
        assert "one" == await shown(90)
        assert ["two"] * 5 == await asyncio.gather(*(shown(101) for _ in range(5)))
        assert 2 == len(plugins.runs())
        expiring("three", -1)  # it has ended already: not asked without a pause
        assert ["three"] * 3 == [await shown(at_s) for at_s in (202, 202.5, 202.9)]
        assert 3 == len(plugins.runs())
        plugins.answer("")
        for at_s in (204, 204.5):
            with pytest.raises(AccessError, match="its output is not an ExecCredential"):
                await shown(at_s)
        assert 4 == len(plugins.runs())
        expiring("four", 100)
        assert "four" == await shown(206)

    asyncio.run(story())


def test_fixed_credentials_are_not_renewed(plugins: Plugins) -> None:
    path = plugins.kubeconfig(user={"token": "own", "exec": None})
    access: Access = asyncio.run(read_access(path))
    assert not asyncio.run(access.renew())


def test_outside_of_a_pod_with_an_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment names a server, and what is missing or empty is said with its file."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(access_module, "SERVICE_ACCOUNT", tmp_path)
    with pytest.raises(access_module.NoKubeconfig, match="no service account token at "):
        asyncio.run(read_access())
    (tmp_path / "token").write_text("")
    with pytest.raises(AccessError, match="token: the file is empty"):
        asyncio.run(read_access())
    (tmp_path / "token").write_text("secret\n")
    with pytest.raises(AccessError, match=r"ca.crt: No such file"):
        asyncio.run(read_access())
    make_certificates(tmp_path, ("127.0.0.1",))
    access = asyncio.run(read_access())
    assert "https://[fd00::1]:443" == access.server
    assert {"Authorization": "Bearer secret"} == asyncio.run(access.headers())
