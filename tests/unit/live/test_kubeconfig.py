"""Kubeconfigs: several files, contexts, what cannot be, and credentials that end."""

import asyncio
import base64
import itertools
import os
import ssl
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import load_kube_config

from stower.live.access import FILE_CHECK_SECONDS, AccessError, read_access
from stower.live.kubeconfig import KUBECONFIG_BYTES_MAX, load_kubeconfig, resolve_context
from stower.pki.certificates import make_certificates
from tests.handshake import presented

Object = dict[str, Any]


def config(name: str, current: str | None = None, **user: Any) -> Object:
    cluster = {"server": f"http://{name}:1", "certificate-authority": "ca.crt"}
    return {
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name if current is None else current,
    }


def https(cluster: Object, **user: Any) -> Object:
    document = config("c", **user)
    document["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1", **cluster}
    return document


def in_base64(text: str | bytes) -> str:
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


PEM = in_base64("-----BEGIN CERTIFICATE-----\nsecret\n-----END CERTIFICATE-----\n")
KEY = in_base64("-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n")


def written(path: Path, document: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def listed(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))


def test_the_first_file_has_the_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = config("one"), config("two")
    other["users"].append({"name": "one", "user": {"token": "stranger"}})
    empty = written(tmp_path / "empty", "")
    first, second = written(tmp_path / "a/one", one), written(tmp_path / "b/two", other)
    listed(monkeypatch, tmp_path / "missing", empty, first, second)
    document = load_kubeconfig(None)
    assert document is not None
    way = resolve_context(document, "")
    assert ("http://one:1", {}) == (way.server, way.user)
    assert str(tmp_path / "a/ca.crt") == way.cluster["certificate-authority"]
    assert "http://two:1" == resolve_context(document, "two").server


def test_files_are_where_their_kubeconfig_is(tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./bin/plug"}
    document = config("c", exec=plugin)
    found = load_kubeconfig(written(tmp_path / "k/config", document))
    assert found is not None
    assert str(tmp_path / "k/bin/plug") == resolve_context(found, "").user["exec"]["command"]
    plain = config("c", exec={**plugin, "command": "aws"})
    found = load_kubeconfig(written(tmp_path / "k/config", plain))
    assert found is not None
    assert "aws" == resolve_context(found, "").user["exec"]["command"]


@pytest.mark.parametrize(
    ("document", "context", "text"),
    [
        (config("c", "d"), "", "no context 'd'; the contexts are: c"),
        (config("c"), "x", "no context 'x'"),
        ({**config("c"), "clusters": []}, "", "names cluster 'c', which the kubeconfig lacks"),
        ({**config("c"), "users": []}, "", "names user 'c', which the kubeconfig lacks"),
        ({**config("c"), "clusters": [{"name": "c", "cluster": {}}]}, "", "has no server"),
        (config("c", **{"as": "root"}), "", "as: acting as another user is not supported"),
        ([1], "", "the file is not a kubeconfig"),
        ("a: [", "", "kubeconfig"),
        ("", "", "the file is empty"),
        ("a: [b, c\ntoken: secret", "", "config: not valid YAML: line 2, column"),
        ("a: 1\n\0b: 2", "", "control characters are not allowed"),
        ({**config("c"), "users": [{"name": "c", "user": ["x"]}]}, "", "users 'c': user: want an"),
        ({**config("c"), "clusters": [{}]}, "", "clusters: an entry has no name"),
        (config("c", token=12345678), "", "user 'c': token: got a number, want a string"),
        (config("c", password=["hunter2"]), "", "user 'c': password: got a list, want a string"),
        (config("c", exec="plug"), "", "user 'c': exec: got a string, want an object"),
        (config("c", **{"auth-provider": {"name": "oidc"}}), "", "use an exec plugin"),
        (https({"insecure-skip-tls-verify": "false"}), "", "got a string, want true or false"),
        (https({"proxy-url": "http://proxy"}), "", "cluster 'c': proxy-url: a proxy is not"),
        (https({"certificate-authority": "nowhere"}), "", "nowhere: No such file"),
        (https({"certificate-authority": "config"}), "", "config: want PEM text"),
        (https({"certificate-authority-data": "secret!"}), "", "-data: want PEM text in base64"),
        (
            https({"certificate-authority-data": "c2VjcmV0"}),
            "",
            "want PEM text, which has a line -----BEGIN",
        ),
        (https({"certificate-authority-data": "secreté"}), "", "-data: want PEM text in base64"),
        (https({}, **{"client-certificate-data": PEM}), "", "set client-key or client-key-data"),
        (https({}, **{"client-certificate-data": PEM, "client-key-data": KEY}), "", "or key: "),
        (config("c", tokenFile="nowhere"), "", "tokenFile"),
        (config("a..b"), "", "server 'http://a..b:1'"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, document: Any, context: str, text: str) -> None:
    path = written(tmp_path / "config", document)
    with pytest.raises(AccessError) as refused:
        asyncio.run(read_access(path, context))
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not any(secret in str(refused.value) for secret in ("secret", "hunter2", "12345678"))


def test_a_list_of_files_of_which_none_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/a:/nowhere/b")
    with pytest.raises(AccessError, match="no such file"):
        asyncio.run(read_access())


def test_a_plugin_is_asked_again_when_its_token_is_refused(tmp_path: Path) -> None:
    plugin = tmp_path / "plug"
    plugin.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib\n"
        f"path = pathlib.Path({str(tmp_path / 'count')!r})\n"
        "count = int(path.read_text()) + 1 if path.exists() else 1\n"
        "path.write_text(str(count))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': "
        "'ExecCredential', 'status': {'token': f'token-{count}'}}))\n"
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IEXEC)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plug"}}
    document = config("c", **user)
    del document["clusters"][0]["cluster"]["certificate-authority"]
    path = written(tmp_path / "config", document)

    now_s = [0.0]

    async def tokens() -> list[str]:
        access = await read_access(path, clock=lambda: now_s[0])
        now_s[0] += 10.0
        found = [(await access.headers())["Authorization"]]
        assert await access.renew()
        found.append((await access.headers())["Authorization"])
        assert await access.renew(), "at once again: it is not asked"
        return [*found, (await access.headers())["Authorization"]]

    assert ["Bearer token-1", "Bearer token-2", "Bearer token-2"] == asyncio.run(tokens())


def test_a_tokens_file_may_end_in_a_line_break(tmp_path: Path) -> None:
    written(tmp_path / "token", "secret\n")
    document = config("c", tokenFile="token")
    del document["clusters"][0]["cluster"]["certificate-authority"]
    path = written(tmp_path / "config", document)

    async def header() -> str:
        return (await (await read_access(path)).headers())["Authorization"]

    assert "Bearer secret" == asyncio.run(header())


def test_files_are_read_again_once_they_have_changed(tmp_path: Path) -> None:
    """A token, and the authority: looked at each minute; what is half written waits."""
    make_certificates(tmp_path / "pki", ("127.0.0.1",))
    authority, token = tmp_path / "ca.crt", tmp_path / "token"
    authority.write_bytes((tmp_path / "pki/ca.crt").read_bytes())
    written(token, "one")
    document = config("c", tokenFile="token")
    document["clusters"][0]["cluster"] = {
        "server": "https://127.0.0.1", "certificate-authority": "ca.crt"
    }  # fmt: skip
    path = written(tmp_path / "config", document)
    now_s = 0.0

    async def story() -> None:
        nonlocal now_s
        access = await read_access(path, clock=lambda: now_s)
        first = access.tls

        async def shown() -> tuple[str, bool]:
            return (await access.headers())["Authorization"], access.tls is first

        assert ("Bearer one", True) == await shown()
        written(token, "second")
        now_s = FILE_CHECK_SECONDS - 1
        assert ("Bearer one", True) == await shown(), "not looked at yet"
        now_s = FILE_CHECK_SECONDS
        assert ("Bearer second", False) == await shown()
        first = access.tls
        authority.write_text("-----BEGIN CERTIFICATE-----\nhalf")
        now_s = 2 * FILE_CHECK_SECONDS
        assert ("Bearer second", True) == await shown()
        authority.write_bytes((tmp_path / "pki/server.crt").read_bytes())
        now_s = 3 * FILE_CHECK_SECONDS
        assert ("Bearer second", False) == await shown()

    asyncio.run(story())


def test_files_that_never_end_are_refused(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(KUBECONFIG_BYTES_MAX + 1)
    with pytest.raises(AccessError, match="the file has more than 16 MiB"):
        asyncio.run(read_access(large))
    path = written(tmp_path / "config", config("c", tokenFile="/dev/zero"))
    with pytest.raises(AccessError, match="/dev/zero: the file has more than 1 MiB"):
        asyncio.run(read_access(path))


def test_a_kubeconfig_may_be_a_pipe(tmp_path: Path) -> None:
    document = config("c", token="secret")
    os.mkfifo(tmp_path / "pipe")

    async def header() -> str:
        writing = asyncio.to_thread(written, tmp_path / "pipe", document)
        task = asyncio.create_task(writing)
        access = await asyncio.to_thread(asyncio.run, read_access(tmp_path / "pipe"))
        await task
        return (await access.headers())["Authorization"]

    assert "Bearer secret" == asyncio.run(header())


def test_a_tokens_file_comes_first_and_the_token_is_used_without_it(tmp_path: Path) -> None:
    """As in client-go, whose reference says so; kubernetes_asyncio takes the token."""
    path = written(tmp_path / "config", config("c", token="inline", tokenFile="token"))

    async def header() -> str:
        return (await (await read_access(path)).headers())["Authorization"]

    assert "Bearer inline" == asyncio.run(header())
    written(tmp_path / "token", " file\n")
    assert "Bearer file" == asyncio.run(header())
    written(tmp_path / "token", "\n")
    assert "Bearer inline" == asyncio.run(header())


def test_a_name_without_a_password_is_sent(tmp_path: Path) -> None:
    """As in client-go; kubernetes_asyncio sends nothing."""
    path = written(tmp_path / "config", config("c", username="me"))
    headers = asyncio.run(asyncio.run(read_access(path)).headers())
    assert {"Authorization": f"Basic {in_base64('me:')}"} == headers


def test_a_key_with_a_passphrase_is_refused_without_a_question(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    make_certificates(pki, ("127.0.0.1",))
    key = serialization.load_pem_private_key((pki / "admin.key").read_bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    data = in_base64((pki / "admin.crt").read_bytes())
    user = {"client-certificate-data": data, "client-key-data": in_base64(encrypted)}
    path = written(tmp_path / "config", https({}, **user))
    with pytest.raises(
        AccessError, match="the key has a passphrase, want a key without a passphrase"
    ):
        asyncio.run(read_access(path))


def test_an_empty_authority_is_not_that_of_the_system(tmp_path: Path) -> None:
    for content in (b"", b"\n", b"\xff\xfe"):
        (tmp_path / "ca.crt").write_bytes(content)
        path = written(tmp_path / "config", https({"certificate-authority": "ca.crt"}))
        with pytest.raises(AccessError, match="want PEM text"):
            asyncio.run(read_access(path))


# kubernetes_asyncio reads the same kubeconfig: the address, the header fields, the authorities and
# the client's certificate are the same.


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    make_certificates(folder, ("127.0.0.1",))
    both = (folder / "admin.crt").read_bytes() + (folder / "admin.key").read_bytes()
    (folder / "both.pem").write_bytes(both)
    commented = "# Ämter\n".encode() + (folder / "ca.crt").read_bytes() * 2 + b"# end\n"
    (folder / "commented.crt").write_bytes(commented)
    (folder / "token").write_text("from-file")
    return folder


def authorities(pki: Path) -> list[Object]:
    data = in_base64((pki / "ca.crt").read_bytes())
    return [
        {},
        {"certificate-authority": "ca.crt"},
        {"certificate-authority": str(pki / "commented.crt")},
        {"certificate-authority-data": data},
        {"certificate-authority-data": data, "certificate-authority": "nowhere"},
        {"certificate-authority-data": data, "insecure-skip-tls-verify": False},
        {"insecure-skip-tls-verify": True, "tls-server-name": "other"},
        {"certificate-authority": "ca.crt", "insecure-skip-tls-verify": True},
    ]


def certificates(pki: Path) -> list[Object]:
    data = {name: in_base64((pki / f"admin.{name}").read_bytes()) for name in ("crt", "key")}
    folded = "\n".join(data["crt"][i : i + 64] for i in range(0, len(data["crt"]), 64))
    return [
        {},
        {"client-certificate": "admin.crt", "client-key": "admin.key"},
        {"client-certificate": "both.pem"},
        {"client-certificate-data": folded, "client-key-data": data["key"]},
        {"client-certificate-data": data["crt"], "client-key": "admin.key"},
        {"client-key-data": data["key"]},
    ]


USERS: list[Object] = [
    {},
    {"token": "secret"},
    {"tokenFile": "token"},
    {"token": "", "username": "me", "password": "pä:ss"},
    {"token": "secret", "username": "me", "password": "password"},
]


async def theirs(path: Path) -> tuple[Any, Object, ssl.SSLContext | None]:
    """The address, the header fields and the TLS context of kubernetes_asyncio."""
    configuration: Any = Configuration()
    load: Any = load_kube_config
    await load(config_file=str(path), client_configuration=configuration)
    token = await configuration.get_api_key_with_prefix("BearerToken")
    headers = {"Authorization": token} if token else {}
    tls = None
    if configuration.host.startswith("https"):
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if not configuration.verify_ssl:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    named = configuration.tls_server_name or ""
    return (configuration.host, named), headers, tls


@pytest.mark.parametrize("server", ["https://127.0.0.1:6443/", "https://[::1]/k8s", "http://x:1"])
def test_the_same_as_kubernetes_asyncio(server: str, pki: Path) -> None:
    """Every authority with every certificate, each pair with one of the users in turn."""
    turns = itertools.cycle(USERS)
    for authority, certificate in itertools.product(authorities(pki), certificates(pki)):
        document = config("c", **certificate, **next(turns))
        document["clusters"][0]["cluster"] = {"server": server, **authority}
        if server.startswith("http:"):
            document["clusters"][0]["cluster"].pop("tls-server-name", None)
        path = written(pki / "config", document)

        async def both(path: Path = path) -> None:
            (host, named), headers, tls = await theirs(path)
            access = await read_access(path)
            assert (host, named) == (access.server, access.server_name)
            assert headers == await access.headers()
            assert (tls is None) == (access.tls is None)
            if tls is None or access.tls is None:
                return
            for read in (
                lambda context: (context.verify_mode, context.check_hostname),
                lambda context: sorted(context.get_ca_certs(binary_form=True)),
                lambda context: presented(context, pki),
            ):
                assert read(tls) == read(access.tls)

        asyncio.run(both())


def test_a_handshake_shows_which_certificate_is_presented(pki: Path) -> None:
    """Or else two that show none would look the same."""
    path = written(pki / "config", https({}, **certificates(pki)[1]))
    tls = asyncio.run(read_access(path)).tls
    assert tls is not None
    wanted = ssl.PEM_cert_to_DER_cert((pki / "admin.crt").read_text())
    assert wanted == presented(tls, pki)


def test_keys_are_read_without_memory_files_too(pki: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stower.live.credentials.sys.platform", "darwin")
    path = written(pki / "config", https({}, **certificates(pki)[3]))
    tls = asyncio.run(read_access(path)).tls
    assert tls is not None
    assert presented(tls, pki)
