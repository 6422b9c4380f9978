"""Listener and Connection: parsing of requests, order of answers, limits, timeouts, shutdown."""

import logging
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

import pytest

from stower.apiserver import http
from stower.apiserver.http import Connection, Message
from tests.unit.apiserver.memory import MemoryServer, client_of
from tests.wire import Wire

TEXT = b"Content-Type: text/plain\r\n"
CLOSES = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
LARGE = b"x" * (2 * 64 * 1024)  # more than the high-water mark of a transport


class Echo(MemoryServer):
    """A server that answers each request with its target, or keeps the requests if `later`."""

    def __init__(self) -> None:
        super().__init__(self.answer)
        self.later = False
        self.messages: list[Message] = []
        self.kept: list[tuple[Connection, Message]] = []

    def answer(self, connection: Connection, message: Message) -> None:
        """See http.Answer."""
        self.messages.append(message)
        if self.later:
            self.kept.append((connection, message))
        elif message.fault is not None:
            connection.reply(message, message.fault[0], TEXT, message.fault[1].encode())
        else:
            connection.reply(message, 200, TEXT, message.target)

    def reply(self, body: bytes = b"") -> None:
        """Answers the oldest of the kept requests."""
        connection, message = self.kept.pop(0)
        self.loop.do(connection.reply, message, 200, TEXT, body)


@pytest.fixture
def server() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.end()


def is_open(wire: Wire) -> bool:
    return not client_of(wire).transport.is_lost


def test_a_request_may_arrive_byte_by_byte(server: Echo) -> None:
    wire = server.connect()
    head = "POST /a HTTP/1.1\r\nX-One: 1\r\nx-one: 2\r\nContent-Length: 3\r\n"
    for byte in wire.request(head, b"abc"):
        wire.connection.sendall(bytes([byte]))
    assert (200, b"/a") == wire.answer()[::2]
    (message,) = server.messages
    assert ("POST", b"/a", "1.1", 3) == (
        message.method, message.target, message.version, message.size
    )  # fmt: skip
    assert (b"abc", "1", "") == (
        bytes(message.body), message.header(b"x-one"), message.header(b"x-two")
    )  # fmt: skip
    wire.send("GET /b HTTP/1.1\r\n")
    assert b"/b" == wire.answer()[2], "the connection stays open"


def test_invalid_utf8_in_a_header_is_replaced(server: Echo) -> None:
    wire = server.connect()
    wire.connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: a\xff\r\n\r\n")
    assert 200 == wire.answer()[0]
    assert "a\ufffd" == server.messages[0].header(b"x")


def test_a_pipelined_request_is_handled_after_the_answer_to_the_previous_request(
    server: Echo,
) -> None:
    server.later = True
    wire = server.connect()
    wire.connection.sendall(b"".join(wire.request(f"GET /{n} HTTP/1.1\r\n") for n in range(3)))
    for number in range(3):
        assert [b"/%d" % n for n in range(number + 1)] == [m.target for m in server.messages]
        server.reply(b"%d" % number)
        assert b"%d" % number == wire.answer()[2]


def test_many_requests_in_one_packet_are_answered_in_order(server: Echo) -> None:
    wire = server.connect()
    count = 2 * sys.getrecursionlimit()
    wire.connection.sendall(b"".join(wire.request(f"GET /{n} HTTP/1.1\r\n") for n in range(count)))
    assert [b"/%d" % n for n in range(count)] == [wire.answer()[2] for _ in range(count)]


def test_reading_pauses_while_too_many_requests_are_unanswered(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    transport = client_of(wire).transport
    count = http.QUEUE_MAX + 4
    for _ in range(2):
        wire.connection.sendall(wire.request("GET / HTTP/1.1\r\n") * count)
        assert not transport.is_reading
        server.reply()
        assert not transport.is_reading, "there are still too many"
        for _ in range(count - 1):
            server.reply()
        assert transport.is_reading
    assert 2 * count == len(server.messages)


def test_a_chunked_body_is_joined_and_trailers_are_ignored(server: Echo) -> None:
    wire = server.connect()
    chunks = b"3\r\nabc\r\n2\r\nde\r\n0\r\nX: trailer\r\n\r\n"
    wire.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", chunks)
    assert 200 == wire.answer()[0]
    (message,) = server.messages
    assert (b"abcde", "") == (bytes(message.body), message.header(b"x"))


def test_a_body_with_too_large_a_content_length_is_refused_unread(server: Echo) -> None:
    wire = server.connect()
    wire.send(f"POST / HTTP/1.1\r\nContent-Length: {http.BODY_BYTES_MAX + 1}\r\n", b"{")
    status, headers, _ = wire.answer()
    assert (413, "close") == (status, headers["connection"])
    wire.send("GET / HTTP/1.1\r\n")
    assert 1 == len(server.messages), "later requests are not read"
    server.loop.advance(http.LINGER_SECONDS - http.SWEEP_SECONDS)
    assert is_open(wire), "the client has time to read the answer"
    server.loop.advance(http.LINGER_SECONDS + http.SWEEP_SECONDS)
    assert wire.ended()


def test_a_chunked_body_that_is_too_large_is_refused(server: Echo) -> None:
    wire = server.connect()
    piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    wire.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", piece * 3 + b"1\r\nx\r\n")
    status, headers, _ = wire.answer()
    assert (413, "close") == (status, headers["connection"])
    assert server.messages[0].size > http.BODY_BYTES_MAX


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"\x00\x01\x02\r\n\r\n", ""),
        (b"GET / HTTP/9.9\r\n\r\n", ""),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", ""),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", "the request has no Host header"),
        (b"GET / HTTP/2.0\r\nHost: x\r\nConnection: close\r\n\r\n", "HTTP/2.0"),
        (b"GET /%b HTTP/1.1\r\nHost: x\r\n" % (b"a" * http.HEADER_BYTES_MAX), "request line"),
        (
            CLOSES + b"X: %b\r\n\r\n" % (b"a" * http.HEADER_BYTES_MAX),
            "limit is 128 headers of 16 KiB each",
        ),
        (CLOSES + b"X: y\r\n" * http.HEADERS_MAX + b"\r\n", "limit is 128 headers of 16 KiB each"),
    ],
)
def test_a_malformed_request_is_a_bad_request_and_closes_the_connection(
    server: Echo, sent: bytes, text: str
) -> None:
    wire = server.connect()
    wire.connection.sendall(sent)
    status, headers, body = wire.answer()
    assert (400, "close") == (status, headers["connection"])
    assert text in body.decode()
    server.loop.advance(http.LINGER_SECONDS + http.SWEEP_SECONDS)
    assert wire.ended()


def test_headers_in_several_packets_have_a_limit_together(server: Echo) -> None:
    wire = server.connect()
    wire.connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
    for _ in range(5):
        wire.connection.sendall(b"X: " + b"a" * (http.HEADER_BYTES_MAX - 10) + b"\r\n")
    assert (400, b"the headers are too large: limit is 64 KiB") == wire.answer()[::2]


def test_chunks_with_large_extensions_are_refused(server: Echo) -> None:
    wire = server.connect()
    wire.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n")
    for _ in range(5):
        wire.connection.sendall(b"1;" + b"a" * 16_000 + b"\r\nx\r\n")
    assert (
        400,
        b"the chunk headers and trailers of the body have 80030 bytes, limit is 65576",
    ) == wire.answer()[::2]


def test_a_malformed_request_is_answered_after_the_requests_before_it(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    wire.connection.sendall(wire.request("GET /first HTTP/1.1\r\n"))
    wire.connection.sendall(b"\x00\x01\r\n\r\n")
    server.later = False
    server.reply(b"first")
    assert b"first" == wire.answer()[2]
    assert 400 == wire.answer()[0]


def test_expect_100_continue_is_answered_in_order(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    expect = wire.request("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 1\r\n")
    wire.connection.sendall(wire.request("GET / HTTP/1.1\r\n") + expect)
    server.reply()
    assert [200, 100] == [wire.answer()[0], wire.answer(body=False)[0]]
    wire.connection.sendall(b"x")
    server.reply()
    assert 200 == wire.answer()[0]
    wire.send("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n")
    server.later = False
    server.kept[0][0].reply(server.kept[0][1], 413, TEXT, b"")
    assert 413 == wire.answer()[0], "without 100 Continue before"


def test_the_answer_to_head_has_a_content_length_and_no_body(server: Echo) -> None:
    wire = server.connect()
    wire.send("HEAD /abc HTTP/1.1\r\n")
    status, headers, _ = wire.answer(body=False)
    assert (200, "4") == (status, headers["content-length"])
    wire.send("GET /d HTTP/1.1\r\n")
    assert b"/d" == wire.answer()[2]


def test_every_answer_has_a_content_type_and_a_date(server: Echo) -> None:
    wire = server.connect()
    before_s = int(time.time())
    wire.send("GET / HTTP/1.1\r\n")
    raw = bytes(client_of(wire).transport.sent)
    assert "text/plain" == wire.answer()[1]["content-type"]
    date = raw.partition(b"Date: ")[2].partition(b"\r\n")[0].decode()
    assert date.endswith(" GMT")
    assert before_s <= parsedate_to_datetime(date).timestamp() <= time.time()


def test_connection_close_closes_the_connection_after_the_answer(server: Echo) -> None:
    wire = server.connect()
    one = wire.request("GET /1 HTTP/1.1\r\nConnection: close\r\n")
    wire.connection.sendall(one + wire.request("GET /2 HTTP/1.1\r\n"))
    status, headers, body = wire.answer()
    assert (200, "close", b"/1") == (status, headers["connection"], body)
    assert wire.ended()


def test_a_request_of_http_1_0_is_answered_in_that_version(server: Echo) -> None:
    wire = server.connect()
    wire.connection.sendall(b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert client_of(wire).transport.sent.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"/old" == wire.answer()[2]
    assert wire.ended()


def test_an_upgrade_is_ignored_and_the_request_answered(server: Echo) -> None:
    wire = server.connect()
    wire.send("GET /up HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
    status, headers, body = wire.answer()
    assert (200, "close", b"/up") == (status, headers["connection"], body)
    assert wire.ended()


@pytest.mark.parametrize("body", ["Content-Length: 2", "Transfer-Encoding: chunked"])
def test_an_upgrade_with_a_body_is_refused(server: Echo, body: str) -> None:
    """The parser would not read the body, and the request would be another one."""
    wire = server.connect()
    wire.send(f"DELETE / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n{body}\r\n", b"{}")
    assert (400, b"a request to upgrade the connection must not have a body") == wire.answer()[::2]
    wire = server.connect()
    wire.send("GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 0\r\n")
    assert 200 == wire.answer()[0]


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_incomplete_headers_close_the_connection_after_a_timeout(server: Echo, sent: bytes) -> None:
    wire = server.connect()
    wire.connection.sendall(sent)
    server.loop.advance(http.HEADER_SECONDS - http.SWEEP_SECONDS)
    assert is_open(wire)
    server.loop.advance(2 * http.SWEEP_SECONDS)
    assert wire.ended(), "without an answer"


def test_an_incomplete_body_is_answered_with_a_timeout(server: Echo) -> None:
    wire = server.connect()
    wire.send("POST / HTTP/1.1\r\nContent-Length: 100\r\n", b"{")
    server.loop.advance(http.BODY_SECONDS - 2 * http.SWEEP_SECONDS)
    assert [] == server.messages
    server.loop.advance(3 * http.SWEEP_SECONDS)
    status, headers, _ = wire.answer()
    assert (408, "close") == (status, headers["connection"])


def test_the_timeout_of_a_body_starts_at_the_answer_to_the_previous_request(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    part = wire.request("POST / HTTP/1.1\r\nContent-Length: 2\r\n", b"{")
    wire.connection.sendall(wire.request("GET / HTTP/1.1\r\n") + part)
    server.loop.advance(2 * http.BODY_SECONDS)
    server.reply()
    server.loop.advance(http.BODY_SECONDS / 2)
    wire.connection.sendall(b"}")
    server.reply()
    assert [200, 200] == [wire.answer()[0], wire.answer()[0]]


def test_an_idle_connection_is_closed_after_a_timeout(server: Echo) -> None:
    wire = server.connect()
    wire.send("GET / HTTP/1.1\r\n")
    assert 200 == wire.answer()[0]
    server.loop.advance(http.KEEP_ALIVE_SECONDS - http.SWEEP_SECONDS)
    assert is_open(wire)
    server.loop.advance(3 * http.SWEEP_SECONDS)
    assert wire.ended()


def test_an_answer_has_no_timeout(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    wire.send("GET / HTTP/1.1\r\n")
    server.loop.advance(10 * http.KEEP_ALIVE_SECONDS)
    server.reply(b"at last")
    assert b"at last" == wire.answer()[2]


def test_a_client_that_reads_no_answer_is_disconnected_after_a_timeout(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    transport = client_of(wire).transport
    transport.is_taken = False
    wire.send("GET / HTTP/1.1\r\n")
    server.reply(LARGE)
    assert not transport.is_reading
    server.loop.advance(http.SEND_SECONDS - http.SWEEP_SECONDS)
    assert is_open(wire)
    server.loop.advance(2 * http.SWEEP_SECONDS)
    assert wire.ended()


def test_a_slow_client_gets_the_whole_answer_before_its_connection_closes(
    server: Echo,
) -> None:
    server.later = True
    wire = server.connect()
    client_of(wire).transport.is_taken = False
    wire.send("GET / HTTP/1.1\r\nConnection: close\r\n")
    server.reply(LARGE)
    server.loop.advance(http.SEND_SECONDS - http.SWEEP_SECONDS)
    assert is_open(wire)
    client_of(wire).take()
    assert LARGE == wire.answer()[2]
    assert wire.ended()


def test_the_next_request_is_handled_when_a_slow_client_has_read_the_answer(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    client_of(wire).transport.is_taken = False
    wire.connection.sendall(
        wire.request("GET /1 HTTP/1.1\r\n") + wire.request("GET /2 HTTP/1.1\r\n")
    )
    server.reply(LARGE)
    assert [b"/1"] == [m.target for m in server.messages], "the second request waits"
    client_of(wire).take()
    server.reply(b"second")
    assert [LARGE, b"second"] == [wire.answer()[2], wire.answer()[2]]
    server.loop.advance(http.KEEP_ALIVE_SECONDS / 2)
    assert is_open(wire)


def test_an_answer_in_pieces_is_chunked_if_its_length_is_unknown(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    wire.send("GET / HTTP/1.1\r\n")
    connection, message = server.kept.pop()
    connection.start(message, 200, TEXT, None)
    connection.write(b"3\r\nabc\r\n")
    assert "chunked" == wire.answer()[1]["transfer-encoding"]
    assert b"abc" == wire.chunk()
    connection.write(b"0\r\n\r\n")
    connection.end(message)
    assert b"" == wire.chunk()
    wire.send("GET / HTTP/1.1\r\n")
    connection, message = server.kept.pop()
    connection.start(message, 200, TEXT, 6)
    connection.write(b"abc")
    connection.write(b"def")
    connection.end(message)
    assert b"abcdef" == wire.answer()[2]


def test_drain_waits_for_a_slow_client(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    client_of(wire).transport.is_taken = False
    wire.send("GET / HTTP/1.1\r\n")
    connection, message = server.kept.pop()
    connection.start(message, 200, TEXT, len(LARGE))
    server.loop.run(connection.drain())
    connection.write(LARGE)
    waiting = server.loop.create_task(connection.drain())
    server.loop.turns()
    assert not waiting.done()
    client_of(wire).take()
    assert waiting.done()
    assert waiting.exception() is None
    connection.end(message)
    assert LARGE == wire.answer()[2]


def test_drain_raises_when_the_client_disconnects(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    client_of(wire).transport.is_taken = False
    wire.send("GET / HTTP/1.1\r\n")
    connection, message = server.kept.pop()
    lost: list[bool] = []
    connection.lost = lambda: lost.append(True)
    connection.start(message, 200, TEXT, None)
    connection.write(LARGE)
    waiting = server.loop.create_task(connection.drain())
    server.loop.turns()
    client_of(wire).leave()
    assert [True] == lost
    for work in (waiting, connection.drain()):
        with pytest.raises(ConnectionResetError):
            server.loop.run_until_complete(work)
    connection.write(b"nobody reads this")
    assert {} == server.listener.connections


def test_too_many_requests_behind_a_stream_close_the_connection(server: Echo) -> None:
    server.later = True
    wire = server.connect()
    wire.send("GET / HTTP/1.1\r\n")
    connection, message = server.kept.pop()
    connection.start(message, 200, TEXT, None)
    for _ in range(http.QUEUE_MAX):
        wire.send("GET / HTTP/1.1\r\n")
    assert is_open(wire)
    wire.send("GET / HTTP/1.1\r\n")
    assert not is_open(wire)


def test_an_exception_of_the_handler_is_answered_and_closes_that_connection_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def answer(connection: Connection, message: Message) -> None:
        if message.target == b"/bad":
            raise KeyError("a fault")
        connection.reply(message, 200, TEXT, b"")

    server = MemoryServer(answer)
    bad, good = server.connect(), server.connect()
    with caplog.at_level(logging.ERROR):
        bad.send("GET /bad HTTP/1.1\r\n")
    assert (500, b"internal error") == bad.answer()[::2]
    assert bad.ended()
    assert "GET b'/bad'" in caplog.text
    good.send("GET / HTTP/1.1\r\n")
    assert 200 == good.answer()[0]
    server.end()


def test_shutdown_waits_for_answers_and_then_closes_all_connections(server: Echo) -> None:
    server.later = True
    idle, owed, stuck = server.connect(), server.connect(), server.connect()
    owed.send("GET /owed HTTP/1.1\r\n")
    stuck.send("GET /stuck HTTP/1.1\r\n")
    ending = server.loop.create_task(server.listener.shutdown(1))
    server.loop.turns()
    assert idle.ended()
    server.reply(b"last")
    status, headers, body = owed.answer()
    assert (200, "close", b"last") == (status, headers["connection"], body)
    assert owed.ended()
    assert is_open(stuck)
    server.loop.advance(1.1)
    assert ending.done()
    assert stuck.ended()
