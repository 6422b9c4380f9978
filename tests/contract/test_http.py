"""HTTP as it comes over the wire: in pieces, several at once, too slow, or not HTTP at all."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection

import pytest

from stower.apiserver import http
from stower.apiserver.server_process import Options
from tests.contract.servers import Client, in_thread
from tests.wire import Wire

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path, memory=True)) as (_, made):
        yield made


@contextmanager
def wire(client: Client) -> Iterator[Wire]:
    raw = create_connection((client.host, int(client.port)), timeout=20)
    with client.context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
        yield Wire(connection, client.token)


def config_map(name: str) -> bytes:
    return json.dumps({"metadata": {"name": name}}).encode()


def test_a_request_may_come_byte_by_byte(client: Client) -> None:
    body = config_map("slow")
    with wire(client) as one:
        head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Length: {len(body)}\r\n"
        for byte in one.request(head, body):
            one.connection.sendall(bytes([byte]))
        assert 201 == one.answer()[0]
        one.send("GET /version HTTP/1.1\r\n")
        assert 200 == one.answer()[0], "the connection is kept"


def test_many_requests_at_once_are_answered_in_their_order(client: Client) -> None:
    """More than wait for an answer at any time, writes among them."""
    names = [f"m-{i}" for i in range(500)]
    with wire(client) as one:
        sent = b""
        for name in names:
            body = config_map(name)
            head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Length: {len(body)}\r\n"
            sent += one.request(head, body) + one.request(f"GET {CONFIG_MAPS}/{name} HTTP/1.1\r\n")
        one.connection.sendall(sent)
        for name in names:
            for status in (201, 200):
                found, _, body = one.answer()
                assert status == found, body
                assert name == json.loads(body)["metadata"]["name"]


def test_a_body_in_chunks(client: Client) -> None:
    body = config_map("chunked")
    with wire(client) as one:
        head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
        one.send(head, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert 201 == one.answer()[0]


def test_a_body_in_chunks_that_is_too_long(client: Client) -> None:
    with wire(client) as one:
        one.send(f"POST {CONFIG_MAPS} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n")
        piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(http.BODY_BYTES_MAX // 65536 + 2):
            one.connection.sendall(piece)
        status, headers, body = one.answer()
        assert (413, "close") == (status, headers["connection"])
        assert "RequestEntityTooLarge" == json.loads(body)["reason"]


def test_a_client_may_ask_before_it_sends_its_body(client: Client) -> None:
    body = config_map("asked")
    with wire(client) as one:
        expect = f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n"
        one.send(f"POST {CONFIG_MAPS} HTTP/1.1\r\n{expect}")
        assert 100 == one.answer()[0]
        one.connection.sendall(body)
        assert 201 == one.answer()[0]


def test_an_answer_to_head_has_no_body(client: Client) -> None:
    with wire(client) as one:
        one.send("HEAD /healthz HTTP/1.1\r\n")
        status, headers, _ = one.answer(body=False)
        assert (200, "2") == (status, headers["content-length"])
        one.send("GET /healthz HTTP/1.1\r\n")
        assert (200, b"ok") == one.answer()[::2]


def test_a_connection_ends_when_the_client_says_so(client: Client) -> None:
    with wire(client) as one:
        one.send("GET /version HTTP/1.1\r\nConnection: close\r\n")
        status, headers, _ = one.answer()
        assert (200, "close") == (status, headers["connection"])
        assert one.ended()


NO_HTTP = (
    b"\x00\x01\x02\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/2.0\r\nHost: x\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
)


@pytest.mark.parametrize("sent", NO_HTTP)
def test_what_is_no_http_is_a_bad_request(client: Client, sent: bytes) -> None:
    with wire(client) as one:
        one.connection.sendall(sent)
        assert 400 == one.answer()[0]
        assert one.ended()


def test_a_body_that_does_not_come(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.2)
    with wire(client) as one:
        one.send(f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Length: 100\r\n", b"{")
        status, _, body = one.answer()
        assert (408, "Timeout") == (status, json.loads(body)["reason"])
        assert one.ended()


def test_a_connection_that_is_not_used(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE_SECONDS", 0.2)
    with wire(client) as one:
        one.send("GET /version HTTP/1.1\r\n")
        assert 200 == one.answer()[0]
        assert one.ended()


def test_trailers_are_no_headers_and_not_endless(client: Client) -> None:
    body = config_map("trailed")
    chunked = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with wire(client) as one:
        trailer = f"Authorization: Bearer {client.token}\r\n\r\n".encode()
        one.connection.sendall(head + chunked + trailer)
        assert 401 == one.answer()[0]
    with wire(client) as one:
        head = one.request(f"POST {CONFIG_MAPS} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n")
        one.connection.sendall(head + chunked + b"X: ")
        for _ in range(20):
            one.connection.sendall(b"a" * 16_384)
        assert 400 == one.answer()[0]


def test_a_bad_request_behind_a_watch_waits_for_its_end(client: Client) -> None:
    with wire(client) as one:
        one.send(f"GET {CONFIG_MAPS}?watch=1&timeoutSeconds=3 HTTP/1.1\r\n")
        one.send(f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Length: 99999999\r\n")
        status, headers, _ = one.answer()
        assert (200, "chunked") == (status, headers["transfer-encoding"])
        while one.chunk():
            pass
        assert 413 == one.answer()[0]


def test_whoever_asks_to_send_is_answered_in_turn(client: Client) -> None:
    body = config_map("turn")
    expect = f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n"
    with wire(client) as one:
        first = one.request("GET /version HTTP/1.1\r\n")
        one.connection.sendall(first + one.request(f"POST {CONFIG_MAPS} HTTP/1.1\r\n{expect}"))
        assert [200, 100] == [one.answer()[0], one.answer()[0]]
        one.connection.sendall(body)
        assert 201 == one.answer()[0]


def test_a_target_may_be_a_whole_url(client: Client) -> None:
    with wire(client) as one:
        one.send("GET https://x:1/healthz HTTP/1.1\r\n")
        assert (200, b"ok") == one.answer()[::2]


@pytest.mark.parametrize("text", ["!!bool foo", '!!int ""', '!!float ""', "!!timestamp foo"])
@pytest.mark.parametrize("size", [1, 20_000])
def test_yaml_that_breaks_its_reader_is_a_bad_request(client: Client, text: str, size: int) -> None:
    """And nobody else waits for an answer."""
    bad = f"data: {{k: {text}}}\n# {'x' * size}\n".encode()
    body = config_map("good")
    with wire(client) as one, wire(client) as other:
        kind = "Content-Type: application/yaml\r\n"
        good = f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Length: {len(body)}\r\n"
        yaml = f"POST {CONFIG_MAPS} HTTP/1.1\r\n{kind}Content-Length: {len(bad)}\r\n"
        one.connection.sendall(one.request(good, body) + one.request(yaml, bad))
        other.send("GET /version HTTP/1.1\r\n")
        assert [201, 400] == [one.answer()[0], one.answer()[0]]
        assert 200 == other.answer()[0]


def test_a_client_that_takes_no_answers(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut, whatever it still sends, and nobody else is held up."""
    monkeypatch.setattr(http, "SEND_SECONDS", 0.3)
    with wire(client) as one:
        one.connection.settimeout(10)
        asked = one.request("GET /openapi/v2 HTTP/1.1\r\n") * 100_000
        with pytest.raises((ConnectionError, ssl.SSLError)):
            one.connection.sendall(asked)
        assert 200 == client.call("GET", "/version")[0]
