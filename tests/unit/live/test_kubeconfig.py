"""Kubeconfigs: several files, contexts, what cannot be, and credentials that end."""

import asyncio
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.live.access import FILE_CHECK_SECONDS, AccessError, read_access
from stower.live.kubeconfig import load_kubeconfig, resolve_context
from stower.pki.certificates import make_certificates

Object = dict[str, Any]


def config(name: str, current: str | None = None, **user: Any) -> Object:
    cluster = {"server": f"http://{name}:1", "certificate-authority": "ca.crt"}
    return {
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name if current is None else current,
    }


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
        (config("c", "d"), "", "no context 'd'; there are: c"),
        (config("c"), "x", "no context 'x'"),
        ({**config("c"), "clusters": []}, "", "names cluster 'c', which it does not have"),
        ({**config("c"), "users": []}, "", "names user 'c', which it does not have"),
        ({**config("c"), "clusters": [{"name": "c", "cluster": {}}]}, "", "has no server"),
        (config("c", **{"as": "root"}), "", "as: acting as another user is not supported"),
        ([1], "", "this is no kubeconfig"),
        ("a: [", "", "kubeconfig"),
        ("", "", "it is empty"),
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
