"""Connections that break before they are used."""

import asyncio

import pytest

from stower.live import client
from stower.live.authorization import (
    REVIEWS_IN_FLIGHT_MAX,
    AuthorizationError,
    DelegatingAuthorizer,
)
from stower.live.connection import Connection, ConnectionLost, ConnectionPool, RequestNotSent
from tests.unit.live.fake_api import plain_access, raw_server

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Transport:
    """One that takes nothing more."""

    def write(self, data: bytes) -> None:
        raise AssertionError("nothing is written to what is closed")

    def abort(self) -> None:
        pass


def test_a_connection_that_was_lost_right_after_its_handshake_keeps_nobody_waiting() -> None:
    async def ask() -> None:
        connection = Connection()
        connection.connection_made(Transport())
        connection.connection_lost(ConnectionResetError("reset"))
        with pytest.raises(ConnectionLost, match="closed"):
            connection.send(b"GET / HTTP/1.1\r\n\r\n")

    asyncio.run(ask())


def test_those_without_an_answer_are_lost_in_time_and_no_others() -> None:
    """One is answered at once, two never, one after the first two were given up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            if b"never" in head:
                continue
            if b"late" in head:
                await given_up.wait()
            writer.write(ANSWER)

    async def story() -> list[object]:
        async with raw_server(serve) as url:
            pool = ConnectionPool(url, None, timeout_s=0.2)

            async def ask(path: str) -> bytes:
                reply = await pool.send(f"GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                return b"".join(reply.body)

            found: list[object] = [await ask("now")]
            lost = [asyncio.create_task(ask(f"never-{i}")) for i in range(2)]
            await asyncio.wait(lost, return_when=asyncio.FIRST_EXCEPTION)
            late = asyncio.create_task(ask("late"))
            given_up.set()
            found += await asyncio.gather(*lost, late, return_exceptions=True)
            found.append(await ask("again"))
            pool.close()
        return found

    given_up = asyncio.Event()
    now, first, second, late, again = asyncio.run(story())
    assert (b"ok", b"ok", b"ok") == (now, late, again)
    for one in (first, second):
        assert isinstance(one, ConnectionLost)
        with pytest.raises(ConnectionLost, match="no answer within "):
            raise one


def test_nothing_is_sent_by_whom_it_is_no_longer_to_send() -> None:
    """Asked once there is a connection, however long that took."""
    heads = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            heads.append(head)
            writer.write(ANSWER)

    async def story() -> None:
        async with raw_server(serve) as url:
            pool = ConnectionPool(url, None)
            request = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"
            with pytest.raises(RequestNotSent):
                await pool.send(request % b"no", lambda: False)
            assert 200 == (await pool.send(request % b"yes", lambda: True)).status
            pool.close()

    asyncio.run(story())
    assert [b"GET /yes"] == [head.partition(b" HTTP")[0] for head in heads]


def test_a_watch_whose_line_does_not_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LINE_BYTES_MAX", 1_000)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            writer.write(b"200\r\n" + b"x" * 0x200 + b"\r\n")
        await writer.drain()

    async def story() -> None:
        async with raw_server(serve) as url, client.Client(plain_access(url), "test") as asker:
            async for _ in asker.watch("/x", {}):
                pass

    with pytest.raises(client.WatchInterrupted, match="more than 1000 bytes"):
        asyncio.run(story())


def test_strangers_are_asked_about_a_few_at_a_time() -> None:
    """Each would cost the API server two requests."""
    waits = asyncio.Event()

    class Slow:
        asked = 0

        async def request(self, *_: object) -> client.Response:
            self.asked += 1
            await waits.wait()
            return client.Response(201, b'{"status": {"authenticated": false}}')

    async def story() -> list[int]:
        slow = Slow()
        door = DelegatingAuthorizer(slow)  # type: ignore[arg-type]
        checks = [
            asyncio.create_task(door.check(f"Bearer token-{i}", "/metrics", "get"))
            for i in range(2 * REVIEWS_IN_FLIGHT_MAX)
        ]
        while (
            slow.asked < REVIEWS_IN_FLIGHT_MAX
            or sum(check.done() for check in checks) < REVIEWS_IN_FLIGHT_MAX
        ):
            await asyncio.sleep(0)
        assert REVIEWS_IN_FLIGHT_MAX == slow.asked
        waits.set()
        found = await asyncio.gather(*checks, return_exceptions=True)
        return [error.status for error in found if isinstance(error, AuthorizationError)]

    assert [401] * REVIEWS_IN_FLIGHT_MAX + [503] * REVIEWS_IN_FLIGHT_MAX == asyncio.run(story())
