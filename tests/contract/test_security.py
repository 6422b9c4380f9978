"""Who is let in, and what is too much."""

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from socket import create_connection

import pytest

from stower.apiserver import http
from stower.apiserver.server_process import Options
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
    """YAML bodies are read, aliases only within bounds, and answers are YAML where that is asked
    for."""
    text = b"metadata: {name: 'y'}\ndata:\n  k: 'v'\n"
    kind = {"Content-Type": "application/yaml"}
    status, headers, body = client.raw(
        "POST", CONFIG_MAPS, text, {**kind, "Accept": "application/yaml"}
    )
    assert (201, "application/yaml") == (status, headers["content-type"])
    assert b'name: "y"\n' in body  # y alone is a truth value in YAML 1.1
    assert 400 == client.raw("POST", CONFIG_MAPS, text.replace(b"'y'", b"y"), kind)[0]
    aliased = b"metadata: {name: z, labels: &a {k: v}}\ndata: *a\n"
    assert 201 == client.raw("POST", CONFIG_MAPS, aliased, kind)[0]
    lines = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    bomb = "\n".join(["a0: &a0 x", *lines]).encode()
    status, _, said = client.raw("POST", CONFIG_MAPS, bomb, kind)
    assert (400, True) == (status, len(said) < 10_000)


REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", REVIEW, {"spec": "x"}),
        ("POST", REVIEW, {"spec": {"resourceAttributes": {"verb": "get"}}, "metadata": 1}),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": []}),
        ("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}, "deleteOptions": "x"}),
        ("POST", f"{PODS}/p/binding", {"target": 1}),
        ("DELETE", f"{PODS}/p", {"preconditions": "x"}),
        ("DELETE", f"{PODS}/p", {"dryRun": 5}),
        ("POST", "/api/v1/namespaces", {"metadata": {}}),
        ("POST", "/apis/batch/v1/namespaces/default/jobs", {"metadata": {}, "spec": {}}),
    ],
)
def test_bodies_of_the_wrong_shape_are_refused(
    client: Client, method: str, path: str, body: object
) -> None:
    client.call("POST", PODS, {
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    })  # fmt: skip
    status, answer = client.call(method, path, body)
    assert status in (400, 422), answer


def test_objects_that_no_rule_looked_at_can_be_shown(client: Client) -> None:
    """An autoscaler without its metric's source does not spoil the table."""
    for name, metrics in (("bad", [{"type": "Resource"}]), ("good", [])):
        spec = {"maxReplicas": 2, "scaleTargetRef": {"kind": "x", "name": "x"}, "metrics": metrics}
        client.call("POST", SCALERS, {"metadata": {"name": name}, "spec": spec})
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    status, _, body = client.raw("GET", SCALERS, headers=accept)
    assert (200, ["bad", "good"]) == (status, [r["cells"][0] for r in json.loads(body)["rows"]])


def test_headers_that_are_no_text(client: Client) -> None:
    headers = {"User-Agent": b"\xff\xfe", "Content-Type": "application/json"}
    body = json.dumps({"metadata": {"name": "a"}, "data": {"a": "b"}}).encode()
    assert 201 == client.raw("POST", CONFIG_MAPS, body, headers)[0]
    assert 200 == client.raw("GET", "/api", headers={"X": b"\xff"})[0]


def test_warnings_are_printable_and_few(client: Client) -> None:
    """Names of unknown fields go into headers; whatever they hold, the answer arrives."""
    for name, fields in (("a", ["foo\nbar", "x\x00y"]), ("b", [f"field{i}" for i in range(3000)])):
        body = json.dumps({"metadata": {"name": name}, **dict.fromkeys(fields, 1)}).encode()
        headers = {"Content-Type": "application/json"}
        status, answered, _ = client.raw("POST", CONFIG_MAPS, body, headers)
        assert 201 == status
        assert "unknown field" in answered["warning"]


def test_patch_cannot_double_an_object_at_each_step(client: Client) -> None:
    client.call("POST", CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"a": "b"}})
    steps = [{"op": "copy", "from": "/data", "path": f"/data/{i}"} for i in range(40)]
    status, answer = client.call("PATCH", f"{CONFIG_MAPS}/m", steps, "application/json-patch+json")
    assert (413, "RequestEntityTooLarge") == (status, answer["reason"])


def test_objects_that_a_real_store_would_not_keep(client: Client) -> None:
    items = {f"k{i}": "x" * 200_000 for i in range(9)}
    body = {"metadata": {"name": "m", "annotations": {}}, "data": items}
    assert client.call("POST", CONFIG_MAPS, body)[0] in (413, 422)
    revision = {"metadata": {"name": "r"}, "revision": 1, "data": {"a": "x" * 1_600_000}}
    path = "/apis/apps/v1/namespaces/default/controllerrevisions"
    assert 413 == client.call("POST", path, revision)[0]


@pytest.mark.parametrize(
    "patch",
    [
        {
            "spec": {
                "containers": [
                    {"name": "c", "env": [{"name": f"v{i}", "value": "x"} for i in range(6000)]}
                ]
            }
        },
        {"metadata": {"finalizers": [f"a/{i}" for i in range(30_000)]}},
    ],
)
def test_long_lists_are_merged_in_linear_time(client: Client, patch: object) -> None:
    """Squared, these take more than ten seconds, and everybody waits."""
    client.call("POST", PODS, {
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    })  # fmt: skip
    began = time.monotonic()
    client.call("PATCH", f"{PODS}/p", patch, "application/strategic-merge-patch+json")
    assert time.monotonic() - began < 5


def test_field_that_is_there_often_is_told_once(client: Client) -> None:
    text = ",".join(['{"b":1,"b":1}'] * 20_000)
    body = f'{{"metadata":{{"name":"d"}},"a":[{text}]}}'.encode()
    began = time.monotonic()
    status, _, _ = client.raw("POST", CONFIG_MAPS, body, {"Content-Type": "application/json"})
    assert (201, True) == (status, time.monotonic() - began < 5)


def test_client_that_waits_for_100_continue(client: Client) -> None:
    raw = create_connection((client.host, int(client.port)), timeout=10)
    body = b'{"metadata":{"name":"e"}}'
    head = (
        f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Expect: 100-continue\r\n\r\n"
    )
    with client.context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 201 ")


def test_watch_over_http_1_0_is_refused(client: Client) -> None:
    """Such a client knows no chunks."""
    raw = create_connection((client.host, int(client.port)), timeout=10)
    head = (
        f"GET {CONFIG_MAPS}?watch=1 HTTP/1.0\r\nHost: x\r\n"
        f"Authorization: Bearer {client.token}\r\n\r\n"
    )
    with client.context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.0 400 ")
