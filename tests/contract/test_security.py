"""Who is let in, and what is too much."""

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from socket import create_connection

import pytest

from stower.apiserver import http
from stower.apiserver.serve import Options
from tests.contract.servers import Client, in_thread

PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path, memory=True)) as (_, made):
        yield made


@pytest.mark.parametrize("token", ["", "wrong", "Bearer", "é"])
def test_wrong_token_is_refused(client: Client, token: str) -> None:
    status, _, body = client.raw("GET", PODS, headers={"Authorization": f"Bearer {token}"})
    assert 401 == status
    assert "Unauthorized" == json.loads(body)["reason"]


def test_client_certificate_is_enough(client: Client, tmp_path: Path) -> None:
    """The kubeconfig's certificate lets its owner in, under the name that it holds."""
    client.token = "none"
    client.context.load_cert_chain(tmp_path / "pki/admin.crt", tmp_path / "pki/admin.key")
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    status, answer = client.call("POST", path, body)
    assert (201, "admin") == (status, answer["status"]["userInfo"]["username"])


def test_keys_and_kubeconfig_are_private(client: Client, tmp_path: Path) -> None:
    for name in ("pki/ca.key", "pki/server.key", "pki/admin.key", "pki/token", "kubeconfig"):
        assert 0o600 == (tmp_path / name).stat().st_mode & 0o777


def test_plain_http_and_strangers_certificates_get_nothing(client: Client) -> None:
    with create_connection((client.host, int(client.port)), timeout=10) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP" not in plain.recv(100)
    context = ssl.create_default_context()
    raw = create_connection((client.host, int(client.port)), timeout=10)
    with pytest.raises(ssl.SSLCertVerificationError):
        context.wrap_socket(raw, server_hostname="127.0.0.1")
    raw.close()


def test_body_that_is_too_long(client: Client) -> None:
    status, _, body = client.raw("POST", CONFIG_MAPS, b"x" * (http.BODY_BYTES_MAX + 1))
    assert 413 == status
    assert "RequestEntityTooLarge" == json.loads(body)["reason"]
    assert 200 == client.call("GET", CONFIG_MAPS)[0]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe",
        b'{"metadata":{"name":"\\ud800"}}',
        b'{"metadata":1e400}',
        b'{"metadata":{"name":"a","labels":{"a":1}}}',
        b"null",
        b"",
        b'{"apiVersion":"v1","kind":["Pod"]}',
        b"k8s\x00\xff\xff\xff\xff",
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "application/yaml",
                                  "application/vnd.kubernetes.protobuf"])  # fmt: skip
def test_hostile_bodies_are_bad_requests(client: Client, body: bytes, kind: str) -> None:
    status, _, answer = client.raw("POST", CONFIG_MAPS, body, {"Content-Type": kind})
    assert status in (400, 422)
    assert "Failure" == json.loads(answer)["status"]


@pytest.mark.parametrize("kind", ["json-patch+json", "merge-patch+json",
                                  "strategic-merge-patch+json", "apply-patch+yaml"])  # fmt: skip
def test_hostile_patches_are_bad_requests(client: Client, kind: str) -> None:
    client.call("POST", CONFIG_MAPS, {"metadata": {"name": "m"}})
    path = f"{CONFIG_MAPS}/m?fieldManager=t"
    for body in (b'{"data":' * 900 + b"1" + b"}" * 900, b"[1]", b'"x"', b"{", b'[{"op":"add"}]'):
        headers = {"Content-Type": f"application/{kind}"}
        status, _, _ = client.raw("PATCH", path, body, headers)
        assert 400 <= status < 500, body[:20]


def test_names_that_would_leave_their_place(client: Client) -> None:
    for name in ("..", ".", "a%2fb", "a%00b", "%2e%2e", "a b", "A", "x" * 300, "-", "ä"):
        path = f"{CONFIG_MAPS}/{name}".replace(" ", "%20").replace("ä", "%C3%A4")
        status, _, _ = client.raw("GET", path)
        assert status in (400, 404), name
        made, _ = client.call("POST", CONFIG_MAPS, {"metadata": {"name": name}})
        assert 422 == made, name


def test_headers_that_are_too_long_or_too_many(client: Client) -> None:
    status, _, _ = client.raw("GET", PODS, headers={"X": "y" * (http.HEADER_BYTES_MAX + 1)})
    assert 400 == status
    status, _, _ = client.raw("GET", PODS, headers={f"X-{i}": "y" for i in range(500)})
    assert 400 == status


def test_slow_headers_are_cut(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection whose headers do not come is closed, without an answer."""
    monkeypatch.setattr(http, "HEADER_SECONDS", 0.2)
    raw = create_connection((client.host, int(client.port)), timeout=10)
    with client.context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        began = time.monotonic()
        try:
            assert b"" == connection.recv(100)
        except (ConnectionResetError, ssl.SSLError):
            pass
        assert time.monotonic() - began < 8


def test_yaml_in_and_out(client: Client) -> None:
    """YAML bodies are read, aliases are not, and answers are YAML where that is asked for."""
    text = b"metadata: {name: y}\ndata:\n  k: 'v'\n"
    kind = {"Content-Type": "application/yaml"}
    status, headers, body = client.raw(
        "POST", CONFIG_MAPS, text, {**kind, "Accept": "application/yaml"}
    )
    assert (201, "application/yaml") == (status, headers["content-type"])
    assert b"name: y" in body
    bomb = b"a: &a [1]\nb: *a\n"
    assert 400 == client.raw("POST", CONFIG_MAPS, bomb, kind)[0]
