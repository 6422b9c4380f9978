"""What clients may make the server hold: bodies and connections."""

import gc
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from stower.apiserver import client_limits
from stower.apiserver.http import Connection, Message
from tests.unit.apiserver.memory import MemoryServer, client_of
from tests.unit.apiserver.memory_api import CONFIG_MAPS, MemoryApi, config_map
from tests.wire import Wire

TEXT = b"Content-Type: text/plain\r\n"
CHUNKED = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"


class Keeper(MemoryServer):
    """A server that knows clients by the header X-Client, and answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(self.answer, admit=self.admit)
        self.kept: list[tuple[Connection, Message]] = []

    def admit(self, connection: Connection, message: Message) -> None:
        """See http.Admit."""
        message.client = message.header(b"x-client")
        if message.client == "nobody":
            message.fault = (401, "who is it?")

    def answer(self, connection: Connection, message: Message) -> None:
        """See http.Answer."""
        if message.fault is not None:
            connection.reply(message, message.fault[0], TEXT, message.fault[1].encode())
        else:
            self.kept.append((connection, message))

    def reply(self) -> None:
        """Answers the oldest of the kept requests."""
        connection, message = self.kept.pop(0)
        self.loop.do(connection.reply, message, 200, TEXT, b"")

    @property
    def held(self) -> int:
        """Bytes of bodies that count."""
        return self.listener.bodies.held


@pytest.fixture
def server() -> Iterator[Keeper]:
    made = Keeper()
    yield made
    made.end()


def send(server: Keeper, client: str, size: int, wire: Wire | None = None) -> Wire:
    wire = wire or server.connect()
    head = f"POST / HTTP/1.1\r\nX-Client: {client}\r\nContent-Length: {size}\r\n"
    wire.send(head, b"x" * size)
    return wire


def test_headers_decide_before_a_body_is_read(server: Keeper) -> None:
    wire = server.connect()
    wire.send("POST / HTTP/1.1\r\nX-Client: nobody\r\nContent-Length: 1000\r\n")
    assert 401 == wire.answer()[0], "no byte of the body has come"
    wire.connection.sendall(b"x" * 1000)
    assert 0 == server.held


def test_a_body_counts_until_its_request_is_answered(server: Keeper) -> None:
    first = send(server, "a", 1000)
    send(server, "b", 500)
    assert 1500 == server.held
    server.reply()
    assert 200 == first.answer()[0]
    assert 500 == server.held
    client_of(first).leave()
    server.reply()
    assert 0 == server.held


def test_a_body_counts_no_more_when_its_client_is_gone(server: Keeper) -> None:
    whole = send(server, "a", 1000)
    part = server.connect()
    part.send("POST / HTTP/1.1\r\nX-Client: a\r\nContent-Length: 1000\r\n", b"x" * 300)
    assert 1300 == server.held
    client_of(part).leave()
    assert 1000 == server.held
    client_of(whole).leave()
    assert 0 == server.held


def test_each_client_has_a_limit_and_all_have_one_together(
    server: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_limits, "CLIENT_BYTES_MAX", 2000)
    monkeypatch.setattr(client_limits, "BODIES_BYTES_MAX", 3500)
    monkeypatch.setattr(client_limits, "RESERVED_BYTES", 700)
    monkeypatch.setattr(client_limits, "MODEST_BYTES", 500)
    send(server, "a", 1500)
    refused = send(server, "a", 600)
    status, _, body = refused.answer()
    assert 429 == status
    assert b"too many bytes" in body
    assert 1500 == server.held, "what was refused counts no more"
    send(server, "b", 1500)
    assert 429 == send(server, "c", 600).answer()[0]
    send(server, "d", 500)
    assert 3500 == server.held, "who holds little is served from a reserve"
    send(server, "e", 400)
    assert 429 == send(server, "f", 400).answer()[0]
    server.reply()
    send(server, "c", 600)
    assert 3000 == server.held


def test_chunks_of_one_byte_are_gathered_in_one_buffer(server: Keeper) -> None:
    wire = server.connect()
    wire.send(f"{CHUNKED}X-Client: a\r\n")
    pieces = b"1\r\nx\r\n" * 1000
    wire.connection.sendall(pieces)
    gc.collect()
    tracemalloc.start()
    for _ in range(200):
        wire.connection.sendall(pieces)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 500_000, "200,000 bytes, and what a buffer sets aside to grow"
    wire.connection.sendall(b"0\r\n\r\n")
    assert b"x" * 201_000 == bytes(server.kept[0][1].body)


def test_the_oldest_stranger_gives_way_to_a_new_one(
    server: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_limits, "STRANGERS_MAX", 3)
    known = send(server, "a", 1)
    silent = [server.connect() for _ in range(3)]
    server.loop.turns()
    assert not any(client_of(one).transport.is_lost for one in silent)
    newest = send(server, "b", 1)
    server.loop.turns()
    lost = [client_of(one).transport.is_lost for one in (known, *silent, newest)]
    assert [False, True, False, False, False] == lost


def test_handshakes_under_way_are_bounded(server: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_limits, "HANDSHAKES_MAX", 2)
    pending = [server.listener() for _ in range(2)]
    with pytest.raises(ConnectionRefusedError):
        server.listener()
    server.loop.advance(client_limits.HANDSHAKE_SECONDS + 2)
    send(server, "a", 1)
    send(server, "b", 1)
    send(server, "c", 1)
    assert 3 == len(server.kept), "what is connected or has failed counts no more"
    assert 2 == len(pending), "whether or not it is still in memory"


def test_connections_of_a_client_are_bounded(
    server: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_limits, "CLIENT_CONNECTIONS_MAX", 2)
    monkeypatch.setattr(client_limits, "CONNECTIONS_MAX", 3)
    first, _ = send(server, "a", 1), send(server, "a", 1)
    status, _, body = send(server, "a", 1).answer()
    assert (429, b"too many connections of one user: limit is 2") == (status, body)
    send(server, "b", 1)
    monkeypatch.setattr(client_limits, "MODEST_CONNECTIONS", 0)
    refused = send(server, "c", 1)
    _, headers, body = refused.answer()
    assert (b"too many connections: limit is 3", "close") == (body, headers["connection"])
    server.loop.advance(2)
    assert refused.ended(), "what is refused does not stay"
    client_of(first).leave()
    send(server, "a", 1)
    assert 4 == len(server.kept)


def test_clients_of_many_connections_leave_some_for_others(
    server: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_limits, "CLIENT_CONNECTIONS_MAX", 2)
    monkeypatch.setattr(client_limits, "CONNECTIONS_MAX", 4)
    monkeypatch.setattr(client_limits, "MODEST_CONNECTIONS", 1)
    for client in "aabb":
        send(server, client, 1)
    send(server, "admin", 1)
    assert 5 == len(server.kept)
    assert 429 == send(server, "admin", 1).answer()[0]
    assert 429 == send(server, "c", 1).answer()[0]


def test_what_is_refused_for_its_size_is_not_held(
    server: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an earlier request of the connection is not answered yet."""
    monkeypatch.setattr(client_limits, "CLIENT_BYTES_MAX", 1000)
    wire = send(server, "a", 1)
    send(server, "a", 900)
    wire.send("POST / HTTP/1.1\r\nX-Client: a\r\nContent-Length: 500\r\n", b"x" * 500)
    assert 901 == server.held


def test_a_body_behind_a_request_that_is_not_answered_is_read_later_and_has_its_time(
    server: Keeper,
) -> None:
    wire = send(server, "a", 1)
    wire.send("POST / HTTP/1.1\r\nX-Client: a\r\nContent-Length: 500\r\n", b"x" * 200)
    assert not client_of(wire).transport.is_reading
    server.loop.advance(1000)
    server.reply()
    assert 200 == wire.answer()[0]
    server.loop.advance(200)
    assert 408 == wire.answer()[0]
    assert 0 == server.held


def test_a_connection_may_change_its_client(
    server: Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_limits, "CLIENT_CONNECTIONS_MAX", 1)
    wire = send(server, "a", 1)
    server.reply()
    wire.answer()
    send(server, "b", 1, wire)
    send(server, "a", 1)
    assert 2 == len(server.kept)


def test_refusals_are_status_objects_and_name_when_to_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_limits, "CLIENT_BYTES_MAX", 10)
    server = MemoryApi()
    status, headers, body = server.raw("POST", CONFIG_MAPS, config_map("m"))
    assert (429, "TooManyRequests", "1") == (
        status, json.loads(body)["reason"], headers["retry-after"]
    )  # fmt: skip
    assert 0 == server.listener.bodies.held
    server.wire = server.connect()
    assert 200 == server.raw("GET", CONFIG_MAPS)[0]
    server.end()


def test_a_watch_holds_no_body() -> None:
    server = MemoryApi()
    body = b"x" * 1000
    server.wire.send(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nContent-Length: 1000\r\n", body)
    server.flush()
    assert 200 == server.wire.answer()[0]
    assert 0 == server.listener.bodies.held
    server.end()


def test_a_body_of_a_user_without_the_right_is_not_read() -> None:
    server = MemoryApi(by_roles=True)
    server.wire = server.connect({"subject": ((("commonName", "eve"),),)})
    server.wire.authority = "Host: x\r\n"
    head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Length: 1000\r\n"
    server.wire.send(f"{head}Content-Type: application/yaml\r\n")
    status, headers, body = server.wire.answer()
    assert (403, "Forbidden", "close") == (
        status, json.loads(body)["reason"], headers["connection"]
    )  # fmt: skip
    server.end()


def test_nothing_of_a_request_that_is_not_authenticated_is_gathered() -> None:
    server = MemoryApi()
    wires = [server.connect() for _ in range(6)]
    for wire in wires:
        wire.authority = "Host: x\r\n"
        wire.send(f"POST {CONFIG_MAPS} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
                  b"1\r\nx\r\n" * 1000)  # fmt: skip
        assert 401 == wire.answer()[0]
        wire.connection.sendall(b"1\r\nx\r\n" * 1000)
    assert 0 == server.listener.bodies.held
    server.end()


def test_the_service_accounts_of_a_namespace_are_one_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever may create one may create a thousand."""
    server = MemoryApi(by_roles=True)
    accounts = "/api/v1/namespaces/{}/serviceaccounts"
    tokens = []
    for namespace, name in (("default", "one"), ("default", "two"), ("kube-public", "three")):
        path = accounts.format(namespace)
        server.raw("POST", path, json.dumps({"metadata": {"name": name}}).encode())
        _, answer = server.call("POST", f"{path}/{name}/token", b"{}")
        tokens.append(answer["status"]["token"])
    monkeypatch.setattr(client_limits, "CLIENT_CONNECTIONS_MAX", 1)
    found = []
    for token in tokens:
        server.wire = server.connect()
        server.wire.authority = f"Host: x\r\nAuthorization: Bearer {token}\r\n"
        found.append(server.raw("GET", "/version")[0])
    assert [200, 429, 200] == found
    server.end()
